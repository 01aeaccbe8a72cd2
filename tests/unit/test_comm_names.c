/* unit/test_comm_names.c: a communicator has a name that every rank knows; errors and recordings tell it where a
 * process has several. Errors of a communicator show its own ranks, and beside them the ranks of the communicator that
 * was joined; they name the rank that holds all up, wherever it is waited for. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include "support/ranks.h"

static gsel_status join_at(int32_t rank, int32_t world_size, gsel_unique_id id, const char* name, gsel_comm** out,
                           gsel_error** err) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = rank;
  options.world_size = world_size;
  options.id = &id;
  if (name) options.name = gsel_str_from(name);
  return gsel_comm_init(&options, out, err);
}

static gsel_status join_as(const rank_run* run, gsel_unique_id id, const char* name, gsel_comm** out,
                           gsel_error** err) {
  return join_at(run->rank, run->world_size, id, name, out, err);
}

static int is_named(const gsel_comm* comm, const char* name) {
  return strcmp(gsel_comm_name(comm).data, name) == 0 && gsel_comm_name(comm).len == strlen(name);
}

/* Ranks of one process and of many: rank 0's name counts. */
static void named(rank_run* run) {
  gsel_error* err;
  gsel_comm *grid, *row, *copy, *again;
  rank_ok(run, join_as(run, run->id, run->rank == 0 ? "grid" : "other", &grid, &err), err);
  rank_check(run, is_named(grid, "grid"));
  rank_ok(run, gsel_comm_split(grid, run->rank % 2, 0, &row, &err), err);
  rank_check(run, is_named(row, run->rank % 2 ? "grid.split1:1" : "grid.split1:0"));
  rank_ok(run, gsel_comm_dup(grid, &copy, &err), err);
  rank_check(run, is_named(copy, "grid.dup2"));
  rank_ok(run, gsel_comm_dup(copy, &again, &err), err);
  rank_check(run, is_named(again, "grid.dup2.dup1"));
  for (int i = 0; i < 12; ++i) { /* where there is no room for a whole name, its end stays */
    gsel_comm* deeper;
    rank_ok(run, gsel_comm_dup(again, &deeper, &err), err);
    gsel_comm_free(again);
    again = deeper;
  }
  const gsel_str cut = gsel_comm_name(again);
  rank_check(run, cut.len == 63 && !strncmp(cut.data, "...", 3) && !strcmp(cut.data + cut.len - 10, ".dup1.dup1"));
  gsel_comm_free(again);
  gsel_comm_free(copy);
  gsel_comm_free(row);
  gsel_comm_free(grid);
}

static void test_a_name_is_that_of_rank_0_and_made_longer_by_every_split(void** state) {
  (void)state;
  as_threads(3, named, NULL);
  as_processes(3, named, NULL);
}

static void tells(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *copy;
  gsel_trace* trace;
  gsel_unique_id second = run->id;
  second.bytes[0] ^= 1;
  float x = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_check(run, is_named(comm, "world"));
  const size_t count = run->rank == 0 ? 1 : 0;
  const char* mismatch = "make the calls alike on every rank";
  char text[512];
  gsel_allreduce(comm, &x, &x, count, GSEL_F32, GSEL_SUM, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  rank_check(run, !strcmp(text + strlen(text) - strlen(mismatch), mismatch)); /* there is no other */
  rank_ok(run, join_as(run, second, NULL, &copy, &err), err);
  rank_check(run, is_named(copy, "world-2"));
  rank_fails(run, gsel_allreduce(comm, &x, &x, count, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "make the calls alike on every rank (communicator world)", -1);
  rank_fails(run, gsel_allreduce(copy, &x, &x, count, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "make the calls alike on every rank (communicator world-2)", -1);
  rank_ok(run, gsel_comm_trace(copy, &trace, &err), err);
  rank_check(run, strstr(gsel_trace_json(trace).data, "\"name\":\"world-2\""));
  gsel_trace_free(trace);
  rank_ok(run, gsel_barrier(copy, &err), err);
  if (run->rank == 0) gsel_comm_abort(copy, gsel_str_from("enough"));
  rank_fails(run, gsel_barrier(copy, &err), err, GSEL_ERR_ABORTED, "enough (communicator world-2)", 0);
  gsel_comm_free(comm);
  gsel_comm_free(copy);
}

static void test_errors_and_recordings_tell_which_of_several(void** state) {
  (void)state;
  as_processes(2, tells, NULL);
}

/* Ranks 2 and 3 of world, turned round: 3 is rank 0, 2 is rank 1. Ranks 0 and 1 as well, where rank 0 is rank 1. */
static void shows_ranks(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *turned, *copy;
  char part[160];
  float x[2] = {0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  int32_t pids[4], mine = getpid();
  rank_ok(run, gsel_allgather(comm, &mine, pids, 1, GSEL_I32, &err), err);
  rank_ok(run, gsel_comm_split(comm, run->rank / 2, -run->rank, &turned, &err), err);
  const int32_t lower = run->rank / 2 * 2, own = gsel_comm_rank(turned);
  rank_check(run, own == 1 - run->rank % 2);
  const char* world = gsel_comm_name(comm).data;
  snprintf(part, sizeof part,
           "rank 0 (rank %d of %s) called allreduce(count 1, f32, sum), rank 1 (rank %d of %s) called", (int)lower + 1,
           world, (int)lower, world);
  if (lower == 2)
    rank_fails(run, gsel_allreduce(turned, x, x, 1 + (size_t)own, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
               part, 1);
  rank_ok(run, gsel_comm_dup(comm, &copy, &err), err); /* the ranks are the same: one number each */
  rank_fails(run, gsel_allreduce(copy, x, x, 1 + (run->rank == 2), GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "rank 0 called allreduce(count 1, f32, sum), rank 2 called allreduce(count 2, f32, sum);", 2);
  if (own == 0) {
    snprintf(part, sizeof part,
             "rank 1 (pid %d, rank %d of world) left while rank 0 (rank %d of world) waited for it in ",
             (int)pids[lower], (int)lower, (int)lower + 1);
    rank_fails(run, gsel_recv(turned, x, 1, GSEL_F32, 1, &err), err, GSEL_ERR_PEER, part, 1);
  }
  gsel_comm_free(turned);
  gsel_comm_free(copy);
  gsel_comm_free(comm);
}

static void test_a_split_shows_its_own_ranks_and_those_of_the_world(void** state) {
  (void)state;
  as_processes(4, shows_ranks, NULL);
  as_threads(4, shows_ranks, NULL);
}

/* ---- who holds all up ------------------------------------------------------------------------------------- */

struct grid {
  double timeout_s[4]; /* by rank */
  int by_message;      /* rank 0 waits for 2 in a receive */
  volatile int32_t told;
  volatile int32_t pid[4];
  const char* shown[2]; /* timeouts of ranks 0 and 1 */
};

/* A grid of rows {0, 1} and {2, 3} and columns {0, 2} and {1, 3}. Rank 3 sleeps until the others have their errors.
 * Rank 2 waits for it in their row, 0 for 2 in the column, 1 for 0 in the row. */
static void waits_in_a_chain(rank_run* run) {
  struct grid* grid = run->user;
  gsel_error* err;
  gsel_comm *comm, *row, *column, *in;
  char part[256];
  float x;
  rank_ok(run, rank_join(run, &comm, &err), err);
  int32_t pids[4], mine = getpid();
  rank_ok(run, gsel_allgather(comm, &mine, pids, 1, GSEL_I32, &err), err);
  rank_ok(run, gsel_comm_split(comm, run->rank / 2, 0, &row, &err), err);
  rank_ok(run, gsel_comm_split(comm, run->rank % 2, 0, &column, &err), err);
  if (run->rank == 3) {
    await_step(&grid->told, 3);
  } else {
    in = run->rank == 0 ? column : row;
    rank_ok(run, gsel_comm_set_timeout(in, grid->timeout_s[run->rank], &err), err);
    const gsel_status status =
        run->rank == 0 && grid->by_message ? gsel_recv(in, &x, 1, GSEL_F32, 1, &err) : gsel_barrier(in, &err);
    __atomic_add_fetch(&grid->told, 1, __ATOMIC_SEQ_CST);
    /* Rank 2 has rank 3 in its row; in the others' communicators it has no number of its own. */
    const char* world = gsel_comm_name(comm).data;
    if (run->rank == 2)
      snprintf(part, sizeof part, "rank 1 (pid %d, rank 3 of %s) is late: rank 0 (rank 2 of %s) waited", (int)pids[3],
               world, world);
    else
      snprintf(part, sizeof part, "rank 3 of %s (pid %d) is late: rank %d waited", world, (int)pids[3],
               gsel_comm_rank(in));
    rank_fails(run, status, err, GSEL_ERR_TIMEOUT, part, run->rank == 1 ? 0 : 1);
    await_step(&grid->told, 3);
  }
  gsel_comm_free(row);
  gsel_comm_free(column);
  gsel_comm_free(comm);
}

static void run_grid(double of_0, double of_1, double of_2, int by_message) {
  struct grid* grid = shared_memory(sizeof *grid);
  *grid = (struct grid){.timeout_s = {of_0, of_1, of_2}, .by_message = by_message};
  as_processes(4, waits_in_a_chain, grid);
  grid->told = 0;
  as_threads(4, waits_in_a_chain, grid);
  munmap(grid, sizeof *grid);
}

static void test_the_rank_that_holds_all_up_is_named_across_communicators(void** state) {
  (void)state;
  run_grid(0.3, 0.6, 0.9, 0); /* each while those behind it wait */
  run_grid(0.9, 0.6, 0.3, 0); /* each when those behind it have given up */
  run_grid(0.3, 0.9, 0.6, 1);
}

/* The same grid of communicators that were joined apart: nobody has a common one, and ranks 1 and 3 are in none with
 * the rank that they wait for in the end. */
static void waits_in_a_chain_apart(rank_run* run) {
  struct grid* grid = run->user;
  gsel_error* err;
  gsel_comm *row, *column, *in;
  char part[256], name[16];
  gsel_unique_id id = run->id;
  const int32_t r = run->rank;
  grid->pid[r] = getpid();
  id.bytes[0] ^= (unsigned char)(1 + r / 2);
  snprintf(name, sizeof name, "row%d", (int)r / 2);
  rank_ok(run, join_at(r % 2, 2, id, name, &row, &err), err);
  id.bytes[1] ^= (unsigned char)(1 + r % 2);
  id.bytes[0] = run->id.bytes[0];
  snprintf(name, sizeof name, "column%d", (int)r % 2);
  rank_ok(run, join_at(r / 2, 2, id, name, &column, &err), err);
  if (r == 3) {
    await_step(&grid->told, 3);
  } else {
    in = r == 0 ? column : row;
    rank_ok(run, gsel_comm_set_timeout(in, grid->timeout_s[r], &err), err);
    const gsel_status status = gsel_barrier(in, &err);
    __atomic_add_fetch(&grid->told, 1, __ATOMIC_SEQ_CST);
    if (r == 2)
      snprintf(part, sizeof part, "rank 1 (pid %d) is late: rank 0 waited", (int)grid->pid[3]);
    else
      snprintf(
          part, sizeof part,
          "rank 1 (pid %d) of communicator row1 is late: rank %d waited %s s for rank %d in barrier() (call 1), and "
          "in communicator row1 rank 0 needs it for barrier() (call 1)",
          (int)grid->pid[3], gsel_comm_rank(in), r == 0 ? grid->shown[0] : grid->shown[1], 1 - gsel_comm_rank(in));
    rank_fails(run, status, err, GSEL_ERR_TIMEOUT, part, 1 - gsel_comm_rank(in));
    await_step(&grid->told, 3);
  }
  gsel_comm_free(row);
  gsel_comm_free(column);
}

static void test_the_chain_goes_through_communicators_that_were_joined_apart(void** state) {
  (void)state;
  struct grid* grid = shared_memory(sizeof *grid);
  for (int i = 0; i < 4; ++i) {
    *grid = i % 2 ? (struct grid){.timeout_s = {0.5, 0.9, 1.3}, .shown = {"0.5", "0.9"}}
                  : (struct grid){.timeout_s = {0.9, 1.3, 0.5}, .shown = {"0.9", "1.3"}};
    (i < 2 ? as_processes : as_threads)(4, waits_in_a_chain_apart, grid);
  }
  munmap(grid, sizeof *grid);
}

/* Ranks 0 and 1 have a communicator, and 1 to 3 one of their own, in which rank 1 waits for rank 2 until rank 3 dies.
 * Then rank 1 sleeps. Or a thread of rank 1 waits there all the time, which holds up nobody: its main thread sleeps. */
struct apart {
  int by_thread;
  volatile int32_t told, pid[5];
};

static void* receives_apart(void* comm) {
  float x;
  gsel_recv((gsel_comm*)comm, &x, 1, GSEL_F32, 1, NULL);
  return NULL;
}

static void waits_apart(rank_run* run) {
  struct apart* s = run->user;
  gsel_error* err;
  gsel_comm *two = NULL, *three = NULL;
  gsel_unique_id id = run->id;
  pthread_t thread;
  char part[256];
  float x;
  const int32_t r = run->rank;
  s->pid[r] = getpid();
  if (r < 2) rank_ok(run, join_at(r, 2, id, "two", &two, &err), err);
  id.bytes[0] ^= 1;
  if (r > 0) rank_ok(run, join_at(r - 1, 3, id, "three", &three, &err), err);
  if (r == 0) {
    rank_ok(run, gsel_comm_set_timeout(two, 1, &err), err);
    const gsel_status status = gsel_recv(two, &x, 1, GSEL_F32, 1, &err);
    __atomic_store_n(&s->told, 1, __ATOMIC_SEQ_CST);
    if (s->by_thread)
      snprintf(part, sizeof part, "timed out: rank 1 (pid %d) is late: rank 0 waited 1 s in recv(", (int)s->pid[1]);
    else
      snprintf(part, sizeof part,
               "rank 2 (pid %d) of communicator three is gone: rank 0 waited 1 s for rank 1 in recv(count 1, f32, from "
               "rank 1) (call 1), and in communicator three rank 0 needs it for recv(",
               (int)s->pid[3]);
    rank_fails(run, status, err, GSEL_ERR_TIMEOUT, part, 1);
  } else if (r == 1 && s->by_thread) {
    rank_check(run, !pthread_create(&thread, NULL, receives_apart, three));
    await_step(&s->told, 1);
    gsel_comm_abort(three, gsel_str_from("done"));
    pthread_join(thread, NULL);
  } else if (r == 1) {
    rank_fails(run, gsel_recv(three, &x, 1, GSEL_F32, 1, &err), err, GSEL_ERR_PEER, "rank 2 (pid ", 2);
  } else if (r == 3 && !s->by_thread) {
    poll(NULL, 0, 300);
    raise(SIGKILL);
  }
  await_step(&s->told, 1);
  gsel_comm_free(two);
  gsel_comm_free(three);
}

static void test_a_wait_that_a_death_ended_names_the_dead_rank(void** state) {
  (void)state;
  struct apart* s = shared_memory(sizeof *s);
  rank_run* runs = ranks_prepare(4, s);
  pid_t pids[4];
  for (int32_t r = 0; r < 4; ++r) pids[r] = rank_fork(&runs[r], waits_apart);
  for (int32_t r = 0; r < 4; ++r) waitpid(pids[r], NULL, 0);
  ranks_verdict(runs, 3); /* the fourth has died */
  munmap(s, sizeof *s);
}

static void test_a_wait_of_another_thread_excuses_nobody(void** state) {
  (void)state;
  struct apart* s = shared_memory(sizeof *s);
  s->by_thread = 1;
  as_processes(4, waits_apart, s);
  munmap(s, sizeof *s);
}

/* Ranks 0 to 2 have a communicator, 1 and 3 one, and 2 and 4 one. All wait for rank 3, of which rank 0 is told when its
 * time is up. Rank 2 hears of that, as its wait is over, and passes it on to rank 4. */
static void passes_on(rank_run* run) {
  struct apart* s = run->user;
  gsel_error* err;
  gsel_comm *three = NULL, *far = NULL, *near = NULL;
  gsel_unique_id id = run->id;
  char part[256];
  const int32_t r = run->rank;
  s->pid[r] = getpid();
  if (r < 3) rank_ok(run, join_at(r, 3, id, "three", &three, &err), err);
  id.bytes[0] ^= 1;
  if (r % 2 == 1) rank_ok(run, join_at(r / 2, 2, id, "far", &far, &err), err);
  id.bytes[0] ^= 2;
  if (r == 2 || r == 4) rank_ok(run, join_at(r / 4, 2, id, "near", &near, &err), err);
  if (r < 3) {
    rank_ok(run, gsel_barrier(three, &err), err); /* all have joined */
    if (r == 0) rank_ok(run, gsel_comm_set_timeout(three, 0.4, &err), err);
  }
  if (r == 1) {
    rank_ok(run, gsel_comm_set_timeout(far, 3, &err), err);
    snprintf(part, sizeof part, "rank 1 (pid %d) is late", (int)s->pid[3]);
    rank_fails(run, gsel_barrier(far, &err), err, GSEL_ERR_TIMEOUT, part, 1);
  } else if (r != 3) {
    if (r == 4) rank_ok(run, gsel_comm_set_timeout(near, 1, &err), err);
    const gsel_status status = gsel_barrier(r == 4 ? near : three, &err);
    snprintf(part, sizeof part, "rank 1 (pid %d) of communicator far is late: rank %d waited %s s for rank %d in",
             (int)s->pid[3], r == 4 ? 1 : 0, r == 4 ? "1" : "0.4", r == 4 ? 0 : 1);
    rank_fails(run, status, err, GSEL_ERR_TIMEOUT, part, r == 4 ? 0 : 1);
  }
  if (r == 4 || r == 1) __atomic_add_fetch(&s->told, 1, __ATOMIC_SEQ_CST);
  await_step(&s->told, 2);
  gsel_comm_free(three);
  gsel_comm_free(far);
  gsel_comm_free(near);
}

static void test_what_broke_a_communicator_is_passed_on_to_a_third(void** state) {
  (void)state;
  struct apart* s = shared_memory(sizeof *s);
  as_processes(5, passes_on, s);
  munmap(s, sizeof *s);
}

/* Rank 1 waits for rank 2 by looking at a request for a while, or at several; rank 0 waits for rank 1. */
static void waits_for_requests(rank_run* run) {
  volatile int32_t* told = run->user;
  gsel_error* err;
  gsel_comm *comm, *copy;
  gsel_request* request = NULL;
  float x, y;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_RECV;
  call.dtype = GSEL_F32;
  call.count = 1;
  call.root = 2;
  call.recv = &x;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &copy, &err), err);
  for (int32_t by_any = 0; by_any < 2; ++by_any) {
    if (run->rank == 1) {
      size_t which;
      int32_t done;
      rank_ok(run, gsel_comm_start(copy, &call, &request, &err), err);
      if (by_any)
        rank_ok(run, gsel_request_wait_any(&request, 1, &which, &err), err);
      else
        rank_ok(run, gsel_request_wait_for(request, 20, &done, &err), err);
      gsel_request_free(request);
    } else if (run->rank == 0) {
      rank_ok(run, gsel_comm_set_timeout(comm, 0.5, &err), err);
      const gsel_status status = gsel_recv(comm, &y, 1, GSEL_F32, 1, &err);
      __atomic_store_n(told, by_any + 1, __ATOMIC_SEQ_CST);
      rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "is late: rank 0 waited 0.5 s for rank 1 in recv(", 2);
      rank_ok(run, gsel_comm_set_timeout(comm, 20, &err), err);
    } else {
      await_step(told, by_any + 1);
      rank_ok(run, gsel_send(copy, &y, 1, GSEL_F32, 1, &err), err);
    }
    rank_ok(run, gsel_comm_resync(comm, &err), err);
  }
  gsel_comm_free(copy);
  gsel_comm_free(comm);
}

static void test_a_rank_that_waits_for_requests_is_in_the_chain(void** state) {
  (void)state;
  volatile int32_t* told = shared_memory(sizeof *told);
  as_processes(3, waits_for_requests, (void*)told);
  munmap((void*)told, sizeof *told);
}

/* Rank 0 waits for 1 in one communicator, and 1 for 0 in another. */
static void waits_in_a_circle(rank_run* run) {
  volatile int32_t* told = run->user;
  gsel_error* err;
  gsel_comm *comm, *copy;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &copy, &err), err);
  gsel_comm* in = run->rank == 0 ? comm : copy;
  rank_ok(run, gsel_comm_set_timeout(in, run->rank == 0 ? 0.3 : 0.6, &err), err);
  const gsel_status status = gsel_barrier(in, &err);
  __atomic_add_fetch(told, 1, __ATOMIC_SEQ_CST);
  rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "is late", 1 - run->rank);
  await_step(told, 2);
  gsel_comm_free(copy);
  gsel_comm_free(comm);
}

static void test_ranks_that_wait_for_each_other_name_each_other(void** state) {
  (void)state;
  volatile int32_t* told = shared_memory(sizeof *told);
  as_processes(2, waits_in_a_circle, (void*)told);
  munmap((void*)told, sizeof *told);
}

/* A request that nobody waits for is not what its rank is late for. */
static void has_a_request_under_way(rank_run* run) {
  volatile int32_t* told = run->user;
  gsel_error* err;
  gsel_comm *comm, *copy;
  gsel_request* request = NULL;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_comm_dup(comm, &copy, &err), err);
  call.kind = GSEL_COLLECTIVE_BARRIER;
  call.dtype = GSEL_U8;
  if (run->rank == 1) { /* waits for 2 on a thread of the library, while rank 0 waits for it */
    rank_ok(run, gsel_comm_start(copy, &call, &request, &err), err);
    await_step(told, 1);
    gsel_comm_abort(copy, gsel_str_from("done"));
    gsel_request_free(request);
  } else if (run->rank == 0) {
    float x;
    rank_ok(run, gsel_comm_set_timeout(comm, 0.4, &err), err);
    const gsel_status status = gsel_recv(comm, &x, 1, GSEL_F32, 1, &err);
    __atomic_add_fetch(told, 1, __ATOMIC_SEQ_CST);
    rank_fails(run, status, err, GSEL_ERR_TIMEOUT, "is late", 1);
  }
  await_step(told, 1);
  gsel_comm_free(copy);
  gsel_comm_free(comm);
}

static void test_a_request_that_nobody_waits_for_excuses_nobody(void** state) {
  (void)state;
  volatile int32_t* told = shared_memory(sizeof *told);
  as_processes(3, has_a_request_under_way, (void*)told);
  munmap((void*)told, sizeof *told);
}

static void test_a_name_that_would_not_print_is_refused(void** state) {
  (void)state;
  gsel_error* err;
  gsel_comm* comm;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1;
  const char* const wrong[] = {"two words", "line\n", "\xc3\xa9", "this-name-has-thirty-two-bytes..."};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    options.name = gsel_str_from(wrong[i]);
    check_fails(gsel_comm_init(&options, &comm, &err), err, GSEL_ERR_ARG, "use at most 31 of printable ASCII");
  }
  options.name = gsel_str_from("this-name-has-thirty-one-bytes.");
  check_ok(gsel_comm_init(&options, &comm, &err), err);
  assert_string_equal(gsel_comm_name(comm).data, "this-name-has-thirty-one-bytes.");
  gsel_comm_free(comm);
  assert_int_equal(gsel_comm_name(NULL).len, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_errors_and_recordings_tell_which_of_several),
      cmocka_unit_test(test_a_name_is_that_of_rank_0_and_made_longer_by_every_split),
      cmocka_unit_test(test_a_split_shows_its_own_ranks_and_those_of_the_world),
      cmocka_unit_test(test_the_rank_that_holds_all_up_is_named_across_communicators),
      cmocka_unit_test(test_the_chain_goes_through_communicators_that_were_joined_apart),
      cmocka_unit_test(test_a_wait_that_a_death_ended_names_the_dead_rank),
      cmocka_unit_test(test_what_broke_a_communicator_is_passed_on_to_a_third),
      cmocka_unit_test(test_a_wait_of_another_thread_excuses_nobody),
      cmocka_unit_test(test_a_rank_that_waits_for_requests_is_in_the_chain),
      cmocka_unit_test(test_ranks_that_wait_for_each_other_name_each_other),
      cmocka_unit_test(test_a_request_that_nobody_waits_for_excuses_nobody),
      cmocka_unit_test(test_a_name_that_would_not_print_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
