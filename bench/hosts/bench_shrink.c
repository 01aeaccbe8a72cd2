/* bench_shrink [TIMES]: how long a communicator over two hosts of two ranks each takes to go on after a death: until
 * every survivor has an error that names the dead rank, and from then until each has a smaller communicator. The ranks
 * are forked processes of one machine that are told that they are on several hosts, over TCP of the loopback device.
 * Prints one Markdown table; times are those of the slowest rank, in milliseconds. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <gsel/gsel.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST_TIMES = 200 };

/* What the ranks of one repetition share. */
struct stage {
  gsel_unique_id id;
  char place[64];
  volatile double died, named[MOST_RANKS], shrunk[MOST_RANKS], called[MOST_RANKS];
};
static struct stage* stage;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void give_up(const char* what, const gsel_error* err) {
  fprintf(stderr, "bench_shrink: %s: %s\n", what, err ? gsel_error_message(err).data : "failed");
  _exit(1);
}

static int free_port(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr*)&address, length) || getsockname(fd, (struct sockaddr*)&address, &length))
    give_up("a port", NULL);
  close(fd);
  return ntohs(address.sin_port);
}

static void run_rank(int rank, const char* hosts, int dead) {
  const char host[] = {'h', hosts[rank], '\0'};
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_error* err = NULL;
  gsel_comm *comm = NULL, *left = NULL;
  int32_t x = 1;
  setenv("GSEL_HOST_ID", host, 1);
  options.rank = rank;
  options.world_size = (int32_t)strlen(hosts);
  options.id = &stage->id;
  options.rendezvous = gsel_str_from(stage->place);
  if (gsel_comm_init(&options, &comm, &err) || gsel_barrier(comm, &err)) give_up("join", err);
  usleep(20000);
  if (rank == dead) {
    stage->died = now();
    kill(getpid(), SIGKILL);
  }
  if (gsel_allreduce(comm, &x, &x, 1, GSEL_I32, GSEL_SUM, &err) == GSEL_OK) give_up("nobody died", NULL);
  stage->named[rank] = now();
  gsel_error_free(err);
  err = NULL;
  if (gsel_comm_shrink(comm, &left, &err)) give_up("shrink", err);
  stage->shrunk[rank] = now();
  if (gsel_allreduce(left, &x, &x, 1, GSEL_I32, GSEL_SUM, &err)) give_up("a call", err);
  stage->called[rank] = now();
  gsel_comm_free(left);
  gsel_comm_free(comm);
  _exit(0);
}

static double last(const volatile double* at, int n) {
  double most = 0;
  for (int r = 0; r < n; ++r)
    if (at[r] > most) most = at[r];
  return most;
}

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void print(double* ms, int n) {
  qsort(ms, (size_t)n, sizeof *ms, by_size);
  printf(" %.2f (%.2f to %.2f) |", ms[n / 2], ms[0], ms[n - 1]);
}

static void measure(const char* hosts, int dead, const char* text, int times) {
  static double named[MOST_TIMES], shrunk[MOST_TIMES];
  const int n = (int)strlen(hosts);
  for (int t = 0; t < times; ++t) {
    gsel_error* err = NULL;
    memset(stage, 0, sizeof *stage);
    if (gsel_unique_id_create(&stage->id, &err)) give_up("an id", err);
    snprintf(stage->place, sizeof stage->place, "tcp://127.0.0.1:%d", free_port());
    for (int r = 0; r < n; ++r)
      if (fork() == 0) run_rank(r, hosts, dead);
    for (int r = 0, status = 0; r < n; ++r)
      if (wait(&status) < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != 0)) exit(1);
    named[t] = (last(stage->named, n) - stage->died) * 1e3;
    shrunk[t] = (last(stage->shrunk, n) - last(stage->named, n)) * 1e3;
  }
  printf("| %s, %s |", hosts, text);
  print(named, times);
  print(shrunk, times);
  printf("\n");
}

int main(int argc, char** argv) {
  const int given = argc > 1 ? atoi(argv[1]) : 20, times = given < 1 ? 1 : given > MOST_TIMES ? MOST_TIMES : given;
  stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (stage == MAP_FAILED) give_up("memory", NULL);
  printf(
      "| host of each rank, who dies | until all have the error, ms | from then until all have shrunk, ms "
      "|\n|---|---|---|\n");
  measure("0011", 3, "rank 3", times);
  measure("0011", 2, "the first of its host", times);
  measure("0011", 0, "the first of all", times);
  measure("01", 1, "a whole host", times);
  measure("001122", 0, "the first of all", times);
  return 0;
}
