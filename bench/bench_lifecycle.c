/* bench_lifecycle: what a communicator costs around its calls: joining, splitting, noticing a death, a stop and an
 * abort, waiting for nothing. Ranks are forked processes, threads where said. Prints one Markdown table; times are
 * those of the slowest rank, medians and extremes over repetitions. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <gsel/gsel.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 64, MOST_TIMES = 400 };

/* What the ranks of one repetition share. */
struct stage {
  gsel_unique_id id;
  char place[64]; /* where the ranks meet; empty: on this host */
  int host_ranks; /* of a host, as they are told; 0: all are on one */
  atomic_int ready;
  _Atomic double event;               /* when the thing to be noticed happened */
  _Atomic double noticed[MOST_RANKS]; /* when each rank noticed; 0: not yet */
};
static struct stage* stage;

struct rank {
  int rank, ranks;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(double seconds) {
  const struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&t, NULL);
}

static void give_up(const char* what, const gsel_error* err) {
  fprintf(stderr, "bench_lifecycle: %s: %s\n", what, err ? gsel_error_message(err).data : "failed");
  exit(1);
}

static gsel_comm* join(struct rank r, double timeout_s) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  options.rank = r.rank;
  options.world_size = r.ranks;
  options.id = &stage->id;
  options.timeout_s = timeout_s;
  if (stage->place[0]) options.rendezvous = gsel_str_from(stage->place);
  if (stage->host_ranks > 0) {
    char host[16];
    snprintf(host, sizeof host, "host%d", r.rank / stage->host_ranks);
    setenv("GSEL_HOST_ID", host, 1);
  }
  if (gsel_comm_init(&options, &comm, &err)) give_up("join", err);
  return comm;
}

/* All ranks leave at about the same time. */
static void meet(int ranks) {
  atomic_fetch_add(&stage->ready, 1);
  while (atomic_load(&stage->ready) < ranks) sched_yield();
}

static void barrier(gsel_comm* comm) {
  gsel_error* err = NULL;
  if (gsel_barrier(comm, &err)) give_up("barrier", err);
}

static void time_join(struct rank r) {
  meet(r.ranks);
  const double begin = now();
  gsel_comm* comm = join(r, 60);
  stage->noticed[r.rank] = now() - begin;
  barrier(comm);
  gsel_comm_free(comm);
}

static void time_split(struct rank r) {
  gsel_error* err = NULL;
  gsel_comm *comm = join(r, 60), *half = NULL;
  barrier(comm);
  const double begin = now();
  if (gsel_comm_split(comm, r.rank % 2, r.rank, &half, &err)) give_up("split", err);
  stage->noticed[r.rank] = now() - begin;
  gsel_comm_free(half);
  gsel_comm_free(comm);
}

/* Rank 0 does not come; the others wait for it in an allreduce until the communicator breaks. */
static void wait_for_breakage(struct rank r, double timeout_s) {
  gsel_comm* comm = join(r, timeout_s);
  gsel_error* err = NULL;
  float x = 1;
  barrier(comm);
  meet(r.ranks);
  if (gsel_allreduce(comm, &x, &x, 1, GSEL_F32, GSEL_SUM, &err) == GSEL_OK) give_up("allreduce went through", NULL);
  stage->noticed[r.rank] = now();
  gsel_error_free(err);
  gsel_comm_free(comm);
}

static void survive(struct rank r) {
  if (r.rank != r.ranks - 1 && r.rank != 0) return wait_for_breakage(r, 60);
  barrier(join(r, 60)); /* rank 0 only stays away; the last one is killed */
  meet(r.ranks);
  for (;;) pause();
}

static void outlast(struct rank r) {
  if (r.rank != 0) return wait_for_breakage(r, 0.2);
  barrier(join(r, 60));
  meet(r.ranks);
  for (;;) pause();
}

static void abort_others(struct rank r) {
  if (r.rank != 0) return wait_for_breakage(r, 60);
  gsel_comm* comm = join(r, 60);
  barrier(comm);
  meet(r.ranks);
  nap(0.02);
  stage->event = now();
  gsel_comm_abort(comm, gsel_str_from("measured"));
  nap(0.02);
  gsel_comm_free(comm);
}

static double processor_seconds(void) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
         1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

static void wait_idly(struct rank r) {
  gsel_comm* comm = join(r, 60);
  barrier(comm);
  const double used = processor_seconds(), begin = now();
  if (r.rank == 0) nap(1);
  barrier(comm);
  stage->noticed[r.rank] = r.rank == 0 ? 0 : (processor_seconds() - used) / (now() - begin);
  gsel_comm_free(comm);
}

static void prepare(void) {
  memset(stage, 0, sizeof *stage);
  if (gsel_unique_id_create(&stage->id, NULL)) give_up("id", NULL);
}

static void fork_ranks(int ranks, void (*body)(struct rank), pid_t* pids) {
  for (int i = 0; i < ranks; ++i)
    if ((pids[i] = fork()) == 0) {
      body((struct rank){i, ranks});
      _exit(0);
    }
}

static double slowest(int ranks, double since) {
  double most = 0;
  for (int i = 0; i < ranks; ++i)
    if (stage->noticed[i] - since > most) most = stage->noticed[i] - since;
  return most;
}

static double run_processes(int ranks, void (*body)(struct rank)) {
  pid_t pids[MOST_RANKS];
  prepare();
  fork_ranks(ranks, body, pids);
  for (int i = 0; i < ranks; ++i) waitpid(pids[i], NULL, 0);
  return slowest(ranks, stage->event);
}

/* Hits `victim` with a signal once all are under way; ends who stayed away. */
static double run_with_signal(int ranks, void (*body)(struct rank), int victim, int signal) {
  pid_t pids[MOST_RANKS];
  prepare();
  fork_ranks(ranks, body, pids);
  while (atomic_load(&stage->ready) < ranks) nap(0.001);
  nap(0.02); /* long enough to be asleep */
  stage->event = now();
  kill(pids[victim], signal);
  for (int i = 0; i < ranks; ++i) {
    if (i == victim || (body == survive && i == 0)) continue;
    waitpid(pids[i], NULL, 0);
  }
  const double since = stage->event;
  for (int i = 0; i < ranks; ++i) kill(pids[i], SIGKILL);
  while (waitpid(-1, NULL, 0) > 0) {
  }
  return slowest(ranks, since);
}

static double kill_one(int ranks) {
  return run_with_signal(ranks, survive, ranks - 1, SIGKILL);
}
static double stop_one(int ranks) {
  return run_with_signal(ranks, outlast, 0, SIGSTOP);
}
static double join_processes(int ranks) {
  return run_processes(ranks, time_join);
}

/* Ranks that meet at a port, or by a file, as those of several hosts do: each is told where, and nothing else. */
static void choose_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr*)&address, length) || getsockname(fd, (struct sockaddr*)&address, &length))
    give_up("no free port", NULL);
  close(fd);
  snprintf(stage->place, sizeof stage->place, "tcp://127.0.0.1:%d", ntohs(address.sin_port));
}
static double meet_on_one_host(int ranks) {
  choose_port();
  stage->host_ranks = 0;
  return join_processes(ranks);
}
static double meet_on_hosts(int ranks) {
  choose_port();
  stage->host_ranks = 8;
  return join_processes(ranks);
}
static double meet_by_file(int ranks) {
  snprintf(stage->place, sizeof stage->place, "file:///tmp/gsel-bench-%d", (int)getpid());
  stage->host_ranks = 8;
  return join_processes(ranks);
}
static double split_processes(int ranks) {
  return run_processes(ranks, time_split);
}
static double abort_processes(int ranks) {
  return run_processes(ranks, abort_others);
}
static double idle_processes(int ranks) {
  return run_processes(ranks, wait_idly);
}

static void* join_thread(void* argument) {
  time_join(*(struct rank*)argument);
  return NULL;
}

static double join_threads(int ranks) {
  pthread_t threads[MOST_RANKS];
  struct rank all[MOST_RANKS];
  prepare();
  for (int i = 0; i < ranks; ++i) {
    all[i] = (struct rank){i, ranks};
    if (pthread_create(&threads[i], NULL, join_thread, &all[i])) give_up("pthread_create", NULL);
  }
  for (int i = 0; i < ranks; ++i) pthread_join(threads[i], NULL);
  return slowest(ranks, 0);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void row(const char* what, int ranks, int times, double (*measure)(int), double unit, const char* unit_name,
                const char* target) {
  double all[MOST_TIMES];
  for (int i = 0; i < times; ++i) all[i] = measure(ranks) * unit;
  qsort(all, (size_t)times, sizeof *all, ascending);
  printf("| %s | %d | %.3g (%.3g-%.3g) %s | %.3g | %s | %d |\n", what, ranks, all[times / 2], all[0], all[times - 1],
         unit_name, all[times * 99 / 100], target, times);
  fflush(stdout);
}

int main(void) {
  stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (stage == MAP_FAILED) give_up("mmap", NULL);
  printf("| what, slowest rank | ranks | median (min-max) | p99 | target | repetitions |\n|---|---|---|---|---|---|\n");
  row("join, processes", 8, 50, join_processes, 1e3, "ms", "20 ms");
  row("join, threads", 64, 20, join_threads, 1e3, "ms", "5 ms");
  row("split in two, processes", 8, 50, split_processes, 1e3, "ms", "1 ms");
  row("kill to error, others wait for a third rank", 4, 200, kill_one, 1e3, "ms", "1 ms");
  row("stop to error, timeout 200 ms", 4, 20, stop_one, 1e3, "ms", "210 ms");
  row("abort to error", 4, 50, abort_processes, 1e3, "ms", "10 ms");
  row("meet at a port, one host", 64, 20, meet_on_one_host, 1e3, "ms", "1000 ms");
  row("meet at a port, 8 hosts", 64, 20, meet_on_hosts, 1e3, "ms", "1000 ms");
  row("meet by a file, 8 hosts", 64, 20, meet_by_file, 1e3, "ms", "1000 ms");
  stage->place[0] = '\0', stage->host_ranks = 0;
  row("processor time of a rank that waits a second", 2, 5, idle_processes, 100, "%", "5 %");
  return 0;
}
