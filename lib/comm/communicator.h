// comm/communicator.h: ranks joined over a transport. Checks arguments once, for every transport. Does not know how bytes
// travel and what they mean.
#pragma once

#include <gsel/comm.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os.h"
#include "comm/transport.h"

namespace gsel {

// A call as data. `root` is the root of a broadcast or the peer of a message, else -1; `op` is 0 where nothing is
// reduced.
inline gsel_collective make_collective(gsel_collective_kind kind, const void* send, void* recv, uint64_t count,
                                       gsel_dtype dtype, gsel_op op = 0, int32_t root = -1) {
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = kind;
  call.dtype = dtype;
  call.op = op;
  call.root = root;
  call.send = send;
  call.recv = recv;
  call.count = count;
  return call;
}

constexpr size_t kMostNameBytes = 31;  // of a communicator's name that the caller gives

class Communicator {
 public:
  // Joins; see gsel_comm_init.
  Communicator(std::shared_ptr<Transport> transport, const gsel_join& join);
  Communicator(Communicator&& other) noexcept;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }
  const char* name() const noexcept;
  uint64_t fork_generation() const { return fork_generation_; }

  // One call; a NULL stream means on the calling thread. Throws what gsel/comm.h lists.
  // `call` is checked and put in order in place: a copy at this point would cost a small call a tenth of its time.
  void collective(gsel_collective& call, gsel_stream* stream = nullptr);
  void collective(gsel_collective&& call, gsel_stream* stream = nullptr) { collective(call, stream); }
  // The same in two steps; and several at once, as gsel_group_run makes those of one communicator.
  void check(gsel_collective& call) const;
  void run_checked(const gsel_collective& call, gsel_stream* stream = nullptr);
  void group(std::span<const gsel_collective> checked);
  void abort(std::string_view reason) noexcept;
  gsel_comm_count counts(gsel_collective_kind kind) const;
  std::string trace() const;  // JSON of docs/trace.md
  gsel_comm_explanation explain(const gsel_collective& call);

  // Communicators from this one; see gsel/comm.h. nullopt: none for this rank.
  std::optional<Communicator> split(int32_t colour, int32_t key);
  Communicator create_group(std::span<const int32_t> ranks);
  Communicator dup();
  Communicator shrink();
  void resync();
  Communicator grow(const gsel_join& join);
  void set_timeout(double timeout_s);

  // Memory that the ranks reach.
  void* alloc(uint64_t bytes);
  void free(void* memory);
  void register_memory(void* memory, uint64_t bytes);
  void unregister_memory(void* memory);

 private:
  friend class Works;
  Communicator(std::shared_ptr<Transport> transport, gsel_link* link, const gsel_membership& membership);
  Communicator made_by(const char* name, gsel_status (*gsel_transport_v1::*function)(gsel_link*, gsel_membership*,
                                                                                     gsel_link**, gsel_error**));
  // A function of the table that works on the link; `name` is that of the public function.
  template <class... Declared, class... Given>
  void run(const char* name, gsel_status (*gsel_transport_v1::*function)(gsel_link*, Declared...), Given... args);

  std::shared_ptr<Transport> transport_;
  gsel_link* link_ = nullptr;
  int32_t rank_ = 0;
  int32_t world_size_ = 1;
  uint64_t fork_generation_ = os::fork_generation();
};

// Asynchronous calls; released once they have ended.
class Works {
 public:
  Works(Communicator& communicator, std::span<const gsel_collective> checked);
  ~Works();
  Works(const Works&) = delete;
  Works& operator=(const Works&) = delete;
  // Whether they have ended, after at most so long; negative: to the end. Throws what failed.
  bool wait(double seconds);

 private:
  std::shared_ptr<Transport> transport_;
  gsel_pending* work_ = nullptr;
};

// Fills what `config` leaves open from the environment and from defaults; see gsel_comm_init.
gsel_join complete_join(const gsel_comm_options& options);
// The token of the job that `gsel run` started, when those who join are its ranks; else empty.
std::string job_of_launcher(const gsel_join& join);

}  // namespace gsel
