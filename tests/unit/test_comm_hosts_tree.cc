// unit/test_comm_hosts_tree.cc: a job whose hosts stand in a tree of several levels: two below each. Seven hosts: 1 and
// 2 below 0, 3 and 4 below 1, 5 and 6 below 2. Calls, and what goes wrong at each level of it.
#include "support/hosts.h"

using namespace gsel::test;

namespace {

constexpr char kSeven[] = "0123456", kFive[] = "0011223344";

void gives_what_one_host_does(rank_run* run) {
  Both both;
  join_both(run, both);
  rank_works(run, both);
}

void test_calls_give_what_they_give_on_one_host(void**) {
  on_hosts(kSeven, gives_what_one_host_does);
  on_hosts(kFive, gives_what_one_host_does);
  on_hosts("0120120", gives_what_one_host_does);  // ranks of a host that are not in a row
}

// ---- communicators of some ----------------------------------------------------------------------------------------

void splits(rank_run* run) {
  Both both, part, copy;
  join_both(run, both);
  for (gsel_comm* const of : {both.hosts, both.host}) {
    gsel_comm** const out = of == both.hosts ? &part.hosts : &part.host;
    rank_ok(run, gsel_comm_split(of, run->rank == 2 ? 1 : 0, -run->rank, out, &err), err);
  }
  if (run->rank != 2) rank_works(run, part);
  rank_ok(run, gsel_comm_dup(both.hosts, &copy.hosts, &err), err);
  rank_ok(run, gsel_comm_dup(both.host, &copy.host, &err), err);
  rank_works(run, copy);
}

void test_parts_have_trees_of_their_own(void**) {
  on_hosts(kSeven, splits);
}

// ---- what goes wrong ------------------------------------------------------------------------------------------------

void disagrees(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  int32_t x = 1;
  for (int32_t odd = 0; odd < run->world_size; ++odd) {
    const gsel_op op = run->rank >= odd ? GSEL_MAX : GSEL_SUM;
    char text[64];
    snprintf(text, sizeof text, "rank %d on ", odd);
    const gsel_status status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, op, &err);
    if (odd == 0) {
      rank_ok(run, status, err);
      continue;
    }
    rank_fails(run, status, err, GSEL_ERR_MISMATCH, text, odd);  // the first that makes another call than rank 0
    x = 1;
    rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == run->world_size);
    x = 1;
  }
  gsel_comm_free(comm);
}

void test_ranks_that_disagree_are_told_and_go_on(void**) {
  on_hosts(kSeven, disagrees);
  on_hosts(kFive, disagrees);
}

template <int32_t who>
void is_late(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = 1;
  rank_ok(run, join(run, &comm, &err), err);
  char text[64];
  snprintf(text, sizeof text, "(rank %d) is late for", who);
  int32_t x = 1;
  if (run->rank == who) usleep(3'000'000);
  rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_TIMEOUT, text, who);
  gsel_comm_free(comm);
}

void test_a_late_rank_is_named_at_every_level(void**) {
  on_hosts(kSeven, is_late<5>);
  on_hosts(kSeven, is_late<2>);
}

// The others are in the barrier, still, or in the call behind it.
template <int32_t who>
void aborts(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  gsel_status status = gsel_barrier(comm, &err);
  if (run->rank == who) gsel_comm_abort(comm, gsel_str_from("no more data"));
  int32_t x = 1;
  if (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err);
  rank_fails(run, status, err, GSEL_ERR_ABORTED, "no more data", who);
  gsel_comm_free(comm);
}

void test_an_abort_is_told_at_every_level(void**) {
  on_hosts(kSeven, aborts<5>);
  on_hosts(kSeven, aborts<0>);
}

// Ranks of a mask die; those below them live, and go on with the others.
template <uint32_t dead, int32_t about>
void survives(rank_run* run) {
  Both both, left;
  join_both(run, both);
  rank_hears_of_death(run, both, ((dead >> run->rank) & 1) != 0, about);
  rank_ok(run, gsel_comm_shrink(both.hosts, &left.hosts, &err), err);
  rank_ok(run, gsel_comm_shrink(both.host, &left.host, &err), err);
  rank_check(run, gsel_comm_world_size(left.hosts) == run->world_size - __builtin_popcount(dead));
  rank_works(run, left);
}

void test_who_is_below_a_dead_host_goes_on(void**) {
  on_hosts_but(kSeven, survives<0b0000010, 1>, {1});
  on_hosts_but(kSeven, survives<0b0000001, 0>, {0});
  on_hosts_but(kSeven, survives<0b0100000, 5>, {5});
  on_hosts_but(kSeven, survives<0b0001010, -1>, {1, 3});  // one above the other
  on_hosts_but(kSeven, survives<0b0000111, -1>, {0, 1, 2});
  on_hosts_but(kFive, survives<0b0000000100, 2>, {2});  // the first rank of host 1
}

void test_who_has_left_is_told_at_every_level(void**) {
  on_hosts(kSeven, leaves<5>);
  on_hosts(kSeven, leaves<1>);
}

void is_made_whole(rank_run* run) {
  Both both;
  join_both(run, both);
  if (run->rank == 4) gsel_comm_abort(both.hosts, gsel_str_from("once"));
  int32_t x = 1;
  rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_ABORTED, "once", 4);
  rank_ok(run, gsel_comm_resync(both.hosts, &err), err);
  rank_works(run, both);
}

void test_a_resync_makes_the_tree_anew(void**) {
  on_hosts(kSeven, is_made_whole);
}

}  // namespace

int main() {
  setenv("GSEL_HOST_FANOUT", "2", 1);
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_calls_give_what_they_give_on_one_host),
      cmocka_unit_test(test_parts_have_trees_of_their_own),
      cmocka_unit_test(test_ranks_that_disagree_are_told_and_go_on),
      cmocka_unit_test(test_a_late_rank_is_named_at_every_level),
      cmocka_unit_test(test_an_abort_is_told_at_every_level),
      cmocka_unit_test(test_who_is_below_a_dead_host_goes_on),
      cmocka_unit_test(test_who_has_left_is_told_at_every_level),
      cmocka_unit_test(test_a_resync_makes_the_tree_anew),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
