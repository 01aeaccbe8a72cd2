/* unit/test_comm_crossed.c: a message on one rank against a collective on the other is told at once where neither can
 * end, and never where one of them can. */
#include "support/ranks.h"

enum { LONG = 1 << 20, ROUNDS = 30 };

static gsel_status crossed_call(gsel_comm* comm, int way, char* x, char* y, gsel_error** err) {
  const int32_t other = 1;
  switch (way) {
    case 0:
      return gsel_recv(comm, y, 1, GSEL_U8, other, err);
    case 1:
      return gsel_send(comm, x, LONG, GSEL_U8, other, err);
    default:
      return gsel_sendrecv(comm, x, 1, other, y, 1, other, GSEL_U8, err);
  }
}

static const char* const crossed_text[] = {"rank 0 called recv(count 1, u8, from rank 1), rank 1 called ",
                                           "rank 0 called send(count 1048576, u8, to rank 1), rank 1 called ",
                                           "rank 0 called sendrecv(count 1, u8, to rank 1), rank 1 called "};

/* What was started and has ended is under way no more. */
static void collective_before(rank_run* run, gsel_comm* comm, char* x) {
  gsel_error* err;
  gsel_request* request = NULL;
  gsel_collective sum = GSEL_COLLECTIVE_INIT;
  sum.kind = GSEL_COLLECTIVE_ALLREDUCE;
  sum.dtype = GSEL_U8;
  sum.op = GSEL_SUM;
  sum.send = sum.recv = x;
  sum.count = LONG;
  rank_ok(run, gsel_comm_start(comm, &sum, &request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_request_free(request);
}

/* What ranks have begun has ended on each: a rank that is behind would hear of what breaks the communicator after it.
 */
static void all_come(const rank_run* run, int32_t* times) {
  int32_t* word = run->user;
  __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
  await_step(word, ++*times * run->world_size);
}

/* Rank 0 is in a message with rank 1, all others in a collective. */
static void crosses(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *none;
  char *x = calloc(LONG, 1), *y = calloc(LONG, 1);
  rank_ok(run, rank_join(run, &comm, &err), err);
  collective_before(run, comm, x);
  int32_t times = 0;
  for (int way = 0; way < 3 && !run->failure[0]; ++way) {
    for (int split = 0; split < 2; ++split) {
      char expected[160];
      snprintf(expected, sizeof expected, "%s%s: each waits for the other", crossed_text[way],
               split ? "gsel_comm_split()" : "allreduce(count 3, u8, sum)");
      gsel_status status;
      all_come(run, &times);
      if (run->rank == 0)
        status = crossed_call(comm, way, x, y, &err);
      else if (split)
        status = gsel_comm_split(comm, 0, 0, &none, &err);
      else
        status = gsel_allreduce(comm, x, x, 3, GSEL_U8, GSEL_SUM, &err);
      rank_fails(run, status, err, GSEL_ERR_MISMATCH, expected, 0);
      rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, expected, 0);
      rank_ok(run, gsel_comm_resync(comm, &err), err);
    }
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_a_message_against_a_collective_is_a_mismatch_at_once(void** state) {
  (void)state;
  int32_t* word = shared_memory(sizeof *word);
  if (!is_started()) as_threads(2, crosses, word);
  shared_clear(word, sizeof *word);
  as_processes(2, crosses, word);
  shared_clear(word, sizeof *word);
  as_processes(4, crosses, word);
  munmap(word, sizeof *word);
}

/* What is sent before the collective arrives, also where the receiver looks only once the sender is in it. */
static void sent_before(rank_run* run, gsel_comm* comm, char* x, char* y) {
  gsel_error* err;
  if (run->rank == 1)
    for (char i = 0; i < 4; ++i) rank_ok(run, gsel_send(comm, &i, 1, GSEL_U8, 0, &err), err);
  if (run->rank == 0)
    for (char i = 0; i < 4; ++i) {
      rank_ok(run, gsel_recv(comm, y, 1, GSEL_U8, 1, &err), err);
      rank_check(run, y[0] == i);
    }
  rank_ok(run, gsel_allreduce(comm, x, x, 1, GSEL_U8, GSEL_SUM, &err), err);
}

/* The last rank is in the collective early; the others have a long message before it. */
static void others_first(rank_run* run, gsel_comm* comm, char* x, char* y) {
  gsel_error* err;
  if (run->rank == 0) rank_ok(run, gsel_recv(comm, y, LONG, GSEL_U8, 1, &err), err);
  if (run->rank == 1) rank_ok(run, gsel_send(comm, x, LONG, GSEL_U8, 0, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
}

/* A message that was started goes on beside the collective that its rank waits in. */
static void started_before(rank_run* run, gsel_comm* comm, char* x, char* y) {
  gsel_error* err;
  gsel_request* request = NULL;
  gsel_collective send = GSEL_COLLECTIVE_INIT;
  send.kind = GSEL_COLLECTIVE_SEND;
  send.dtype = GSEL_U8;
  send.send = x;
  send.count = LONG;
  if (run->rank == 1) rank_ok(run, gsel_comm_start(comm, &send, &request, &err), err);
  if (run->rank == 0) rank_ok(run, gsel_recv(comm, y, LONG, GSEL_U8, 1, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 1) rank_ok(run, gsel_request_wait(request, &err), err);
  gsel_request_free(request);
}

/* A collective that was started runs beside the message that its rank waits in. */
static void collective_beside(rank_run* run, gsel_comm* comm, char* x, char* y) {
  gsel_error* err;
  gsel_request* request = NULL;
  gsel_collective sum = GSEL_COLLECTIVE_INIT;
  sum.kind = GSEL_COLLECTIVE_ALLREDUCE;
  sum.dtype = GSEL_U8;
  sum.op = GSEL_SUM;
  sum.send = sum.recv = x;
  sum.count = 1;
  if (run->rank == 0) {
    rank_ok(run, gsel_comm_start(comm, &sum, &request, &err), err);
    rank_ok(run, gsel_recv(comm, y, 1, GSEL_U8, 1, &err), err);
    rank_ok(run, gsel_request_wait(request, &err), err);
    gsel_request_free(request);
  } else {
    rank_ok(run, gsel_allreduce(comm, x, x, 1, GSEL_U8, GSEL_SUM, &err), err);
    if (run->rank == 1) rank_ok(run, gsel_send(comm, x, 1, GSEL_U8, 0, &err), err);
  }
}

static void goes_on(rank_run* run) {
  static void (*const programs[])(rank_run*, gsel_comm*, char*, char*) = {sent_before, others_first, started_before,
                                                                          collective_beside};
  gsel_error* err;
  gsel_comm* comm;
  char *x = calloc(LONG, 1), *y = calloc(LONG, 1);
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int round = 0; round < ROUNDS * 4 && !run->failure[0]; ++round) programs[round % 4](run, comm, x, y);
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_programs_that_can_end_are_left_alone(void** state) {
  (void)state;
  if (!is_started()) as_threads(2, goes_on, NULL);
  as_processes(2, goes_on, NULL);
  as_processes(4, goes_on, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_message_against_a_collective_is_a_mismatch_at_once),
      cmocka_unit_test(test_programs_that_can_end_are_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
