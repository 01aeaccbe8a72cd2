// unit/test_comm_hosts_making.cc: communicators over several hosts that are made of some of the ranks of one, made
// whole again, or larger. What a call gives then is compared with what it gives to the same ranks of one host.
#include "support/hosts.h"

using namespace gsel::test;

namespace {

// ---- groups ---------------------------------------------------------------------------------------------------------

void groups(rank_run* run) {
  Both both;
  join_both(run, both);
  const std::vector<std::vector<int32_t>> lists = {{0, 2}, {3, 0, 1}, {2, 3}, {3, 2, 1, 0}, {1}, {1, 3}};
  for (const auto& list : lists) {
    if (std::find(list.begin(), list.end(), run->rank) == list.end()) continue;
    Both made;
    rank_ok(run, gsel_comm_create_group(both.hosts, list.data(), list.size(), &made.hosts, &err), err);
    rank_ok(run, gsel_comm_create_group(both.host, list.data(), list.size(), &made.host, &err), err);
    rank_works(run, made);
  }
  const int32_t list[] = {0, 3}, longer[] = {0, 3, 1};
  gsel_comm* made = nullptr;
  const bool alone = strcmp(static_cast<const Job*>(run->user)->hosts, "0112") == 0;  // else it would wait for rank 1
  if (alone && (run->rank == 0 || run->rank == 3))
    rank_fails(run,
               gsel_comm_create_group(both.hosts, run->rank == 0 ? list : longer, run->rank == 0 ? 2 : 3, &made, &err),
               err, GSEL_ERR_MISMATCH, "gives another list of ranks", 3);
  rank_ok(run, gsel_barrier(both.hosts, &err), err);  // goes on
}

void groups_in_broken(rank_run* run) {
  Both both, made;
  join_both(run, both);
  rank_hears_of_death(run, both, run->rank == 0, 0);
  const int32_t with_dead[] = {0, 1, 2}, living[] = {2, 1, 3};
  gsel_comm* none = nullptr;
  if (run->rank != 3)
    rank_fails(run, gsel_comm_create_group(both.hosts, with_dead, 3, &none, &err), err, GSEL_ERR_PEER, "rank 0", 0);
  rank_ok(run, gsel_comm_create_group(both.hosts, living, 3, &made.hosts, &err), err);
  rank_ok(run, gsel_comm_create_group(both.host, living, 3, &made.host, &err), err);
  rank_works(run, made);
}

void test_groups_are_made(void**) {
  on_hosts("0011", groups);
  on_hosts("0101", groups);
  on_hosts("0112", groups);
  on_hosts_but("0011", groups_in_broken, {0});
}

// ---- made whole again -----------------------------------------------------------------------------------------------

void comes_back(rank_run* run) {
  run->timeout_s = 20;
  Both both;
  join_both(run, both);
  for (int32_t turn = 0; turn < 4; ++turn) {
    int32_t x = 1;
    if (turn % 2 == 0 && run->rank == 3) gsel_comm_abort(both.hosts, gsel_str_from("again"));
    if (turn % 2 == 0 || run->rank != 2)  // else rank 2 asks while the others call
      rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err,
                 turn % 2 == 0 ? GSEL_ERR_ABORTED : GSEL_ERR_STATE, turn % 2 == 0 ? "again" : "asked for a resync",
                 turn % 2 == 0 ? 3 : 2);
    rank_ok(run, gsel_comm_resync(both.hosts, &err), err);
    rank_works(run, both);
  }
}

void does_not_come_back(rank_run* run) {
  Both both, left;
  join_both(run, both);
  rank_hears_of_death(run, both, run->rank == 2, 2);
  if (run->rank == 3)  // hears of it on its host at once
    rank_fails(run, gsel_comm_resync(both.hosts, &err), err, GSEL_ERR_PEER, "gsel_comm_resync without rank 2", 2);
  rank_ok(run, gsel_comm_shrink(both.hosts, &left.hosts, &err), err);
  rank_ok(run, gsel_comm_shrink(both.host, &left.host, &err), err);
  rank_works(run, left);
}

void test_communicators_are_made_whole_again(void**) {
  for (const char* hosts : {"0011", "0101", "0112"}) on_hosts(hosts, comes_back);
  on_hosts_but("0011", does_not_come_back, {2});
}

// ---- newcomers ------------------------------------------------------------------------------------------------------

// Some ranks have a communicator, on as many hosts as they are; it grows by ranks of those hosts and of others.
struct Growing {
  Job job;  // what join looks at
  char next_place[64];
  gsel_unique_id next_id;
  int32_t before;
};

void grows(rank_run* run) {
  const auto* growing = static_cast<const Growing*>(run->user);
  Both both;
  gsel_error* err = nullptr;
  gsel_comm* small = nullptr;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &growing->next_id;
  options.rendezvous = gsel_str_from(growing->next_place);
  if (run->rank < growing->before) {
    rank_run part = *run;
    part.world_size = growing->before;
    rank_ok(run, join(&part, &small, &err), err);
    gsel_comm_options nowhere = options;
    nowhere.rendezvous = {};
    if (growing->job.hosts[0] != growing->job.hosts[1])
      rank_fails(run, gsel_comm_grow(small, &nowhere, &both.hosts, &err), err, GSEL_ERR_ARG, "rendezvous is not given",
                 -1);
    rank_ok(run, gsel_comm_grow(small, &options, &both.hosts, &err), err);
  } else {
    const char host[] = {'h', growing->job.hosts[run->rank], '\0'};
    setenv("GSEL_HOST_ID", host, 1);
    rank_ok(run, gsel_comm_init(&options, &both.hosts, &err), err);
  }
  rank_ok(run, join_one_host(run, &both.host, &err), err);
  rank_works(run, both);
  if (!small) return;
  int32_t x = 1;
  rank_ok(run, gsel_allreduce(small, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);  // is as it was
  rank_check(run, x == growing->before);
  gsel_comm_free(small);
}

void grow_on(const char* hosts, int32_t before) {
  Growing growing = {};
  snprintf(growing.job.place, sizeof growing.job.place, "tcp://127.0.0.1:%d", free_port());
  snprintf(growing.next_place, sizeof growing.next_place, "tcp://127.0.0.1:%d", free_port());
  assert_int_equal(gsel_unique_id_create(&growing.next_id, nullptr), GSEL_OK);
  growing.job.hosts = hosts;
  growing.before = before;
  as_processes(static_cast<int32_t>(strlen(hosts)), grows, &growing);
}

// The ranks from `before` on have a communicator too, which meets at a place of its own.
struct Merging {
  Growing growing;
  char high_place[64];
  gsel_unique_id high_id;
};

void merges(rank_run* run) {
  auto* merging = static_cast<Merging*>(run->user);
  const Growing& growing = merging->growing;
  const bool is_high = run->rank >= growing.before;
  const char host[] = {'h', growing.job.hosts[run->rank], '\0'};
  setenv("GSEL_HOST_ID", host, 1);
  Both both;
  gsel_error* err = nullptr;
  gsel_comm* small = nullptr;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.rank = is_high ? run->rank - growing.before : run->rank;
  options.world_size = is_high ? run->world_size - growing.before : growing.before;
  options.id = is_high ? &merging->high_id : &run->id;
  options.rendezvous = gsel_str_from(is_high ? merging->high_place : growing.job.place);
  rank_ok(run, gsel_comm_init(&options, &small, &err), err);
  options.id = &growing.next_id;
  options.world_size = run->world_size;
  options.rendezvous = gsel_str_from(growing.next_place);
  rank_ok(run, gsel_comm_merge(small, is_high, &options, &both.hosts, &err), err);
  rank_check(run, gsel_comm_rank(both.hosts) == run->rank);
  rank_ok(run, join_one_host(run, &both.host, &err), err);
  rank_works(run, both);
  int32_t x = 1;
  rank_ok(run, gsel_allreduce(small, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);  // is as it was
  rank_check(run, x == (is_high ? run->world_size - growing.before : growing.before));
  gsel_comm_free(small);
}

void test_communicators_of_several_hosts_are_merged(void**) {
  const auto merge_on = [](const char* hosts, int32_t before) {
    Merging merging = {};
    for (char* place : {merging.growing.job.place, merging.growing.next_place, merging.high_place})
      snprintf(place, sizeof merging.high_place, "tcp://127.0.0.1:%d", free_port());
    for (gsel_unique_id* id : {&merging.growing.next_id, &merging.high_id})
      assert_int_equal(gsel_unique_id_create(id, nullptr), GSEL_OK);
    merging.growing.job.hosts = hosts;
    merging.growing.before = before;
    as_processes(static_cast<int32_t>(strlen(hosts)), merges, &merging);
  };
  merge_on("0011", 2);   // each of one host
  merge_on("0101", 2);   // both of the same two hosts
  merge_on("01223", 3);  // with a host in common
}

void test_communicators_grow_by_ranks_of_new_hosts(void**) {
  grow_on("0011", 2);  // of one host, by another one
  grow_on("0112", 2);  // of two, by a rank of one of them and another one
  grow_on("01012", 4);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_groups_are_made),
      cmocka_unit_test(test_communicators_are_made_whole_again),
      cmocka_unit_test(test_communicators_grow_by_ranks_of_new_hosts),
      cmocka_unit_test(test_communicators_of_several_hosts_are_merged),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
