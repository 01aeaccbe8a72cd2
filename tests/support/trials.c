/* See trials.h. */
#include "support/trials.h"

#include <dirent.h>
#include <time.h>

#define CALLS 5
#define WORLDS_AT_ONCE 6

const char* const steps[] = {"enter",  "header",      "staged", "reduced", "copied",
                             "direct", "single_copy", "sent",   "taken",   "leave"};

const size_t sizes[] = {3, 800, 40000, 300000};

const char* const actions[] = {"kill", "stop", "delay", "corrupt"};

/* One world under way; memory shared with its ranks. */
typedef struct world {
  trial trial;
  pid_t pids[RANKS];
  int done[RANKS], statuses[RANKS];
  volatile int calls[RANKS];  /* calls that came back well */
  volatile int failed[RANKS]; /* 1: a call failed as it should */
} world;

double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int open_descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder)) ++count;
  closedir(folder);
  return count;
}

int shared_mappings(void) {
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
    rank_fails(run, status, *err, GSEL_ERR_PEER, "ended without gsel_comm_free while rank", t->victim);
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
  gsel_comm_free(comm);
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

/* A stopped rank is to be late, and no other: sanitizers of threads make a copy take longer than 0.3 s. */
#ifdef __SANITIZE_THREAD__
#define STOPPED_TIMEOUT_S 1.5
#else
#define STOPPED_TIMEOUT_S 0.3
#endif

static rank_run* start(world* w) {
  rank_run* runs = ranks_prepare(RANKS, w);
  set_fault(&w->trial);
  for (int32_t r = 0; r < RANKS; ++r) {
    runs[r].timeout_s = w->trial.what == STOP ? STOPPED_TIMEOUT_S : 60;
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

int run_all(const trial* trials, int n, int* struck) {
  int total = 0;
  for (int begin = 0; begin < n; begin += WORLDS_AT_ONCE) {
    const int some = n - begin < WORLDS_AT_ONCE ? n - begin : WORLDS_AT_ONCE;
    world* worlds = shared_memory(sizeof(world) * WORLDS_AT_ONCE);
    rank_run* runs[WORLDS_AT_ONCE];
    const double started = seconds();
    for (int i = 0; i < some; ++i) {
      worlds[i].trial = trials[begin + i];
      runs[i] = start(&worlds[i]);
    }
    for (int i = 0; i < some; ++i)
      if (worlds[i].trial.random) strike_at_random(&worlds[i]);
    for (int i = 0; i < some; ++i) {
      const int hit = judge(&worlds[i], runs[i]);
      total += hit;
      if (struck) struck[begin + i] = hit;
    }
    assert_true(seconds() - started < 50); /* nobody waited for a timeout of 60 s */
    munmap(worlds, sizeof(world) * WORLDS_AT_ONCE);
  }
  return total;
}
