/* unit/test_comm_progress.c: what is started goes on while its caller computes, or asks only now and then. */
#include "support/calls.h"

enum { MOST = 200000, ROUNDS = 30 };

static const size_t counts[] = {1, 1000, 3000, MOST};

struct stage {
  volatile int32_t ended[2]; /* rounds that a rank is through with */
};

static gsel_collective message_of(gsel_collective_kind kind, int32_t* x, uint64_t count, int32_t peer) {
  gsel_collective call = call_of(kind, x, x, count, peer);
  call.tag = 7;
  return call;
}

/* Rank 1 starts a message, collectives and another message, and does nothing until rank 0 has made all of them. */
static void computes(rank_run* run) {
  struct stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  int32_t round = 0;
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t c = 0; c < sizeof counts / sizeof counts[0]; ++c)
    for (int n = 1; n <= 3; ++n) {
      int32_t *x[3], *before = filled(counts[c], 5), *behind = filled(counts[c], 6);
      gsel_request* requests[5];
      for (int i = 0; i < n; ++i) x[i] = filled(counts[c], run->rank + i);
      if (run->rank == 1) {
        gsel_collective call = message_of(GSEL_COLLECTIVE_SEND, before, counts[c], 0);
        rank_ok(run, gsel_comm_start(comm, &call, &requests[3], &err), err);
        for (int i = 0; i < n; ++i) {
          call = sum_of(x[i], counts[c]);
          rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
        }
        call = message_of(GSEL_COLLECTIVE_SEND, behind, counts[c], 0);
        rank_ok(run, gsel_comm_start(comm, &call, &requests[4], &err), err);
        await_step(&s->ended[0], round + 1);
        for (int i = 0; i < 5; ++i)
          if (i < n || i >= 3) {
            rank_ok(run, gsel_request_wait(requests[i], &err), err);
            gsel_request_free(requests[i]);
          }
      } else {
        gsel_message got = GSEL_MESSAGE_INIT;
        int32_t* to = filled(counts[c], 0);
        if (n == 2) { /* the collectives behind the messages, or the other way round */
          rank_ok(run, gsel_recv_tag(comm, to, counts[c], GSEL_I32, 1, 7, &got, &err), err);
          rank_check(run, all_are(to, counts[c], 5));
          rank_ok(run, gsel_recv_tag(comm, to, counts[c], GSEL_I32, 1, 7, &got, &err), err);
          rank_check(run, all_are(to, counts[c], 6));
        }
        for (int i = 0; i < n; ++i)
          rank_ok(run, gsel_allreduce(comm, x[i], x[i], counts[c], GSEL_I32, GSEL_SUM, &err), err);
        if (n != 2)
          for (int i = 0; i < 2; ++i) {
            rank_ok(run, gsel_recv_tag(comm, to, counts[c], GSEL_I32, 1, 7, &got, &err), err);
            rank_check(run, all_are(to, counts[c], 5 + i));
          }
        free(to);
        reach_step(&s->ended[0], round + 1);
      }
      for (int i = 0; i < n; ++i) {
        rank_check(run, all_are(x[i], counts[c], 1 + 2 * i));
        free(x[i]);
      }
      free(before), free(behind);
      ++round;
    }
  gsel_comm_free(comm);
}

static void test_what_is_started_goes_on_while_its_caller_computes(void** state) {
  (void)state;
  for (int processes = 0; processes < 2; ++processes) {
    struct stage* s = shared_memory(sizeof *s);
    (processes ? as_processes : as_threads)(2, computes, s);
    munmap(s, sizeof *s);
  }
}

/* Nobody waits: all look again and again. */
static void only_tests(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const int32_t r = run->rank, n = run->world_size;
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int round = 0; round < 6; ++round)
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; ++c) {
      int32_t *x = filled(counts[c], r + 1), *y = filled(counts[c], r), *z = filled(counts[c], -1);
      gsel_request* requests[4];
      gsel_collective calls[4] = {sum_of(x, counts[c]), message_of(GSEL_COLLECTIVE_SEND, y, counts[c], (r + 1) % n),
                                  message_of(GSEL_COLLECTIVE_RECV, z, counts[c], (r + n - 1) % n), sum_of(x, 1)};
      for (int i = 0; i < 4; ++i) rank_ok(run, gsel_comm_start(comm, &calls[i], &requests[i], &err), err);
      for (int i = 0, open = 4; open > 0; i = (i + 1) % 4) {
        int32_t done = 0;
        if (!requests[i]) continue;
        rank_ok(run, gsel_request_test(requests[i], &done, &err), err);
        if (!done) continue;
        gsel_request_free(requests[i]);
        requests[i] = NULL;
        --open;
      }
      const int32_t sum = n * (n + 1) / 2;
      rank_check(run, x[0] == n * sum && all_are(x + 1, counts[c] - 1, sum));
      rank_check(run, all_are(z, counts[c], (r + n - 1) % n));
      free(x), free(y), free(z);
    }
  gsel_comm_free(comm);
}

static void test_looks_alone_end_what_is_started(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 3; ++n) as_threads_and_processes(n, only_tests, NULL);
}

/* Calls of every sort in turn, so that each finds the thread of the last one as it has left it. */
static void takes_turns(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *twin;
  gsel_request *small, *large;
  int32_t one = 0, *many = filled(MOST, 0);
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const gsel_collective of_one = sum_of(&one, 1), of_many = sum_of(many, MOST);
  rank_ok(run, gsel_request_create(comm, &of_one, &small, &err), err);
  rank_ok(run, gsel_request_create(comm, &of_many, &large, &err), err);
  for (int round = 0; round < ROUNDS; ++round) {
    one = 1;
    rank_ok(run, gsel_request_start(small, &err), err);
    if (round % 2) rank_ok(run, gsel_request_start(large, &err), err);
    if (round % 3 == 0) rank_ok(run, gsel_comm_dup(comm, &twin, &err), err);
    if (round % 3 == 0) gsel_comm_free(twin);
    if (round % 5 == 0) rank_ok(run, gsel_barrier(comm, &err), err);
    if (round % 7 == 0) usleep(25000); /* longer than the thread stays near */
    if (round % 2) rank_ok(run, gsel_request_wait(large, &err), err);
    rank_ok(run, gsel_request_wait(small, &err), err);
    rank_check(run, one == run->world_size);
  }
  gsel_request_free(small);
  gsel_request_free(large);
  free(many);
  gsel_comm_free(comm);
}

static void test_calls_of_every_sort_take_turns(void** state) {
  (void)state;
  for (int32_t n = 2; n <= 3; ++n) as_threads_and_processes(n, takes_turns, NULL);
}

/* Who frees the communicator, or resyncs it, finds no thread asleep in it. */
static void comes_back(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  run->timeout_s = 20;
  for (int round = 0; round < ROUNDS; ++round) {
    int32_t x = 1;
    rank_ok(run, rank_join(run, &comm, &err), err);
    const gsel_collective call = sum_of(&x, 1);
    for (int i = 0; i < 3; ++i) {
      rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
      rank_ok(run, gsel_request_wait(request, &err), err);
      gsel_request_free(request);
    }
    rank_check(run, x == 8);
    if (run->rank == 0) gsel_comm_abort(comm, gsel_str_from("enough"));
    rank_ok(run, gsel_comm_resync(comm, &err), err);
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    rank_ok(run, gsel_request_wait(request, &err), err);
    gsel_request_free(request);
    rank_check(run, x == 16);
    gsel_comm_free(comm);
  }
}

static void test_a_communicator_that_is_made_anew_or_freed_has_no_thread_in_it(void** state) {
  (void)state;
  as_threads_and_processes(2, comes_back, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_what_is_started_goes_on_while_its_caller_computes),
      cmocka_unit_test(test_looks_alone_end_what_is_started),
      cmocka_unit_test(test_calls_of_every_sort_take_turns),
      cmocka_unit_test(test_a_communicator_that_is_made_anew_or_freed_has_no_thread_in_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
