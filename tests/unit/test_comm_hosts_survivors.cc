// unit/test_comm_hosts_survivors.cc: communicators over several hosts after a failure: shrunk to those that live, made
// of some, or made whole again. What a call gives then is compared with what it gives to the same ranks of one host.
#include "support/hosts.h"

using namespace gsel::test;

namespace {

uint32_t bit(int32_t rank) {
  return 1u << rank;
}

// The ranks of a mask die in a barrier; the others shrink, and go on.
template <uint32_t dead>
void survives(rank_run* run) {
  Both both, left;
  join_both(run, both);
  rank_hears_of_death(run, both, (dead & bit(run->rank)) != 0, -1);
  rank_ok(run, gsel_comm_shrink(both.hosts, &left.hosts, &err), err);
  rank_ok(run, gsel_comm_shrink(both.host, &left.host, &err), err);
  rank_check(run, gsel_comm_world_size(left.hosts) == run->world_size - __builtin_popcount(dead));
  rank_works(run, left);
  gsel_comm* again = nullptr;
  rank_fails(run, gsel_comm_shrink(both.hosts, &again, &err), err, GSEL_ERR_STATE, "shrunk already", -1);
}

template <uint32_t dead>
void test_survivors(const char* hosts) {
  std::vector<int32_t> who;
  for (int32_t q = 0; q < 32; ++q)
    if ((dead & bit(q)) != 0) who.push_back(q);
  on_hosts_but(hosts, survives<dead>, who);
}

void test_those_who_live_go_on(void**) {
  test_survivors<0b1000>("0011");
  test_survivors<0b0100>("0011");  // the first rank of its host
  test_survivors<0b0001>("0011");  // of all
  test_survivors<0b1100>("0011");  // a host
  test_survivors<0b0011>("0011");  // the first host
  test_survivors<0b0101>("0101");  // the first host, whose ranks are not in a row
  test_survivors<0b0001>("0101");  // the lowest rank of all is on another host then
  test_survivors<0b000001>("001122");
  test_survivors<0b000011>("001122");
  test_survivors<0b001100>("001122");
  test_survivors<0b010101>("001122");  // the first rank of each
  test_survivors<0b011111>("001122");  // all but one
}

// The ranks of the second host stop, until the others have done without them and end them.
void outlives_silence(rank_run* run) {
  run->timeout_s = 3;  // that a shrink waits for those who do not answer
  setenv("GSEL_HOST_TIMEOUT", "1", 1);
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  const auto pid = static_cast<int32_t>(getpid());
  int32_t pids[4] = {}, x = 1;
  rank_ok(run, gsel_allgather(comm, &pid, pids, 1, GSEL_I32, &err), err);
  if (run->rank >= 2) {
    usleep(300'000);  // all have the numbers
    raise(SIGSTOP);
    return;
  }
  usleep(600'000);
  rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, "rank 2 on ", 2);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "is silent for 1 s", 2);
  rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);
  rank_check(run, gsel_comm_world_size(left) == 2);
  x = 1;
  rank_ok(run, gsel_allreduce(left, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, x == 2);
  kill(pids[2 + run->rank], SIGKILL);
  gsel_comm_free(left);
  gsel_comm_free(comm);
}

void test_a_silent_host_is_left_behind(void**) {
  on_hosts_but("0011", outlives_silence, {2, 3});
}

// One after the other dies, and each time the others shrink.
void dwindles(rank_run* run) {
  Both both;
  join_both(run, both);
  for (int32_t dead = 0; dead < run->world_size - 1; ++dead) {
    rank_hears_of_death(run, both, run->rank == dead, 0);
    Both left;
    rank_ok(run, gsel_comm_shrink(both.hosts, &left.hosts, &err), err);
    rank_ok(run, gsel_comm_shrink(both.host, &left.host, &err), err);
    std::swap(both.hosts, left.hosts);
    std::swap(both.host, left.host);
    rank_works(run, both);
  }
}

void test_communicators_are_shrunk_again_and_again(void**) {
  on_hosts_but("00112", dwindles, {0, 1, 2, 3});
}

// Nobody has died: one asks for it, and the others hear of that.
void is_asked_for(rank_run* run) {
  Both both, left;
  join_both(run, both);
  if (run->rank != 3) {
    int32_t x = 1;
    rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_STATE, "rank 3 on",
               3);
  }
  rank_ok(run, gsel_comm_shrink(both.hosts, &left.hosts, &err), err);
  rank_ok(run, gsel_comm_shrink(both.host, &left.host, &err), err);
  rank_check(run, gsel_comm_world_size(left.hosts) == run->world_size);
  rank_works(run, left);
}

// The rank lives and is left out.
template <int32_t without>
void leaves_one_out(rank_run* run) {
  Both both;
  join_both(run, both);
  rank_ok(run, gsel_barrier(both.hosts, &err), err);
  if (run->rank != without) {
    Both left;
    const int32_t rank = without;
    rank_ok(run, gsel_comm_shrink_without(both.hosts, &rank, 1, &left.hosts, &err), err);
    rank_ok(run, gsel_comm_shrink_without(both.host, &rank, 1, &left.host, &err), err);
    rank_works(run, left);
    rank_ok(run, gsel_barrier(left.hosts, &err), err);
  } else {
    gsel_comm* made = nullptr;
    usleep(300'000);
    rank_fails(run, gsel_comm_shrink(both.hosts, &made, &err), err, GSEL_ERR_PEER, "was left behind by a shrink", -1);
  }
}

// A host whose ranks do not call is left out, and may not go on by itself when they do.
void is_too_late(rank_run* run) {
  run->timeout_s = 1;
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  if (run->rank < 2) {
    rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);
    rank_check(run, gsel_comm_world_size(left) == 2);
    gsel_comm_free(comm);
    rank_ok(run, gsel_barrier(left, &err), err);
    sleep(6);
    gsel_comm_free(left);
    return;
  }
  sleep(4);
  rank_fails(run, gsel_comm_shrink(comm, &left, &err), err, GSEL_ERR_PEER, "a minority: ranks 0 and 1 do not answer",
             0);
  gsel_comm_free(comm);
}

void test_ranks_that_live_are_left_out(void**) {
  on_hosts("0011", is_asked_for);
  on_hosts("0011", leaves_one_out<2>);
  on_hosts("0011", leaves_one_out<0>);
  on_hosts("0011", is_too_late);
}

// Ranks 0 and 1 leave what came of a shrink and keep the communicator that it was made of: they have left all the same.
struct Leaving {
  Job job;  // what join looks at
  volatile int32_t come, over;
};

void leaves_the_newest(rank_run* run) {
  auto* leaving = static_cast<Leaving*>(run->user);
  run->timeout_s = 3;
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr, *next = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  __atomic_add_fetch(&leaving->come, 1, __ATOMIC_SEQ_CST);
  await_step(&leaving->come, run->world_size);
  rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);
  rank_ok(run, gsel_barrier(left, &err), err);
  if (run->rank < 2) {
    gsel_comm_free(left);
    await_step(&leaving->over, 2);
  } else {
    int32_t x = 1;
    while (gsel_allreduce(left, &x, &x, 1, GSEL_I32, GSEL_MAX, &err) == GSEL_OK) continue;
    gsel_error_free(err);
    err = nullptr;
    const gsel_status status = gsel_comm_shrink(left, &next, &err);
    __atomic_add_fetch(&leaving->over, 1, __ATOMIC_SEQ_CST);
    rank_ok(run, status, err);
    rank_check(run, gsel_comm_world_size(next) == 2);
    gsel_comm_free(next);
    gsel_comm_free(left);
  }
  gsel_comm_free(comm);
}

void test_who_leaves_the_newest_has_left(void**) {
  auto* leaving = static_cast<Leaving*>(shared_memory(sizeof(Leaving)));
  snprintf(leaving->job.place, sizeof leaving->job.place, "tcp://127.0.0.1:%d", free_port());
  leaving->job.hosts = "0011";
  as_processes(4, leaves_the_newest, leaving);
  munmap(leaving, sizeof *leaving);
}

// Who has the smaller communicator leaves it at once, before others have it: all have one of the same size.
void leaves_at_once(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  gsel_error* broken = nullptr;
  gsel_barrier(comm, &broken);  // who dies behind it can be heard in it
  gsel_error_free(broken);
  if (run->rank == run->world_size - 1) kill(getpid(), SIGKILL);
  rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);
  rank_check(run, gsel_comm_world_size(left) == run->world_size - 1);
  gsel_comm_free(left);
  if (run->rank % 2 == 0) gsel_comm_free(comm);  // else its process ends with it
}

void test_who_leaves_a_shrunk_communicator_at_once_has_been_in_it(void**) {
  for (int turn = 0; turn < 5; ++turn) {
    on_hosts_but("0011", leaves_at_once, {3});
    on_hosts_but("001122", leaves_at_once, {5});
    on_hosts_but("012", leaves_at_once, {2});
  }
}

void starts_a_shrink(rank_run* run) {
  Both both, left;
  join_both(run, both);
  rank_ok(run, gsel_barrier(both.host, &err), err);
  if (run->rank == 0) kill(getpid(), SIGKILL);
  gsel_request* request = nullptr;
  rank_ok(run, gsel_comm_start_shrink(both.hosts, nullptr, 0, &request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_ok(run, gsel_request_take_comm(request, &left.hosts, &err), err);
  gsel_request_free(request);
  rank_ok(run, gsel_comm_shrink(both.host, &left.host, &err), err);
  rank_works(run, left);
}

void test_a_shrink_is_started(void**) {
  on_hosts_but("0011", starts_a_shrink, {0});
}

// Rank 0 dies, and a child that it forked lives on with copies of its descriptors: nobody takes that one for rank 0.
struct Forking {
  Job job;  // what join looks at
  volatile int32_t forked, over;
};

void leaves_a_child(rank_run* run) {
  auto* forking = static_cast<Forking*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 0) {
    if (fork() == 0) {
      reach_step(&forking->forked, 1);
      await_step(&forking->over, 1);
      _exit(0);
    }
    await_step(&forking->forked, 1);
    kill(getpid(), SIGKILL);
  }
  int32_t x = 1;
  rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, "ended without", 0);
  const gsel_status status = gsel_comm_shrink(comm, &left, &err);
  reach_step(&forking->over, 1);
  rank_ok(run, status, err);
  rank_check(run, gsel_comm_world_size(left) == 1);
  gsel_comm_free(left);
  gsel_comm_free(comm);
}

void test_a_forked_child_is_not_its_parent(void**) {
  auto* forking = static_cast<Forking*>(shared_memory(sizeof(Forking)));
  snprintf(forking->job.place, sizeof forking->job.place, "tcp://127.0.0.1:%d", free_port());
  forking->job.hosts = "01";
  rank_run* runs = ranks_prepare(2, forking);
  const pid_t pids[] = {rank_fork(&runs[0], leaves_a_child), rank_fork(&runs[1], leaves_a_child)};
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
  ranks_verdict(runs, 2);
  munmap(forking, sizeof *forking);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_those_who_live_go_on),
      cmocka_unit_test(test_a_silent_host_is_left_behind),
      cmocka_unit_test(test_communicators_are_shrunk_again_and_again),
      cmocka_unit_test(test_ranks_that_live_are_left_out),
      cmocka_unit_test(test_who_leaves_the_newest_has_left),
      cmocka_unit_test(test_who_leaves_a_shrunk_communicator_at_once_has_been_in_it),
      cmocka_unit_test(test_a_shrink_is_started),
      cmocka_unit_test(test_a_forked_child_is_not_its_parent),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
