// support/between.h: a rank's link over a transport between hosts, beside a communicator of shared memory that serves
// as its control. Ranks are forked processes, or processes that a launcher of MPI has started.
#ifndef GSEL_TESTS_BETWEEN_H
#define GSEL_TESTS_BETWEEN_H

#include <gsel/plugin.h>
#include <gsel/transport.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/foreign.h"
#include "support/ranks.h"

namespace between {

// The table of build/lib/gsel/plugins-1/NAME.so; nullptr where it was left out.
const gsel_transport_v2* table_of(const std::string& name);

// One rank. A failure is stored in run->failure.
class Rank {
 public:
  Rank(rank_run* run, const gsel_transport_v2& of, gsel_comm* comm);

  gsel_status open(gsel_error** err);
  gsel_status join(gsel_error** err);
  gsel_posted* send(int32_t peer, uint32_t tag, const void* memory, uint64_t bytes, gsel_error** err = nullptr);
  gsel_posted* recv(int32_t peer, uint32_t tag, void* memory, uint64_t bytes, gsel_error** err = nullptr);
  // Waits until the transfer has ended and releases it. false: it failed or took too long, and is not released.
  bool finish(gsel_posted* posted, gsel_status* status = nullptr, std::string* text = nullptr) const;

  const gsel_transport_v2& table;
  void* ctx = nullptr;
  gsel_link* link = nullptr;
  std::atomic<bool> broken{false};

 private:
  gsel_posted* post(const gsel_transfer& transfer, gsel_error** err);
  static gsel_status exchange(void* ctx, const void* mine, void* all, uint64_t bytes, gsel_error** err);
  static gsel_status look(void* ctx, gsel_error** err);
  static int32_t await_break(void* ctx, double wait_s);

  rank_run* run_;
  gsel_comm* comm_;
  gsel_control_v1 control_{};
};

using Bytes = std::vector<unsigned char>;

Bytes pattern(size_t n, unsigned seed);

// Runs work(rank) with a joined link. started_comm, started_ctx: of ranks that a launcher has
// started; else NULL.
template <class Work>
void linked(rank_run* run, const gsel_transport_v2& table, gsel_comm* started_comm, void* started_ctx, Work&& work) {
  gsel_error* err = nullptr;
  gsel_comm* comm = started_comm;
  run->timeout_s = run->join_timeout_s = 60;
  if (!comm) rank_ok(run, rank_join(run, &comm, &err), err);
  Rank rank(run, table, comm);
  rank.ctx = started_ctx;
  if (!rank.ctx) rank_ok(run, rank.open(&err), err);
  rank_ok(run, rank.join(&err), err);
  work(rank);
  if (run->failure[0] || !rank.link) return;
  rank_ok(run, gsel_barrier(comm, &err), err);
  table.link_leave(rank.link);
  if (started_comm) return;
  table.close(rank.ctx);
  gsel_comm_free(comm);
}

}  // namespace between

#endif
