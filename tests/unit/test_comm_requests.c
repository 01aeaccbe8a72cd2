/* unit/test_comm_requests.c: calls under way while the caller computes: their results, their order, several at once,
 * and what happens to them when something goes wrong; with ranks as threads and as processes. */
#include <sched.h>

#include "support/calls.h"
#include "support/counts.h"

enum { LARGE = 1 << 18 };

/* Looks at the request only, as a caller does between pieces of its own work. */
static gsel_status until_done(gsel_request* request, gsel_error** err) {
  int32_t done = 0;
  gsel_status status;
  do {
    status = gsel_request_test(request, &done, err);
    if (!done) sched_yield();
  } while (!done);
  return status;
}

/* ---- one request -------------------------------------------------------------------------------------- */

static void start_and_end(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const int32_t n = run->world_size;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < 20; ++i) {
    const size_t count = i % 3 == 0 ? 1 : i % 3 == 1 ? 1000 : LARGE;
    int32_t* x = filled(count, i + 1);
    const gsel_collective call = sum_of(x, count);
    gsel_request* request;
    int32_t done = 0;
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    if (i % 2 == 0)
      rank_ok(run, gsel_request_wait(request, &err), err);
    else
      rank_ok(run, until_done(request, &err), err); /* the caller never waits: it completes beside it */
    rank_check(run, all_are(x, count, n * (i + 1)));
    rank_ok(run, gsel_request_test(request, &done, &err), err);
    rank_check(run, done == 1);
    rank_ok(run, gsel_request_wait(request, &err), err);
    gsel_request_free(request);
    free(x);
  }
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_ALLREDUCE).calls == 20);
  gsel_comm_free(comm);
}

static void test_a_call_goes_on_while_its_caller_looks_or_waits(void** state) {
  (void)state;
  as_threads(1, start_and_end, NULL);
  as_threads_and_processes(2, start_and_end, NULL);
  as_threads_and_processes(3, start_and_end, NULL);
}

/* A call started is not held up by the one who started it: rank 0 waits for what rank 1 has merely started. */
static void without_the_caller(rank_run* run) {
  int* word = run->user;
  gsel_error* err;
  gsel_comm* comm;
  int32_t *x = filled(LARGE, run->rank + 5), *y = filled(LARGE, 0);
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_request* request = NULL;
  if (run->rank == 0) {
    rank_ok(run, gsel_send(comm, x, LARGE, GSEL_I32, 1, &err), err);
    rank_ok(run, gsel_recv(comm, y, LARGE, GSEL_I32, 1, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
    rank_check(run, all_are(y, LARGE, 6));
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
  } else {
    gsel_request* more[2];
    const gsel_collective receive = call_of(GSEL_COLLECTIVE_RECV, NULL, y, LARGE, 0);
    const gsel_collective send = call_of(GSEL_COLLECTIVE_SEND, x, NULL, LARGE, 0);
    const gsel_collective barrier = call_of(GSEL_COLLECTIVE_BARRIER, NULL, NULL, 0, -1);
    rank_ok(run, gsel_comm_start(comm, &receive, &request, &err), err);
    rank_ok(run, gsel_comm_start(comm, &send, &more[0], &err), err);
    rank_ok(run, gsel_comm_start(comm, &barrier, &more[1], &err), err);
    while (!__atomic_load_n(word, __ATOMIC_ACQUIRE)) sched_yield();
    rank_ok(run, gsel_request_wait(request, &err), err);
    rank_check(run, all_are(y, LARGE, 5));
    for (int i = 0; i < 2; ++i) {
      rank_ok(run, gsel_request_wait(more[i], &err), err);
      gsel_request_free(more[i]);
    }
  }
  gsel_request_free(request);
  rank_ok(run, gsel_barrier(comm, &err), err);
  free(x), free(y);
  gsel_comm_free(comm);
}

static int* shared_word(void) {
  int* word = shared_memory(sizeof *word);
  return word;
}

static void test_what_was_started_ends_without_its_caller(void** state) {
  (void)state;
  int* word = shared_word();
  as_threads(2, without_the_caller, word);
  *word = 0;
  as_processes(2, without_the_caller, word);
  munmap(word, sizeof *word);
}

static void persistent(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t *x = filled(3000, 0), done = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const gsel_collective call = sum_of(x, 3000);
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  rank_ok(run, gsel_request_test(request, &done, &err), err);
  rank_check(run, done == 1);
  rank_ok(run, gsel_request_wait(request, &err), err);
  for (int i = 0; i < 30; ++i) {
    for (int j = 0; j < 3000; ++j) x[j] = i;
    if (i % 3 == 0) {
      rank_ok(run, gsel_request_run(request, &err), err);
    } else {
      rank_ok(run, gsel_request_start(request, &err), err);
      rank_ok(run, gsel_request_wait(request, &err), err);
    }
    rank_check(run, all_are(x, 3000, i * run->world_size));
  }
  gsel_request_free(request);
  gsel_comm_free(comm);
  free(x);
}

static void test_a_persistent_request_runs_any_number_of_times(void** state) {
  (void)state;
  as_threads(1, persistent, NULL);
  as_threads_and_processes(2, persistent, NULL);
  as_threads_and_processes(4, persistent, NULL);
}

/* ---- several ------------------------------------------------------------------------------------------ */

static void in_order(rank_run* run) {
  enum { N = 40 };
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request[N];
  int32_t *x[N], done = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < N; ++i) {
    const size_t count = i % 4 == 0 ? LARGE : (size_t)i;
    x[i] = filled(count, i);
    const gsel_collective call = sum_of(x[i], count);
    rank_ok(run, gsel_comm_start(comm, &call, &request[i], &err), err);
  }
  int32_t one = 1;
  rank_ok(run, gsel_allreduce(comm, &one, &one, 1, GSEL_I32, GSEL_SUM, &err), err);
  rank_check(run, one == run->world_size);
  for (int i = N; i-- > 0;) { /* a call that waits ends after all that were started before it */
    rank_ok(run, gsel_request_test(request[i], &done, &err), err);
    rank_check(run, done == 1 && all_are(x[i], i % 4 == 0 ? LARGE : (size_t)i, i * run->world_size));
    gsel_request_free(request[i]);
    free(x[i]);
  }
  gsel_comm_free(comm);
}

static void test_collectives_run_in_the_order_started(void** state) {
  (void)state;
  as_threads_and_processes(2, in_order, NULL);
  as_threads_and_processes(3, in_order, NULL);
}

/* What would block for ever if messages waited for collectives, or for each other. */
static void beside_each_other(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const int32_t other = 1 - run->rank;
  int32_t *x = filled(LARGE, run->rank + 1), *y = filled(LARGE, 0), sum = 1;
  gsel_request *sent, *received;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const gsel_collective send = call_of(GSEL_COLLECTIVE_SEND, x, NULL, LARGE, other);
  const gsel_collective receive = call_of(GSEL_COLLECTIVE_RECV, NULL, y, LARGE, other);

  rank_ok(run, gsel_comm_start(comm, &send, &sent, &err), err);
  rank_ok(run, gsel_comm_start(comm, &receive, &received, &err), err);
  rank_ok(run, gsel_request_wait(run->rank == 0 ? sent : received, &err), err);
  rank_ok(run, gsel_request_wait(run->rank == 0 ? received : sent, &err), err);
  rank_check(run, all_are(y, LARGE, other + 1));
  gsel_request_free(sent), gsel_request_free(received);

  for (int rounds = 0; rounds < 10; ++rounds) { /* a receive is under way across collectives; its send comes last */
    memset(y, 0, LARGE * sizeof *y);
    if (run->rank == 1) rank_ok(run, gsel_comm_start(comm, &receive, &received, &err), err);
    for (int i = 0; i < 5; ++i) rank_ok(run, gsel_allreduce(comm, &sum, &sum, 1, GSEL_I32, GSEL_MAX, &err), err);
    if (run->rank == 0) rank_ok(run, gsel_send(comm, x, LARGE, GSEL_I32, 1, &err), err);
    if (run->rank == 1) {
      rank_ok(run, gsel_request_wait(received, &err), err);
      rank_check(run, all_are(y, LARGE, 1));
      gsel_request_free(received);
    }
  }

  for (int rounds = 0; rounds < 10; ++rounds) { /* a large send, then a collective its receiver comes to later */
    memset(y, 0, LARGE * sizeof *y);
    if (run->rank == 0) {
      rank_ok(run, gsel_comm_start(comm, &send, &sent, &err), err);
      rank_ok(run, gsel_barrier(comm, &err), err);
      rank_ok(run, gsel_request_wait(sent, &err), err);
      gsel_request_free(sent);
    } else {
      rank_ok(run, gsel_recv(comm, y, LARGE, GSEL_I32, 0, &err), err);
      rank_check(run, all_are(y, LARGE, 1));
      rank_ok(run, gsel_barrier(comm, &err), err);
    }
  }

  for (int rounds = 0; rounds < 10;
       ++rounds) { /* a message under a collective that was started, waited for before it */
    gsel_request* summed;
    const gsel_collective call = sum_of(&sum, 1);
    sum = 1;
    if (run->rank == 0) {
      rank_ok(run, gsel_comm_start(comm, &call, &summed, &err), err);
      rank_ok(run, gsel_send(comm, x, LARGE, GSEL_I32, 1, &err), err);
    } else {
      rank_ok(run, gsel_recv(comm, y, LARGE, GSEL_I32, 0, &err), err);
      rank_ok(run, gsel_comm_start(comm, &call, &summed, &err), err);
    }
    rank_ok(run, gsel_request_wait(summed, &err), err);
    rank_check(run, sum == 2);
    gsel_request_free(summed);
  }
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_messages_go_on_beside_collectives_and_each_other(void** state) {
  (void)state;
  as_threads_and_processes(2, beside_each_other, NULL);
}

/* Rank 0 receives from all; they send in an order it decides. */
static void any_of_them(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const int32_t n = run->world_size;
  int32_t word = run->rank, from[8] = {0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank > 0) {
    rank_ok(run, gsel_recv(comm, &from[0], 1, GSEL_I32, 0, &err), err);
    rank_ok(run, gsel_send(comm, &word, 1, GSEL_I32, 0, &err), err);
  } else {
    gsel_request* requests[8] = {NULL};
    size_t index = 99;
    for (int32_t q = 1; q < n; ++q) {
      const gsel_collective call = call_of(GSEL_COLLECTIVE_RECV, NULL, &from[q], 1, q);
      rank_ok(run, gsel_comm_start(comm, &call, &requests[q], &err), err);
    }
    for (int32_t q = n - 1; q > 0; --q) {
      rank_ok(run, gsel_send(comm, &word, 1, GSEL_I32, q, &err), err);
      rank_ok(run, gsel_request_wait_any(requests, (size_t)n, &index, &err), err);
      rank_check(run, index == (size_t)q && from[q] == q);
    }
    rank_fails(run, gsel_request_wait_any(requests, (size_t)n, &index, &err), err, GSEL_ERR_ARG, "none of", -1);
    rank_fails(run, gsel_request_wait_any(NULL, 0, &index, &err), err, GSEL_ERR_ARG, "NULL", -1);
    for (int32_t q = 1; q < n; ++q) gsel_request_free(requests[q]);
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_the_first_of_several_to_end_is_told(void** state) {
  (void)state;
  as_threads_and_processes(2, any_of_them, NULL);
  as_threads_and_processes(4, any_of_them, NULL);
}

static gsel_status join_again(const rank_run* run, gsel_comm* first, gsel_comm** out, gsel_error** err) {
  rank_run second = *run;
  if (run->rank == 0 && gsel_unique_id_create(&second.id, err) != GSEL_OK) return GSEL_ERR_IO;
  const gsel_status status = gsel_broadcast(first, &second.id, &second.id, sizeof second.id, GSEL_U8, 0, err);
  return status == GSEL_OK ? rank_join(&second, out, err) : status;
}

/* Each waits on one communicator for what the others do on the other. */
static void two_communicators(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm[2];
  gsel_request* request[2];
  int32_t* x[2];
  rank_ok(run, rank_join(run, &comm[0], &err), err);
  rank_ok(run, join_again(run, comm[0], &comm[1], &err), err);
  for (int rounds = 0; rounds < 10; ++rounds) {
    for (int k = 0; k < 2; ++k) {
      const int i = (k + run->rank) % 2; /* in another order on every other rank */
      x[i] = filled(LARGE, i + 1);
      const gsel_collective call = sum_of(x[i], LARGE);
      rank_ok(run, gsel_comm_start(comm[i], &call, &request[i], &err), err);
    }
    for (int i = 0; i < 2; ++i) {
      rank_ok(run, gsel_request_wait(request[i], &err), err);
      rank_check(run, all_are(x[i], LARGE, (i + 1) * run->world_size));
      gsel_request_free(request[i]);
      free(x[i]);
    }
  }
  gsel_comm_free(comm[1]);
  gsel_comm_free(comm[0]);
}

static void test_two_communicators_go_on_at_once(void** state) {
  (void)state;
  as_threads_and_processes(2, two_communicators, NULL);
  as_threads_and_processes(3, two_communicators, NULL);
}

/* A persistent request shows its label long after the text that it was given is gone. */
static void labelled(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request *request, *started;
  char label[] = "gradients";
  int32_t x = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_collective call = sum_of(&x, run->rank == 0 ? 1 : 0);
  call.label = gsel_str_from(label);
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  rank_ok(run, gsel_comm_start(comm, &call, &started, &err), err);
  memset(label, 'x', sizeof label - 1);
  rank_fails(run, gsel_request_wait(started, &err), err, GSEL_ERR_MISMATCH, "sum) \"gradients\", rank 1", -1);
  rank_fails(run, gsel_request_run(request, &err), err, GSEL_ERR_MISMATCH, "sum) \"gradients\", rank 1", -1);
  gsel_request_free(started);
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_a_persistent_request_keeps_its_label(void** state) {
  (void)state;
  as_threads_and_processes(2, labelled, NULL);
}

/* ---- what goes wrong ---------------------------------------------------------------------------------- */

static void errors(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request = (gsel_request*)run;
  int32_t x[2] = {1, 1}, y[2] = {0, 0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_collective call = call_of(GSEL_COLLECTIVE_SEND, x, NULL, 1, run->rank);
  rank_fails(run, gsel_comm_start(comm, &call, &request, &err), err, GSEL_ERR_ARG, "the calling rank itself", -1);
  rank_check(run, request == NULL);
  rank_fails(run, gsel_request_create(comm, NULL, &request, &err), err, GSEL_ERR_ARG, "gsel_collective is NULL", -1);
  rank_fails(run, gsel_request_wait(NULL, &err), err, GSEL_ERR_ARG, "request is NULL", -1);
  gsel_request_free(NULL);

  call = sum_of(x, run->rank == 0 ? 1 : 2);
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  for (int i = 0; i < 2; ++i)
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_MISMATCH, "rank 0 called allreduce(count 1", -1);
  gsel_request_free(request);
  rank_ok(run, gsel_barrier(comm, &err), err); /* usable as before */

  call = call_of(GSEL_COLLECTIVE_RECV, NULL, y, 1, 1 - run->rank); /* nobody sends */
  call.timeout_s = 0.2;
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  if (run->rank == 0) {
    rank_ok(run, gsel_request_start(request, &err), err);
    rank_fails(run, gsel_request_start(request, &err), err, GSEL_ERR_STATE, "recv is under way already", -1);
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_TIMEOUT, "rank 0 waited 0.2 s in recv(count 1", 1);
    rank_fails(run, gsel_request_run(request, &err), err, GSEL_ERR_TIMEOUT, "rank 0 waited 0.2 s in recv(count 1", 1);
  } else {
    gsel_request_free(request); /* broken for all, once rank 0 has waited */
    call = call_of(GSEL_COLLECTIVE_BARRIER, NULL, NULL, 0, -1);
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    rank_fails(run, until_done(request, &err), err, GSEL_ERR_TIMEOUT, "rank 0 waited 0.2 s in recv(count 1", 1);
  }
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_errors_come_with_the_wait(void** state) {
  (void)state;
  as_threads_and_processes(2, errors, NULL);
}

/* A receive may be posted long before its message: its time counts from the wait for it, and looks are no wait. */
static void posted_ahead(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request = NULL;
  int32_t x = 7, y = 0, done = 0;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 0) {
    gsel_collective call = call_of(GSEL_COLLECTIVE_RECV, NULL, &y, 1, 1);
    call.timeout_s = 0.1;
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    rank_ok(run, gsel_request_test(request, &done, &err), err);
    rank_check(run, done == 0);
  } else {
    usleep(300000); /* rank 0 has no other work meanwhile */
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 0)
    rank_ok(run, gsel_request_wait(request, &err), err);
  else
    rank_ok(run, gsel_send(comm, &x, 1, GSEL_I32, 0, &err), err);
  rank_check(run, run->rank == 1 || y == 7);
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_the_time_of_a_message_counts_from_its_wait(void** state) {
  (void)state;
  as_threads_and_processes(2, posted_ahead, NULL);
}

/* A wait for any is a wait for each: the time of the last one, which is the shortest, runs. */
static void any_waits_for_each(rank_run* run) {
  enum { N = 30 };
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* requests[N];
  int32_t y[N];
  size_t index = 99;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 0) {
    for (int i = 0; i < N; ++i) {
      gsel_collective call = call_of(GSEL_COLLECTIVE_RECV, NULL, &y[i], 1, 1);
      call.timeout_s = i == N - 1 ? 0.1 : 50;
      rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
    }
    rank_fails(run, gsel_request_wait_any(requests, N, &index, &err), err, GSEL_ERR_TIMEOUT, "rank 0 waited 0.1 s", 1);
    rank_check(run, index < N);
    for (int i = 0; i < N; ++i) gsel_request_free(requests[i]);
  } else {
    gsel_request* barrier;
    const gsel_collective call = call_of(GSEL_COLLECTIVE_BARRIER, NULL, NULL, 0, -1);
    rank_ok(run, gsel_comm_start(comm, &call, &barrier, &err), err);
    rank_fails(run, gsel_request_wait(barrier, &err), err, GSEL_ERR_TIMEOUT, "rank 0 waited 0.1 s", 1);
    gsel_request_free(barrier);
  }
  gsel_comm_free(comm);
}

static void test_a_wait_for_any_starts_the_time_of_each(void** state) {
  (void)state;
  as_threads_and_processes(2, any_waits_for_each, NULL);
}

/* A message that never comes: free waits for its end, here that of its time; abort ends another at once. */
static void freed(rank_run* run) {
  volatile int32_t* sent = (volatile int32_t*)run->user;
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t* y = filled(LARGE, 0);
  rank_ok(run, rank_join(run, &comm, &err), err);
  gsel_collective call = call_of(GSEL_COLLECTIVE_RECV, NULL, y, LARGE, 0);
  if (run->rank == 1) {
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    gsel_request_free(request);
    rank_check(run, all_are(y, LARGE, 7));
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    await_step(sent, 1); /* the abort would end a send that has not returned */
    gsel_comm_abort(comm, gsel_str_from("enough"));
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_ABORTED, "enough", 1);
    gsel_request_free(request);
  } else {
    int32_t* x = filled(LARGE, 7);
    rank_ok(run, gsel_send(comm, x, LARGE, GSEL_I32, 1, &err), err);
    reach_step(sent, 1);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_ABORTED, "enough", 1);
    free(x);
  }
  free(y);
  gsel_comm_free(comm);
}

static void test_free_waits_and_abort_ends(void** state) {
  (void)state;
  for (int processes = 0; processes < 2; ++processes) {
    int32_t* sent = (int32_t*)shared_memory(sizeof *sent);
    (processes ? as_processes : as_threads)(2, freed, sent);
    munmap(sent, sizeof *sent);
  }
}

static void destroyed(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request[3];
  int32_t x[2] = {1, 1}, *y = filled(LARGE, 0);
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) {
    const gsel_collective calls[] = {call_of(GSEL_COLLECTIVE_RECV, NULL, y, LARGE, 0), sum_of(&x[0], 1),
                                     sum_of(&x[1], 1)};
    for (int i = 0; i < 3; ++i) rank_ok(run, gsel_comm_start(comm, &calls[i], &request[i], &err), err);
    gsel_comm_free(comm);
    for (int i = 0; i < 3; ++i) {
      rank_fails(run, gsel_request_wait(request[i], &err), err, GSEL_ERR_ABORTED, "destroyed with requests under way",
                 1);
      gsel_request_free(request[i]);
    }
  } else {
    rank_fails(run, gsel_recv(comm, y, 1, GSEL_I32, 1, &err), err, GSEL_ERR_ABORTED,
               "rank 1 aborted the communicator: destroyed with requests under way", 1);
    gsel_comm_free(comm);
  }
  free(y);
}

static void test_a_communicator_is_destroyed_with_requests_under_way(void** state) {
  (void)state;
  for (int i = 0; i < 5; ++i) as_threads_and_processes(2, destroyed, NULL);
}

static void no_thread(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t x = 1, y = 0;
  const int32_t other = 1 - run->rank;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.flags = GSEL_COMM_NO_THREAD;
  rank_ok(run, gsel_comm_init(&options, &comm, &err), err);
  const gsel_collective call = sum_of(&x, 1);
  rank_fails(run, gsel_comm_start(comm, &call, &request, &err), err, GSEL_ERR_UNSUPPORTED, "GSEL_COMM_NO_THREAD", -1);
  rank_check(run, request == NULL);
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  rank_fails(run, gsel_request_start(request, &err), err, GSEL_ERR_UNSUPPORTED, "GSEL_COMM_NO_THREAD", -1);
  rank_ok(run, gsel_request_run(request, &err), err);
  rank_check(run, x == 2);
  gsel_request_free(request);
  const gsel_collective send = call_of(GSEL_COLLECTIVE_SEND, &x, NULL, 1, other);
  const gsel_collective receive = call_of(GSEL_COLLECTIVE_RECV, NULL, &y, 1, other);
  gsel_comm* const comms[] = {comm, comm};
  const gsel_collective* const calls[] = {&send, &receive};
  rank_ok(run, gsel_group_run(comms, calls, 2, &err), err);
  rank_check(run, y == 2);
  gsel_comm_free(comm);
}

static void test_without_a_thread_requests_are_refused_and_groups_are_not(void** state) {
  (void)state;
  if (is_started()) skip(); /* GSEL_COMM_NO_THREAD is not for several hosts */
  as_threads_and_processes(2, no_thread, NULL);
}

static void forked(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t x = 1, y = 0, done = 0;
  const int32_t other = 1 - run->rank;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const gsel_collective call = call_of(GSEL_COLLECTIVE_RECV, NULL, &y, 1, other);
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  const pid_t child = fork();
  if (child == 0) {
    gsel_request* second;
    if (gsel_comm_start(comm, &call, &second, NULL) != GSEL_ERR_FORKED) _exit(1);
    if (gsel_request_test(request, &done, NULL) != GSEL_ERR_FORKED || !done) _exit(2);
    if (gsel_request_wait(request, NULL) != GSEL_ERR_FORKED) _exit(3);
    gsel_request_free(request);
    const gsel_collective* const calls[] = {&call};
    if (gsel_group_run(&comm, calls, 1, NULL) != GSEL_ERR_FORKED) _exit(4);
    gsel_comm_free(comm);
    _exit(0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  rank_check(run, status == 0);
  rank_ok(run, gsel_send(comm, &x, 1, GSEL_I32, other, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_check(run, y == 1);
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_a_forked_child_is_refused(void** state) {
  (void)state;
  as_processes(2, forked, NULL);
}

/* A receive is under way across a split; a resync ends what is under way and the channels begin anew. */
static void reformed(rank_run* run) {
  gsel_error* err;
  gsel_comm *comm, *part;
  gsel_request* request;
  int32_t *x = filled(LARGE, 3), *y = filled(LARGE, 0);
  rank_ok(run, rank_join(run, &comm, &err), err);
  const int32_t other = 1 - run->rank;
  const gsel_collective receive = call_of(GSEL_COLLECTIVE_RECV, NULL, y, LARGE, other);
  rank_ok(run, gsel_comm_start(comm, &receive, &request, &err), err);
  rank_ok(run, gsel_comm_split(comm, 0, -run->rank, &part, &err), err);
  rank_ok(run, gsel_send(part, x, 5, GSEL_I32, other == 0, &err), err);
  rank_ok(run, gsel_recv(part, x, 5, GSEL_I32, other == 0, &err), err);
  rank_ok(run, gsel_send(comm, x, LARGE, GSEL_I32, other, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_check(run, all_are(y, LARGE, 3));
  for (int i = 0; i < 3; ++i) {
    rank_ok(run, gsel_request_start(request, &err), err);
    rank_ok(run, gsel_comm_resync(comm, &err), err);
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_STATE, "resync", -1);
    memset(y, 0, LARGE * sizeof *y);
    rank_ok(run, gsel_sendrecv(comm, x, LARGE, other, y, LARGE, other, GSEL_I32, &err), err);
    rank_check(run, all_are(y, LARGE, 3));
  }
  gsel_request_free(request);
  free(x), free(y);
  gsel_comm_free(part);
  gsel_comm_free(comm);
}

static void test_requests_live_with_splits_and_end_with_a_resync(void** state) {
  (void)state;
  as_threads_and_processes(2, reformed, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_call_goes_on_while_its_caller_looks_or_waits),
      cmocka_unit_test(test_what_was_started_ends_without_its_caller),
      cmocka_unit_test(test_a_persistent_request_runs_any_number_of_times),
      cmocka_unit_test(test_collectives_run_in_the_order_started),
      cmocka_unit_test(test_messages_go_on_beside_collectives_and_each_other),
      cmocka_unit_test(test_the_first_of_several_to_end_is_told),
      cmocka_unit_test(test_two_communicators_go_on_at_once),
      cmocka_unit_test(test_a_persistent_request_keeps_its_label),
      cmocka_unit_test(test_errors_come_with_the_wait),
      cmocka_unit_test(test_the_time_of_a_message_counts_from_its_wait),
      cmocka_unit_test(test_a_wait_for_any_starts_the_time_of_each),
      cmocka_unit_test(test_free_waits_and_abort_ends),
      cmocka_unit_test(test_a_communicator_is_destroyed_with_requests_under_way),
      cmocka_unit_test(test_without_a_thread_requests_are_refused_and_groups_are_not),
      cmocka_unit_test(test_a_forked_child_is_refused),
      cmocka_unit_test(test_requests_live_with_splits_and_end_with_a_resync),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
