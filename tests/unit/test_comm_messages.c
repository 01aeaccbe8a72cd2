/* unit/test_comm_messages.c: messages of every size and way of travelling arrive whole and in order, with ranks as
 * threads and as processes, whatever memory they stand in. */
#include <sched.h>

#include "support/counts.h"
#include "support/groups.h"
#include "support/ranks.h"
#include "support/refuse.h"

/* Around the borders of a line, of a slot of up to 4 ranks (64 KiB) and of up to 16 (16 KiB), and past all of them. */
static const size_t sizes[] = {0,     1,     8,     47,    48,    49,      4096,    16383,
                               16384, 16385, 65535, 65536, 65537, 1 << 20, 5 << 20, (5 << 20) + 3};
enum { N_SIZES = sizeof sizes / sizeof sizes[0], MOST = (5 << 20) + 3 };

static void fill(unsigned char* at, size_t bytes, uint32_t seed) {
  uint64_t x = seed * 2654435761u + 12345;
  for (size_t i = 0; i < bytes; i += sizeof x) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    const uint64_t word = x ^ x >> 32;
    memcpy(at + i, &word, bytes - i < sizeof word ? bytes - i : sizeof word);
  }
}

static int holds(const unsigned char* at, size_t bytes, uint32_t seed) {
  unsigned char* expected = malloc(bytes + 1);
  fill(expected, bytes, seed);
  const int same = memcmp(at, expected, bytes) == 0;
  free(expected);
  return same;
}

static gsel_collective message_of(gsel_collective_kind kind, const void* send, void* recv, size_t bytes, int32_t peer) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_U8;
  call.send = send;
  call.recv = recv;
  call.count = bytes;
  call.root = peer;
  return call;
}

/* What a message stands in. */
enum kind { HEAP, SHARED, REGISTERED, KINDS };

enum { WHOLE = (MOST + 4096) / 4096 * 4096 };

static void* take(gsel_comm* comm, enum kind kind) {
  void* memory = NULL;
  if (kind == HEAP) return calloc(WHOLE, 1);
  if (kind == SHARED) return gsel_mem_alloc(comm, WHOLE, &memory, NULL) == GSEL_OK ? memory : NULL;
  memory = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED && gsel_mem_register(comm, memory, WHOLE, NULL) == GSEL_OK ? memory : NULL;
}

static void put_back(gsel_comm* comm, enum kind kind, void* memory) {
  if (kind == HEAP) free(memory);
  if (kind == SHARED) gsel_mem_free(comm, memory, NULL);
  if (kind != REGISTERED) return;
  gsel_mem_unregister(comm, memory, NULL);
  munmap(memory, WHOLE);
}

/* Every rank sends to the next and receives from the one before, in turn and at once. */
static void all_sizes(rank_run* run, gsel_comm* comm, unsigned char* x, unsigned char* y) {
  gsel_error* err;
  const int32_t n = run->world_size, to = (run->rank + 1) % n, from = (run->rank + n - 1) % n;
  for (size_t i = 0; i < N_SIZES; ++i) {
    const size_t bytes = sizes[i];
    const uint32_t seed = (uint32_t)(i * 100);
    fill(x, bytes, seed + (uint32_t)run->rank);
    memset(y, 0x55, bytes + 1);
    if (run->rank == 0) {
      rank_ok(run, gsel_recv(comm, y, bytes, GSEL_U8, from, &err), err);
      rank_ok(run, gsel_send(comm, x, bytes, GSEL_U8, to, &err), err);
    } else {
      rank_ok(run, gsel_send(comm, x, bytes, GSEL_U8, to, &err), err);
      rank_ok(run, gsel_recv(comm, y, bytes, GSEL_U8, from, &err), err);
    }
    rank_check(run, holds(y, bytes, seed + (uint32_t)from) && y[bytes] == 0x55);
    memset(y, 0x55, bytes + 1);
    rank_ok(run, gsel_sendrecv(comm, x, bytes, to, y, bytes, from, GSEL_U8, &err), err);
    rank_check(run, holds(y, bytes, seed + (uint32_t)from) && y[bytes] == 0x55);
  }
}

static void every_memory(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (enum kind from = HEAP; from < KINDS; ++from)
    for (enum kind to = HEAP; to < KINDS && !run->failure[0]; ++to) {
      unsigned char *x = take(comm, from), *y = take(comm, to);
      rank_check(run, x && y);
      all_sizes(run, comm, x, y);
      if (run->failure[0]) return;
      rank_ok(run, gsel_barrier(comm, &err), err);
      put_back(comm, from, x);
      put_back(comm, to, y);
    }
  uint64_t bytes = 0;
  for (size_t i = 0; i < N_SIZES; ++i) bytes += sizes[i];
  const gsel_comm_count sent = comm_counts(comm, GSEL_COLLECTIVE_SEND);
  const gsel_comm_count both = comm_counts(comm, GSEL_COLLECTIVE_SENDRECV);
  rank_check(run, sent.calls % N_SIZES == 0 && sent.bytes_sent == sent.calls / N_SIZES * bytes);
  rank_check(run, both.calls == sent.calls && both.bytes_sent == sent.bytes_sent);
  rank_check(run, comm_counts(comm, GSEL_COLLECTIVE_RECV).bytes_sent == 0);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_messages_of_every_size_arrive_whole(void** state) {
  (void)state;
  as_threads(2, every_memory, NULL);
  as_processes(2, every_memory, NULL);
  as_threads(3, every_memory, NULL);
  as_processes(5, every_memory, NULL);
}

/* Two ranks send each other messages of other sizes at once. */
static void crossing(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  const int32_t other = 1 - run->rank;
  unsigned char *x = malloc(MOST), *y = malloc(MOST);
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t i = 0; i < N_SIZES; ++i) {
    const size_t mine = sizes[run->rank == 0 ? i : N_SIZES - 1 - i],
                 theirs = sizes[run->rank == 1 ? i : N_SIZES - 1 - i];
    fill(x, mine, (uint32_t)(run->rank + 7));
    rank_ok(run, gsel_sendrecv(comm, x, mine, other, y, theirs, other, GSEL_I8, &err), err);
    rank_check(run, holds(y, theirs, (uint32_t)(other + 7)));
  }
  rank_fails(run, gsel_sendrecv(comm, x, 8, run->rank, y, 8, other, GSEL_I8, &err), err, GSEL_ERR_ARG,
             "the calling rank itself", -1);
  rank_fails(run, gsel_sendrecv(comm, x, 8, other, x + 4, 8, other, GSEL_I8, &err), err, GSEL_ERR_ARG, "overlap", -1);
  rank_ok(run, gsel_barrier(comm, &err), err);
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_two_ranks_send_each_other_at_once(void** state) {
  (void)state;
  as_threads(2, crossing, NULL);
  as_processes(2, crossing, NULL);
}

/* Many messages of changing size, more than a channel holds; each says which it is. */
static void in_order(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  static const size_t lengths[] = {1, 6, 7, 1000, 20000, 2, 3};
  rank_ok(run, rank_join(run, &comm, &err), err);
  uint64_t* x = calloc(20000, sizeof *x);
  for (uint64_t i = 0; i < 2000; ++i) {
    const size_t count = lengths[i % 7];
    if (run->rank == 0) {
      x[0] = x[count - 1] = i;
      for (int32_t to = 1; to < run->world_size; ++to) rank_ok(run, gsel_send(comm, x, count, GSEL_U64, to, &err), err);
    } else {
      rank_ok(run, gsel_recv(comm, x, count, GSEL_U64, 0, &err), err);
      rank_check(run, x[0] == i && x[count - 1] == i);
    }
  }
  rank_ok(run, gsel_barrier(comm, &err), err);
  free(x);
  gsel_comm_free(comm);
}

static void test_messages_of_a_pair_keep_their_order(void** state) {
  (void)state;
  as_threads(3, in_order, NULL);
  as_processes(2, in_order, NULL);
}

/* Everybody sends everybody a few messages of every kind, all together. */
static void in_flight(rank_run* run) {
  enum { EACH = 12 };
  gsel_error* err;
  gsel_comm* comm;
  const int32_t n = run->world_size;
  const size_t most = 200001;
  unsigned char* memory = malloc(2 * (size_t)n * EACH * most);
  call_group* group = calloc(1, sizeof *group);
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < EACH; ++i)
      for (int32_t q = 0; q < n; ++q) {
        if (q == run->rank) continue;
        const size_t bytes = i % 3 == 0 ? 17 : i % 3 == 1 ? 5001 : most;
        unsigned char *x = memory + (size_t)(q * EACH + i) * most, *y = x + (size_t)n * EACH * most;
        fill(x, bytes, (uint32_t)(run->rank * 10000 + q * 100 + i));
        group_add(group, comm, message_of(GSEL_COLLECTIVE_SEND, x, NULL, bytes, q));
        group_add(group, comm, message_of(GSEL_COLLECTIVE_RECV, NULL, y, bytes, q));
      }
    rank_ok(run, group_run(group, &err), err);
    for (int i = 0; i < EACH; ++i)
      for (int32_t q = 0; q < n; ++q) {
        const size_t bytes = i % 3 == 0 ? 17 : i % 3 == 1 ? 5001 : most;
        const unsigned char* y = memory + (size_t)((q + n) * EACH + i) * most;
        rank_check(run, q == run->rank || holds(y, bytes, (uint32_t)(q * 10000 + run->rank * 100 + i)));
      }
  }
  free(memory);
  free(group);
  rank_ok(run, gsel_barrier(comm, &err), err);
  gsel_comm_free(comm);
}

static void test_many_messages_are_under_way_together(void** state) {
  (void)state;
  as_threads(2, in_flight, NULL);
  as_threads(5, in_flight, NULL);
  as_processes(4, in_flight, NULL);
}

/* What differs is found before anything is written, for every way of travelling. */
static void mismatch(rank_run* run) {
  const size_t bytes = *(size_t*)run->user;
  gsel_error* err;
  gsel_comm* comm;
  char* x = malloc(2 * bytes);
  memset(x, 0x55, 2 * bytes);
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 0) {
    const gsel_status status = gsel_send(comm, x, bytes, GSEL_I8, 1, &err); /* may be gone before it is found */
    rank_check(run, status == GSEL_OK || status == GSEL_ERR_MISMATCH);
    gsel_error_free(err);
  } else {
    rank_fails(run, gsel_recv(comm, x, bytes, GSEL_U8, 0, &err), err, GSEL_ERR_MISMATCH, "i8, to rank 1), rank 1", 0);
  }
  /* A sender that still waits learns of it there, so that nothing else need fail. */
  const gsel_status after = gsel_barrier(comm, &err);
  rank_check(run, after == GSEL_ERR_MISMATCH || (after == GSEL_OK && bytes > 65536));
  rank_check(run, !err || strstr(gsel_error_message(err).data, "use one type, and a receive as long as the message"));
  gsel_error_free(err);
  for (size_t i = 0; i < 2 * bytes; ++i) rank_check(run, x[i] == 0x55);
  free(x);
  gsel_comm_free(comm);
}

static void test_a_message_of_another_type_is_found_before_it_is_written(void** state) {
  (void)state;
  for (size_t i = 1; i < N_SIZES; i += 2) {
    as_threads(2, mismatch, (void*)&sizes[i]);
    as_processes(2, mismatch, (void*)&sizes[i]);
  }
}

/* How ranks are to each other. */
enum kinship { THREADS, READABLE, BLIND, ONE_BLIND };

static void explained(rank_run* run) {
  const enum kinship kinship = *(enum kinship*)run->user;
  static const struct {
    size_t bytes;
    enum kind memory;
    const char* protocol[3]; /* by kinship */
  } messages[] = {
      {48, HEAP, {"line", "line", "line"}},
      {65536, HEAP, {"slots", "slots", "slots"}},
      {80000, HEAP, {"direct", "staged", "staged"}},
      {1 << 20, HEAP, {"direct", "single copy", "staged"}},
      {80000, SHARED, {"direct", "direct", "direct"}},
      {1 << 20, REGISTERED, {"direct", "direct", "direct"}},
  };
  gsel_error* err;
  gsel_comm* comm;
  if (kinship == BLIND || (kinship == ONE_BLIND && run->rank == 0)) refuse_reading_others();
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (size_t i = 0; i < sizeof messages / sizeof messages[0]; ++i) {
    void *x = take(comm, messages[i].memory), *y = take(comm, messages[i].memory);
    const int32_t other = 1 - run->rank;
    gsel_collective calls[] = {message_of(GSEL_COLLECTIVE_SEND, x, NULL, messages[i].bytes, other),
                               message_of(GSEL_COLLECTIVE_RECV, NULL, y, messages[i].bytes, other),
                               message_of(GSEL_COLLECTIVE_RECV, NULL, y, messages[i].bytes, GSEL_ANY_RANK),
                               message_of(GSEL_COLLECTIVE_SENDRECV, x, y, messages[i].bytes, other)};
    calls[3].source = other;
    calls[3].recv_count = messages[i].bytes;
    for (int before = 0; before < 2; ++before) { /* nothing has been sent, and a message has */
      for (int k = 0; k < 4; ++k) {
        gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
        rank_ok(run, gsel_comm_explain(comm, &calls[k], &how, &err), err);
        /* It is the receiver that reads. Of the last call what rank 0 sends counts here, and there what rank 1 sends.
         */
        const int receiver = k == 1 || k == 2 ? run->rank : other;
        const enum kinship as = kinship != ONE_BLIND ? kinship : receiver == 0 ? BLIND : READABLE;
        if (strcmp(how.protocol, messages[i].protocol[as]))
          snprintf(run->failure, sizeof run->failure, "message %zu, call %d: expected %s, got %s: %s", i, k,
                   messages[i].protocol[as], how.protocol, how.reason);
        if (run->failure[0]) return;
        rank_check(run, how.chunk_bytes == (strcmp(how.protocol, "staged") ? 0 : 65536));
      }
      rank_ok(run, gsel_comm_run(comm, &calls[3], &err), err);
    }
    rank_ok(run, gsel_barrier(comm, &err), err);
    put_back(comm, messages[i].memory, x);
    put_back(comm, messages[i].memory, y);
  }
  gsel_comm_free(comm);
}

static void test_a_message_travels_as_explained(void** state) {
  (void)state;
  if (is_started()) skip(); /* between hosts messages have protocols of their own */
  enum kinship kinship = THREADS;
  as_threads(2, explained, &kinship);
  kinship = READABLE;
  as_processes(2, explained, &kinship);
  kinship = BLIND;
  as_processes(2, explained, &kinship);
  kinship = ONE_BLIND;
  as_processes(2, explained, &kinship);
}

/* Right behind the join, when rank 2, which alone may not read the others, has told nobody by a message. */
static void explained_at_once(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  if (run->rank == 2) refuse_reading_others();
  rank_ok(run, rank_join(run, &comm, &err), err);
  void* x = take(comm, HEAP);
  for (int32_t to = 0; to < 4; ++to) {
    const gsel_collective call = message_of(GSEL_COLLECTIVE_SEND, x, NULL, 1 << 20, to);
    if (to == run->rank) continue;
    rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
    rank_check(run, !strcmp(how.protocol, to == 2 ? "staged" : "single copy"));
  }
  put_back(comm, HEAP, x);
  gsel_comm_free(comm);
}

static void test_who_may_read_is_known_from_the_start(void** state) {
  (void)state;
  if (is_started()) skip(); /* nobody reads the memory of another host */
  for (int i = 0; i < 20; ++i) as_processes(4, explained_at_once, NULL);
}

/* What the ranks of a test share beside their communicator. */
static int* shared_word(void) {
  int* word = shared_memory(sizeof *word);
  return word;
}

/* Rank 1 does not receive in time: the sender takes its offer back and says who is late; its memory is its own again,
 * and who comes later is told the same. */
static void taken_back(rank_run* run) {
  gsel_error* err;
  gsel_comm* comm;
  int* given_up = run->user;
  char *x = calloc(1 << 20, 1), *y = calloc(1 << 20, 1);
  rank_ok(run, rank_join(run, &comm, &err), err);
  if (run->rank == 0) {
    rank_fails(run, gsel_send(comm, x, 1 << 20, GSEL_U8, 1, &err), err, GSEL_ERR_TIMEOUT,
               is_started() ? "in send(count 1048576, u8, to rank 1)"
                            : "in send(count 1048576, u8, to rank 1) (call 1), rank 1 has made no call yet",
               1);
    free(x);
    x = NULL;
    __atomic_store_n(given_up, 1, __ATOMIC_RELEASE);
  } else {
    while (!__atomic_load_n(given_up, __ATOMIC_ACQUIRE)) sched_yield();
    rank_fails(run, gsel_recv(comm, y, 1 << 20, GSEL_U8, 0, &err), err, GSEL_ERR_TIMEOUT, "rank 0 waited 0.3 s", 1);
  }
  free(x), free(y);
  gsel_comm_free(comm);
}

static void test_a_message_nobody_receives_is_taken_back(void** state) {
  (void)state;
  for (int processes = 0; processes < 2; ++processes) {
    int* given_up = shared_word();
    rank_run* runs = ranks_prepare(2, given_up);
    for (int r = 0; r < 2; ++r) runs[r].timeout_s = 0.3; /* times 1e9 and back it would be 0.30000000000000004 */
    (processes ? ranks_run_processes : ranks_run_threads)(runs, 2, taken_back);
    ranks_verdict(runs, 2);
    munmap(given_up, sizeof *given_up);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_messages_of_every_size_arrive_whole),
      cmocka_unit_test(test_two_ranks_send_each_other_at_once),
      cmocka_unit_test(test_messages_of_a_pair_keep_their_order),
      cmocka_unit_test(test_many_messages_are_under_way_together),
      cmocka_unit_test(test_a_message_of_another_type_is_found_before_it_is_written),
      cmocka_unit_test(test_a_message_nobody_receives_is_taken_back),
      cmocka_unit_test(test_a_message_travels_as_explained),
      cmocka_unit_test(test_who_may_read_is_known_from_the_start),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
