/* faults/test_comm_container.c: places like containers: a small or read-only /dev/shm, system calls that a sandbox
 * refuses, little address space, ranks in two network namespaces. What can work works; what cannot is an error with its
 * cause, in bounded time. Each runs in a child of its own; where a namespace is not allowed the test says so and is
 * skipped. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <time.h>

#include "support/every_call.h"
#include "support/refuse.h"

enum { RANKS = 4, SKIPPED = 77 };

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Every kind of call in every size class. */
static void calls_of_all_sizes(rank_run* run) {
  const size_t counts[] = {3, 800, 50000, 700000};
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    call_room room;
    gsel_collective_kind kind;
    call_room_open(&room, run->world_size, counts[i]);
    for (int k = 0; every_call(k, &kind); ++k) rank_ok(run, call_once(comm, kind, &room, counts[i], &err), err);
    for (size_t j = 0; j < counts[i]; ++j) ((float*)room.send)[j] = (float)(run->rank + 1);
    rank_ok(run, gsel_allreduce(comm, room.send, room.recv, counts[i], GSEL_F32, GSEL_SUM, &err), err);
    for (size_t j = 0; j < counts[i]; ++j) rank_check(run, ((float*)room.recv)[j] == 10);
    call_room_close(&room);
  }
  gsel_comm_free(comm);
}

/* 24 MiB on each rank. */
static void a_large_call(rank_run* run) {
  const size_t count = 6 << 20;
  gsel_error* err;
  gsel_comm* comm;
  float* x = malloc(count * sizeof *x);
  for (size_t i = 0; i < count; ++i) x[i] = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_allreduce(comm, x, x, count, GSEL_F32, GSEL_SUM, &err), err);
  for (size_t i = 0; i < count; ++i) rank_check(run, x[i] == RANKS);
  gsel_comm_free(comm);
  free(x);
}

static int everything_works(void) {
  as_processes(RANKS, calls_of_all_sizes, NULL);
  as_threads(RANKS, calls_of_all_sizes, NULL);
  as_processes(RANKS, a_large_call, NULL);
  return 0;
}

/* Runs a place in a child; it answers 0, or SKIPPED. A check that fails inside ends the child with another status. */
static void in_a_child(int (*place)(void), const char* why_skipped) {
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    const int answer = place();
    fflush(NULL);
    _exit(answer);
  }
  int status = 1;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) {
    print_message("skipped: %s\n", why_skipped);
    skip(); /* the machine does not allow the namespace or filter this is about; the line above says which */
  }
  assert_int_equal(status, 0);
}

static int enter_namespaces(int flags) {
  if (unshare(flags) == 0 || unshare(CLONE_NEWUSER | flags) == 0) return 1;
  return 0;
}

static int mount_shm(const char* options, unsigned long flags) {
  if (!enter_namespaces(CLONE_NEWNS)) return 0;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
  return mount("none", "/dev/shm", "tmpfs", flags, options) == 0;
}

static int with_a_small_shm(void) {
  return mount_shm("size=64m", 0) ? everything_works() : SKIPPED;
}

static int with_a_read_only_shm(void) {
  if (!mount_shm("size=1m", MS_RDONLY)) return SKIPPED;
  FILE* file = fopen("/dev/shm/anything", "w");
  return file ? 2 : everything_works();
}

static void a_small_shared_memory_mount_does_not_matter(void** state) {
  (void)state;
  in_a_child(with_a_small_shm, "no mount namespace here");
}

static void a_read_only_shared_memory_mount_does_not_matter(void** state) {
  (void)state;
  in_a_child(with_a_read_only_shm, "no mount namespace here");
}

/* ---- system calls refused ---- */

static int without_reading_others(void) {
  if (!refuse_reading_others()) return SKIPPED;
  if (syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0) != -1 || errno != EPERM) return 2;
  return everything_works();
}

static int without_pidfd(void) {
  const int calls[] = {SYS_pidfd_open, 0};
  if (!refuse(calls, ENOSYS)) return SKIPPED;
  if (syscall(SYS_pidfd_open, getpid(), 0) != -1 || errno != ENOSYS) return 2;
  return everything_works();
}

static int without_membarrier(void) {
  const int calls[] = {SYS_membarrier, 0};
  if (!refuse(calls, ENOSYS)) return SKIPPED;
  if (syscall(SYS_membarrier, 0, 0, 0) != -1 || errno != ENOSYS) return 2;
  return everything_works();
}

static int without_numa_calls(void) {
  const int calls[] = {SYS_mbind, SYS_set_mempolicy, SYS_get_mempolicy, SYS_move_pages, SYS_sched_setaffinity, 0};
  return refuse(calls, EPERM) ? everything_works() : SKIPPED;
}

static void joins_without_memory(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  rank_fails(run, rank_join(run, &comm, &err), err, GSEL_ERR_IO, "memfd_create failed: EPERM", -1);
  rank_check(run, comm == NULL);
}

static int without_memfd(void) {
  const int calls[] = {SYS_memfd_create, 0};
  if (!refuse(calls, EPERM)) return SKIPPED;
  const double started = seconds();
  as_processes(3, joins_without_memory, NULL);
  as_threads(3, joins_without_memory, NULL);
  return seconds() - started < 30 ? 0 : 3; /* not the join timeout of 60 s */
}

static void a_sandbox_without_ptrace_does_not_matter(void** state) {
  (void)state;
  in_a_child(without_reading_others, "no seccomp here");
}

static void a_sandbox_without_pidfd_does_not_matter(void** state) {
  (void)state;
  in_a_child(without_pidfd, "no seccomp here");
}

static void a_sandbox_without_membarrier_does_not_matter(void** state) {
  (void)state;
  in_a_child(without_membarrier, "no seccomp here");
}

static void a_sandbox_without_memory_policies_does_not_matter(void** state) {
  (void)state;
  in_a_child(without_numa_calls, "no seccomp here");
}

static void a_sandbox_without_memfd_is_told_with_its_cause_on_every_rank(void** state) {
  (void)state;
  in_a_child(without_memfd, "no seccomp here");
}

/* ---- limits ---- */

static int with_address_space(rlim_t bytes) {
  const struct rlimit limit = {bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return SKIPPED;
  as_processes(RANKS, calls_of_all_sizes, NULL);
  return 0;
}

static int with_little_address_space(void) {
  return with_address_space((rlim_t)1 << 30);
}

static void little_address_space_does_not_matter(void** state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* a sanitizer takes more by itself */
#endif
  in_a_child(with_little_address_space, "no limits here");
}

static void joins_in_too_little(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  rank_fails(run, rank_join(run, &comm, &err), err, GSEL_ERR_NOMEM, "(ulimit -v)", -1);
}

/* Room for the process as it is and little more. */
static int with_far_too_little_address_space(void) {
  long pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld", &pages) != 1) return SKIPPED;
  fclose(file);
  const struct rlimit limit = {(rlim_t)pages * 4096 + (3 << 20), (rlim_t)pages * 4096 + (3 << 20)};
  if (setrlimit(RLIMIT_AS, &limit) != 0) return SKIPPED;
  as_processes(8, joins_in_too_little, NULL);
  return 0;
}

static void too_little_address_space_is_told_with_its_cause(void** state) {
  (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  skip(); /* a sanitizer's own maps fill what little this leaves */
#endif
  in_a_child(with_far_too_little_address_space, "no limits here");
}

/* ---- two hosts ---- */

static void joins_from_elsewhere(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  if (run->rank == 1 && !enter_namespaces(CLONE_NEWNET)) _exit(SKIPPED);
  rank_fails(run, rank_join(run, &comm, &err), err, GSEL_ERR_TIMEOUT, "one host", run->rank == 0 ? 1 : 0);
}

/* Names of sockets end at a network namespace, as at a host. */
static int two_hosts(void) {
  rank_run* runs = ranks_prepare(2, NULL);
  pid_t pids[2];
  int status[2];
  const double started = seconds();
  for (int32_t r = 0; r < 2; ++r) {
    runs[r].join_timeout_s = 0.5;
    pids[r] = rank_fork(&runs[r], joins_from_elsewhere);
  }
  for (int32_t r = 0; r < 2; ++r) waitpid(pids[r], &status[r], 0);
  if (WIFEXITED(status[1]) && WEXITSTATUS(status[1]) == SKIPPED) return SKIPPED;
  ranks_verdict(runs, 2);
  return seconds() - started < 20 ? 0 : 3;
}

static void ranks_of_two_hosts_are_told_so_in_time(void** state) {
  (void)state;
  in_a_child(two_hosts, "no network namespace here");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_small_shared_memory_mount_does_not_matter),
      cmocka_unit_test(a_read_only_shared_memory_mount_does_not_matter),
      cmocka_unit_test(a_sandbox_without_ptrace_does_not_matter),
      cmocka_unit_test(a_sandbox_without_pidfd_does_not_matter),
      cmocka_unit_test(a_sandbox_without_membarrier_does_not_matter),
      cmocka_unit_test(a_sandbox_without_memory_policies_does_not_matter),
      cmocka_unit_test(a_sandbox_without_memfd_is_told_with_its_cause_on_every_rank),
      cmocka_unit_test(little_address_space_does_not_matter),
      cmocka_unit_test(too_little_address_space_is_told_with_its_cause),
      cmocka_unit_test(ranks_of_two_hosts_are_told_so_in_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
