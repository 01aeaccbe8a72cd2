/* forked.c: see forked.h. */
#define _GNU_SOURCE
#include "forked.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

enum { MOST_NUMBERS = 4096 };

static struct {
  pthread_barrier_t* barrier;
  double* numbers; /* [ranks][MOST_NUMBERS] */
  pid_t children[FORKED_MOST_RANKS];
  int rank, ranks;
} world;

void* forked_share(size_t bytes) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) bench_fail("no %zu bytes of shared memory", bytes);
  return memory;
}

void forked_join(int wanted, int* rank, int* ranks) {
  if (wanted < 1 || wanted > FORKED_MOST_RANKS) bench_fail("--ranks %d: 1 to %d", wanted, FORKED_MOST_RANKS);
  world.ranks = wanted;
  world.barrier = forked_share(sizeof *world.barrier);
  world.numbers = forked_share(sizeof(double) * MOST_NUMBERS * (size_t)wanted);
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(world.barrier, &shared, (unsigned)wanted);
  for (int r = 1; r < wanted && world.rank == 0; ++r) {
    world.children[r] = fork();
    if (world.children[r] < 0) bench_fail("fork failed");
    if (world.children[r] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      world.rank = r;
    }
  }
  *rank = world.rank;
  *ranks = wanted;
}

int forked_enter_host(int rank, int ranks) {
  const char* hosts = getenv("BENCH_HOSTS");
  const char* second = hosts ? strchr(hosts, ',') : NULL;
  if (!hosts) return 0;
  if (!second) bench_fail("BENCH_HOSTS=%s names one namespace", hosts);
  char* name = rank < ranks / 2 ? strndup(hosts, (size_t)(second - hosts)) : strdup(second + 1);
  const int fd = open(name, O_RDONLY | O_CLOEXEC);
  if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) bench_fail("network namespace %s cannot be entered", name);
  close(fd);
  free(name);
  return 1;
}

void forked_barrier(void) {
  pthread_barrier_wait(world.barrier);
}

void forked_gather(double* mine, double* all, size_t count) {
  memcpy(world.numbers + (size_t)world.rank * MOST_NUMBERS, mine, count * sizeof *mine);
  forked_barrier();
  for (int r = 0; r < world.ranks; ++r)
    memcpy(all + (size_t)r * count, world.numbers + (size_t)r * MOST_NUMBERS, count * sizeof *all);
  forked_barrier();
}

void forked_leave(void) {
  if (world.rank != 0) _exit(0);
  for (int r = 1; r < world.ranks; ++r) {
    int status = 0;
    waitpid(world.children[r], &status, 0);
    if (status != 0) bench_fail("rank %d failed", r);
  }
}
