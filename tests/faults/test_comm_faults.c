/* faults/test_comm_faults.c: ranks are killed, stopped and forked in the middle of calls; every survivor gets an error
 * that names the rank, in bounded time, and nothing is left behind. */
#include <dirent.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>

#include "support/ranks.h"

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What the parent shares with its ranks. */
struct stage {
  int32_t victim;
  gsel_status code;
  const char* part;
  size_t count;
  volatile int started[RANKS_MAX];
};

static struct stage* make_stage(int32_t victim, gsel_status code, const char* part, size_t count) {
  struct stage* s = shared_memory(sizeof *s);
  s->victim = victim;
  s->code = code;
  s->part = part;
  s->count = count;
  return s;
}

/* Calls until one fails, which must be about the victim; a stopped victim must agree once it goes on. */
static void calls_until_it_fails(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  float* x = calloc(s->count, sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_status status;
  do {
    status = gsel_allreduce(comm, x, x, s->count, GSEL_F32, GSEL_SUM, &err);
    s->started[run->rank] = 1;
  } while (status == GSEL_OK);
  rank_fails(run, status, err, s->code, s->part, s->victim);
  rank_fails(run, gsel_barrier(comm, &err), err, s->code, s->part, s->victim);
  free(x);
  gsel_comm_free(comm);
}

static void wait_until_started(const struct stage* s, int32_t n) {
  for (int32_t r = 0; r < n; ++r)
    for (int turn = 0; !s->started[r] && turn < 60000; ++turn) poll(NULL, 0, 1);
}

/* Starts n ranks, lets them work for a random moment, sends the victim a signal; returns the longest time until a
 * survivor has ended. A stopped victim is continued then. */
static double strike(int32_t n, struct stage* s, int signal_number, double timeout_s) {
  pid_t pids[RANKS_MAX];
  rank_run* runs = ranks_prepare(n, s);
  for (int32_t r = 0; r < n; ++r) {
    runs[r].timeout_s = timeout_s;
    pids[r] = rank_fork(&runs[r], calls_until_it_fails);
  }
  wait_until_started(s, n);
  usleep((useconds_t)(rand() % 2000));
  const double start = seconds();
  kill(pids[s->victim], signal_number);
  for (int32_t r = 0; r < n; ++r)
    if (r != s->victim) waitpid(pids[r], NULL, 0);
  const double took = seconds() - start;
  kill(pids[s->victim], SIGCONT);
  waitpid(pids[s->victim], NULL, 0);
  ranks_verdict(runs, n);
  munmap(s, sizeof *s);
  return took;
}

static void survivors_of_a_kill_all_name_the_dead_rank(void** state) {
  (void)state;
  double longest = 0;
  for (int32_t n = 2; n <= 4; ++n)
    for (int round = 0; round < 40; ++round) {
      const size_t counts[] = {2, 900, 300000};
      const double took = strike(
          n, make_stage(rand() % n, GSEL_ERR_PEER, ") ended without gsel_comm_free while rank ", counts[round % 3]),
          SIGKILL, 60);
      if (took > longest) longest = took;
    }
  print_message("longest time from kill to the end of all survivors: %.1f ms\n", 1e3 * longest);
  assert_true(longest < 50); /* guards against a hang alone; nobody waited for the timeout of 60 s */
}

static void a_stopped_rank_is_named_after_the_timeout(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 4; ++n)
    for (int round = 0; round < 3; ++round)
      strike(n, make_stage(rand() % n, GSEL_ERR_TIMEOUT, ") is late: rank ", round == 1 ? 300000 : 2), SIGSTOP, 0.3);
}

/* Rank 3 makes no second call until the others have given up; rank 2 waits for rank 1, which waits for rank 3. */
static void never_calls(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  int32_t x = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  const char* part = "rank 3 last finished barrier() (call 1)";
  if (run->rank == 2) rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 1, &err), err, GSEL_ERR_TIMEOUT, part, 3);
  if (run->rank == 1) rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 3, &err), err, GSEL_ERR_TIMEOUT, part, 3);
  if (run->rank == 0) {
    rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 2, &err), err, GSEL_ERR_TIMEOUT, part, 3);
    s->started[0] = 1;
  }
  if (run->rank == 3) wait_until_started(s, 1);
  gsel_comm_free(comm);
}

/* A pidfd can be refused by a sandbox; then a pipe tells of deaths. */
static void refuse_pidfd(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const struct sock_fprog program = {sizeof code / sizeof code[0], code};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void deaths_are_seen_without_pidfd(void** state) {
  (void)state;
  const pid_t all = fork();
  assert_true(all >= 0);
  if (all == 0) {
    refuse_pidfd();
    const int refused = syscall(SYS_pidfd_open, getpid(), 0) < 0 && errno == ENOSYS;
    if (!refused) _exit(2);
    for (int round = 0; round < 10; ++round)
      if (strike(3, make_stage(rand() % 3, GSEL_ERR_PEER, ") ended without gsel_comm_free while rank ", 900), SIGKILL,
                 60) > 5)
        _exit(3);
    _exit(0);
  }
  int status = 0;
  waitpid(all, &status, 0);
  assert_int_equal(status, 0);
}

/* With a pipe, a child that outlives its parent must not make it look alive. */
static void leaves_a_child(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  refuse_pidfd();
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) {
    const pid_t child = fork();
    if (child == 0) {
      s->started[1] = getpid();
      for (;;) pause();
    }
    while (s->started[1] == 0) poll(NULL, 0, 1);
    raise(SIGKILL);
  }
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "ended without gsel_comm_free", 1);
  gsel_comm_free(comm);
}

static void a_child_left_behind_does_not_hide_a_death(void** state) {
  (void)state;
  struct stage* s = make_stage(1, 0, NULL, 0);
  rank_run* runs = ranks_prepare(2, s);
  const pid_t one = rank_fork(&runs[1], leaves_a_child), zero = rank_fork(&runs[0], leaves_a_child);
  waitpid(zero, NULL, 0);
  waitpid(one, NULL, 0);
  kill(s->started[1], SIGKILL);
  ranks_verdict(runs, 2);
  munmap(s, sizeof *s);
}

static void hears_of_a_death_while_joining(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  s->started[run->rank] = 1;
  rank_fails(run, rank_join(run, &comm, &err), err, GSEL_ERR_PEER, "died or gave up while joining", 1);
}

static void joins_and_waits(rank_run* run) {
  struct stage* s = run->user;
  gsel_comm* comm;
  s->started[1] = 1;
  rank_join(run, &comm, NULL);
}

/* Returns once a process has been asleep for a while, as in a wait and not only in a short one on the way there, or is
 * gone; its state stands behind the last ')' of its stat. */
static void wait_until_asleep(pid_t pid) {
  enum { A_WHILE = 50 };
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  for (int turn = 0, asleep = 0; asleep < A_WHILE && turn < 60000; ++turn) {
    FILE* file = fopen(path, "r");
    if (!file) return;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char* end = strrchr(text, ')');
    asleep = end && end[1] == ' ' && end[2] != 'R' ? asleep + 1 : 0;
    poll(NULL, 0, 1);
  }
}

/* Sockets under which ranks join: that of a rank 0 and one for each rank that has connected to it. */
static int sockets_of_joins(void) {
  FILE* file = fopen("/proc/net/unix", "r");
  char line[512];
  int count = 0;
  while (fgets(line, sizeof line, file)) count += strstr(line, "@gsel-1-") != NULL;
  fclose(file);
  return count;
}

/* Rank 1 joins and dies once it waits for an answer; rank 3 never comes. Should it have waited for rank 0 to listen
 * rather than for the answer to its hello, it comes again. */
static void a_death_while_joining_is_told_to_the_others(void** state) {
  (void)state;
  struct stage* s = make_stage(1, 0, NULL, 0);
  rank_run* runs = ranks_prepare(3, s);
  for (int32_t r = 0; r < 3; ++r) runs[r].world_size = 4;
  const pid_t others[2] = {rank_fork(&runs[0], hears_of_a_death_while_joining),
                           rank_fork(&runs[2], hears_of_a_death_while_joining)};
  while (!s->started[0] || !s->started[2] || sockets_of_joins() < 2) poll(NULL, 0, 1);
  while (waitpid(others[0], NULL, WNOHANG) == 0) {
    s->started[1] = 0;
    const pid_t one = rank_fork(&runs[1], joins_and_waits);
    while (!s->started[1]) poll(NULL, 0, 1);
    wait_until_asleep(one);
    kill(one, SIGKILL);
    waitpid(one, NULL, 0);
  }
  waitpid(others[1], NULL, 0);
  ranks_verdict(runs, 3);
  munmap(s, sizeof *s);
}

static int open_descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

static long mappings(void) {
  FILE* file = fopen("/proc/self/maps", "r");
  char line[1024];
  long count = 0;
  while (fgets(line, sizeof line, file)) count += strstr(line, "memfd:gsel") != NULL;
  fclose(file);
  return count;
}

static void joins_300_times(rank_run* run) {
  const int processes = run->user != NULL;
  const int before = open_descriptors();
  for (int i = 0; i < 300; ++i) {
    gsel_error* err;
    gsel_comm* comm;
    rank_ok(run, rank_join(run, &comm, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
    gsel_comm_free(comm);
  }
  if (!processes) return;
  rank_check(run, open_descriptors() == before);
  rank_check(run, mappings() == 0);
}

static void three_hundred_communicators_leave_no_descriptor_and_no_mapping(void** state) {
  (void)state;
  int processes = 1;
  as_processes(3, joins_300_times, &processes);
  const int before = open_descriptors();
  as_threads(3, joins_300_times, NULL);
  assert_int_equal(open_descriptors(), before);
  assert_int_equal(mappings(), 0);
}

static void forks(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int32_t x = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const pid_t child = fork();
  if (child == 0) {
    const gsel_status status = gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err);
    gsel_comm_abort(comm, gsel_str_from("from a child"));
    gsel_comm_free(comm);
    _exit(status == GSEL_ERR_FORKED && strstr(gsel_error_message(err).data, "after fork") ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  rank_check(run, status == 0);
  rank_ok(run, gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, x == run->world_size);
  gsel_comm_free(comm);
}

static void a_forked_child_is_refused_and_does_no_harm(void** state) {
  (void)state;
  as_processes(1, forks, NULL);
  as_processes(3, forks, NULL);
}

static void a_rank_that_makes_no_call_is_named_with_its_last_one(void** state) {
  (void)state;
  struct stage* s = make_stage(3, 0, NULL, 0);
  rank_run* runs = ranks_prepare(4, s);
  for (int32_t r = 0; r < 4; ++r) runs[r].timeout_s = 0.3;
  ranks_run_processes(runs, 4, never_calls);
  ranks_verdict(runs, 4);
  munmap(s, sizeof *s);
}

int main(void) {
  srand(20261);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(survivors_of_a_kill_all_name_the_dead_rank),
      cmocka_unit_test(a_stopped_rank_is_named_after_the_timeout),
      cmocka_unit_test(a_rank_that_makes_no_call_is_named_with_its_last_one),
      cmocka_unit_test(deaths_are_seen_without_pidfd),
      cmocka_unit_test(a_child_left_behind_does_not_hide_a_death),
      cmocka_unit_test(a_death_while_joining_is_told_to_the_others),
      cmocka_unit_test(three_hundred_communicators_leave_no_descriptor_and_no_mapping),
      cmocka_unit_test(a_forked_child_is_refused_and_does_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
