// conformance/test_transport_between_ends.cc: gloo where ranks end: what a sender left on its way, a rank that dies,
// and an interface that is not there. Forked ranks.
#include <cstring>

#include "support/between.h"

namespace {

using between::Bytes;
using between::pattern;

const gsel_transport_v2* table;
int32_t* steps;  // that the ranks share

// What has been sent arrives, though the sender has left.
void leaves_early(rank_run* run) {
  between::linked(run, *table, nullptr, nullptr, [&](between::Rank& rank) {
    if (run->rank > 1) return;
    Bytes memory = run->rank == 0 ? pattern(3 << 20, 1) : Bytes(3 << 20);
    gsel_posted* posted =
        run->rank == 0 ? rank.send(1, 0, memory.data(), memory.size()) : rank.recv(0, 0, memory.data(), memory.size());
    rank_check(run, rank.finish(posted));
    if (run->rank == 0) {
      table->link_leave(rank.link);
      rank.link = nullptr;
      _exit(0);
    }
    rank_check(run, memory == pattern(3 << 20, 1));
    _exit(0);
  });
}
void test_what_was_sent_arrives_behind_the_end_of_the_sender(void**) {
  as_processes(2, leaves_early, nullptr);
}

// Rank 2 dies: at rest, in the middle of what it sends, and of what it receives.
void outlives(rank_run* run) {
  between::linked(run, *table, nullptr, nullptr, [&](between::Rank& rank) {
    Bytes big(64 << 20), word(8);
    if (run->rank == 2) {
      gsel_posted* to = rank.send(0, 1, big.data(), big.size());
      gsel_posted* from = rank.recv(1, 1, big.data(), big.size());
      while (__atomic_load_n(steps, __ATOMIC_SEQ_CST) < 2 || !to || !from) usleep(200);
      usleep(2000);
      raise(SIGKILL);
    }
    gsel_posted* posted =
        run->rank == 0 ? rank.recv(2, 1, big.data(), big.size()) : rank.send(2, 1, big.data(), big.size());
    gsel_posted* idle = rank.recv(2, 9, word.data(), 8);
    __atomic_add_fetch(steps, 1, __ATOMIC_SEQ_CST);
    gsel_status status = GSEL_OK;
    std::string text;
    rank_check(run, !rank.finish(idle, &status, &text));
    rank_check(run, status == GSEL_ERR_PEER && text.find("rank 2") != std::string::npos);
    if (!rank.finish(posted, &status, &text)) {
      rank_check(run, status == GSEL_ERR_PEER && text.find("rank 2") != std::string::npos);
      table->link_abort(rank.link, "a rank is gone");
      table->release(posted);
    }
    _exit(0);
  });
}
void test_a_dead_rank_is_an_error_of_who_waits_for_it(void**) {
  *steps = 0;
  rank_run* runs = ranks_prepare(3, nullptr);
  pid_t pids[3];
  for (int32_t r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], outlives);
  for (int32_t r = 0; r < 3; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    if (r < 2 && status != 0) snprintf(runs[r].failure, sizeof runs[r].failure, "rank %d ended with 0x%x", r, status);
  }
  ranks_verdict(runs, 3);
}

// An interface that is not there is refused on every rank, with those that are.
void names_no_interface(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = run->join_timeout_s = 60;
  rank_ok(run, rank_join(run, &comm, &err), err);
  between::Rank rank(run, *table, comm);
  rank_ok(run, rank.open(&err), err);
  if (run->rank == 1) setenv("GSEL_INTERFACE", "none7", 1);
  rank_fails(run, rank.join(&err), err, GSEL_ERR_ARG,
             "rank 1: GSEL_INTERFACE=none7 has no address; up and with one: lo", -1);
  setenv("GSEL_INTERFACE", "lo", 1);
  rank_ok(run, rank.join(&err), err);
  table->link_leave(rank.link);
}
void test_an_unknown_interface_is_refused_by_name(void**) {
  as_processes(2, names_no_interface, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_what_was_sent_arrives_behind_the_end_of_the_sender),
      cmocka_unit_test(test_a_dead_rank_is_an_error_of_who_waits_for_it),
      cmocka_unit_test(test_an_unknown_interface_is_refused_by_name),
  };
  table = between::table_of("gloo");
  if (!table) return puts("the transport gloo was left out of this build"), 77;
  steps = static_cast<int32_t*>(shared_memory(sizeof *steps));
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
