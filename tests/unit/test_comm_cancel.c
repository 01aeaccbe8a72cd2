/* unit/test_comm_cancel.c: requests that are cancelled before anybody has met them, and those that somebody has;
 * messages of every way of travelling, collectives, persistent requests; what freeing does with a message that nobody
 * meets. Ranks are threads and processes, which may read each other's memory or not. */
#include <sched.h>

#include "support/calls.h"
#include "support/counts.h"
#include "support/refuse.h"

enum { LONG = 1 << 18 /* does not fit the library's buffer */, NO_TAG = 99 };

static void join(rank_run* run, gsel_comm** comm) {
  gsel_error* err;
  *comm = NULL;
  rank_ok(run, rank_join(run, comm, &err), err);
}

static void leave(rank_run* run, gsel_comm* comm) {
  gsel_error* err;
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static gsel_collective message(gsel_collective_kind kind, int32_t* x, size_t count, int32_t peer, int32_t tag) {
  gsel_collective call =
      call_of(kind, kind == GSEL_COLLECTIVE_SEND ? x : NULL, kind == GSEL_COLLECTIVE_SEND ? NULL : x, count, peer);
  call.tag = tag;
  return call;
}

/* Done, without a result. */
static void check_cancelled(rank_run* run, gsel_request* request) {
  gsel_error* err;
  int32_t cancelled = 7, done = 0;
  size_t index;
  rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
  rank_check(run, cancelled == 1);
  rank_ok(run, gsel_request_test(request, &done, &err), err);
  rank_check(run, done == 1);
  rank_ok(run, gsel_request_wait(request, &err), err);
  rank_fails(run, gsel_request_wait_any(&request, 1, &index, &err), err, GSEL_ERR_ARG, "none of", -1);
  rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
  rank_check(run, cancelled == 0); /* it has ended */
}

/* ---- receives --------------------------------------------------------------------------------------------------- */

static void receives(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t cancelled = 7, x = 0, y[2] = {-1, -1};
  join(run, &comm);
  if (run->rank == 0) {
    const int32_t sources[] = {1, GSEL_ANY_RANK, 1}, tags[] = {5, GSEL_ANY_TAG, GSEL_ANY_TAG};
    for (int i = 0; i < 3; ++i) {
      gsel_collective call = message(GSEL_COLLECTIVE_RECV, &y[0], 1, sources[i], tags[i]);
      rank_ok(run, gsel_request_create(comm, &call, &request, &err), err);
      rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
      rank_check(run, cancelled == 0); /* it was never started */
      rank_ok(run, gsel_request_start(request, &err), err);
      check_cancelled(run, request);
      if (run->failure[0]) return;
      rank_ok(run, gsel_request_start(request, &err), err);
      check_cancelled(run, request);
      if (run->failure[0]) return;
      rank_ok(run, gsel_send(comm, &x, 1, GSEL_I32, 1, &err), err);
      rank_ok(run, gsel_recv_tag(comm, &y[1], 1, GSEL_I32, 1, 5, NULL, &err), err);
      rank_check(run, y[0] == -1 && y[1] == i);
      rank_ok(run, gsel_request_start(request, &err), err);
      rank_ok(run, gsel_send(comm, &x, 1, GSEL_I32, 1, &err), err);
      rank_ok(run, gsel_request_wait(request, &err), err);
      rank_check(run, y[0] == 10 + i);
      rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
      rank_check(run, cancelled == 0);
      gsel_request_free(request);
      y[0] = -1;
    }
  } else {
    for (int32_t i = 0; i < 3; ++i) {
      rank_ok(run, gsel_recv(comm, &x, 1, GSEL_I32, 0, &err), err);
      rank_ok(run, gsel_send_tag(comm, &i, 1, GSEL_I32, 0, 5, &err), err);
      const int32_t second = 10 + i;
      rank_ok(run, gsel_recv(comm, &x, 1, GSEL_I32, 0, &err), err);
      rank_ok(run, gsel_send_tag(comm, &second, 1, GSEL_I32, 0, 5, &err), err);
    }
  }
  leave(run, comm);
}

static void test_a_receive_is_cancelled_until_it_has_a_message(void** state) {
  (void)state;
  as_threads_and_processes(2, receives, NULL);
}

/* ---- sends ------------------------------------------------------------------------------------------------------ */

/* How far the receiver has come with a message that it does not receive. */
enum seen { NOT_AT_ALL, SEEN, SET_ASIDE, SEENS };

/* Shared by the ranks. */
typedef struct sending {
  size_t count;
  int blind;  /* ranks may not read each other, so all pieces of a message that is set aside may be with its receiver */
  int rounds; /* over, for the sender */
} sending;

/* Many in a row are cancelled, more than a channel has places; those that are not arrive in the order sent. */
static void sends(rank_run* run) {
  enum { ROUNDS = 40 };
  sending* how = run->user;
  gsel_error* err;
  gsel_comm* comm;
  int32_t *x = filled(how->count, 1), *y = filled(how->count, 0), go = 0, found = 0;
  gsel_request *request, *next;
  gsel_message seen = GSEL_MESSAGE_INIT;
  if (how->blind) refuse_reading_others();
  join(run, &comm);
  for (int i = 0; i < ROUNDS; ++i) {
    const enum seen far = (enum seen)(i % SEENS);
    if (run->rank == 0) {
      gsel_collective call = message(GSEL_COLLECTIVE_SEND, x, how->count, 1, 3);
      int32_t *z = filled(how->count, 100 + i), cancelled = 0;
      gsel_collective behind = message(GSEL_COLLECTIVE_SEND, z, how->count, 1, 3);
      rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
      if (i % 4 == 3) rank_ok(run, gsel_comm_start(comm, &behind, &next, &err), err); /* it moves up */
      if (far != NOT_AT_ALL) rank_ok(run, gsel_recv_tag(comm, &go, 1, GSEL_I32, 1, 4, NULL, &err), err);
      rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
      rank_check(run, cancelled == 1 || (cancelled == 0 && how->blind && far == SET_ASIDE));
      rank_ok(run, gsel_request_wait(request, &err), err);
      gsel_request_free(request);
      for (size_t j = 0; j < how->count; ++j) x[j] = -1; /* it is the caller's again */
      __atomic_store_n(&how->rounds, i + 1, __ATOMIC_RELEASE);
      rank_ok(run, gsel_send_tag(comm, &cancelled, 1, GSEL_I32, 1, 5, &err), err);
      for (size_t j = 0; j < how->count; ++j) x[j] = 1;
      if (i % 4 != 3) rank_ok(run, gsel_comm_start(comm, &behind, &next, &err), err);
      rank_ok(run, gsel_request_wait(next, &err), err);
      gsel_request_free(next);
      free(z);
    } else {
      if (far == SEEN) rank_ok(run, gsel_probe(comm, 0, 3, &seen, &err), err);
      if (far == SET_ASIDE) {
        rank_ok(run, gsel_probe(comm, 0, 3, &seen, &err), err);
        rank_ok(run, gsel_iprobe(comm, 0, NO_TAG, &found, &seen, &err), err);
      }
      if (far != NOT_AT_ALL) rank_ok(run, gsel_send_tag(comm, &go, 1, GSEL_I32, 0, 4, &err), err);
      while (__atomic_load_n(&how->rounds, __ATOMIC_ACQUIRE) <= i) sched_yield();
      rank_ok(run, gsel_recv_tag(comm, &go, 1, GSEL_I32, 0, 5, NULL, &err), err);
      if (!go) rank_ok(run, gsel_recv_tag(comm, y, how->count, GSEL_I32, 0, 3, NULL, &err), err);
      if (!go) rank_check(run, all_are(y, how->count, 1));
      rank_ok(run, gsel_probe(comm, 0, 3, &seen, &err), err);
      rank_check(run, seen.count == how->count);
      rank_ok(run, gsel_recv_tag(comm, y, how->count, GSEL_I32, GSEL_ANY_RANK, 3, NULL, &err), err);
      rank_check(run, all_are(y, how->count, 100 + i));
    }
  }
  free(x), free(y);
  leave(run, comm);
}

static void test_a_send_is_cancelled_until_a_receive_has_it(void** state) {
  (void)state;
  sending* how = shared_memory(sizeof *how);
  for (int blind = 0; blind < 2; ++blind) {
    *how = (sending){LONG, blind, 0};
    as_processes(2, sends, how);
  }
  *how = (sending){LONG, 0, 0};
  as_threads(2, sends, how);
  munmap(how, sizeof *how);
}

/* In a slot or a line a message is with its receiver as soon as there is room; behind those that fill the channel it is
 * still here. */
static void short_sends(rank_run* run) {
  enum { N = 30, CHANNEL = 8 };
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* requests[N];
  int32_t x[N], y, go = 0, cancelled;
  join(run, &comm);
  if (run->rank == 0) {
    for (int32_t i = 0; i < N; ++i) {
      x[i] = i;
      const gsel_collective call = message(GSEL_COLLECTIVE_SEND, &x[i], 1, 1, 3);
      rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
    }
    for (int i = 0; i < CHANNEL; ++i) rank_ok(run, gsel_request_wait(requests[i], &err), err);
    for (int i = 0; i < N; ++i) {
      if (i % 2 == 0 && i >= CHANNEL) continue;
      rank_ok(run, gsel_request_cancel(requests[i], &cancelled, &err), err);
      rank_check(run, cancelled == (i >= CHANNEL));
    }
    rank_ok(run, gsel_recv_tag(comm, &go, 1, GSEL_I32, 1, 4, NULL, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
    for (int i = 0; i < N; ++i) {
      rank_ok(run, gsel_request_wait(requests[i], &err), err);
      gsel_request_free(requests[i]);
    }
  } else {
    rank_ok(run, gsel_send_tag(comm, &go, 1, GSEL_I32, 0, 4, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
    for (int32_t i = 0; i < N; ++i) {
      if (i % 2 == 1 && i >= CHANNEL) continue;
      rank_ok(run, gsel_recv_tag(comm, &y, 1, GSEL_I32, 0, 3, NULL, &err), err);
      rank_check(run, y == i);
    }
  }
  leave(run, comm);
}

static void test_sends_that_wait_for_room_are_cancelled_and_those_behind_move_up(void** state) {
  (void)state;
  as_threads_and_processes(2, short_sends, NULL);
}

/* ---- both, and collectives -------------------------------------------------------------------------------------- */

static void both(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t *x = filled(LONG, 5), *y = filled(LONG, 0), cancelled = 7;
  join(run, &comm);
  const int32_t other = 1 - run->rank;
  gsel_collective call = call_of(GSEL_COLLECTIVE_SENDRECV, x, y, LONG, other);
  call.source = other;
  call.recv_count = LONG;
  if (run->rank == 0) {
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    check_cancelled(run, request);
    if (run->failure[0]) return;
    gsel_request_free(request);
    call.send = &x[0];
    call.count = 1; /* with its receiver at once */
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    gsel_message seen = GSEL_MESSAGE_INIT;
    int32_t found;
    rank_ok(run, gsel_iprobe(comm, other, NO_TAG, &found, &seen, &err), err); /* it is begun by then */
    rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
    rank_check(run, cancelled == 0);
    rank_ok(run, gsel_barrier(comm, &err), err);
    rank_ok(run, gsel_request_wait(request, &err), err);
    gsel_request_free(request);
  } else {
    rank_ok(run, gsel_barrier(comm, &err), err);
    rank_ok(run, gsel_sendrecv(comm, x, LONG, other, y, 1, other, GSEL_I32, &err), err);
    rank_check(run, y[0] == 5 && y[1] == 0);
  }
  free(x), free(y);
  leave(run, comm);
}

static void test_a_sendrecv_is_cancelled_if_both_halves_are(void** state) {
  (void)state;
  as_threads_and_processes(2, both, NULL);
}

/* Rank 0 has begun a barrier, in which it waits for rank 1; what is behind it nobody has begun. */
static void collectives(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request *barrier, *sums[3];
  int32_t x[3] = {1, 10, 100}, cancelled = 7, go = 0;
  join(run, &comm);
  const gsel_collective wait = call_of(GSEL_COLLECTIVE_BARRIER, NULL, NULL, 0, -1);
  if (run->rank == 0) {
    gsel_message seen = GSEL_MESSAGE_INIT;
    rank_ok(run, gsel_comm_start(comm, &wait, &barrier, &err), err);
    rank_ok(run, gsel_iprobe(comm, 1, NO_TAG, &go, &seen, &err), err); /* goes on in the barrier */
    for (int i = 0; i < 3; ++i) {
      const gsel_collective sum = sum_of(&x[i], 1);
      rank_ok(run, gsel_comm_start(comm, &sum, &sums[i], &err), err);
    }
    check_cancelled(run, sums[0]);
    if (run->failure[0]) return;
    check_cancelled(run, sums[2]);
    if (run->failure[0]) return;
    while (comm_counts(comm, GSEL_COLLECTIVE_BARRIER).calls == 0) {
      rank_ok(run, gsel_request_cancel(barrier, &cancelled, &err), err);
      rank_check(run, cancelled == 0);
      if (!go) rank_ok(run, gsel_send(comm, &x[0], 1, GSEL_I32, 1, &err), err);
      go = 1;
    }
    rank_ok(run, gsel_request_wait(barrier, &err), err);
    rank_ok(run, gsel_request_wait(sums[1], &err), err);
    rank_check(run, x[0] == 1 && x[1] == 11 && x[2] == 100);
    gsel_request_free(barrier);
    for (int i = 0; i < 3; ++i) gsel_request_free(sums[i]);
  } else {
    rank_ok(run, gsel_recv(comm, &go, 1, GSEL_I32, 0, &err), err);
    rank_ok(run, gsel_barrier(comm, &err), err);
    rank_ok(run, gsel_allreduce(comm, &x[0], &x[0], 1, GSEL_I32, GSEL_SUM, &err), err);
    rank_check(run, x[0] == 11);
  }
  leave(run, comm);
}

static void test_a_collective_is_cancelled_until_a_rank_has_begun_it(void** state) {
  (void)state;
  as_threads_and_processes(2, collectives, NULL);
}

/* ---- freeing ---------------------------------------------------------------------------------------------------- */

/* Rank 0 frees what nobody meets; the others go on meanwhile and behind it. */
static void freed(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t *x = filled(LONG, 5), word = run->rank, going = 1;
  join(run, &comm);
  if (run->rank == 0) {
    gsel_collective calls[] = {message(GSEL_COLLECTIVE_SEND, x, LONG, 1, 7),
                               message(GSEL_COLLECTIVE_RECV, x, LONG, 1, 7)};
    for (int i = 0; i < 2; ++i) {
      calls[i].timeout_s = 0.1;
      rank_ok(run, gsel_comm_start(comm, &calls[i], &request, &err), err);
      gsel_request_free(request);
    }
    going = 0;
    rank_ok(run, gsel_send_tag(comm, &going, 1, GSEL_I32, 1, 1, &err), err);
  }
  int32_t found = 0;
  while (run->rank > 0 && going) {
    gsel_message seen = GSEL_MESSAGE_INIT;
    rank_ok(run, gsel_sendrecv(comm, &word, 1, 3 - run->rank, &found, 1, 3 - run->rank, GSEL_I32, &err), err);
    if (run->rank == 1) rank_ok(run, gsel_iprobe(comm, 0, 1, &found, &seen, &err), err);
    if (run->rank == 1) going = !found;
    if (run->rank == 1) rank_ok(run, gsel_send(comm, &going, 1, GSEL_I32, 2, &err), err);
    if (run->rank == 2) rank_ok(run, gsel_recv(comm, &going, 1, GSEL_I32, 1, &err), err);
  }
  if (run->rank == 1) rank_ok(run, gsel_recv_tag(comm, &going, 1, GSEL_I32, 0, 1, NULL, &err), err);
  free(x);
  leave(run, comm);
}

static void test_to_free_a_message_that_nobody_meets_breaks_nothing(void** state) {
  (void)state;
  as_threads_and_processes(3, freed, NULL);
}

/* ---- what is refused -------------------------------------------------------------------------------------------- */

static void refused(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* request;
  int32_t x = 0, cancelled = 7;
  join(run, &comm);
  rank_fails(run, gsel_request_cancel(NULL, &cancelled, &err), err, GSEL_ERR_ARG, "request is NULL", -1);
  rank_check(run, cancelled == 0);
  const gsel_collective call = message(GSEL_COLLECTIVE_RECV, &x, 1, 1 - run->rank, 7);
  rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
  rank_fails(run, gsel_request_cancel(request, NULL, &err), err, GSEL_ERR_ARG, "cancelled is NULL", -1);
  const pid_t child = fork();
  if (child == 0) _exit(gsel_request_cancel(request, &cancelled, NULL) != GSEL_ERR_FORKED);
  int status = 1;
  waitpid(child, &status, 0);
  rank_check(run, status == 0);
  rank_ok(run, gsel_request_cancel(request, &cancelled, &err), err);
  rank_check(run, cancelled == 1);
  gsel_request_free(request);
  leave(run, comm);
}

static void test_what_cannot_be_cancelled_is_refused(void** state) {
  (void)state;
  as_processes(2, refused, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_receive_is_cancelled_until_it_has_a_message),
      cmocka_unit_test(test_a_send_is_cancelled_until_a_receive_has_it),
      cmocka_unit_test(test_sends_that_wait_for_room_are_cancelled_and_those_behind_move_up),
      cmocka_unit_test(test_a_sendrecv_is_cancelled_if_both_halves_are),
      cmocka_unit_test(test_a_collective_is_cancelled_until_a_rank_has_begun_it),
      cmocka_unit_test(test_to_free_a_message_that_nobody_meets_breaks_nothing),
      cmocka_unit_test(test_what_cannot_be_cancelled_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
