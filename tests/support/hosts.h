// support/hosts.h: ranks of a test that count as ranks on several hosts, and the comparison of a call's results with
// those of the same ranks on one host.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support/port.h"
#include "support/ranks.h"

namespace gsel::test {

// Which ranks are on which host: "0011".
struct Job {
  char place[64];
  const char* hosts;
  const char* transport;  // NULL: any
};

// Runs a rank for each letter of `hosts`, as processes that meet over TCP.
void on_hosts(const char* hosts, rank_body body, const char* transport = nullptr);
// Options of a rank of the job that is the run's user data, whose host it sets in the environment; and joining with
// them.
gsel_comm_options options_of(const rank_run* run);
gsel_status join(const rank_run* run, gsel_comm** comm, gsel_error** err);

struct Both {
  gsel_comm *hosts = nullptr, *host = nullptr;
  ~Both() {
    gsel_comm_free(hosts);
    gsel_comm_free(host);
  }
};

// The same ranks on one host.
gsel_status join_one_host(const rank_run* run, gsel_comm** comm, gsel_error** err);

#define join_both(run, both)                         \
  gsel_error* err = nullptr;                         \
  rank_ok(run, join(run, &(both).hosts, &err), err); \
  rank_ok(run, join_one_host(run, &(both).host, &err), err)

// Numbers of a type, no two equal.
std::vector<char> numbers(gsel_dtype dtype, uint64_t count, uint64_t seed);

// The same call on both, from buffers of these bytes.
bool gives_the_same(const Both& both, const gsel_collective& call, const std::vector<char>& send, uint64_t recv_bytes,
                    std::string& why);

#define rank_same(run, both, call, send, recv_bytes)                                               \
  do {                                                                                             \
    std::string why;                                                                               \
    if (!gives_the_same(both, call, send, recv_bytes, why)) {                                      \
      snprintf((run)->failure, sizeof(run)->failure, "rank %d: %.900s", (run)->rank, why.c_str()); \
      return;                                                                                      \
    }                                                                                              \
  } while (0)

// Sums, copies and messages of all lengths that travel in a way of their own.
void works(rank_run* run, const Both& both);

#define rank_works(run, both)      \
  do {                             \
    works(run, both);              \
    if ((run)->failure[0]) return; \
  } while (0)

// Some ranks die after all have joined; the others get the error in a call.
#define rank_hears_of_death(run, both, dies, about)                                                                \
  do {                                                                                                             \
    rank_ok(run, gsel_barrier((both).host, &err), err);                                                            \
    if (dies) kill(getpid(), SIGKILL);                                                                             \
    int32_t heard = 1;                                                                                             \
    rank_fails(run, gsel_allreduce((both).hosts, &heard, &heard, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, \
               "ended without", about);                                                                            \
  } while (0)

// One frees the communicator while the others make a call.
template <int32_t who>
void leaves(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank != who) {
    int32_t x = 1;
    rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, " left", who);
  }
  gsel_comm_free(comm);
}

// These ranks kill themselves.
void on_hosts_but(const char* hosts, rank_body body, const std::vector<int32_t>& dead);
// run: such as run_tests_beside (beside.h); nullptr: one after the other, as it is where a launcher has started the
// ranks.
int run_tests_on_hosts(const CMUnitTest* tests, size_t n, int (*run)(const CMUnitTest*, size_t) = nullptr);

}  // namespace gsel::test
