// unit/test_comm_hosts_dying.cc: ranks that die while they make a communicator over several hosts out of another one. A
// rank dies in its first, second, third, ... call of the kernel's sockets in there, until it makes no more of them: the
// others have a smaller communicator that works, or an error, and then a shrink gives them one.
#include <dlfcn.h>
#include <sys/socket.h>

#include <mutex>

#include "support/hosts.h"

using namespace gsel::test;

namespace {

std::mutex life;
int calls_to_live = -1;  // of the functions below, in every thread; negative: without end

// Dies under the lock: who has set calls_to_live to -1 is not killed any more.
void pass() {
  const std::lock_guard<std::mutex> lock(life);
  if (calls_to_live >= 0 && calls_to_live-- == 0)
    for (kill(getpid(), SIGKILL);;) pause();
}

void set_calls_to_live(int calls) {
  const std::lock_guard<std::mutex> lock(life);
  calls_to_live = calls;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// These are called in place of those of the C library, also by libgsel and its plugins.
extern "C" {
__attribute__((visibility("default"))) ssize_t send(int fd, const void* bytes, size_t n, int flags) {
  static auto* const call = real<ssize_t(int, const void*, size_t, int)>("send");
  pass();
  return call(fd, bytes, n, flags);
}
__attribute__((visibility("default"))) ssize_t recv(int fd, void* bytes, size_t n, int flags) {
  static auto* const call = real<ssize_t(int, void*, size_t, int)>("recv");
  pass();
  return call(fd, bytes, n, flags);
}
__attribute__((visibility("default"))) int connect(int fd, const sockaddr* address, socklen_t length) {
  static auto* const call = real<int(int, const sockaddr*, socklen_t)>("connect");
  pass();
  return call(fd, address, length);
}
__attribute__((visibility("default"))) int accept(int fd, sockaddr* address, socklen_t* length) {
  static auto* const call = real<int(int, sockaddr*, socklen_t*)>("accept");
  pass();
  return call(fd, address, length);
}
__attribute__((visibility("default"))) int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  static auto* const call = real<int(int, sockaddr*, socklen_t*, int)>("accept4");
  pass();
  return call(fd, address, length, flags);
}
__attribute__((visibility("default"))) int listen(int fd, int backlog) {
  static auto* const call = real<int(int, int)>("listen");
  pass();
  return call(fd, backlog);
}
}

namespace {

enum class Makes { shrink, group, resync };

// `first` dies before; who is in the middle dies there, after so many calls. -1: nobody.
struct Death {
  Job job;  // what join looks at
  Makes makes;
  int32_t first, middle, calls;
  volatile int32_t survived;  // 1: the one in the middle has made fewer calls
  int32_t after_us;           // not -1: it is killed so long after it has begun, instead
  volatile int32_t begun;
};

constexpr int kMostShrinks = 4;

gsel_status make(gsel_comm* comm, const Death& death, int32_t n, gsel_comm** out, gsel_error** err) {
  if (death.makes == Makes::shrink) return gsel_comm_shrink(comm, out, err);
  if (death.makes == Makes::resync) return gsel_comm_resync(comm, err);
  std::vector<int32_t> others;
  for (int32_t q = 0; q < n; ++q)
    if (q != death.first) others.push_back(q);
  return gsel_comm_create_group(comm, others.data(), others.size(), out, err);
}

// A call on it adds up, or fails.
gsel_status adds_up(gsel_comm* comm, bool& right, gsel_error** err) {
  int32_t x = 1;
  const gsel_status status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, err);
  right = x == gsel_comm_world_size(comm);
  return status;
}

void lives_on(rank_run* run) {
  auto* death = static_cast<Death*>(run->user);
  run->timeout_s = 10;
  gsel_error* err = nullptr;
  gsel_comm *comm = nullptr, *made = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  if (gsel_barrier(comm, &err) != GSEL_OK) gsel_error_free(err);  // who dies behind it can be heard in it
  err = nullptr;
  if (run->rank == death->first) kill(getpid(), SIGKILL);
  if (death->makes == Makes::resync && run->rank == 1) gsel_comm_abort(comm, gsel_str_from("begin again"));
  bool right = false;
  while (adds_up(comm, right, &err) == GSEL_OK) {
  }
  gsel_error_free(err);
  err = nullptr;

  if (run->rank == death->middle) {
    set_calls_to_live(death->calls);
    reach_step(&death->begun, 1);
  }
  gsel_status status = make(comm, *death, run->world_size, &made, &err);
  set_calls_to_live(-1);
  while (run->rank == death->middle && death->after_us >= 0) pause();
  if (run->rank == death->middle) reach_step(&death->survived, 1);
  if (death->makes == Makes::shrink) rank_ok(run, status, err);
  gsel_error_free(err);
  err = nullptr;
  gsel_comm* at = status == GSEL_OK && made ? made : comm;
  gsel_comm* whole = death->makes == Makes::shrink ? made : comm;  // that all others have
  std::vector<gsel_comm*> all{comm};
  if (made) all.push_back(made);
  for (int shrinks = 0; status != GSEL_OK || adds_up(at, right, &err) != GSEL_OK; ++shrinks) {
    gsel_error_free(err);
    err = nullptr;
    rank_check(run, shrinks < kMostShrinks);
    gsel_comm* left = nullptr;
    rank_ok(run, gsel_comm_shrink(whole, &left, &err), err);
    all.push_back(whole = at = left);
    status = GSEL_OK;
  }
  rank_check(run, right);
  const int32_t living = run->world_size - (death->first >= 0) - (death->survived == 0);
  rank_check(run, gsel_comm_world_size(at) == living);
  while (!all.empty()) {
    gsel_comm_free(all.back());
    all.pop_back();
  }
}

// Whether the one in the middle died.
bool dies_in_call(Death& shape, int32_t calls) {
  auto* death = static_cast<Death*>(shared_memory(sizeof(Death)));
  *death = shape;
  snprintf(death->job.place, sizeof death->job.place, "tcp://127.0.0.1:%d", free_port());
  death->calls = calls;
  const auto n = static_cast<int32_t>(strlen(death->job.hosts));
  rank_run* runs = ranks_prepare(n, death);
  std::vector<pid_t> pids;
  for (int32_t r = 0; r < n; ++r) pids.push_back(rank_fork(&runs[r], lives_on));
  if (death->after_us >= 0) {
    for (int turn = 0; __atomic_load_n(&death->begun, __ATOMIC_SEQ_CST) == 0 && turn < 500'000; ++turn) usleep(20);
    usleep(static_cast<useconds_t>(death->after_us));
    kill(pids[static_cast<size_t>(death->middle)], SIGKILL);
  }
  bool killed_others = false, died = false;
  for (int32_t r = 0; r < n; ++r) {
    int status = 0;
    waitpid(pids[static_cast<size_t>(r)], &status, 0);
    const bool killed = WIFSIGNALED(status);
    if (r == death->middle) died = killed;
    killed_others = killed_others || (killed && r != death->first && r != death->middle);
    if (runs[r].failure[0])
      print_error("%s: first %d, in the middle %d, call %d:\n", death->job.hosts, death->first, death->middle, calls);
  }
  ranks_verdict(runs, n);
  assert_false(killed_others);
  munmap(death, sizeof *death);
  return died;
}

// step: 1 for each call, 3 for each third.
void dies_in_each_call(Makes makes, const char* hosts, int32_t first, int32_t middle, int32_t step) {
  Death death = {};
  death.job.hosts = hosts;
  death.makes = makes;
  death.first = first;
  death.middle = middle;
  death.after_us = -1;
  int32_t calls = 0;
  while (dies_in_call(death, calls)) calls += step;
  printf("%s without rank %d: rank %d died in %d calls\n", hosts, first, middle, calls / step);
  assert_true(calls > 10);
}

// Also where it waits for ranks of its own host.
void dies_at_some_time(const char* hosts, int32_t first, int32_t middle) {
  Death death = {};
  death.job.hosts = hosts;
  death.makes = Makes::shrink;
  death.first = first;
  death.middle = middle;
  for (death.after_us = 0; death.after_us < 3000; death.after_us += 300) assert_true(dies_in_call(death, -1));
}

void test_a_shrink_goes_on_without_those_who_die_at_some_time_of_it(void**) {
  dies_at_some_time("0011", 3, 1);
  dies_at_some_time("001122", 0, 3);
  dies_at_some_time("001122", 2, 3);  // a host
}

void test_a_shrink_goes_on_without_those_who_die_in_it(void**) {
  dies_in_each_call(Makes::shrink, "0011", 3, 0, 2);  // who coordinates
  dies_in_each_call(Makes::shrink, "0011", 3, 2, 2);  // a host
  dies_in_each_call(Makes::shrink, "0011", 1, 2, 3);  // the first of its host
  dies_in_each_call(Makes::shrink, "001122", 5, 0, 3);
  dies_in_each_call(Makes::shrink, "001122", 0, 2, 3);
  dies_in_each_call(Makes::shrink, "0101", 0, 1, 3);  // where another host has the lowest rank
}

// Rank 2 dies, and rank 0 of its host while it tells the other host.
void tells(rank_run* run) {
  auto* death = static_cast<Death*>(run->user);
  gsel_error* err = nullptr;
  gsel_comm* comm = nullptr;
  rank_ok(run, join(run, &comm, &err), err);
  if (run->rank == 2) await_step(&death->begun, 3);
  if (run->rank == 0) set_calls_to_live(death->calls);
  if (run->rank != 2) __atomic_add_fetch(&death->begun, 1, __ATOMIC_SEQ_CST);
  if (run->rank == 2) kill(getpid(), SIGKILL);
  int32_t x = 1;
  rank_fails(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_PEER, "ended without", -1);
  if (run->rank == 0) kill(getpid(), SIGKILL);
  gsel_comm_free(comm);
}

void test_who_dies_while_it_tells_of_a_death_is_told_of(void**) {
  auto* death = static_cast<Death*>(shared_memory(sizeof(Death)));
  death->job.hosts = "0101";
  for (death->calls = 0; death->calls < 12; ++death->calls) {
    snprintf(death->job.place, sizeof death->job.place, "tcp://127.0.0.1:%d", free_port());
    death->begun = 0;
    rank_run* runs = ranks_prepare(4, death);
    std::vector<pid_t> pids;
    for (int32_t r = 0; r < 4; ++r) pids.push_back(rank_fork(&runs[r], tells));
    for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
    ranks_verdict(runs, 4);
  }
  munmap(death, sizeof *death);
}

void test_a_group_in_which_one_dies_leaves_its_communicator_to_be_shrunk(void**) {
  dies_in_each_call(Makes::group, "0011", 3, 0, 2);
  dies_in_each_call(Makes::group, "0011", 3, 2, 2);
}

void test_a_resync_in_which_one_dies_leaves_its_communicator_to_be_shrunk(void**) {
  dies_in_each_call(Makes::resync, "0011", -1, 0, 2);
  dies_in_each_call(Makes::resync, "0011", -1, 2, 2);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_shrink_goes_on_without_those_who_die_in_it),
      cmocka_unit_test(test_a_shrink_goes_on_without_those_who_die_at_some_time_of_it),
      cmocka_unit_test(test_who_dies_while_it_tells_of_a_death_is_told_of),
      cmocka_unit_test(test_a_group_in_which_one_dies_leaves_its_communicator_to_be_shrunk),
      cmocka_unit_test(test_a_resync_in_which_one_dies_leaves_its_communicator_to_be_shrunk),
  };
  return run_tests_on_hosts(tests, std::size(tests));
}
