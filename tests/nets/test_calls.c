/* nets/test_calls.c: communicators in every state: calls that are good, refused, or break them. A communicator is held
 * in a slot; after a split, ranks of different colours hold different ones in the same slot. */
#include "nets/machine.h"
#include "nets/messages.h"

enum { RANKS = 3, SLOTS = 4, MOST_ELEMENTS = 70000 };

typedef struct slot {
  gsel_comm* comm;
  uint32_t members;   /* bits of ranks of the world */
  uint32_t gone;      /* of them, those that have left */
  gsel_status broken; /* what calls answer, or GSEL_OK */
  int shrunk;
  int taken; /* on all ranks alike, also where a rank has left or got none */
} slot;

typedef struct holdings {
  slot slots[SLOTS];
  int32_t *send, *recv;
  slot* to; /* where a new communicator goes, or NULL */
  int joins;
} holdings;

static holdings* mine(const player* p) {
  return (holdings*)p->own;
}

/* ---- the model ---- */

static int32_t size_of(const slot* s) {
  return __builtin_popcount(s->members);
}
static int32_t index_in(const slot* s, int32_t rank) {
  return __builtin_popcount(s->members & ((1u << rank) - 1));
}
static int32_t rank_at(const slot* s, int32_t index) {
  for (int32_t r = 0; r < RANKS; ++r)
    if (s->members >> r & 1 && index_in(s, r) == index) return r;
  return -1;
}
static int32_t number(int32_t rank, size_t i) {
  return (int32_t)((uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7919u);
}
static int32_t sum_over(const slot* s, size_t i) {
  uint32_t sum = 0;
  for (int32_t r = 0; r < RANKS; ++r)
    if (s->members >> r & 1) sum += (uint32_t)number(r, i);
  return (int32_t)sum;
}

/* In the line, beside it, in one chunk, in several. */
static size_t elements(uint8_t b) {
  static const size_t sizes[] = {0, 1, 3, 17, 800, 4096, 20000, MOST_ELEMENTS / RANKS};
  return sizes[b % 8];
}

/* ---- calls that succeed where the communicator is whole ---- */

static void fill_send(player* p, size_t n) {
  for (size_t i = 0; i < n; ++i) mine(p)->send[i] = number(p->run.rank, i);
}

static void do_allreduce(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b);
  fill_send(p, n);
  if (!CAME(s->broken, gsel_allreduce(s->comm, mine(p)->send, mine(p)->recv, n, GSEL_I32, GSEL_SUM, &err))) return;
  for (size_t i = 0; i < n; ++i)
    if (mine(p)->recv[i] != sum_over(s, i)) return report(p, "allreduce", "a wrong sum");
}

static void do_allgather(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b);
  fill_send(p, n);
  if (!CAME(s->broken, gsel_allgather(s->comm, mine(p)->send, mine(p)->recv, n, GSEL_I32, &err))) return;
  for (int32_t q = 0; q < size_of(s); ++q)
    for (size_t i = 0; i < n; ++i)
      if (mine(p)->recv[(size_t)q * n + i] != number(rank_at(s, q), i))
        return report(p, "allgather", "a wrong element");
}

static void do_broadcast(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b);
  const int32_t root = o->a % size_of(s);
  fill_send(p, n);
  if (!CAME(s->broken, gsel_broadcast(s->comm, mine(p)->send, mine(p)->recv, n, GSEL_I32, root, &err))) return;
  for (size_t i = 0; i < n; ++i)
    if (mine(p)->recv[i] != number(rank_at(s, root), i)) return report(p, "broadcast", "a wrong element");
}

static void do_reduce(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b);
  const int32_t root = o->a % size_of(s);
  fill_send(p, n);
  if (!CAME(s->broken, gsel_reduce(s->comm, mine(p)->send, mine(p)->recv, n, GSEL_I32, GSEL_SUM, root, &err))) return;
  for (size_t i = 0; index_in(s, p->run.rank) == root && i < n; ++i)
    if (mine(p)->recv[i] != sum_over(s, i)) return report(p, "reduce", "a wrong sum");
}

static void do_reduce_scatter(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b), first = n * (size_t)index_in(s, p->run.rank);
  fill_send(p, n * (size_t)size_of(s));
  if (!CAME(s->broken, gsel_reduce_scatter(s->comm, mine(p)->send, mine(p)->recv, n, GSEL_I32, GSEL_SUM, &err))) return;
  for (size_t i = 0; i < n; ++i)
    if (mine(p)->recv[i] != sum_over(s, first + i)) return report(p, "reduce_scatter", "a wrong sum");
}

static void do_alltoall(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b), own = (size_t)index_in(s, p->run.rank);
  fill_send(p, n * (size_t)size_of(s));
  if (!CAME(s->broken, gsel_alltoall(s->comm, mine(p)->send, mine(p)->recv, n, GSEL_I32, &err))) return;
  for (int32_t q = 0; q < size_of(s); ++q)
    for (size_t i = 0; i < n; ++i)
      if (mine(p)->recv[(size_t)q * n + i] != number(rank_at(s, q), own * n + i))
        return report(p, "alltoall", "a wrong element");
}

static void do_ring(player* p, slot* s, const op* o) {
  gsel_error* err;
  const size_t n = elements(o->b);
  const int32_t size = size_of(s), own = index_in(s, p->run.rank), to = (own + 1) % size,
                from = (own + size - 1) % size;
  fill_send(p, n);
  if (!CAME(size == 1 ? GSEL_ERR_ARG : s->broken,
            gsel_sendrecv(s->comm, mine(p)->send, n, to, mine(p)->recv, n, from, GSEL_I32, &err)))
    return;
  for (size_t i = 0; i < n; ++i)
    if (mine(p)->recv[i] != number(rank_at(s, from), i)) return report(p, "sendrecv", "a wrong element");
}

static void do_messages(player* p, slot* s, const op* o) {
  char text[MESSAGES_TEXT];
  if (s->broken || size_of(s) == 1) return;
  if (messages_play(s->comm, (uint64_t)o->a << 8 | o->b, 2, text)) report(p, "messages", text);
}

static void do_barrier(player* p, slot* s, const op* o) {
  gsel_error* err;
  (void)o;
  CAME(s->broken, gsel_barrier(s->comm, &err));
}

/* Started, run as a persistent request, or started twice and waited for together. */
static void do_request(player* p, slot* s, const op* o) {
  gsel_error* err;
  gsel_request *one = NULL, *two = NULL, *both[2];
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  size_t index = 0;
  const size_t n = elements(o->b);
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  call.dtype = GSEL_I32;
  call.op = GSEL_SUM;
  call.send = mine(p)->send;
  call.recv = mine(p)->recv;
  call.count = n;
  fill_send(p, n);
  if (o->a % 2) {
    if (CAME(GSEL_OK, gsel_request_create(s->comm, &call, &one, &err))) CAME(s->broken, gsel_request_run(one, &err));
  } else if (CAME(GSEL_OK, gsel_comm_start(s->comm, &call, &one, &err))) {
    CAME(s->broken, gsel_request_wait(one, &err));
  }
  for (size_t i = 0; !s->broken && i < n; ++i)
    if (mine(p)->recv[i] != sum_over(s, i)) return report(p, "request", "a wrong sum");
  call.kind = GSEL_COLLECTIVE_BARRIER;
  if (CAME(GSEL_OK, gsel_comm_start(s->comm, &call, &two, &err))) {
    both[0] = NULL;
    both[1] = two;
    CAME(s->broken, gsel_request_wait_any(both, 2, &index, &err));
    right(p, index == 1, "wait_any names another request");
  }
  gsel_request_free(one);
  gsel_request_free(two);
}

static void do_memory(player* p, slot* s, const op* o) {
  gsel_error* err;
  void* memory = NULL;
  const size_t n = elements(o->b) + 1;
  if (s->broken || !CAME(GSEL_OK, gsel_mem_alloc(s->comm, n * 4, &memory, &err))) return;
  int32_t* x = (int32_t*)memory;
  for (size_t i = 0; i < n; ++i)
    if (x[i]) return report(p, "mem_alloc", "not zero");
  for (size_t i = 0; i < n; ++i) x[i] = number(p->run.rank, i);
  if (CAME(GSEL_OK, gsel_allreduce(s->comm, x, x, n, GSEL_I32, GSEL_SUM, &err)))
    for (size_t i = 0; i < n; ++i)
      if (x[i] != sum_over(s, i)) return report(p, "allreduce in place", "a wrong sum");
  CAME(GSEL_OK, gsel_barrier(s->comm, &err));
  CAME(GSEL_ERR_ARG, gsel_mem_free(s->comm, mine(p)->send, &err));
  CAME(GSEL_OK, gsel_mem_free(s->comm, memory, &err));
}

/* ---- calls that are refused, and leave everything as it is ---- */

static void do_refused(player* p, slot* s, const op* o) {
  gsel_error* err;
  gsel_comm* none = NULL;
  const int32_t size = size_of(s);
  switch (o->a % 8) {
    case 0:
      CAME(GSEL_ERR_ARG, gsel_allreduce(s->comm, NULL, mine(p)->recv, 5, GSEL_I32, GSEL_SUM, &err));
      break;
    case 1:
      CAME(GSEL_ERR_ARG, gsel_allreduce(s->comm, mine(p)->send, mine(p)->recv, 5, 99, GSEL_SUM, &err));
      break;
    case 2:
      CAME(GSEL_ERR_ARG, gsel_allreduce(s->comm, mine(p)->send, mine(p)->recv, 5, GSEL_F32, GSEL_BAND, &err));
      break;
    case 3:
      CAME(GSEL_ERR_ARG,
           gsel_broadcast(s->comm, mine(p)->send, mine(p)->recv, 5, GSEL_I32, o->b % 2 ? size : -1, &err));
      break;
    case 4:
      CAME(GSEL_ERR_ARG, gsel_allreduce(s->comm, mine(p)->recv + 1, mine(p)->recv, 5, GSEL_I32, GSEL_SUM, &err));
      break;
    case 5:
      CAME(GSEL_ERR_ARG, gsel_barrier(NULL, &err));
      CAME(GSEL_ERR_ARG, gsel_comm_split(NULL, 0, 0, &none, &err));
      break;
    case 6:
      CAME(GSEL_ERR_ARG, gsel_allgather(s->comm, mine(p)->send, mine(p)->recv, SIZE_MAX - o->b, GSEL_I32, &err));
      break;
    default:
      CAME(GSEL_ERR_ARG, gsel_send(s->comm, mine(p)->send, 3, GSEL_I32, index_in(s, p->run.rank), &err));
  }
}

/* One rank's call differs: all are told, and the next call works. */
static void do_mismatch(player* p, slot* s, const op* o) {
  gsel_error* err;
  const int32_t odd = o->a % size_of(s) == index_in(s, p->run.rank);
  const gsel_status want = s->broken ? s->broken : size_of(s) == 1 ? GSEL_OK : GSEL_ERR_MISMATCH;
  if (o->b % 3 == 0)
    CAME(want, gsel_allreduce(s->comm, mine(p)->send, mine(p)->recv, odd ? 4 : 5, GSEL_I32, GSEL_SUM, &err));
  else if (o->b % 3 == 1)
    CAME(want,
         odd ? gsel_barrier(s->comm, &err) : gsel_allgather(s->comm, mine(p)->send, mine(p)->recv, 5, GSEL_I32, &err));
  else
    CAME(want, gsel_allreduce(s->comm, mine(p)->send, mine(p)->recv, 900, odd ? GSEL_I32 : GSEL_U32, GSEL_SUM, &err));
}

/* ---- calls that make, break and mend communicators ---- */

/* The first slot that is free on all ranks; taken whatever comes of the call. */
static slot* free_slot(player* p) {
  for (int i = 0; i < SLOTS; ++i)
    if (!mine(p)->slots[i].taken) return &mine(p)->slots[i];
  return NULL;
}

static void hold(slot* to, const slot* made) {
  *to = *made;
  to->taken = 1;
}

/* Some of the ranks make a communicator by a request. */
static int starts(const player* p, const op* o) {
  return (int)(o->b >> p->run.rank & 1);
}

static gsel_status by_request(gsel_status status, gsel_request** request, gsel_comm** out, gsel_error** err) {
  if (status == GSEL_OK) status = gsel_request_wait(*request, err);
  if (status == GSEL_OK) status = gsel_request_take_comm(*request, out, err);
  gsel_request_free(*request);
  return status;
}

static void do_split(player* p, slot* s, const op* o) {
  gsel_error* err;
  gsel_request* request;
  slot* to = mine(p)->to;
  const uint32_t colours = o->a % 8; /* a bit for each rank */
  const int32_t colour = (int32_t)(colours >> p->run.rank & 1);
  slot made = {NULL, 0, 0, GSEL_OK, 0, 0};
  for (int32_t r = 0; r < RANKS; ++r)
    if (s->members >> r & 1 && (int32_t)(colours >> r & 1) == colour) made.members |= 1u << r;
  const gsel_status status = s->broken;
  if (!to) return;
  if (!CAME(status, starts(p, o) ? by_request(gsel_comm_start_split(s->comm, colour, p->run.rank, &request, &err),
                                              &request, &made.comm, &err)
                                 : gsel_comm_split(s->comm, colour, p->run.rank, &made.comm, &err)))
    return;
  right(p, gsel_comm_rank(made.comm) == index_in(&made, p->run.rank), "rank of a split");
  right(p, gsel_comm_world_size(made.comm) == size_of(&made), "size of a split");
  hold(to, &made);
}

static void do_dup(player* p, slot* s, const op* o) {
  gsel_error* err;
  slot* to = mine(p)->to;
  slot made = {NULL, s->members, 0, GSEL_OK, 0, 0};
  gsel_request* request;
  if (!to) return;
  if (CAME(s->broken, starts(p, o)
                          ? by_request(gsel_comm_start_dup(s->comm, &request, &err), &request, &made.comm, &err)
                          : gsel_comm_dup(s->comm, &made.comm, &err)))
    hold(to, &made);
}

static void do_shrink(player* p, slot* s, const op* o) {
  gsel_error* err;
  slot* to = mine(p)->to;
  slot made = {NULL, s->members & ~s->gone, 0, GSEL_OK, 0, 0};
  gsel_request* request;
  if (!to) return;
  const gsel_status want = s->shrunk ? GSEL_ERR_STATE : GSEL_OK;
  if (CAME(want, starts(p, o)
                     ? by_request(gsel_comm_start_shrink(s->comm, NULL, 0, &request, &err), &request, &made.comm, &err)
                     : gsel_comm_shrink(s->comm, &made.comm, &err))) {
    right(p, gsel_comm_rank(made.comm) == index_in(&made, p->run.rank), "rank of a shrink");
    right(p, gsel_comm_world_size(made.comm) == size_of(&made), "size of a shrink");
    hold(to, &made);
  }
  s->shrunk = 1;
  if (!s->broken) s->broken = GSEL_ERR_STATE;
}

static void do_resync(player* p, slot* s, const op* o) {
  gsel_error* err;
  (void)o;
  const gsel_status want = size_of(s) > 1 && s->shrunk ? GSEL_ERR_STATE : GSEL_OK;
  if (s->gone || s->shrunk) return; /* named by what it finds first */
  if (CAME(want, gsel_comm_resync(s->comm, &err))) s->broken = GSEL_OK;
}

static void do_abort(player* p, slot* s, const op* o) {
  if (o->a % size_of(s) == index_in(s, p->run.rank)) gsel_comm_abort(s->comm, gsel_str_from("as drawn"));
  if (!s->broken) s->broken = GSEL_ERR_ABORTED;
}

static void do_destroy(player* p, slot* s, const op* o) {
  (void)p, (void)o;
  gsel_comm_free(s->comm);
  memset(s, 0, sizeof *s);
  s->taken = 1;
}

/* One rank leaves; the others learn of it in their call. */
static void do_leave(player* p, slot* s, const op* o) {
  gsel_error* err;
  const int32_t left = rank_at(s, o->a % size_of(s));
  if (s->broken || size_of(s) == 1) return;
  if (left == p->run.rank) return do_destroy(p, s, o);
  s->gone = 1u << left;
  s->broken = GSEL_ERR_PEER;
  CAME(s->broken, gsel_barrier(s->comm, &err));
}

/* One rank does not call, and the others wait no longer than they said. */
static void do_late(player* p, slot* s, const op* o) {
  gsel_error* err;
  if (s->broken || size_of(s) == 1 || o->b % 8) return;
  s->broken = GSEL_ERR_TIMEOUT;
  if (o->a % size_of(s) == index_in(s, p->run.rank)) return;
  CAME(GSEL_OK, gsel_comm_set_timeout(s->comm, 0.05, &err));
  CAME(s->broken, gsel_barrier(s->comm, &err));
  CAME(GSEL_OK, gsel_comm_set_timeout(s->comm, 30, &err));
}

/* ---- questions ---- */

static void do_questions(player* p, slot* s, const op* o) {
  gsel_error* err;
  gsel_trace* trace = NULL;
  (void)o;
  right(p, gsel_comm_rank(s->comm) == index_in(s, p->run.rank), "rank");
  right(p, gsel_comm_world_size(s->comm) == size_of(s), "size");
  right(p, gsel_comm_rank(NULL) == -1, "rank of NULL");
  if (CAME(GSEL_OK, gsel_comm_trace(s->comm, &trace, &err))) right(p, gsel_trace_json(trace).len > 2, "an empty trace");
  gsel_trace_free(trace);
  CAME(GSEL_ERR_ARG, gsel_comm_set_timeout(s->comm, -1, &err));
}

/* In a child of the process: refused, and nothing happens to the parent. */
static void do_fork(player* p, slot* s, const op* o) {
  int status = 0;
#ifdef __SANITIZE_THREAD__ /* does not follow a process with threads into its child */
  return;
#endif
  if (o->b % 4 || p->run.rank != o->a % RANKS) return;
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    const gsel_status answer = gsel_barrier(s->comm, NULL);
    gsel_comm_free(s->comm);
    _exit(answer != GSEL_ERR_FORKED);
  }
  waitpid(pid, &status, 0);
  right(p, status == 0, "a call in a forked child");
}

/* ---- playing ---- */

typedef void (*doing)(player* p, slot* s, const op* o);
static const doing doings[] = {
    do_allreduce, do_allgather, do_broadcast, do_reduce,  do_reduce_scatter, do_alltoall, do_ring,
    do_barrier,   do_request,   do_memory,    do_refused, do_mismatch,       do_split,    do_dup,
    do_shrink,    do_resync,    do_abort,     do_destroy, do_leave,          do_late,     do_questions,
    do_fork,      do_allreduce, do_memory,    do_split,   do_shrink,         do_refused,  do_messages,
};
enum { N_DOINGS = sizeof doings / sizeof *doings };

static void do_join(player* p, slot* to) {
  gsel_error* err = NULL;
  slot made = {NULL, (1u << RANKS) - 1, 0, GSEL_OK, 0, 0};
  rank_run run = p->run;
  run.id.bytes[0] ^= (uint8_t)++mine(p)->joins;
  p->status = rank_join(&run, &made.comm, &err);
  came(p, "gsel_comm_init", GSEL_OK, p->status, err);
  hold(to, &made);
}

/* The same on all ranks: which slots are taken before and after. */
static void play_one(player* p, const op* o) {
  slot* s = &mine(p)->slots[o->slot % SLOTS];
  const doing what = doings[o->what % N_DOINGS];
  const int makes = what == do_split || what == do_dup || what == do_shrink;
  if (!s->taken) {
    if (o->b % 4 == 0) do_join(p, s);
    return;
  }
  mine(p)->to = makes ? free_slot(p) : NULL;
  if (mine(p)->to) mine(p)->to->taken = 1;
  if (s->comm) what(p, s, o);
  if (what == do_destroy) s->taken = 0;
}

static void open_world(player* p) {
  mine(p)->send = (int32_t*)calloc(MOST_ELEMENTS * RANKS, sizeof *mine(p)->send);
  mine(p)->recv = (int32_t*)calloc(MOST_ELEMENTS * RANKS, sizeof *mine(p)->recv);
  do_join(p, &mine(p)->slots[0]);
}

static void close_world(player* p) {
  for (int i = SLOTS; i-- > 0;) gsel_comm_free(mine(p)->slots[i].comm);
  free(mine(p)->send);
  free(mine(p)->recv);
}

const machine played = {RANKS, RANKS, sizeof(holdings), open_world, play_one, close_world};
