/* faults/test_comm_injection.c: every rank of three is killed, stopped, delayed or made to disagree at every step of
 * every kind of call, small and large, by GSEL_FAULT; every survivor gets the error that names the rank, in bounded
 * time, and nothing stays behind. Then ranks are killed and stopped at random moments, GSEL_TEST_FAULTS times each
 * (60). */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>

#include "support/every_call.h"

#define RANKS 3
#define CALLS 5
#define FAULTY_CALL 3 /* of messages 3 or 4: a rank makes two calls for each round of the ring */
#define WORLDS_AT_ONCE 6

static const char* const steps[] = {"enter",  "header",      "staged", "reduced", "copied",
                                    "direct", "single_copy", "sent",   "taken",   "leave"};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

/* In f32: in the line, beside it, staged in one chunk, and in several or read across processes. */
static const size_t sizes[] = {3, 800, 40000, 300000};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

typedef enum { KILL, STOP, DELAY, CORRUPT } action;
static const char* const actions[] = {"kill", "stop", "delay", "corrupt"};

typedef struct trial {
  action what;
  int step, call;
  int32_t victim;
  gsel_collective_kind kind;
  size_t count;
  int random; /* no GSEL_FAULT: the parent sends a signal some time after all have started */
} trial;

/* One world under way; memory shared with its ranks. */
typedef struct world {
  trial trial;
  pid_t pids[RANKS];
  int done[RANKS], statuses[RANKS];
  volatile int calls[RANKS];  /* calls that came back well */
  volatile int failed[RANKS]; /* 1: a call failed as it should */
} world;

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int open_descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

static int shared_mappings(void) {
  FILE* file = fopen("/proc/self/maps", "r");
  char line[1024];
  int count = 0;
  while (fgets(line, sizeof line, file)) count += strstr(line, "memfd:gsel") != NULL;
  fclose(file);
  return count;
}

static void expect_failure(rank_run* run, const trial* t, gsel_status status, gsel_error** err) {
  if (t->what == CORRUPT)
    rank_fails(run, status, *err, GSEL_ERR_MISMATCH, "make the calls alike on every rank", t->victim);
  else if (t->what == KILL)
    rank_fails(run, status, *err, GSEL_ERR_PEER, "died while rank", t->victim);
  else
    rank_fails(run, status, *err, GSEL_ERR_TIMEOUT, "is late: rank", t->victim);
}

/* A mismatch leaves the communicator usable, everything else ends it with the same words. */
static void meets_a_fault(rank_run* run) {
  world* w = run->user;
  const trial* t = &w->trial;
  const int descriptors = open_descriptors();
  gsel_error* err;
  gsel_comm* comm;
  call_room room;
  call_room_open(&room, RANKS, t->count);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_check(run, shared_mappings() == 1);
  for (int i = 0; t->random || i < CALLS; ++i) {
    const gsel_status status = call_once(comm, t->kind, &room, t->count, &err);
    if (status == GSEL_OK) {
      ++w->calls[run->rank];
      continue;
    }
    expect_failure(run, t, status, &err);
    if (run->failure[0]) return;
    w->failed[run->rank] = 1;
    if (t->what == CORRUPT) continue;
    expect_failure(run, t, gsel_barrier(comm, &err), &err);
    break;
  }
  gsel_comm_destroy(comm);
  call_room_close(&room);
  rank_check(run, open_descriptors() == descriptors);
  rank_check(run, shared_mappings() == 0);
}

static void set_fault(const trial* t) {
  char text[128];
  if (t->random) return;
  snprintf(text, sizeof text, "%s@%s:rank=%d:call=%d%s", actions[t->what], steps[t->step], (int)t->victim, t->call,
           t->what == DELAY ? ":ms=3" : "");
  setenv("GSEL_FAULT", text, 1);
}

static rank_run* start(world* w) {
  rank_run* runs = ranks_prepare(RANKS, w);
  set_fault(&w->trial);
  for (int32_t r = 0; r < RANKS; ++r) {
    runs[r].timeout_s = w->trial.what == STOP ? 0.3 : 60;
    w->pids[r] = rank_fork(&runs[r], meets_a_fault);
  }
  unsetenv("GSEL_FAULT");
  return runs;
}

static void strike_at_random(const world* w) {
  for (int32_t r = 0; r < RANKS; ++r)
    for (int turn = 0; !w->calls[r] && turn < 60000; ++turn) usleep(200);
  usleep((useconds_t)(rand() % 3000));
  kill(w->pids[w->trial.victim], w->trial.what == KILL ? SIGKILL : SIGSTOP);
}

/* Waits for a rank unless it has been waited for; a stopped victim goes on once the others are done. */
static void reap(world* w, int32_t r) {
  if (w->done[r]) return;
  waitpid(w->pids[r], &w->statuses[r], 0);
  w->done[r] = 1;
}

/* Whether the fault struck: not every kind passes every step on every rank. */
static int judge(world* w, rank_run* runs) {
  const int32_t victim = w->trial.victim;
  for (int32_t r = 0; r < RANKS; ++r)
    if (r != victim) reap(w, r);
  kill(w->pids[victim], SIGCONT);
  reap(w, victim);
  const int was_killed = WIFSIGNALED(w->statuses[victim]) && WTERMSIG(w->statuses[victim]) == SIGKILL;
  const int struck = w->trial.what == KILL ? was_killed : w->failed[(victim + 1) % RANKS];
  for (int32_t r = 0; r < RANKS; ++r) {
    const int spared = w->trial.what == KILL && r == victim && was_killed;
    char* failure = runs[r].failure;
    if (w->statuses[r] != 0 && !spared && !failure[0])
      snprintf(failure, sizeof runs[r].failure, "rank %d ended with wait status 0x%x", (int)r,
               (unsigned)w->statuses[r]);
    if (!spared && !failure[0] && w->failed[r] != struck)
      snprintf(failure, sizeof runs[r].failure, "rank %d: a fault struck: %d, an error came: %d", (int)r, struck,
               w->failed[r]);
    if (!failure[0]) continue;
    const size_t length = strlen(failure);
    snprintf(failure + length, sizeof runs[r].failure - length, " (%s@%s, rank %d, kind %d, count %zu)",
             actions[w->trial.what], w->trial.random ? "random" : steps[w->trial.step], (int)victim, (int)w->trial.kind,
             w->trial.count);
  }
  ranks_verdict(runs, RANKS);
  return struck;
}

/* Runs trials, several worlds at a time, and adds to struck[step] where given. Returns how many struck. */
static int run_all(const trial* trials, int n, int* struck) {
  int total = 0;
  for (int begin = 0; begin < n; begin += WORLDS_AT_ONCE) {
    const int some = n - begin < WORLDS_AT_ONCE ? n - begin : WORLDS_AT_ONCE;
    world* worlds =
        mmap(NULL, sizeof(world) * WORLDS_AT_ONCE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rank_run* runs[WORLDS_AT_ONCE];
    const double started = seconds();
    assert_true(worlds != MAP_FAILED);
    for (int i = 0; i < some; ++i) {
      worlds[i].trial = trials[begin + i];
      runs[i] = start(&worlds[i]);
    }
    for (int i = 0; i < some; ++i)
      if (worlds[i].trial.random) strike_at_random(&worlds[i]);
    for (int i = 0; i < some; ++i) {
      const int hit = judge(&worlds[i], runs[i]);
      total += hit;
      if (struck) struck[worlds[i].trial.step] += hit;
    }
    assert_true(seconds() - started < 50); /* nobody waited for a timeout of 60 s */
    munmap(worlds, sizeof(world) * WORLDS_AT_ONCE);
  }
  return total;
}

/* Trials of one action at each step for every kind and size; on every rank, or on one in turn. */
static int plan_trials(action what, int every_rank, trial* trials) {
  int n = 0, turn = 0;
  gsel_collective_kind kind;
  for (int k = 0; every_call(k, &kind); ++k)
    for (int size = 0; size < (kind == GSEL_COLLECTIVE_BARRIER ? 1 : N_SIZES); ++size)
      for (int step = 0; step < N_STEPS; ++step) {
        if (what == CORRUPT && strcmp(steps[step], "header") != 0) continue;
        ++turn;
        for (int32_t r = 0; r < RANKS; ++r)
          for (int call = FAULTY_CALL; call <= (kind == EVERY_CALL_MESSAGES ? 4 : FAULTY_CALL); ++call)
            if (every_rank || r == turn % RANKS) trials[n++] = (trial){what, step, call, r, kind, sizes[size], 0};
      }
  return n;
}

static void strike_everywhere(action what, int every_rank) {
  static trial trials[16 * N_SIZES * N_STEPS * RANKS];
  int struck[N_STEPS] = {0};
  const double started = seconds();
  const int n = plan_trials(what, every_rank, trials), hit = run_all(trials, n, struck);
  print_message("%s: %d worlds, %d struck in %.1f s:", actions[what], n, hit, seconds() - started);
  for (int step = 0; step < N_STEPS; ++step) print_message(" %s %d", steps[step], struck[step]);
  print_message("\n");
  if (what == DELAY) {
    assert_int_equal(hit, 0);
    return;
  }
  for (int step = 0; step < N_STEPS; ++step) {
    const int by_memory = strcmp(steps[step], "direct") == 0 || strcmp(steps[step], "single_copy") == 0;
    if (!by_memory && (what != CORRUPT || strcmp(steps[step], "header") == 0)) assert_true(struck[step] > 0);
  }
}

static void a_kill_at_any_step_of_any_call_is_told_to_all(void** state) {
  (void)state;
  strike_everywhere(KILL, 1);
}

static void a_stop_at_any_step_of_any_call_is_told_to_all(void** state) {
  (void)state;
  strike_everywhere(STOP, 0);
}

static void a_delay_at_any_step_of_any_call_harms_nobody(void** state) {
  (void)state;
  strike_everywhere(DELAY, 0);
}

static void a_header_that_disagrees_is_told_to_all_and_the_next_call_works(void** state) {
  (void)state;
  strike_everywhere(CORRUPT, 1);
}

/* ---- leftovers ---- */

static int entries(const char* path) {
  DIR* folder = opendir(path);
  int count = 0;
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

static int sockets(void) {
  FILE* file = fopen("/proc/self/net/unix", "r");
  char line[512];
  int count = 0;
  while (file && fgets(line, sizeof line, file)) count += strstr(line, "@gsel-") != NULL;
  if (file) fclose(file);
  return count;
}

/* A place of our own, so that what others leave or take away meanwhile does not count; 0 where that is not allowed. */
static int retreat(void) {
  static const char* const folders[] = {"/dev/shm", "/tmp", "/run"};
  if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0) return 0;
  if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) return 0;
  for (int i = 0; i < 3; ++i)
    if (mount("none", folders[i], "tmpfs", 0, "size=64m") != 0) return 0;
  return 1;
}

static int times(void) {
  const char* text = getenv("GSEL_TEST_FAULTS");
  return text && atoi(text) > 0 ? atoi(text) : 60;
}

static void strike_at_random_times(action what) {
  gsel_collective_kind kinds[16];
  int n_kinds = 0;
  while (every_call(n_kinds, &kinds[n_kinds])) ++n_kinds;
  const int n = times();
  trial* trials = calloc((size_t)n, sizeof *trials);
  for (int i = 0; i < n; ++i)
    trials[i] = (trial){what, 0, 0, rand() % RANKS, kinds[rand() % n_kinds], sizes[rand() % N_SIZES], 1};
  const double started = seconds();
  assert_int_equal(run_all(trials, n, NULL), n);
  print_message("%s at a random moment: %d times in %.1f s\n", actions[what], n, seconds() - started);
  free(trials);
}

/* In a child that adopts what its children leave behind. */
static void random_faults_leave_nothing(void) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const int private_place = retreat();
  const int descriptors = open_descriptors();
  const int before[] = {entries("/dev/shm"), entries("/tmp"), entries("/run")};
  strike_at_random_times(KILL);
  strike_at_random_times(STOP);
  assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
  assert_int_equal(errno, ECHILD);
  assert_int_equal(open_descriptors(), descriptors);
  assert_int_equal(shared_mappings(), 0);
  if (!private_place) {
    print_message("no namespaces here: files and sockets are not looked at\n");
    return;
  }
  assert_int_equal(entries("/dev/shm"), before[0]);
  assert_int_equal(entries("/tmp"), before[1]);
  assert_int_equal(entries("/run"), before[2]);
  assert_int_equal(sockets(), 0);
}

static void ranks_killed_and_stopped_at_random_leave_nothing_behind(void** state) {
  (void)state;
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    random_faults_leave_nothing();
    fflush(NULL);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  assert_int_equal(status, 0);
}

static void words_that_mean_nothing_are_refused(void** state) {
  (void)state;
  static const char* const bad[][2] = {
      {"kill", "\"kill\" is no fault; write fault@step"},
      {"drop@staged", "\"drop\" is no fault; use kill, stop, delay or corrupt"},
      {"kill@stagd:rank=0", "\"stagd\" is no step; use enter, header, staged"},
      {"kill@staged:rank=1", "\"rank=1\" needs a whole number of 0 to 0"},
      {"kill@staged:rank=", "\"rank=\" needs"},
      {"kill@staged:call=0", "\"call=0\" needs a whole number of 1"},
      {"kill@staged:call=3x", "\"call=3x\" needs"},
      {"kill@staged:when=3", "\"when=3\" is not known; use rank=, call= or ms="},
      {"kill@staged:", "\"\" is not known"},
      {"delay@staged:rank=0", "does not say how long; add ms="},
      {"delay@staged:ms=99999999", "\"ms=99999999\" needs"},
      {"corrupt@staged", "use corrupt@header"},
      {"kill@leave:call=9,", "\"\" is no fault"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
    gsel_error* err;
    gsel_comm* comm;
    gsel_comm_config config = GSEL_COMM_CONFIG_INIT;
    config.world_size = 1;
    setenv("GSEL_FAULT", bad[i][0], 1);
    check_fails(gsel_comm_init(&config, &comm, &err), err, GSEL_ERR_CONFIG, bad[i][1]);
    check_fails(gsel_comm_init(&config, &comm, &err), err, GSEL_ERR_CONFIG, "GSEL_FAULT is \"");
  }
  unsetenv("GSEL_FAULT");
}

/* Faults of several ranks and calls in one text; each strikes once. */
static void two_delays(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const double started = seconds();
  for (int i = 0; i < 3; ++i) rank_ok(run, gsel_barrier(comm, &err), err);
  rank_check(run, seconds() - started >= 0.1);
  gsel_comm_destroy(comm);
}

static void several_faults_stand_in_one_text(void** state) {
  (void)state;
  setenv("GSEL_FAULT", "delay@enter:rank=0:call=1:ms=50,delay@header:rank=1:call=2:ms=50", 1);
  as_threads(2, two_delays, NULL);
  as_processes(2, two_delays, NULL);
  unsetenv("GSEL_FAULT");
}

int main(void) {
  srand(20262);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(words_that_mean_nothing_are_refused),
      cmocka_unit_test(several_faults_stand_in_one_text),
      cmocka_unit_test(a_delay_at_any_step_of_any_call_harms_nobody),
      cmocka_unit_test(a_header_that_disagrees_is_told_to_all_and_the_next_call_works),
      cmocka_unit_test(a_kill_at_any_step_of_any_call_is_told_to_all),
      cmocka_unit_test(a_stop_at_any_step_of_any_call_is_told_to_all),
      cmocka_unit_test(ranks_killed_and_stopped_at_random_leave_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
