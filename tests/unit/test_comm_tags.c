/* unit/test_comm_tags.c: messages with tags, receives from any rank and of any tag, probes, receives longer and shorter
 * than the message; ranks as threads and as processes. */
#include <sched.h>

#include "support/counts.h"
#include "support/ranks.h"

#define LONG (1 << 20) /* does not fit the library's buffer */

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

static void as_both(int32_t n, rank_body body, void* user) {
  as_threads(n, body, user);
  if (!is_started()) as_processes(n, body, user); /* they are these */
}

static uint32_t* filled(size_t count, uint32_t with) {
  uint32_t* x = malloc((count + 1) * sizeof *x);
  for (size_t i = 0; i < count; ++i) x[i] = with + (uint32_t)i;
  x[count] = 0;
  return x;
}

static int is_filled(const uint32_t* x, size_t count, uint32_t with) {
  for (size_t i = 0; i < count; ++i)
    if (x[i] != with + (uint32_t)i) return 0;
  return 1;
}

static gsel_collective message(gsel_collective_kind kind, uint32_t* data, size_t count, int32_t peer, int32_t tag) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_U32;
  call.root = peer;
  call.tag = tag;
  call.count = count;
  if (kind == GSEL_COLLECTIVE_SEND) call.send = data;
  if (kind == GSEL_COLLECTIVE_RECV) call.recv = data;
  return call;
}

static const size_t lengths[] = {1, 12, 13, 4096, 20000, LONG};
enum { LENGTHS = sizeof lengths / sizeof lengths[0], TAGS = 24 };

/* All tags sent in one order and received in the other, at every length. */
static void backwards(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_request* requests[TAGS];
  uint32_t* data[TAGS];
  join(run, &comm);
  for (size_t l = 0; l < LENGTHS; ++l) {
    const size_t count = lengths[l];
    if (run->rank == 0) {
      for (int32_t tag = 0; tag < TAGS; ++tag) {
        data[tag] = filled(count, (uint32_t)tag * 1000);
        gsel_collective call = message(GSEL_COLLECTIVE_SEND, data[tag], count, 1, tag);
        rank_ok(run, gsel_comm_start(comm, &call, &requests[tag], &err), err);
      }
      for (int32_t tag = 0; tag < TAGS; ++tag) {
        rank_ok(run, gsel_request_wait(requests[tag], &err), err);
        gsel_request_free(requests[tag]);
        free(data[tag]);
      }
    } else {
      uint32_t* y = filled(count, 0);
      for (int32_t tag = TAGS; tag-- > 0;) {
        gsel_message got = GSEL_MESSAGE_INIT;
        rank_ok(run, gsel_recv_tag(comm, y, count, GSEL_U32, 0, tag, &got, &err), err);
        rank_check(run, got.source == 0 && got.tag == tag && got.dtype == GSEL_U32 && got.count == count);
        rank_check(run, is_filled(y, count, (uint32_t)tag * 1000));
      }
      free(y);
    }
  }
  leave(run, comm);
}

static void test_a_message_nobody_asks_for_lets_others_pass(void** state) {
  (void)state;
  as_both(2, backwards, NULL);
}

/* Tags take turns at random; those of one tag arrive in the order sent. */
static void not_overtaken(rank_run* run) {
  enum { N = 400, FEW = 3 };
  gsel_error* err;
  gsel_comm* comm;
  uint32_t sent[FEW] = {0}, x = 7, *y = filled(20000, 0);
  join(run, &comm);
  for (int i = 0; i < N; ++i) {
    x = x * 1664525u + 1013904223u;
    const int32_t tag = (int32_t)(x >> 16) % FEW;
    const size_t count = sent[tag] % 5 == 4 ? 10000 : sent[tag] % 5 == 3 ? 1000 : 1;
    if (run->rank == 0) {
      y[0] = y[count - 1] = sent[tag];
      rank_ok(run, gsel_send_tag(comm, y, count, GSEL_U32, 1, tag, &err), err);
    }
    ++sent[tag];
  }
  for (int32_t tag = FEW; run->rank == 1 && tag-- > 0;)
    for (uint32_t i = 0; i < sent[tag]; ++i) {
      gsel_message got = GSEL_MESSAGE_INIT;
      rank_ok(run, gsel_recv_tag(comm, y, 20000, GSEL_U32, GSEL_ANY_RANK, tag, &got, &err), err);
      rank_check(run, got.source == 0 && got.tag == tag && y[0] == i && y[got.count - 1] == i);
    }
  free(y);
  leave(run, comm);
}

static void test_messages_of_a_pair_and_tag_keep_their_order(void** state) {
  (void)state;
  as_both(2, not_overtaken, NULL);
}

/* What the ranks of `overtaken` share. */
typedef struct halted {
  pid_t sender; /* stops itself behind the first piece of its message */
  int six_sent;
} halted;

static void until_stopped(pid_t pid) {
  char path[64], line[256];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  for (;;) {
    FILE* file = fopen(path, "r");
    const char* state = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    const int stopped = state && state[2] == 'T';
    if (file) fclose(file);
    if (stopped) return;
    sched_yield();
  }
}

/* Rank 1's message is set aside when half of it is there, a 5 of rank 2 behind it; a 6 is on its way. */
static void receive_in_order(rank_run* run, gsel_comm* comm, halted* shared) {
  enum { N = 3 };
  gsel_error* err;
  gsel_request* requests[N];
  gsel_message seen = GSEL_MESSAGE_INIT;
  uint32_t *y[N], five[2] = {0};
  int32_t found = 0;
  size_t index = 0;
  rank_ok(run, gsel_probe(comm, 1, 1, &seen, &err), err);
  until_stopped(shared->sender);
  rank_ok(run, gsel_probe(comm, 2, 2, &seen, &err), err);
  rank_ok(run, gsel_iprobe(comm, GSEL_ANY_RANK, 9, &found, &seen, &err), err);
  rank_check(run, found == 0);
  rank_ok(run, gsel_send(comm, five, 1, GSEL_U32, 2, &err), err);
  while (!__atomic_load_n(&shared->six_sent, __ATOMIC_ACQUIRE)) sched_yield();
  rank_ok(run, gsel_iprobe(comm, 1, GSEL_ANY_TAG, &found, &seen, &err), err);
  rank_check(run, found == 1 && seen.tag == 1 && seen.count == 20000); /* though half of it is missing */
  for (int i = 0; i < N; ++i) {
    y[i] = filled(20000, 0);
    gsel_collective call = message(GSEL_COLLECTIVE_RECV, y[i], 20000, GSEL_ANY_RANK, GSEL_ANY_TAG);
    rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
  }
  rank_ok(run, gsel_request_wait_any(requests, N, &index, &err), err);
  rank_check(run, index == 1 && y[1][0] == 5);
  rank_ok(run, gsel_request_wait_any(requests, N, &index, &err), err);
  rank_check(run, index == 2 && y[2][0] == 6);
  rank_ok(run, gsel_iprobe(comm, 1, GSEL_ANY_TAG, &found, &seen, &err), err);
  rank_check(run, found == 0); /* it has its receive */
  kill(shared->sender, SIGCONT);
  rank_ok(run, gsel_request_wait(requests[0], &err), err);
  rank_check(run, is_filled(y[0], 20000, 1));
  for (int i = 0; i < N; ++i) gsel_request_free(requests[i]), free(y[i]);
}

static void overtaken(rank_run* run) {
  halted* shared = run->user;
  gsel_error* err;
  gsel_comm* comm;
  if (run->rank == 1) {
    shared->sender = getpid();
    setenv("GSEL_FAULT", "stop@sent:rank=1:call=1", 1);
  }
  join(run, &comm);
  if (run->rank == 0) {
    receive_in_order(run, comm, shared);
    if (run->failure[0]) kill(shared->sender, SIGCONT);
  } else if (run->rank == 1) {
    uint32_t* x = filled(20000, 1);
    rank_ok(run, gsel_send_tag(comm, x, 20000, GSEL_U32, 0, 1, &err), err); /* two pieces */
    free(x);
  } else {
    uint32_t go, x = 5;
    rank_ok(run, gsel_send_tag(comm, &x, 1, GSEL_U32, 0, 2, &err), err);
    rank_ok(run, gsel_recv(comm, &go, 1, GSEL_U32, 0, &err), err);
    x = 6;
    rank_ok(run, gsel_send_tag(comm, &x, 1, GSEL_U32, 0, 2, &err), err);
    __atomic_store_n(&shared->six_sent, 1, __ATOMIC_RELEASE);
  }
  if (!run->failure[0]) rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_a_message_set_aside_while_it_arrives_is_not_overtaken(void** state) {
  (void)state;
  if (is_started()) skip(); /* between hosts the transport divides a message */
  halted* shared = shared_memory(sizeof *shared);
  rank_run* runs = ranks_prepare(3, shared);
  for (int r = 0; r < 3; ++r) runs[r].timeout_s = 10;
  ranks_run_processes(runs, 3, overtaken);
  ranks_verdict(runs, 3);
  munmap(shared, sizeof *shared);
}

/* Rank 0 hears everybody, whoever comes first. */
static void from_any(rank_run* run) {
  enum { EACH = 40 };
  gsel_error* err;
  gsel_comm* comm;
  uint32_t* x = filled(20000, 0);
  join(run, &comm);
  if (run->rank != 0) {
    for (uint32_t i = 0; i < EACH; ++i) {
      const size_t count = i % 4 == 3 ? 20000 : 1 + i;
      x[0] = i, x[count - 1] = (uint32_t)run->rank;
      if (count == 1) x[0] = 0;
      rank_ok(run, gsel_send_tag(comm, x, count, GSEL_U32, 0, run->rank * 100 + (int32_t)i, &err), err);
    }
  } else {
    int32_t next[RANKS_MAX] = {0};
    for (int32_t i = 0; i < EACH * (run->world_size - 1); ++i) {
      gsel_message got = GSEL_MESSAGE_INIT;
      rank_ok(run, gsel_recv_tag(comm, x, 20000, GSEL_U32, GSEL_ANY_RANK, GSEL_ANY_TAG, &got, &err), err);
      rank_check(run, got.source > 0 && got.source < run->world_size);
      rank_check(run, got.tag == got.source * 100 + next[got.source]++);
      rank_check(run, got.count == 1 || x[got.count - 1] == (uint32_t)got.source);
    }
  }
  free(x);
  leave(run, comm);
}

static void test_a_receive_from_any_rank_hears_all(void** state) {
  (void)state;
  as_both(2, from_any, NULL);
  as_both(5, from_any, NULL);
}

/* Of receives that one message would suit the first posted gets it, wildcard or not. */
static void posted_first(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  uint32_t got[4] = {0};
  join(run, &comm);
  if (run->rank == 0) {
    rank_ok(run, gsel_barrier(comm, &err), err);
    for (uint32_t i = 1; i <= 4; ++i) rank_ok(run, gsel_send_tag(comm, &i, 1, GSEL_U32, 1, 5, &err), err);
  } else {
    const int32_t sources[] = {GSEL_ANY_RANK, 0, 0, GSEL_ANY_RANK}, tags[] = {5, GSEL_ANY_TAG, 5, GSEL_ANY_TAG};
    gsel_request* requests[4];
    for (int i = 0; i < 4; ++i) {
      gsel_collective call = message(GSEL_COLLECTIVE_RECV, &got[i], 1, sources[i], tags[i]);
      rank_ok(run, gsel_comm_start(comm, &call, &requests[i], &err), err);
    }
    rank_ok(run, gsel_barrier(comm, &err), err);
    for (int i = 4; i-- > 0;) {
      rank_ok(run, gsel_request_wait(requests[i], &err), err);
      gsel_request_free(requests[i]);
    }
    rank_check(run, got[0] == 1 && got[1] == 2 && got[2] == 3 && got[3] == 4);
  }
  leave(run, comm);
}

static void test_receives_match_in_the_order_posted(void** state) {
  (void)state;
  as_both(2, posted_first, NULL);
}

static void probing(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int32_t found = 7;
  gsel_message seen = GSEL_MESSAGE_INIT;
  join(run, &comm);
  rank_ok(run, gsel_iprobe(comm, GSEL_ANY_RANK, GSEL_ANY_TAG, &found, &seen, &err), err);
  rank_check(run, found == 0 && seen.source == 0 && seen.count == 0);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == 0) {
    for (size_t l = 0; l < LENGTHS; ++l) {
      uint32_t* x = filled(lengths[l], (uint32_t)l);
      rank_ok(run, gsel_send_tag(comm, x, lengths[l], GSEL_U32, 1, (int32_t)l + 10, &err), err);
      free(x);
    }
  } else {
    for (size_t l = 0; l < LENGTHS; ++l) {
      rank_ok(run, gsel_iprobe(comm, 0, 99, &found, &seen, &err), err); /* has to look behind what is there */
      rank_check(run, found == 0);
      rank_ok(run, gsel_probe(comm, GSEL_ANY_RANK, GSEL_ANY_TAG, &seen, &err), err);
      rank_check(run, seen.source == 0 && seen.tag == (int32_t)l + 10 && seen.count == lengths[l]);
      rank_ok(run, gsel_iprobe(comm, 0, seen.tag, &found, &seen, &err), err);
      rank_check(run, found == 1 && seen.count == lengths[l] && seen.dtype == GSEL_U32);
      uint32_t* y = filled(seen.count, 0);
      rank_ok(run, gsel_recv_tag(comm, y, seen.count, GSEL_U32, seen.source, seen.tag, NULL, &err), err);
      rank_check(run, is_filled(y, seen.count, (uint32_t)l));
      free(y);
    }
    rank_ok(run, gsel_iprobe(comm, 0, GSEL_ANY_TAG, &found, &seen, &err), err);
    rank_check(run, found == 0);
  }
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_PROBE).calls == (run->rank ? LENGTHS : 0));
  leave(run, comm);
}

static void test_a_probe_tells_of_a_message_and_leaves_it(void** state) {
  (void)state;
  as_both(2, probing, NULL);
}

static void longer(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  join(run, &comm);
  for (size_t l = 0; l < LENGTHS; ++l) {
    const size_t count = lengths[l];
    uint32_t *x = filled(count, 5), *y = filled(2 * count, 0);
    for (size_t i = 0; i < 2 * count; ++i) y[i] = 0x55555555;
    if (run->rank == 0) {
      rank_ok(run, gsel_send(comm, x, count, GSEL_U32, 1, &err), err);
      rank_ok(run, gsel_send_tag(comm, x, count, GSEL_U32, 1, 3, &err), err);
      rank_ok(run, gsel_sendrecv(comm, x, count, 1, y, 2 * count, 1, GSEL_U32, &err), err);
    } else {
      gsel_message got = GSEL_MESSAGE_INIT;
      rank_ok(run, gsel_recv(comm, y, 2 * count, GSEL_U32, 0, &err), err);
      rank_check(run, is_filled(y, count, 5) && y[count] == 0x55555555);
      rank_ok(run, gsel_recv_tag(comm, y, 2 * count, GSEL_U32, 0, 3, &got, &err), err);
      rank_check(run, got.count == count && y[count] == 0x55555555);
      rank_ok(run, gsel_sendrecv(comm, x, count, 0, y, count + 1, 0, GSEL_U32, &err), err);
    }
    rank_check(run, is_filled(y, count, 5) && y[count] == 0x55555555);
    free(x), free(y);
  }
  leave(run, comm);
}

static void test_a_receive_may_be_longer_than_the_message(void** state) {
  (void)state;
  as_both(2, longer, NULL);
}

/* The sender of a long message waits for the answer, so both calls fail and nothing else does. */
static void too_short(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const char* text =
      "rank 0 called send(count 1048576, u32, to rank 1, tag 4), rank 1 called recv(count 10, u32, from any rank, tag "
      "4)";
  uint32_t *x = filled(LONG, 5), *y = filled(LONG, 0);
  join(run, &comm);
  for (int round = 0; round < 20; ++round) {
    if (run->rank == 0) {
      rank_fails(run, gsel_send_tag(comm, x, LONG, GSEL_U32, 1, 4, &err), err, GSEL_ERR_MISMATCH, text, 1);
      rank_ok(run, gsel_send_tag(comm, x, LONG, GSEL_U32, 1, 4, &err), err);
    } else {
      rank_fails(run, gsel_recv_tag(comm, y, 10, GSEL_U32, GSEL_ANY_RANK, 4, NULL, &err), err, GSEL_ERR_MISMATCH, text,
                 0);
      rank_check(run, y[0] == 0 || round > 0);
      rank_ok(run, gsel_recv_tag(comm, y, LONG, GSEL_U32, 0, 4, NULL, &err), err);
      rank_check(run, is_filled(y, LONG, 5));
    }
  }
  free(x), free(y);
  leave(run, comm);
}

static void test_a_receive_shorter_than_a_waiting_message_fails_both_calls_alone(void** state) {
  (void)state;
  as_both(2, too_short, NULL);
}

/* A sender that may have returned learns of it in its next call. */
static void too_short_for_one_that_left(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const char* text = "rank 0 called send(count 9, u32, to rank 1), rank 1 called recv(count 8, u32, from rank 0)";
  uint32_t x[9] = {0};
  join(run, &comm);
  if (run->rank == 0) {
    const gsel_status status = gsel_send(comm, x, 9, GSEL_U32, 1, &err);
    rank_check(run, status == GSEL_OK || status == GSEL_ERR_MISMATCH);
    gsel_error_free(err);
  } else {
    rank_fails(run, gsel_recv(comm, x, 8, GSEL_U32, 0, &err), err, GSEL_ERR_MISMATCH, text, 0);
  }
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_MISMATCH, text, 0);
  rank_ok(run, gsel_comm_resync(comm, &err), err);
  leave(run, comm);
}

static void test_a_receive_shorter_than_a_short_message_is_told_to_both(void** state) {
  (void)state;
  as_both(2, too_short_for_one_that_left, NULL);
}

/* What is set aside is bounded: the sender waits, and goes on once there is room. */
static void much(rank_run* run) {
  enum { N = 100, COUNT = 16000 / 4, TIMES = 45 };
  gsel_error* err;
  gsel_comm* comm;
  uint32_t* x = filled(COUNT, 0);
  join(run, &comm);
  for (uint32_t i = 0; i < N * TIMES; ++i) { /* 72 MB */
    x[0] = i;
    if (run->rank == 0) rank_ok(run, gsel_send_tag(comm, x, COUNT, GSEL_U32, 1, 1, &err), err);
  }
  x[0] = 99;
  if (run->rank == 0) rank_ok(run, gsel_send_tag(comm, x, 1, GSEL_U32, 1, 2, &err), err);
  if (run->rank == 1) {
    uint32_t last = 0;
    gsel_request* request;
    gsel_collective call = message(GSEL_COLLECTIVE_RECV, &last, 1, 0, 2);
    rank_ok(run, gsel_comm_start(comm, &call, &request, &err), err);
    for (uint32_t i = 0; i < N * TIMES; ++i) {
      rank_ok(run, gsel_recv_tag(comm, x, COUNT, GSEL_U32, 0, 1, NULL, &err), err);
      rank_check(run, x[0] == i);
    }
    rank_ok(run, gsel_request_wait(request, &err), err);
    rank_check(run, last == 99);
    gsel_request_free(request);
  }
  free(x);
  leave(run, comm);
}

static void test_what_is_set_aside_is_bounded(void** state) {
  (void)state;
  as_both(2, much, NULL);
}

static void refused(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  uint32_t x = 0;
  gsel_message got = GSEL_MESSAGE_INIT, unset = {0, 0, 0, 0, 0};
  int32_t found;
  const int32_t other = 1 - run->rank;
  join(run, &comm);
  rank_fails(run, gsel_send_tag(comm, &x, 1, GSEL_U32, other, -1, &err), err, GSEL_ERR_ARG,
             "send: tag is -1; use 0 to 2147483647", -1);
  rank_fails(run, gsel_send_tag(comm, &x, 1, GSEL_U32, GSEL_ANY_RANK, 1, &err), err, GSEL_ERR_ARG, "peer -2", -1);
  rank_fails(run, gsel_recv_tag(comm, &x, 1, GSEL_U32, other, -2, NULL, &err), err, GSEL_ERR_ARG, "or GSEL_ANY_TAG",
             -1);
  rank_fails(run, gsel_recv_tag(comm, &x, 1, GSEL_U32, -1, 1, NULL, &err), err, GSEL_ERR_ARG, "peer -1", -1);
  rank_fails(run, gsel_recv_tag(comm, &x, 1, GSEL_U32, other, 1, &unset, &err), err, GSEL_ERR_VERSION, "gsel_message",
             -1);
  rank_fails(run, gsel_probe(comm, other, 1, NULL, &err), err, GSEL_ERR_ARG, "gsel_message is NULL", -1);
  rank_fails(run, gsel_iprobe(comm, other, 1, NULL, &got, &err), err, GSEL_ERR_ARG, "found is NULL", -1);
  rank_fails(run, gsel_iprobe(comm, other, 1, &found, NULL, &err), err, GSEL_ERR_ARG, "gsel_message is NULL", -1);
  leave(run, comm);
}

static void test_tags_ranks_and_messages_that_are_none_are_refused(void** state) {
  (void)state;
  as_threads(2, refused, NULL);
}

/* Nobody sends, and then nobody is left who could. */
static void nobody(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  uint32_t x = 0;
  join(run, &comm);
  if (run->rank == 0)
    rank_fails(run, gsel_recv_tag(comm, &x, 1, GSEL_U32, GSEL_ANY_RANK, 8, NULL, &err), err, GSEL_ERR_PEER,
               "every other rank left while rank 0 waited in recv(count 1, u32, from any rank, tag 8)", 1);
  gsel_comm_free(comm);
}

static void late(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_collective barrier = GSEL_COLLECTIVE_INIT;
  gsel_request* request;
  uint32_t x = 0;
  join(run, &comm);
  if (run->rank == 0) {
    rank_fails(run, gsel_recv_tag(comm, &x, 1, GSEL_U32, GSEL_ANY_RANK, GSEL_ANY_TAG, NULL, &err), err,
               GSEL_ERR_TIMEOUT, "no rank sent what rank 0 waited for", -1);
  } else { /* a request: the rank could still send beside it */
    rank_ok(run, gsel_comm_start(comm, &barrier, &request, &err), err);
    rank_fails(run, gsel_request_wait(request, &err), err, GSEL_ERR_TIMEOUT, "no rank sent", -1);
    gsel_request_free(request);
  }
  gsel_comm_free(comm);
}

static void test_a_receive_from_any_rank_ends_when_nobody_can_send(void** state) {
  (void)state;
  as_both(3, nobody, NULL);
  rank_run* runs = ranks_prepare(2, NULL);
  runs[0].timeout_s = 0.2;
  ranks_run_threads(runs, 2, late);
  ranks_verdict(runs, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_message_nobody_asks_for_lets_others_pass),
      cmocka_unit_test(test_messages_of_a_pair_and_tag_keep_their_order),
      cmocka_unit_test(test_a_message_set_aside_while_it_arrives_is_not_overtaken),
      cmocka_unit_test(test_a_receive_from_any_rank_hears_all),
      cmocka_unit_test(test_receives_match_in_the_order_posted),
      cmocka_unit_test(test_a_probe_tells_of_a_message_and_leaves_it),
      cmocka_unit_test(test_a_receive_may_be_longer_than_the_message),
      cmocka_unit_test(test_a_receive_shorter_than_a_waiting_message_fails_both_calls_alone),
      cmocka_unit_test(test_a_receive_shorter_than_a_short_message_is_told_to_both),
      cmocka_unit_test(test_what_is_set_aside_is_bounded),
      cmocka_unit_test(test_tags_ranks_and_messages_that_are_none_are_refused),
      cmocka_unit_test(test_a_receive_from_any_rank_ends_when_nobody_can_send),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
