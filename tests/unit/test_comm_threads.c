/* unit/test_comm_threads.c: several threads of one rank on one communicator. One thread makes the calls; others run
 * persistent requests and wait for requests beside it, at any time. Ranks are threads or processes of two or three
 * threads each. */
#include <sched.h>

#include "support/calls.h"

enum { LARGE = 30000 /* two pieces */ };

/* What the threads of a rank share. */
typedef struct shared {
  rank_run* run;
  gsel_comm* comm;
  rank_run of_other[2]; /* where another thread reports */
} shared;

typedef struct side {
  shared* with;
  rank_run* run; /* where this thread reports */
  gsel_request* request;
  int32_t* x;
  size_t count;
  int rounds;
} side;

static gsel_collective message_of(shared* s, int32_t* x, size_t count, int32_t tag) {
  const int sends = s->run->rank == 0;
  gsel_collective call = call_of(sends ? GSEL_COLLECTIVE_SEND : GSEL_COLLECTIVE_RECV, sends ? x : NULL,
                                 sends ? NULL : x, count, 1 - s->run->rank);
  call.tag = tag;
  return call;
}

static void join(rank_run* run, shared* s) {
  gsel_error* err;
  memset(s, 0, sizeof *s);
  s->run = run;
  for (int i = 0; i < 2; ++i) s->of_other[i] = *run;
  rank_ok(run, rank_join(run, &s->comm, &err), err);
}

/* What another thread reports counts; the threads are over. */
static void gather_reports(shared* s) {
  for (int i = 0; i < 2; ++i)
    if (!s->run->failure[0]) memcpy(s->run->failure, s->of_other[i].failure, sizeof s->run->failure);
}

/* A thread that runs a persistent message `rounds` times. */
static void* run_again_and_again(void* argument) {
  side* a = (side*)argument;
  gsel_error* err;
  for (int i = 0; i < a->rounds; ++i) {
    if (a->run->rank == 0) a->x[0] = a->x[a->count - 1] = i;
    const gsel_status status = gsel_request_run(a->request, &err);
    if (status != GSEL_OK || a->x[0] != i || a->x[a->count - 1] != i) {
      snprintf(a->run->failure, sizeof a->run->failure, "rank %d, run %d: %s, got %d: %.400s", (int)a->run->rank, i,
               gsel_status_name(status), (int)a->x[0], status ? gsel_error_message(err).data : "");
      if (status) gsel_error_free(err);
      gsel_comm_abort(a->with->comm, gsel_str_from("wrong in another thread"));
      break;
    }
  }
  return NULL;
}

/* The thread that makes calls of every kind meanwhile. */
static void make_calls(rank_run* run, shared* s, int rounds) {
  gsel_error* err;
  gsel_request* request;
  int32_t *x = filled(LARGE, 0), *y = filled(LARGE, 0);
  for (int i = 0; i < rounds; ++i) {
    const size_t count = i % 16 == 15 ? LARGE : 64;
    const gsel_collective call = message_of(s, x, count, 3);
    if (run->rank == 0) x[count - 1] = i;
    switch (i % 4) {
      case 0:
      case 3:
        rank_ok(run, gsel_comm_start(s->comm, &call, &request, &err), err);
        rank_ok(run, gsel_request_wait(request, &err), err);
        gsel_request_free(request);
        rank_check(run, x[count - 1] == i);
        break;
      case 1:
        rank_ok(run, gsel_comm_run(s->comm, &call, &err), err);
        rank_check(run, x[count - 1] == i);
        break;
      case 2:
        for (size_t j = 0; j < LARGE; ++j) y[j] = i;
        rank_ok(run, gsel_allreduce(s->comm, y, y, i % 8 == 6 ? LARGE : 1, GSEL_I32, GSEL_SUM, &err), err);
        rank_check(run, y[0] == 2 * i);
        break;
    }
  }
  free(x), free(y);
}

static void runs_beside_calls(rank_run* run) {
  enum { ROUNDS = 2000 };
  gsel_error* err;
  shared s;
  pthread_t threads[2];
  side sides[2];
  join(run, &s);
  if (run->failure[0]) return;
  for (int i = 0; i < 2; ++i) {
    const size_t count = i ? LARGE : 1;
    sides[i] = (side){&s, &s.of_other[i], NULL, filled(count, 0), count, i ? ROUNDS / 10 : ROUNDS};
    const gsel_collective call = message_of(&s, sides[i].x, count, i + 1);
    rank_ok(run, gsel_request_create(s.comm, &call, &sides[i].request, &err), err);
  }
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, run_again_and_again, &sides[i]);
  make_calls(run, &s, ROUNDS);
  if (run->failure[0]) gsel_comm_abort(s.comm, gsel_str_from("wrong in the thread that calls"));
  for (int i = 0; i < 2; ++i) {
    pthread_join(threads[i], NULL);
    gsel_request_free(sides[i].request);
    free(sides[i].x);
  }
  gather_reports(&s);
  gsel_comm_free(s.comm);
}

static void test_persistent_requests_run_beside_calls_of_every_kind(void** state) {
  (void)state;
  as_threads_and_processes(2, runs_beside_calls, NULL);
}

/* ---- what one thread waits for comes only after calls of another ------------------------------------------------ */

static void* run_once(void* argument) {
  side* a = (side*)argument;
  gsel_error* err = NULL;
  const gsel_status status = a->rounds ? gsel_request_wait(a->request, &err) : gsel_request_run(a->request, &err);
  if (status)
    snprintf(a->run->failure, sizeof a->run->failure, "rank %d: a %s: %s: %.400s", (int)a->run->rank,
             a->rounds ? "wait" : "run", gsel_status_name(status), gsel_error_message(err).data);
  gsel_error_free(err);
  return NULL;
}

/* Collectives, and what makes communicators. */
static void go_together(rank_run* run, gsel_comm* comm, int which) {
  gsel_error* err;
  gsel_comm* made = NULL;
  int32_t one = 1;
  switch (which) {
    case 0:
      rank_ok(run, gsel_allreduce(comm, &one, &one, 1, GSEL_I32, GSEL_SUM, &err), err);
      rank_check(run, one == 2);
      break;
    case 1:
      rank_ok(run, gsel_comm_dup(comm, &made, &err), err);
      break;
    case 2:
      rank_ok(run, gsel_comm_split(comm, 0, 0, &made, &err), err);
      break;
  }
  gsel_comm_free(made);
}

/* Rank 1 runs or waits for a receive; what it gets is sent behind a call that its other thread has yet to make. */
static void later_than_a_call(rank_run* run) {
  gsel_error* err;
  shared s;
  join(run, &s);
  if (run->failure[0]) return;
  for (int i = 0; i < 60; ++i) {
    int32_t x = i, y = -1;
    side a = {&s, &s.of_other[0], NULL, &y, 1, i % 2};
    pthread_t thread;
    if (run->rank == 1) {
      const gsel_collective call = message_of(&s, &y, 1, 1);
      rank_ok(run, gsel_request_create(s.comm, &call, &a.request, &err), err);
      if (a.rounds) rank_ok(run, gsel_request_start(a.request, &err), err);
      pthread_create(&thread, NULL, run_once, &a);
      if (i % 6 < 3) usleep(2000); /* long enough for it to wait, mostly */
    }
    go_together(run, s.comm, i / 2 % 3);
    if (run->rank == 0 && !run->failure[0]) rank_ok(run, gsel_send_tag(s.comm, &x, 1, GSEL_I32, 1, 1, &err), err);
    if (run->rank == 1) {
      pthread_join(thread, NULL);
      gsel_request_free(a.request);
      gather_reports(&s);
      rank_check(run, run->failure[0] || y == i);
    }
    if (run->failure[0]) break;
  }
  gsel_comm_free(s.comm);
}

static void test_what_a_thread_waits_for_does_not_hold_up_the_calls_of_another(void** state) {
  (void)state;
  for (int processes = 0; processes < 2; ++processes) {
    rank_run* runs = ranks_prepare(2, NULL);
    for (int r = 0; r < 2; ++r) runs[r].timeout_s = 10;
    (processes ? ranks_run_processes : ranks_run_threads)(runs, 2, later_than_a_call);
    ranks_verdict(runs, 2);
  }
}

/* ---- what is no persistent request ------------------------------------------------------------------------------ */

static void run_what_was_started(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t x = 1;
  rank_ok(run, rank_join(run, &comm, &err), err);
  const gsel_collective call = sum_of(&x, 1);
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_fails(run, gsel_request_run(request, &err), err, GSEL_ERR_STATE,
             "allreduce was started by gsel_comm_start; gsel_request_run takes a request of gsel_request_create", -1);
  rank_check(run, x == 2);
  rank_ok(run, gsel_request_start(request, &err), err);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_check(run, x == 4);
  gsel_request_free(request);
  gsel_comm_free(comm);
}

static void test_only_a_persistent_request_is_run(void** state) {
  (void)state;
  as_threads(2, run_what_was_started, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_persistent_requests_run_beside_calls_of_every_kind),
      cmocka_unit_test(test_what_a_thread_waits_for_does_not_hold_up_the_calls_of_another),
      cmocka_unit_test(test_only_a_persistent_request_is_run),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
