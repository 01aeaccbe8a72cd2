/* test_comm_queue.c: requests whose end a program learns of by a file descriptor, by a wait of so many seconds, or on
 * several threads; and calls of several threads on one communicator. */
#include <poll.h>
#include <time.h>

#include "support/calls.h"

enum { ROUNDS = 50, COUNT = 1000, WAITERS = 4 };

static gsel_collective message(gsel_collective_kind kind, int32_t* x, int32_t peer, int32_t tag) {
  const int sends = kind == GSEL_COLLECTIVE_SEND;
  gsel_collective call = call_of(kind, sends ? x : NULL, sends ? NULL : x, 1, peer);
  call.tag = tag;
  return call;
}

static int readable(const gsel_queue* queue, int ms) {
  struct pollfd of = {.fd = gsel_queue_fd(queue), .events = POLLIN};
  return poll(&of, 1, ms) == 1 && of.revents == POLLIN;
}

/* What has ended, within so many seconds; each request is added with the place where it is kept. */
static gsel_request* next(rank_run* run, gsel_queue* queue, double seconds) {
  gsel_error* err = NULL;
  int32_t found = 2;
  void* user = NULL;
  const gsel_status status = gsel_queue_next(queue, seconds, &found, &user, &err);
  gsel_error_free(err);
  if (status || found != (user != NULL))
    snprintf(run->failure, sizeof run->failure, "gsel_queue_next: found %d", found);
  return user ? *(gsel_request**)user : NULL;
}

static void ends_come_in_their_order(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_queue* queue = NULL;
  gsel_request* requests[ROUNDS];
  static __thread int32_t x[ROUNDS][COUNT];
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_queue_create(&queue, &err), err);
  rank_check(run, !readable(queue, 0));
  rank_check(run, next(run, queue, 0) == NULL);
  for (int i = 0; i < ROUNDS; ++i) {
    for (int j = 0; j < COUNT; ++j) x[i][j] = (run->rank + i);
    const gsel_collective call = sum_of(x[i], i % 2 ? COUNT : 1);
    rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
    rank_ok(run, gsel_request_notify(requests[i], queue, &requests[i], &err), err);
  }
  for (int i = 0; i < ROUNDS; ++i) {
    int32_t done = 0;
    rank_check(run, readable(queue, 20000));
    rank_check(run, next(run, queue, i % 2 ? 0 : -1) == requests[i]);
    rank_ok(run, gsel_request_test(requests[i], &done, &err), err);
    rank_check(run, done == 1);
    rank_check(run, x[i][0] == (run->world_size * i + run->world_size * (run->world_size - 1) / 2));
    gsel_request_free(requests[i]);
  }
  rank_check(run, !readable(queue, 0));
  gsel_queue_free(queue);
  gsel_comm_free(comm);
}

static void test_ends_come_in_their_order(void** state) {
  (void)state;
  as_threads(3, ends_come_in_their_order, NULL);
  as_processes(2, ends_come_in_their_order, NULL);
}

/* Its end comes at every start; one that has ended already comes at once. */
static void a_persistent_request_comes_every_time(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_queue *first = NULL, *second = NULL;
  gsel_request* request = NULL;
  int32_t x[1] = {1};
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_queue_create(&first, &err), err);
  rank_ok(run, gsel_queue_create(&second, &err), err);
  const gsel_collective call = sum_of(x, 1);
  rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
  rank_ok(run, gsel_request_notify(request, first, &request, &err), err);
  rank_check(run, !readable(first, 0)); /* never started */
  for (int i = 0; i < ROUNDS; ++i) {
    x[0] = 1;
    rank_ok(run, gsel_request_start(request, &err), err);
    rank_check(run, next(run, first, 20) == request);
    rank_ok(run, gsel_request_wait(request, &err), err);
    rank_check(run, x[0] == run->world_size);
  }
  rank_ok(run, gsel_request_start(request, &err), err);
  rank_check(run, readable(first, 20000)); /* and is not taken */
  rank_ok(run, gsel_request_notify(request, second, &request, &err), err);
  rank_check(run, !readable(first, 0) && readable(second, 0));
  rank_ok(run, gsel_request_notify(request, NULL, NULL, &err), err);
  rank_check(run, !readable(second, 0));
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_ok(run, gsel_request_notify(request, second, &request, &err), err);
  rank_check(run, !readable(second, 0)); /* a wait has told its end */
  gsel_request_free(request);
  gsel_queue_free(first);
  gsel_queue_free(second);
  gsel_queue_free(NULL);
  rank_check(run, gsel_queue_fd(NULL) == -1);
  gsel_comm_free(comm);
}

static void test_a_persistent_request_comes_every_time(void** state) {
  (void)state;
  as_threads(2, a_persistent_request_comes_every_time, NULL);
}

/* A receive is in the queue of rank 0 long before its message, and one is never sent: nobody waits, its time is up all
 * the same. */
static void messages_and_failures_come(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  int32_t x[2] = {0};
  run->timeout_s = 20;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) {
    usleep(100000);
    x[0] = 7;
    rank_ok(run, gsel_send(comm, x, 1, GSEL_I32, 0, &err), err);
    rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_TIMEOUT, "timed out", 1);
    gsel_comm_free(comm);
    return;
  }
  gsel_queue* queue = NULL;
  gsel_request* requests[2];
  rank_ok(run, gsel_queue_create(&queue, &err), err);
  for (int i = 0; i < 2; ++i) {
    gsel_collective call = message(GSEL_COLLECTIVE_RECV, &x[i], 1, i);
    call.timeout_s = 0.5;
    rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
    rank_ok(run, gsel_request_notify(requests[i], queue, &requests[i], &err), err);
  }
  rank_check(run, next(run, queue, 0.001) == NULL);
  rank_check(run, readable(queue, 20000));
  rank_check(run, next(run, queue, 0) == requests[0] && x[0] == 7);
  rank_ok(run, gsel_request_wait(requests[0], &err), err);
  rank_check(run, readable(queue, 20000));
  rank_check(run, next(run, queue, 0) == requests[1]);
  rank_fails(run, gsel_request_wait(requests[1], &err), err, GSEL_ERR_TIMEOUT, "timed out: rank 1", 1);
  for (int i = 0; i < 2; ++i) gsel_request_free(requests[i]);
  gsel_queue_free(queue);
  gsel_comm_free(comm);
}

static void test_messages_and_failures_come_though_nobody_waits(void** state) {
  (void)state;
  as_threads(2, messages_and_failures_come, NULL);
  as_processes(2, messages_and_failures_come, NULL);
}

/* Requests and queues may go in any order. */
static void whatever_goes_first(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int i = 0; i < ROUNDS; ++i) {
    gsel_queue* queue = NULL;
    gsel_request* requests[3];
    int32_t x[3] = {1, 1, 1};
    rank_ok(run, gsel_queue_create(&queue, &err), err);
    for (int r = 0; r < 3; ++r) {
      const gsel_collective call = sum_of(&x[r], 1);
      rank_ok(run, gsel_comm_start(comm, &call, &requests[r], &err), err);
      rank_ok(run, gsel_request_notify(requests[r], queue, &requests[r], &err), err);
    }
    gsel_request_free(requests[i % 3]); /* waits */
    if (i % 2) {
      gsel_queue_free(queue);
    } else {
      for (int r = 0; r < 2; ++r) {
        const gsel_request* ended = next(run, queue, 20);
        rank_check(run, ended && ended != requests[i % 3]);
      }
      rank_check(run, next(run, queue, 0) == NULL && !readable(queue, 0));
    }
    for (int r = 0; r < 3; ++r)
      if (r != i % 3) {
        rank_ok(run, gsel_request_wait(requests[r], &err), err);
        gsel_request_free(requests[r]);
      }
    if (i % 2 == 0) gsel_queue_free(queue);
  }
  gsel_comm_free(comm);
}

/* What the parent made is refused and can be freed. */
static void in_a_forked_child(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_queue* queue = NULL;
  gsel_request* request = NULL;
  int32_t x = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_queue_create(&queue, &err), err);
  const gsel_collective call = sum_of(&x, 1);
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  rank_ok(run, gsel_request_notify(request, queue, &request, &err), err);
  const pid_t child = fork();
  if (child == 0) {
    int32_t found = 0;
    void* user = NULL;
    const int refused = gsel_queue_next(queue, -1, &found, &user, NULL) == GSEL_ERR_FORKED &&
                        gsel_request_notify(request, queue, NULL, NULL) == GSEL_ERR_FORKED;
    gsel_request_free(request);
    /* Nor does a communicator of the child's own put anything into the parent's queue. */
    gsel_comm* own = NULL;
    gsel_comm_options alone = GSEL_COMM_OPTIONS_INIT;
    alone.world_size = 1;
    const int apart = gsel_comm_init(&alone, &own, NULL) == GSEL_OK &&
                      gsel_request_create(own, &call, &request, NULL) == GSEL_OK &&
                      gsel_request_notify(request, queue, NULL, NULL) == GSEL_ERR_FORKED;
    gsel_request_free(request);
    gsel_comm_free(own);
    gsel_queue_free(queue);
    _exit(refused && apart ? 0 : 1);
  }
  int status = 1;
  rank_check(run, waitpid(child, &status, 0) == child && status == 0);
  rank_check(run, next(run, queue, 20) == request);
  gsel_request_free(request);
  gsel_queue_free(queue);
  gsel_comm_free(comm);
}

static void test_a_forked_child_is_refused(void** state) {
  (void)state;
  as_processes(2, in_a_forked_child, NULL);
}

static void test_requests_and_queues_go_in_any_order(void** state) {
  (void)state;
  as_threads(2, whatever_goes_first, NULL);
}

/* A ring of messages and a sum, as one request. */
static void a_group_is_one_request(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_queue* queue = NULL;
  gsel_request* request = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_queue_create(&queue, &err), err);
  const int32_t n = run->world_size, after = (run->rank + 1) % n, before = (run->rank + n - 1) % n;
  for (int i = 0; i < ROUNDS; ++i) {
    int32_t x = 1, out = run->rank, in = -1;
    int32_t cancelled = 1;
    const gsel_collective receive = message(GSEL_COLLECTIVE_RECV, &in, before, i), sum = sum_of(&x, 1),
                          send = message(GSEL_COLLECTIVE_SEND, &out, after, i);
    const gsel_collective* const calls[] = {&receive, &sum, &send};
    rank_ok(run, gsel_group_start(comm, calls, 3, &request, &err), err);
    rank_ok(run, gsel_request_notify(request, queue, &request, &err), err);
    rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
    rank_check(run, cancelled == 0);
    rank_check(run, next(run, queue, 20) == request);
    rank_ok(run, gsel_request_wait(request, &err), err);
    rank_check(run, x == n && in == before);
    gsel_request_free(request);
  }
  const gsel_collective wrong = message(GSEL_COLLECTIVE_SEND, NULL, n, 0);
  int32_t x = 1;
  const gsel_collective right = sum_of(&x, 1);
  const gsel_collective* const calls[] = {&right, &wrong};
  rank_fails(run, gsel_group_start(comm, calls, 2, &request, &err), err, GSEL_ERR_ARG, "call 1 of a group of 2", -1);
  rank_fails(run, gsel_group_start(comm, calls, 0, &request, &err), err, GSEL_ERR_ARG, "n is 0", -1);
  rank_check(run, request == NULL);
  gsel_queue_free(queue);
  gsel_comm_free(comm);
}

static void test_a_group_is_one_request(void** state) {
  (void)state;
  as_threads(3, a_group_is_one_request, NULL);
  as_processes(2, a_group_is_one_request, NULL);
}

/* ---- waits ------------------------------------------------------------------------------------------------------ */

typedef struct waiter {
  gsel_request* request;
  gsel_status status;
  int32_t done;
} waiter;

static void* wait_long(void* user) {
  waiter* w = user;
  w->status = gsel_request_wait_for(w->request, 20, &w->done, NULL);
  return NULL;
}

static void several_threads_wait(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  int32_t x = 5;
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 1) {
    usleep(200000);
    rank_ok(run, gsel_send(comm, &x, 1, GSEL_I32, 0, &err), err);
  } else {
    gsel_request* request = NULL;
    int32_t done = 1;
    int32_t got = 0;
    const gsel_collective call = message(GSEL_COLLECTIVE_RECV, &got, 1, 0);
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    rank_ok(run, gsel_request_wait_for(request, 0, &done, &err), err);
    rank_check(run, done == 0);
    rank_ok(run, gsel_request_wait_for(request, 0.02, &done, &err), err);
    rank_check(run, done == 0);
    waiter waiters[WAITERS];
    pthread_t threads[WAITERS];
    for (int i = 0; i < WAITERS; ++i) {
      waiters[i] = (waiter){request, GSEL_OK, 0};
      pthread_create(&threads[i], NULL, wait_long, &waiters[i]);
    }
    usleep(20000); /* they wait */
    rank_ok(run, gsel_request_wait_for(request, 0.02, &done, &err), err);
    for (int i = 0; i < WAITERS; ++i) pthread_join(threads[i], NULL);
    for (int i = 0; i < WAITERS; ++i) rank_check(run, waiters[i].status == GSEL_OK && waiters[i].done == 1);
    rank_check(run, done == 0 && got == 5);
    rank_fails(run, gsel_request_wait_for(request, -1, &done, &err), err, GSEL_ERR_ARG, "seconds is -1", -1);
    gsel_request_free(request);
  }
  gsel_comm_free(comm);
}

static void test_several_threads_wait_for_one_request(void** state) {
  (void)state;
  as_threads(2, several_threads_wait, NULL);
}

/* ---- several threads make calls ---------------------------------------------------------------------------------- */

typedef struct caller {
  gsel_comm* comm;
  int32_t tag, peer;
  int failed;
} caller;

/* Of two ranks, each with as many threads as tags: the receive of one waits for what the other's thread sends later. */
static void* exchange_many(void* user) {
  caller* c = user;
  for (int i = 0; i < ROUNDS; ++i) {
    int32_t out = (100 * c->tag + i), in = -1;
    if (c->peer == 1 && gsel_recv_tag(c->comm, &in, 1, GSEL_I32, 1, c->tag, NULL, NULL)) c->failed = 1;
    if (c->peer == 0) usleep(500);
    if (gsel_send_tag(c->comm, &out, 1, GSEL_I32, c->peer, c->tag, NULL)) c->failed = 1;
    if (c->peer == 0 && gsel_recv_tag(c->comm, &in, 1, GSEL_I32, 0, c->tag, NULL, NULL)) c->failed = 1;
    if (in != out) c->failed = 1;
  }
  return NULL;
}

static void threads_make_calls(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm *joined = NULL, *comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.timeout_s = 20;
  options.flags = GSEL_COMM_THREAD_MULTIPLE;
  char place[512];
  rank_meet(run, &options, place, sizeof place);
  rank_ok(run, gsel_comm_init(&options, &joined, &err), err);
  rank_ok(run, gsel_comm_dup(joined, &comm, &err), err); /* has it, too */
  caller callers[WAITERS];
  pthread_t threads[WAITERS];
  for (int i = 0; i < WAITERS; ++i) {
    callers[i] = (caller){i % 2 ? comm : joined, i, 1 - run->rank, 0};
    pthread_create(&threads[i], NULL, exchange_many, &callers[i]);
  }
  for (int i = 0; i < ROUNDS; ++i) {
    int32_t x = 1;
    rank_ok(run, gsel_allreduce(joined, &x, &x, 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x == 2);
  }
  for (int i = 0; i < WAITERS; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < WAITERS; ++i) rank_check(run, !callers[i].failed);
  gsel_comm_free(comm);
  gsel_comm_free(joined);
}

static void test_threads_make_calls_at_the_same_time(void** state) {
  (void)state;
  as_threads(2, threads_make_calls, NULL);
  as_processes(2, threads_make_calls, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_ends_come_in_their_order),
      cmocka_unit_test(test_a_persistent_request_comes_every_time),
      cmocka_unit_test(test_messages_and_failures_come_though_nobody_waits),
      cmocka_unit_test(test_requests_and_queues_go_in_any_order),
      cmocka_unit_test(test_a_forked_child_is_refused),
      cmocka_unit_test(test_a_group_is_one_request),
      cmocka_unit_test(test_several_threads_wait_for_one_request),
      cmocka_unit_test(test_threads_make_calls_at_the_same_time),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
