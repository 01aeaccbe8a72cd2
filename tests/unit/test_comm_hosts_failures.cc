// unit/test_comm_hosts_failures.cc: what goes wrong on one host is told on all of them.
#include "support/beside.h"
#include "support/hosts.h"

using namespace gsel::test;

namespace {

// ---- what goes wrong ------------------------------------------------------------------------------------------------

void disagrees(rank_run* run) {
  Both both;
  join_both(run, both);
  int32_t x = 1;
  for (const int32_t odd : {3, 1, 0}) {
    const gsel_op op = run->rank == odd ? GSEL_MAX : GSEL_SUM;
    rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, op, &err), err, GSEL_ERR_MISMATCH,
               "called allreduce(count 1, i32, max)", -1);
    x = 1;
    rank_ok(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);  // the communicator goes on
    rank_check(run, x == run->world_size);
    x = 1;
  }
}

// In calls whose bytes may be on their way before anybody has compared them, of one kind and of two, and short beside
// long. It may break the communicator, which is then made whole again.
void disagrees_at_length(rank_run* run) {
  Both both;
  join_both(run, both);
  constexpr size_t kCount = 100000;
  std::vector<float> x(kCount, 1), y(kCount);
  for (int32_t way = 0; way < 4; ++way) {
    const bool is_odd = way == 0   ? run->rank == 3
                        : way == 1 ? run->rank >= 2
                        : way == 2 ? run->rank == 0
                                   : run->rank % 2;
    const gsel_op op = way == 0 && is_odd ? GSEL_MAX : GSEL_SUM;
    const gsel_status status =
        way % 2 && is_odd
            ? gsel_broadcast(both.hosts, x.data(), y.data(), kCount, GSEL_F32, 2, &err)
            : gsel_allreduce(both.hosts, x.data(), y.data(), way == 2 && is_odd ? 1 : kCount, GSEL_F32, op, &err);
    if (status == GSEL_ERR_STATE)  // a rank that was told earlier has begun to resync
      rank_fails(run, status, err, GSEL_ERR_STATE, "asked for a resync", -1);
    else
      rank_fails(run, status, err, GSEL_ERR_MISMATCH, "make the calls alike on every rank", -1);
    rank_ok(run, gsel_comm_resync(both.hosts, &err), err);
    rank_ok(run, gsel_allreduce(both.hosts, x.data(), y.data(), kCount, GSEL_F32, GSEL_SUM, &err), err);
    rank_check(run, y[0] == 4 && y[kCount - 1] == 4);
  }
}

// An operation of the caller's that fails on one rank alone, in a short call and in a long one.
int32_t refuses(void* out, const void*, size_t, gsel_dtype, void* user_data) {
  static_cast<void>(out);
  return *static_cast<int32_t*>(user_data);
}

void operates_in_vain(rank_run* run) {
  Both both;
  join_both(run, both);
  int32_t answer = run->rank == 1 ? -7 : 0;
  gsel_op op = 0;
  rank_ok(run, gsel_op_create(gsel_str_from("test.refuses"), 1, refuses, &answer, nullptr, &op, &err), err);
  for (const size_t count : {size_t{1}, size_t{100000}}) {
    std::vector<int32_t> x(count, 1), y(count);
    const bool is_short = count == 1;  // each rank folds for itself then
    gsel_status status = gsel_allreduce(both.hosts, x.data(), y.data(), count, GSEL_I32, op, &err);
    if (is_short && status == GSEL_OK) status = gsel_barrier(both.hosts, &err);
    rank_fails(run, status, err, GSEL_ERR_CALLBACK, "returned -7", 1);
    rank_ok(run, gsel_comm_resync(both.hosts, &err), err);
  }
  gsel_op_free(op);
}

void disagrees_on_parts(rank_run* run) {
  Both both;
  join_both(run, both);
  uint64_t one[] = {1, 1, 1, 1}, other[] = {1, 1, 1, 1};
  if (run->rank == 3) other[0] = 2;
  int32_t send[8] = {}, recv[8] = {};
  const gsel_status status = gsel_alltoallv(both.hosts, send, one, nullptr, recv, other, nullptr, GSEL_I32, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "alltoallv: rank 0 on ", 0);
}

void aborts(rank_run* run) {
  Both both;
  join_both(run, both);
  if (run->rank == 3) gsel_comm_abort(both.hosts, gsel_str_from("no more data"));
  int32_t x = 1;
  rank_fails(run, gsel_allreduce(both.hosts, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_ABORTED,
             "rank 3 aborted the communicator: no more data", 3);
}

// The others are in the barrier, still, or in the call behind it.
template <int32_t who>
void dies(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  gsel_status status = gsel_barrier(comm, &err);
  if (run->rank == who) kill(getpid(), SIGKILL);
  int32_t x = 1;
  if (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err);
  char host[65] = "", text[640] = "";
  gethostname(host, sizeof host - 1);
  gsel_error_format(err, text, sizeof text);
  rank_check(run, strstr(text, ("rank " + std::to_string(who) + " on " + host).c_str()));
  rank_check(run, !strstr(text, "\"#"));  // what it says of calls is what ranks on all hosts have called
  rank_fails(run, status, err, GSEL_ERR_PEER, "ended without", who);
  gsel_comm_free(comm);
}

void is_late(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  run->timeout_s = 1;
  rank_ok(run, join(run, &comm, &err), err);
  int32_t x = 1;
  if (run->rank == 3) usleep(2'500'000);
  rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_TIMEOUT, "rank 3", 3);
  gsel_comm_free(comm);
}

// Its process ends as soon as it has heard that its request timed out: the others hear why, not only that it is gone.
template <int32_t who, gsel_collective_kind kind>
void gives_up_and_ends(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  const int32_t late = who == 0 ? 3 : 0;
  if (run->rank == who) {
    int32_t x = 1;
    gsel_collective call = GSEL_COLLECTIVE_INIT;
    call.kind = kind;
    call.dtype = GSEL_I32;
    call.recv = &x;
    if (kind == GSEL_COLLECTIVE_RECV) call.root = late;
    if (kind == GSEL_COLLECTIVE_ALLREDUCE) call.op = GSEL_SUM, call.send = &x;
    call.count = 1;
    call.timeout_s = 0.2;
    gsel_request* request = nullptr;
    rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
    rank_ok(run, gsel_request_start(request, &err), err);
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_TIMEOUT, "timed out", -1);
    kill(getpid(), SIGKILL);
  }
  gsel_status status = GSEL_OK;
  while (status == GSEL_OK) {
    usleep(1000);
    status = gsel_comm_get_async_error(comm, &err);
  }
  rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "timed out", -1);
  gsel_comm_free(comm);
}

void test_a_request_that_timed_out_is_told_before_its_process_ends(void**) {
  on_hosts_but("0011", gives_up_and_ends<0, GSEL_COLLECTIVE_RECV>, {0});
  on_hosts_but("0011", gives_up_and_ends<2, GSEL_COLLECTIVE_RECV>, {2});
  on_hosts_but("0011", gives_up_and_ends<0, GSEL_COLLECTIVE_ALLREDUCE>, {0});
  on_hosts_but("0011", gives_up_and_ends<2, GSEL_COLLECTIVE_ALLREDUCE>, {2});
}

void test_ranks_that_disagree_are_told_and_go_on(void**) {
  on_hosts("0011", disagrees);
  on_hosts("0011", disagrees_on_parts);
  on_hosts("0011", disagrees_at_length);
}
void test_an_operation_that_fails_is_told_on_all_hosts(void**) {
  on_hosts("0011", operates_in_vain);
}
// With a second communicator errors say which one they are about: once, on however many hosts they have been.
void aborts_one_of_two(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *other = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  gsel_status status = gsel_comm_dup(comm, &other, &err);  // which rank 3 may have aborted while others still make it
  if (run->rank == 3) {
    rank_ok(run, status, err);
    gsel_comm_abort(other, gsel_str_from("no more data"));
  }
  int32_t x = 1;
  if (status == GSEL_OK) status = gsel_allreduce(other, &x, &x, 1, GSEL_I32, GSEL_SUM, &err);
  const std::string text = err ? gsel_error_message(err).data : "";
  rank_fails(run, status, err, GSEL_ERR_ABORTED, "no more data (communicator ", 3);
  rank_check(run, text.find("(communicator") == text.rfind("(communicator"));
  gsel_comm_free(other);
  gsel_comm_free(comm);
}

// Its process ends as soon as the abort has returned: the other hosts know the reason, not only that it is gone.
template <int32_t who>
void aborts_and_ends(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  gsel_status status = gsel_barrier(comm, &err);  // the others may still be in it
  if (run->rank == who) {
    gsel_comm_abort(comm, gsel_str_from("no more data"));
    kill(getpid(), SIGKILL);
  }
  int32_t x = 1;
  if (status == GSEL_OK) status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err);
  rank_fails(run, status, err, GSEL_ERR_ABORTED, "aborted the communicator: no more data", who);
  gsel_comm_free(comm);
}

void test_an_abort_is_told_on_all_hosts(void**) {
  on_hosts("0011", aborts);
  on_hosts("0011", aborts_one_of_two);
  on_hosts_but("0011", aborts_and_ends<0>, {0});
  on_hosts_but("0011", aborts_and_ends<2>, {2});
}

// Joins with options that the change makes different from those of other ranks.
gsel_status join_as(const rank_run* run, void (*change)(const rank_run*, gsel_comm_options*), gsel_comm** comm,
                    gsel_error** err) {
  gsel_comm_options options = options_of(run);
  change(run, &options);
  return gsel_comm_init(&options, comm, err);
}

// Sums in another order would differ in their bits.
void has_another_order(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  const auto change = [](const rank_run* r, gsel_comm_options* options) {
    options->order = r->rank >= 2 ? GSEL_ORDER_TREE : GSEL_ORDER_RANKS;
  };
  rank_fails(run, join_as(run, change, &comm, &err), err, GSEL_ERR_MISMATCH,
             "give every rank the same gsel_comm_options.order", -1);
}

// Two ranks of one host name one device, which is known when the ranks of that host join: the ranks of the other host
// are told, and do not come to their join timeout.
template <int32_t first>
void shares_a_device(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  const auto change = [](const rank_run* r, gsel_comm_options* options) {
    if (r->rank == first || r->rank == first + 1) options->device = gsel_str_from("GPU-x");
  };
  const gsel_status status = join_as(run, change, &comm, &err);
  rank_check(run, !err || strstr(gsel_error_message(err).data, ("ranks " + std::to_string(first) + " (pid").c_str()));
  rank_fails(run, status, err, GSEL_ERR_DUPLICATE, "compute on one device, GPU-x", -1);
}

void test_what_fails_on_one_host_is_told_to_the_others(void**) {
  on_hosts("0011", shares_a_device<2>);
  on_hosts("0011", shares_a_device<0>);
  on_hosts("001122", shares_a_device<4>);
  on_hosts("001122", shares_a_device<0>);
}

void test_hosts_with_another_order_are_refused(void**) {
  on_hosts("0011", has_another_order);
}

void test_a_death_is_told_on_all_hosts(void**) {
  on_hosts_but("0011", dies<3>, {3});
  on_hosts_but("0011", dies<2>, {2});  // the first rank of its host
  on_hosts_but("0011", dies<0>, {0});
}

void test_who_has_left_is_told_on_all_hosts(void**) {
  on_hosts("0011", leaves<3>);
  on_hosts("0011", leaves<2>);
  on_hosts("0011", leaves<0>);
}

void test_a_late_rank_is_named_on_all_hosts(void**) {
  on_hosts("0011", is_late);
}

// ---- silence --------------------------------------------------------------------------------------------------------

// Ranks say in shared memory that they have come; the parent stops some of them, and lets them go on.
struct Stopped {
  Job job;
  volatile int32_t come, stopped, over;
};

gsel_status join_stopped(rank_run* run, gsel_comm** comm, gsel_error** err) {
  setenv("GSEL_HOST_TIMEOUT", "1", 1);
  const gsel_status status = join(run, comm, err);  // the job stands first
  __atomic_add_fetch(&static_cast<Stopped*>(run->user)->come, 1, __ATOMIC_SEQ_CST);
  return status;
}

// Ranks from `first` on are stopped for so long; the others are told when they are, and when that is over.
void stop_ranks(const char* hosts, rank_body body, int32_t first, useconds_t microseconds) {
  auto* stopped = static_cast<Stopped*>(shared_memory(sizeof(Stopped)));
  snprintf(stopped->job.place, sizeof stopped->job.place, "tcp://127.0.0.1:%d", free_port());
  stopped->job.hosts = hosts;
  const auto n = static_cast<int32_t>(strlen(hosts));
  rank_run* runs = ranks_prepare(n, stopped);
  std::vector<pid_t> pids;
  for (int32_t r = 0; r < n; ++r) pids.push_back(rank_fork(&runs[r], body));
  await_step(&stopped->come, n);
  for (int32_t r = first; r < n; ++r) kill(pids[static_cast<size_t>(r)], SIGSTOP);
  reach_step(&stopped->stopped, 1);
  if (microseconds > 0)
    usleep(microseconds);
  else
    await_step(&stopped->over, first);  // all others have done what they do without them
  for (int32_t r = first; r < n; ++r) kill(pids[static_cast<size_t>(r)], SIGCONT);
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
  }
  ranks_verdict(runs, n);
  munmap(stopped, sizeof *stopped);
}

// All are late alike: who was stopped itself blames nobody.
void is_not_accused(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join_stopped(run, &comm, &err), err);
  await_step(&static_cast<Stopped*>(run->user)->stopped, 1);
  usleep(500'000);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

// The last two ranks are those of a host that falls silent while its kernel goes on to answer.
void hears_nothing(rank_run* run) {
  run->timeout_s = 3;
  auto* stopped = static_cast<Stopped*>(run->user);
  const int32_t silent = run->world_size - 2;
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *left = nullptr;
  rank_ok(run, join_stopped(run, &comm, &err), err);
  await_step(&stopped->stopped, 1);
  if (run->rank < silent) {
    char text[64];
    snprintf(text, sizeof text, "rank %d on ", silent);
    int32_t x = 1;
    const double began = static_cast<double>(time(nullptr));
    rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, text, silent);
    rank_check(run, static_cast<double>(time(nullptr)) - began < 10);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "is silent for 1 s", silent);
    rank_ok(run, gsel_comm_shrink(comm, &left, &err), err);  // they are more, or have rank 0
    rank_check(run, gsel_comm_world_size(left) == silent);
    x = 1;
    rank_ok(run, gsel_allreduce(left, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == silent);
    __atomic_add_fetch(&stopped->over, 1, __ATOMIC_SEQ_CST);
    await_step(&stopped->over, run->world_size);
    gsel_comm_free(left);
  } else {
    usleep(500'000);
    rank_fails(run, gsel_comm_shrink(comm, &left, &err), err, GSEL_ERR_PEER, "a minority: ranks 0", 0);
    __atomic_add_fetch(&stopped->over, 1, __ATOMIC_SEQ_CST);
  }
  gsel_comm_free(comm);
}

// Beats come as often as the timeout of rank 0 needs.
void has_another_timeout(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  const bool is_on_first = static_cast<Job*>(run->user)->hosts[run->rank] == '0';
  setenv("GSEL_HOST_TIMEOUT", is_on_first ? "60" : "1", 1);
  rank_ok(run, join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  usleep(2'500'000);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

void test_the_timeout_of_rank_0_counts_on_all_hosts(void**) {
  on_hosts("0011", has_another_timeout);
}

void test_who_was_late_itself_accuses_nobody(void**) {
  stop_ranks("0011", is_not_accused, 0, 2'500'000);
}

void test_a_silent_host_is_named_and_left_out(void**) {
  stop_ranks("0011", hears_nothing, 2, 0);
  stop_ranks("001122", hears_nothing, 4, 0);
}

void has_none(rank_run* run) {
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_fails(run, join(run, &comm, &err), err, GSEL_ERR_UNSUPPORTED, "has no transport between hosts", 0);
}

void test_ranks_without_a_transport_are_refused(void**) {
  on_hosts("001", has_none, "nccl");
  on_hosts("001", has_none, "no_such_plugin");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_ranks_that_disagree_are_told_and_go_on),
      cmocka_unit_test(test_an_operation_that_fails_is_told_on_all_hosts),
      cmocka_unit_test(test_an_abort_is_told_on_all_hosts),
      cmocka_unit_test(test_hosts_with_another_order_are_refused),
      cmocka_unit_test(test_what_fails_on_one_host_is_told_to_the_others),
      cmocka_unit_test(test_a_death_is_told_on_all_hosts),
      cmocka_unit_test(test_who_has_left_is_told_on_all_hosts),
      cmocka_unit_test(test_a_late_rank_is_named_on_all_hosts),
      cmocka_unit_test(test_a_request_that_timed_out_is_told_before_its_process_ends),
      cmocka_unit_test(test_the_timeout_of_rank_0_counts_on_all_hosts),
      cmocka_unit_test(test_who_was_late_itself_accuses_nobody),
      cmocka_unit_test(test_a_silent_host_is_named_and_left_out),
      cmocka_unit_test(test_ranks_without_a_transport_are_refused),
  };
  return run_tests_on_hosts(tests, std::size(tests), run_tests_beside);
}
