/* faults/test_comm_shrink.c: what comes after a failure: those who live go on without the dead, the stopped and the
 * late; all come back in step after a timeout, an abort or a mismatch; however often, nothing is left behind. */
#include <poll.h>
#include <sys/syscall.h>
#include <time.h>

#include "support/ranks.h"
#include "support/traces.h"

#define N 4
#define MOST 300000

struct stage {
  int kind; /* of call, below */
  int32_t victim;
  double timeout_s;
  volatile int at[RANKS_MAX]; /* how far a rank is */
  volatile int finished;
};

static struct stage* make_stage(void) {
  struct stage* s = shared_memory(sizeof *s);
  return s;
}

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum {
  BARRIER,
  TINY,
  SMALL,
  LARGE,
  REDUCE,
  REDUCE_SCATTER,
  ALLGATHER,
  BROADCAST,
  GATHER,
  SCATTER,
  ALLTOALL,
  RING,
  SPLIT,
  KINDS
};

/* One call of a kind; buffers have MOST elements. */
static gsel_status call_of(int kind, gsel_comm* comm, int32_t* x, int32_t* y, gsel_error** err) {
  const int32_t n = gsel_comm_world_size(comm), me = gsel_comm_rank(comm), part = MOST / N;
  gsel_comm* made = NULL;
  gsel_status status;
  switch (kind) {
    case BARRIER:
      return gsel_barrier(comm, err);
    case TINY:
      return gsel_allreduce(comm, x, x, 2, GSEL_I32, GSEL_SUM, err);
    case SMALL:
      return gsel_allreduce(comm, x, x, 900, GSEL_I32, GSEL_SUM, err);
    case LARGE:
      return gsel_allreduce(comm, x, y, MOST, GSEL_I32, GSEL_SUM, err);
    case REDUCE:
      return gsel_reduce(comm, x, y, MOST, GSEL_I32, GSEL_SUM, n - 1, err);
    case REDUCE_SCATTER:
      return gsel_reduce_scatter(comm, x, y, (size_t)part, GSEL_I32, GSEL_SUM, err);
    case ALLGATHER:
      return gsel_allgather(comm, x, y, (size_t)part, GSEL_I32, err);
    case BROADCAST:
      return gsel_broadcast(comm, x, x, MOST, GSEL_I32, 0, err);
    case GATHER:
      return gsel_gather(comm, x, y, (size_t)part, GSEL_I32, n - 1, err);
    case SCATTER:
      return gsel_scatter(comm, x, y, (size_t)part, GSEL_I32, 0, err);
    case ALLTOALL:
      return gsel_alltoall(comm, x, y, (size_t)part, GSEL_I32, err);
    case SPLIT:
      status = gsel_comm_split(comm, me % 2, 0, &made, err);
      gsel_comm_free(made);
      return status;
    default: /* a ring of messages, the first sends first */
      if (n == 1) return gsel_barrier(comm, err);
      status = me % 2 ? gsel_recv(comm, y, 5000, GSEL_I32, (me + n - 1) % n, err)
                      : gsel_send(comm, x, 5000, GSEL_I32, (me + 1) % n, err);
      if (status != GSEL_OK) return status;
      return me % 2 ? gsel_send(comm, x, 5000, GSEL_I32, (me + 1) % n, err)
                    : gsel_recv(comm, y, 5000, GSEL_I32, (me + n - 1) % n, err);
  }
}

/* Whether the communicator is of these ranks of the first one, in their order, and small and large sums come out. */
static int is_of(gsel_comm* comm, int32_t number, uint32_t members, int32_t* x, gsel_error** err) {
  int32_t all[RANKS_MAX], sum = 0, at = 0;
  if (gsel_comm_world_size(comm) != __builtin_popcount(members)) return 0;
  if (gsel_allgather(comm, &number, all, 1, GSEL_I32, err) != GSEL_OK) return 0;
  for (int32_t r = 0; r < 32; ++r)
    if (members & 1u << r) {
      if (all[at++] != r) return 0;
      sum += r;
    }
  for (size_t count = 1; count <= MOST; count *= 547) {
    for (size_t i = 0; i < count; ++i) x[i] = number + (int32_t)(i % 7);
    if (gsel_allreduce(comm, x, x, count, GSEL_I32, GSEL_SUM, err) != GSEL_OK) return 0;
    for (size_t i = 0; i < count; ++i)
      if (x[i] != sum + at * (int32_t)(i % 7)) return 0;
  }
  return 1;
}

/* Works until it fails, shrinks and goes on, as often as it must, until the communicator is of those in `rest`. */
static void goes_on(rank_run* run, uint32_t rest) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t *x = calloc(MOST, sizeof *x), *y = calloc(MOST, sizeof *y);
  rank_ok(run, rank_join(run, &comm, &err), err);
  while (gsel_comm_world_size(comm) > __builtin_popcount(rest)) {
    const gsel_status status = call_of(s->kind, comm, x, y, &err);
    reach_step(&s->at[run->rank], 1);
    if (status == GSEL_OK) continue;
    rank_check(run, status == GSEL_ERR_PEER || status == GSEL_ERR_STATE); /* STATE: somebody shrinks already */
    gsel_error_free(err);
    err = NULL;
    rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
    gsel_comm_free(comm);
    comm = smaller;
  }
  if (!is_of(comm, run->rank, rest, x, &err)) {
    char text[400] = "";
    gsel_error_format(err, text, sizeof text);
    snprintf(run->failure, sizeof run->failure, "rank %d: kind %d: not of 0x%x: %s", (int)run->rank, s->kind, rest,
             text);
    return;
  }
  free(x);
  free(y);
  gsel_comm_free(comm);
}

static void loses_the_victim(rank_run* run) {
  const struct stage* s = run->user;
  goes_on(run, ((1u << run->world_size) - 1) & ~(1u << s->victim));
}

static void wait_until_all_work(const struct stage* s, int32_t n) {
  for (int32_t r = 0; r < n; ++r) await_step(&s->at[r], 1);
}

static void await(pid_t pid, rank_run* run, int killed) {
  int status = 0;
  waitpid(pid, &status, 0);
  if (!killed && status != 0 && !run->failure[0])
    snprintf(run->failure, sizeof run->failure, "rank %d ended with wait status 0x%x", (int)run->rank,
             (unsigned)status);
}

static void survivors_of_a_kill_go_on_whatever_they_called(void** state) {
  (void)state;
  for (int round = 0; round < 3 * KINDS; ++round) {
    struct stage* s = make_stage();
    const int32_t n = 2 + round % 3;
    s->kind = round % KINDS;
    s->victim = rand() % n;
    if (s->kind == RING && n % 2) s->kind = TINY; /* a ring of three waits for itself */
    rank_run* runs = ranks_prepare(n, s);
    pid_t pids[N];
    for (int32_t r = 0; r < n; ++r) pids[r] = rank_fork(&runs[r], loses_the_victim);
    wait_until_all_work(s, n);
    usleep((useconds_t)(rand() % 1500));
    kill(pids[s->victim], SIGKILL);
    for (int32_t r = 0; r < n; ++r) await(pids[r], &runs[r], r == s->victim);
    ranks_verdict(runs, n);
    munmap(s, sizeof *s);
  }
}

/* Ranks 1 and 3 of 5 stay. */
static void loses_three(rank_run* run) {
  goes_on(run, 1u << 1 | 1u << 3);
}

/* The lowest, which founds the new communicator, and others are killed while the survivors of the first kill shrink. */
static void kills_during_a_shrink_are_survived(void** state) {
  (void)state;
  const int32_t order[] = {4, 0, 2};
  for (int round = 0; round < 60; ++round) {
    struct stage* s = make_stage();
    rank_run* runs = ranks_prepare(5, s);
    pid_t pids[5];
    s->kind = round % 2 ? TINY : LARGE;
    for (int32_t r = 0; r < 5; ++r) pids[r] = rank_fork(&runs[r], loses_three);
    wait_until_all_work(s, 5);
    for (int i = 0; i < 3; ++i) {
      kill(pids[order[i]], SIGKILL);
      const double until = seconds() + 1e-6 * (rand() % 1000); /* finer than sleep */
      while (seconds() < until) sched_yield();
    }
    for (int32_t r = 0; r < 5; ++r) await(pids[r], &runs[r], r % 2 == 0);
    ranks_verdict(runs, 5);
    munmap(s, sizeof *s);
  }
}

/* The victim is stopped in the middle of calls; when it goes on, it is told who went on without it. */
static void is_stopped_or_shrinks(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t* x = calloc(MOST, sizeof *x);
  const uint32_t rest = ((1u << run->world_size) - 1) & ~(1u << s->victim);
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_status status = GSEL_OK;
  while (status == GSEL_OK) {
    status = gsel_allreduce(comm, x, x, 100, GSEL_I32, GSEL_SUM, &err);
    reach_step(&s->at[run->rank], 1);
  }
  rank_check(run, status == GSEL_ERR_TIMEOUT || status == GSEL_ERR_STATE);
  gsel_error_free(err);
  if (run->rank == s->victim) {
    rank_fails(run, gsel_comm_shrink(comm, &smaller, &err), err, GSEL_ERR_PEER, "was left behind by a shrink: rank ",
               -1);
    rank_check(run, smaller == NULL);
  } else {
    rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
    rank_check(run, is_of(smaller, run->rank, rest, x, &err));
    gsel_comm_free(smaller);
  }
  rank_fails(run, gsel_comm_shrink(comm, &smaller, &err), err, GSEL_ERR_STATE, "has been shrunk already", -1);
  gsel_comm_free(comm);
}

static void a_stopped_rank_is_left_behind_and_told_so(void** state) {
  (void)state;
  for (int32_t victim = 0; victim < 3; ++victim) {
    struct stage* s = make_stage();
    s->victim = victim;
    rank_run* runs = ranks_prepare(3, s);
    pid_t pids[3];
    for (int32_t r = 0; r < 3; ++r) {
      runs[r].timeout_s = 0.3;
      pids[r] = rank_fork(&runs[r], is_stopped_or_shrinks);
    }
    wait_until_all_work(s, 3);
    kill(pids[victim], SIGSTOP);
    for (int32_t r = 0; r < 3; ++r)
      if (r != victim) await(pids[r], &runs[r], 0);
    kill(pids[victim], SIGCONT);
    await(pids[victim], &runs[victim], 0);
    ranks_verdict(runs, 3);
    munmap(s, sizeof *s);
  }
}

/* Nobody is dead: one rank has left, another asks, the third is pulled out of a call. */
static void shrinks_a_whole_one(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t* x = calloc(MOST, sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank != 1) {
    if (run->rank == 2) {
      const gsel_status status = gsel_recv(comm, x, 1, GSEL_I32, 0, &err);
      rank_fails(run, status, err, GSEL_ERR_STATE, "rank 0 asked for a shrink", 0);
    }
    rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
    rank_check(run, is_of(smaller, run->rank, 1 << 0 | 1 << 2, x, &err));
    rank_fails(run, gsel_comm_resync(comm, &err), err, GSEL_ERR_STATE, "has been shrunk", -1);
    gsel_comm_free(smaller);
  }
  free(x);
  gsel_comm_free(comm);
}

static void a_whole_communicator_can_be_shrunk_by_those_who_stay(void** state) {
  (void)state;
  for (int round = 0; round < 10; ++round) {
    as_processes(3, shrinks_a_whole_one, NULL);
    as_threads(3, shrinks_a_whole_one, NULL);
  }
}

/* ---- a death that one rank knows of first ----------------------------------------------------------------- */

/* Rank 1 sees rank 2 die and shrinks at once; rank 0 is in a barrier, and is told of the death and not of the shrink.
 */
static void knows_of_a_death(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t x[8], pids[3], mine = getpid();
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_allgather(comm, &mine, pids, 1, GSEL_I32, &err), err);
  if (run->rank == 2)
    for (;;) pause();
  reach_step(&s->at[run->rank], 1);
  if (run->rank == 1) {
    struct pollfd dead = {(int)syscall(SYS_pidfd_open, pids[2], 0), POLLIN, 0};
    rank_check(run, dead.fd >= 0);
    await_step(&s->at[0], 1);
    kill(pids[2], SIGKILL);
    rank_check(run, !s->kind || poll(&dead, 1, 60000) == 1);
  } else {
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "rank 2 (pid ", 2);
  }
  rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
  rank_check(run, gsel_comm_world_size(smaller) == 2 && gsel_comm_rank(smaller) == run->rank);
  rank_ok(run, gsel_allgather(smaller, &mine, x, 1, GSEL_I32, &err), err);
  gsel_comm_free(smaller);
  gsel_comm_free(comm);
}

static void a_shrink_tells_of_a_death_and_not_of_itself(void** state) {
  (void)state;
  for (int round = 0; round < 20; ++round) {
    struct stage* s = make_stage();
    s->kind = round % 2; /* waits until it is dead */
    rank_run* runs = ranks_prepare(3, s);
    pid_t pids[3];
    for (int32_t r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], knows_of_a_death);
    for (int32_t r = 0; r < 3; ++r) await(pids[r], &runs[r], r == 2);
    ranks_verdict(runs, 3);
    munmap(s, sizeof *s);
  }
}

/* ---- ranks that are left out by name, and groups of a broken communicator -------------------------------------- */

/* Rank 1 lives and does not call: nobody waits for it, though the timeout is long. Rank 0 alone names it. */
static void leaves_rank_1_out(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  const int32_t one = 1, twice[] = {1, 1}, itself = run->rank, beyond = 3;
  int32_t* x = calloc(MOST, sizeof *x);
  run->timeout_s = 90;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) {
    await_step(&s->at[0], 1);
    await_step(&s->at[2], 1);
    rank_fails(run, gsel_comm_shrink(comm, &smaller, &err), err, GSEL_ERR_PEER,
               "rank 1 was left behind by a shrink: rank 0 left it out", 0);
  } else {
    rank_fails(run, gsel_comm_shrink_without(comm, twice, 2, &smaller, &err), err, GSEL_ERR_ARG, "named twice", -1);
    rank_fails(run, gsel_comm_shrink_without(comm, &beyond, 1, &smaller, &err), err, GSEL_ERR_ARG, "3 is not a rank",
               -1);
    rank_fails(run, gsel_comm_shrink_without(comm, &itself, 1, &smaller, &err), err, GSEL_ERR_ARG, "which calls it",
               -1);
    rank_fails(run, gsel_comm_shrink_without(comm, NULL, 1, &smaller, &err), err, GSEL_ERR_ARG, "ranks is NULL", -1);
    rank_ok(run, gsel_comm_shrink_without(comm, &one, run->rank == 0, &smaller, &err), err);
    rank_check(run, is_of(smaller, run->rank, 1 << 0 | 1 << 2, x, &err));
    reach_step(&s->at[run->rank], 1);
    gsel_comm_free(smaller);
  }
  free(x);
  gsel_comm_free(comm);
}

static void ranks_that_do_not_call_are_left_out_by_name(void** state) {
  (void)state;
  for (int threads = 0; threads < 2; ++threads) {
    struct stage* s = make_stage();
    if (threads)
      as_threads(3, leaves_rank_1_out, s);
    else
      as_processes(3, leaves_rank_1_out, s);
    munmap(s, sizeof *s);
  }
}

/* Ways to get out of step; each leaves the communicator broken. Rank 1 is the one who strays. */
static void strays(rank_run* run, gsel_comm* comm, int way, int32_t* x) {
  gsel_error* err = NULL;
  gsel_collective call;
  gsel_collective_init(&call, sizeof call);
  const int one = run->rank == 1;
  if (way == 0) { /* makes no call: the others are late, or pulled out when rank 1 asks */
    call.kind = GSEL_COLLECTIVE_ALLREDUCE;
    call.dtype = GSEL_I32;
    call.op = GSEL_SUM;
    call.send = call.recv = x;
    call.count = MOST;
    call.timeout_s = 0.02;
    const gsel_status status = one ? GSEL_ERR_STATE : gsel_comm_run(comm, &call, &err);
    rank_check(run, status == GSEL_ERR_STATE || status == GSEL_ERR_TIMEOUT);
  } else if (way == 1) { /* asks while the others are in a call */
    if (!one)
      rank_fails(run, gsel_allreduce(comm, x, x, MOST, GSEL_I32, GSEL_SUM, &err), err, GSEL_ERR_STATE,
                 "rank 1 asked for a resync", 1);
  } else if (way == 2) { /* aborts */
    if (one) gsel_comm_abort(comm, gsel_str_from("no more"));
    if (!one) rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_ABORTED, "no more", 1);
  } else if (way == 3) { /* takes a message for another; ranks from 2 on learn of it in a call */
    if (run->rank == 0) {
      rank_ok(run, gsel_send(comm, x, 3, GSEL_F32, 1, &err), err);
      rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, "send(count 3", -1);
    } else {
      rank_fails(run, one ? gsel_recv(comm, x, 3, GSEL_I32, 0, &err) : gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH,
                 "send(count 3", -1);
    }
  }
  gsel_error_free(err); /* way 4: nothing is wrong, nobody is in a call */
}

static void comes_back(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  int32_t* x = calloc(MOST, sizeof *x);
  void* memory;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_mem_alloc(comm, 5000, &memory, &err), err);
  memset(memory, 0x11, 5000);
  for (int round = 0; round < 25; ++round) {
    strays(run, comm, round % 5, x);
    if (run->failure[0]) return;
    rank_ok(run, gsel_comm_resync(comm, &err), err);
    rank_check(run, is_of(comm, run->rank, (1u << run->world_size) - 1, x, &err));
    if (run->rank == 0) rank_ok(run, gsel_send(comm, x, 10000, GSEL_I32, 1, &err), err);
    if (run->rank == 1) rank_ok(run, gsel_recv(comm, x, 10000, GSEL_I32, 0, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
  }
  for (int i = 0; i < 5000; ++i) rank_check(run, ((char*)memory)[i] == 0x11);
  gsel_comm* copy;
  rank_ok(run, gsel_comm_dup(comm, &copy, &err), err);
  gsel_comm_free(comm);
  rank_check(run, is_of(copy, run->rank, (1u << run->world_size) - 1, x, &err));
  gsel_comm_free(copy);
  free(x);
}

static void all_come_back_in_step_after_any_failure_but_a_death(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 4; ++n) as_processes(n, comes_back, NULL);
  as_threads(3, comes_back, NULL);
}

/* Rank 0 wants all back, the others go on without those who do not come: it is told so and follows. */
static void wants_another_way(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t* x = calloc(MOST, sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 0)
    rank_fails(run, gsel_comm_resync(comm, &err), err, GSEL_ERR_STATE, "shrinks the communicator", -1);
  rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
  rank_check(run, is_of(smaller, run->rank, 7, x, &err));
  gsel_comm_free(comm);
  gsel_comm_free(smaller);
  free(x);
}

static void who_asks_for_a_resync_follows_a_shrink(void** state) {
  (void)state;
  for (int round = 0; round < 10; ++round) as_processes(3, wants_another_way, NULL);
}

static void alone(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t x[600];
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < 3; ++i) {
    gsel_comm_abort(comm, gsel_str_from("alone"));
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_ABORTED, "alone", 0);
    rank_ok(run, gsel_comm_resync(comm, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
  }
  rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
  rank_ok(run, gsel_allreduce(smaller, x, x, 600, GSEL_I32, GSEL_MAX, &err), err);
  gsel_comm_free(comm);
  rank_ok(run, gsel_barrier(smaller, &err), err);
  gsel_comm_free(smaller);
}

static void a_world_of_one_comes_back_too(void** state) {
  (void)state;
  as_processes(1, alone, NULL);
}

/* The victim dies or stays away; a resync says so on all others, who shrink then. */
static void resyncs_without_the_victim(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm *comm, *smaller;
  int32_t* x = calloc(MOST, sizeof *x);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  const gsel_status code = s->kind ? GSEL_ERR_TIMEOUT : GSEL_ERR_PEER;
  const char* part =
      s->kind ? "until the timeout; it last finished barrier() (call 1)" : "gsel_comm_resync without rank ";
  if (run->rank == s->victim) {
    if (!s->kind) raise(SIGKILL);
    await_step(&s->finished, 2);
    rank_fails(run, gsel_comm_resync(comm, &err), err, code, part, s->victim);
    rank_fails(run, gsel_comm_shrink(comm, &smaller, &err), err, GSEL_ERR_PEER, "left behind", -1);
  } else {
    rank_fails(run, gsel_comm_resync(comm, &err), err, code, part, s->victim);
    rank_fails(run, gsel_comm_resync(comm, &err), err, code, part, s->victim); /* it stays so */
    rank_ok(run, gsel_comm_shrink(comm, &smaller, &err), err);
    rank_check(run, is_of(smaller, run->rank, 7u & ~(1u << s->victim), x, &err));
    gsel_comm_free(smaller);
    __atomic_fetch_add(&s->finished, 1, __ATOMIC_SEQ_CST);
    if (s->kind) await_step(&s->finished, 2);
  }
  gsel_comm_free(comm);
  free(x);
}

static void a_resync_names_the_dead_and_the_late(void** state) {
  (void)state;
  for (int round = 0; round < 6; ++round) {
    struct stage* s = make_stage();
    s->kind = round / 3;
    s->victim = round % 3;
    rank_run* runs = ranks_prepare(3, s);
    pid_t pids[3];
    for (int32_t r = 0; r < 3; ++r) {
      runs[r].timeout_s = s->kind ? 0.3 : 60;
      pids[r] = rank_fork(&runs[r], resyncs_without_the_victim);
    }
    for (int32_t r = 0; r < 3; ++r) await(pids[r], &runs[r], !s->kind && r == s->victim);
    ranks_verdict(runs, 3);
    munmap(s, sizeof *s);
  }
}

/* Rank 0 waits for rank 2, which works elsewhere; rank 1 dies, or leaves in good order and ends. */
static void waits_for_another(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err = NULL;
  gsel_comm* comm;
  int32_t x = 5;
  gsel_comm_options options;
  gsel_comm_options_init(&options, sizeof options);
  options.id = &run->id;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.flags = s->kind ? GSEL_COMM_NO_THREAD : 0;
  rank_ok(run, gsel_comm_init(&options, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 1) {
    if (s->victim == 1) raise(SIGKILL);
  } else if (run->rank == 0) {
    if (s->victim == 1)
      rank_fails(run, gsel_recv(comm, &x, 1, GSEL_I32, 2, &err), err, GSEL_ERR_PEER,
                 ") ended without gsel_comm_free while rank ", 1);
    else
      rank_ok(run, gsel_recv(comm, &x, 1, GSEL_I32, 2, &err), err);
    reach_step(&s->finished, 1);
  } else if (s->victim == 1) {
    await_step(&s->finished, 1);
    rank_fails(run, gsel_send(comm, &x, 1, GSEL_I32, 0, &err), err, GSEL_ERR_PEER,
               ") ended without gsel_comm_free while rank ", 1);
  } else {
    await_step(&s->at[1], 1); /* rank 1's process has ended */
    rank_ok(run, gsel_send(comm, &x, 1, GSEL_I32, 0, &err), err);
  }
  gsel_comm_free(comm);
}

static void a_death_is_noticed_whatever_the_others_wait_for(void** state) {
  (void)state;
  for (int round = 0; round < 20; ++round) {
    struct stage* s = make_stage();
    s->kind = round % 2;
    s->victim = round / 2 % 2 ? 1 : -1;
    rank_run* runs = ranks_prepare(3, s);
    pid_t pids[3];
    for (int32_t r = 0; r < 3; ++r) pids[r] = rank_fork(&runs[r], waits_for_another);
    await(pids[1], &runs[1], s->victim == 1);
    reach_step(&s->at[1], 1);
    await(pids[0], &runs[0], 0);
    await(pids[2], &runs[2], 0);
    ranks_verdict(runs, 3);
    munmap(s, sizeof *s);
  }
}

static void makes_thousands(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *comm, *made;
  int32_t* x = calloc(MOST, sizeof *x);
  const traces first = traces_now();
  rank_ok(run, rank_join(run, &comm, &err), err);
  traces before = {0}, after;
  for (int i = 0; i <= 10000; ++i) {
    if (i == 0 || i == 10000) { /* everybody has left the one before, and has a new one that nobody has used */
      rank_ok(run, gsel_barrier(comm, &err), err);
      rank_ok(run, gsel_comm_dup(comm, &made, &err), err);
      rank_ok(run, gsel_barrier(comm, &err), err);
      *(i ? &after : &before) = traces_now();
      rank_ok(run, gsel_barrier(comm, &err), err);
    } else {
      rank_ok(run, gsel_comm_dup(comm, &made, &err), err);
      if (i % 50 == 0) rank_check(run, is_of(made, run->rank, 3, x, &err));
    }
    gsel_comm_free(made);
  }
  rank_check(run, after.descriptors == before.descriptors);
  rank_check(run, after.mappings == before.mappings);
  rank_check(run, after.blocks == before.blocks);
  gsel_comm_free(comm);
  for (int i = 0; i < 300; ++i) {
    rank_ok(run, rank_join(run, &comm, &err), err);
    rank_ok(run, gsel_comm_dup(comm, &made, &err), err);
    rank_ok(run, gsel_barrier(made, &err), err); /* a resync would end the dup that another rank is still in */
    rank_ok(run, gsel_comm_resync(comm, &err), err);
    gsel_comm_free(i % 2 ? comm : made);
    gsel_comm_free(i % 2 ? made : comm);
  }
  traces last = traces_now();
  for (int turn = 0; last.threads != first.threads && turn < 10000; ++turn) {
    usleep(100); /* a thread that was joined leaves the list of the kernel a moment later */
    last = traces_now();
  }
  rank_check(run, last.threads == first.threads && last.descriptors == first.descriptors);
  rank_check(run, last.mappings == 0 && last.blocks == 0);
  free(x);
}

static void ten_thousand_communicators_leave_nothing(void** state) {
  (void)state;
  as_processes(2, makes_thousands, NULL);
}

int main(void) {
  srand(20262);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(survivors_of_a_kill_go_on_whatever_they_called),
      cmocka_unit_test(kills_during_a_shrink_are_survived),
      cmocka_unit_test(a_shrink_tells_of_a_death_and_not_of_itself),
      cmocka_unit_test(ranks_that_do_not_call_are_left_out_by_name),
      cmocka_unit_test(a_stopped_rank_is_left_behind_and_told_so),
      cmocka_unit_test(a_whole_communicator_can_be_shrunk_by_those_who_stay),
      cmocka_unit_test(all_come_back_in_step_after_any_failure_but_a_death),
      cmocka_unit_test(who_asks_for_a_resync_follows_a_shrink),
      cmocka_unit_test(a_world_of_one_comes_back_too),
      cmocka_unit_test(a_resync_names_the_dead_and_the_late),
      cmocka_unit_test(a_death_is_noticed_whatever_the_others_wait_for),
      cmocka_unit_test(ten_thousand_communicators_leave_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
