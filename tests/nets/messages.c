/* nets/messages.c: see messages.h. Sends are requests, which go on while their rank does something else, so a receive
 * that suits a message of this phase or an earlier one always ends. Some sends are doomed: their rank cancels them, and
 * whether somebody got them before shows when all are counted in the end. Long messages that a receiver may not read
 * from the sender's memory arrive in pieces, and receivers look for a tag that nobody sends, so that messages are set
 * aside before all their pieces are there. */
#include "nets/messages.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/net.h"

enum { MOST_IN_PHASE = 8, MOST_SENT = MESSAGES_MOST_PHASES * MOST_IN_PHASE, MOST_POSTED = 4, TAGS = 3, NO_TAG = 99 };

/* In the line, in a slot of up to 4 ranks, in two pieces even where the receiver may read, and in more than a channel
 * holds. */
static const size_t lengths[] = {0, 1, 12, 13, 1000, 4096, 16384, 16385, 20000, 20000, 40000, 100000};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, LONGEST = 100000 };

typedef struct sent {
  int32_t to, tag;
  size_t count;
  int phase;
  int doomed;
  int taken; /* or lost: a later one was received in its place */
} sent;

typedef struct posted {
  int32_t source, tag;
  gsel_message got;
  uint32_t* room;
} posted;

typedef struct play {
  gsel_comm* comm;
  int32_t rank, ranks;
  uint64_t random; /* this rank's own */
  int phase;
  sent sent[MESSAGES_MOST_RANKS][MOST_SENT]; /* by sender, in the order sent */
  int n_sent[MESSAGES_MOST_RANKS];
  gsel_request* requests[MOST_SENT];
  uint32_t* data[MOST_SENT];
  posted posted[MOST_POSTED];
  int32_t doomed_sent, doomed_received; /* sent: and not cancelled */
  gsel_status status; /* of the last call */
  char* text;
} play;

static uint32_t drawn(play* p, uint32_t below) {
  return (uint32_t)(net_random(&p->random) % below);
}

static int wrong(play* p, const char* format, ...) {
  va_list values;
  if (p->text[0]) return 0;
  va_start(values, format);
  vsnprintf(p->text, MESSAGES_TEXT, format, values);
  va_end(values);
  gsel_comm_abort(p->comm, gsel_str_from("the model says otherwise"));
  return 0;
}

static int came_well(play* p, const char* call, gsel_status status, gsel_error* err) {
  char text[300] = "";
  if (status == GSEL_OK) return 1;
  gsel_error_format(err, text, sizeof text);
  gsel_error_free(err);
  return wrong(p, "%.60s: %s: %s", call, gsel_status_name(status), text);
}
#define WELL(call) (err = NULL, p->status = (call), came_well(p, #call, p->status, err))

/* ---- the model ---- */

static void draw_messages(play* p, uint64_t seed, int phases) {
  for (int32_t from = 0; from < p->ranks; ++from) {
    uint64_t state = seed * 31 + (uint64_t)from;
    for (int phase = 0; phase < phases; ++phase)
      for (uint64_t left = net_random(&state) % (MOST_IN_PHASE + 1); left > 0; --left) {
        sent* m = &p->sent[from][p->n_sent[from]++];
        m->to = (from + 1 + (int32_t)(net_random(&state) % (uint64_t)(p->ranks - 1))) % p->ranks;
        m->tag = (int32_t)(net_random(&state) % TAGS);
        m->doomed = net_random(&state) % 5 == 0;
        m->count = lengths[net_random(&state) % N_LENGTHS];
        if (m->doomed && m->count == 0) m->count = LONGEST; /* so that contents tell which one it is */
        m->phase = phase;
      }
  }
}

static uint32_t content(int32_t from, int number, size_t i) {
  return (uint32_t)(from * MOST_SENT + number) * 2654435761u + (uint32_t)i;
}

static int suits(const play* p, const sent* m, int32_t tag) {
  return m->to == p->rank && !m->taken && (tag == GSEL_ANY_TAG || tag == m->tag);
}

/* Number of the message that a receive gets if it gets one of this sender, and no doomed one; -1: none. */
static int first_from(const play* p, int32_t from, int32_t tag) {
  for (int i = 0; i < p->n_sent[from]; ++i)
    if (suits(p, &p->sent[from][i], tag) && !p->sent[from][i].doomed) return i;
  return -1;
}

/* Messages that are certain to be sent, whatever this rank does. */
static int certain(const play* p, int32_t source, int32_t tag) {
  int n = 0;
  for (int32_t from = 0; from < p->ranks; ++from)
    for (int i = 0; i < p->n_sent[from]; ++i)
      n += (source == from || source == GSEL_ANY_RANK) && p->sent[from][i].phase <= p->phase &&
           !p->sent[from][i].doomed && suits(p, &p->sent[from][i], tag);
  return n;
}

static void pick_certain(play* p, int32_t* source, int32_t* tag) {
  uint32_t which = drawn(p, (uint32_t)certain(p, GSEL_ANY_RANK, GSEL_ANY_TAG));
  for (*source = 0;; ++*source)
    for (int i = 0; i < p->n_sent[*source]; ++i) {
      const sent* m = &p->sent[*source][i];
      if (m->phase > p->phase || m->doomed || !suits(p, m, GSEL_ANY_TAG) || which-- > 0) continue;
      *tag = m->tag;
      return;
    }
}

/* Whether a receive or a probe may have answered so; the message. Of a receive with what is in `room`: doomed messages
 * before it are lost. */
static sent* may_be(play* p, const char* call, const posted* r, const gsel_message* got, const uint32_t* room) {
  const int named = got->source >= 0 && got->source < p->ranks && got->source != p->rank &&
                    (r->source == got->source || r->source == GSEL_ANY_RANK) && got->dtype == GSEL_U32;
  int i = 0;
  for (; named && i < p->n_sent[got->source]; ++i) {
    sent* m = &p->sent[got->source][i];
    if (!suits(p, m, r->tag)) continue;
    const int is_it = m->tag == got->tag && m->count == got->count &&
                      (!room || m->count == 0 || room[0] == content(got->source, i, 0));
    if (is_it) return m;
    if (!m->doomed) break;
    if (room) m->taken = 1;
  }
  wrong(p, "%s(source %d, tag %d): rank %d, tag %d, count %llu; message %d of that rank comes first", call,
        (int)r->source, (int)r->tag, (int)got->source, (int)got->tag, (unsigned long long)got->count, i);
  return NULL;
}

static void empty_room(posted* r) {
  r->got = (gsel_message)GSEL_MESSAGE_INIT;
  memset(r->room, 0x5a, (LONGEST + 1) * sizeof *r->room);
}

static void check_received(play* p, posted* r) {
  sent* m = may_be(p, "receive", r, &r->got, r->room);
  if (!m) return;
  p->doomed_received += m->doomed;
  const int number = (int)(m - p->sent[r->got.source]);
  m->taken = 1;
  for (size_t i = 0; i < m->count; ++i)
    if (r->room[i] != content(r->got.source, number, i)) {
      wrong(p, "receive(source %d, tag %d): element %zu is not that of message %d of rank %d", (int)r->source,
            (int)r->tag, i, number, (int)r->got.source);
      return;
    }
  if (r->room[m->count] != 0x5a5a5a5au) wrong(p, "receive: wrote behind the message");
}

/* ---- calls ---- */

static void doom(play* p, int i) {
  gsel_error* err;
  int32_t cancelled = 7, done = 0;
  if (!p->requests[i] || !WELL(gsel_request_cancel(p->requests[i], &cancelled, &err))) return;
  if (cancelled != 0 && cancelled != 1) wrong(p, "cancel: %d", (int)cancelled);
  if (!cancelled) return;
  memset(p->data[i], 0xee, p->sent[p->rank][i].count * sizeof(uint32_t)); /* it is the caller's again */
  if (WELL(gsel_request_test(p->requests[i], &done, &err)) && !done) wrong(p, "cancel: not done");
  gsel_request_free(p->requests[i]);
  p->requests[i] = NULL;
  --p->doomed_sent;
}

static void start_sends(play* p) {
  gsel_error* err;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = GSEL_COLLECTIVE_SEND;
  call.dtype = GSEL_U32;
  for (int i = 0; i < p->n_sent[p->rank]; ++i) {
    const sent* m = &p->sent[p->rank][i];
    if (m->phase != p->phase) continue;
    p->doomed_sent += m->doomed;
    void* data = NULL;
    if (i % 7 == 6) {
      if (!WELL(gsel_mem_alloc(p->comm, (m->count + 1) * sizeof(uint32_t), &data, &err))) return;
    } else {
      data = malloc((m->count + 1) * sizeof(uint32_t));
    }
    p->data[i] = (uint32_t*)data;
    for (size_t j = 0; j < m->count; ++j) p->data[i][j] = content(p->rank, i, j);
    call.send = data;
    call.count = m->count;
    call.root = m->to;
    call.tag = m->tag;
    if (!WELL(gsel_comm_start(p->comm, &call, &p->requests[i], &err))) return;
    if (m->doomed && drawn(p, 2)) doom(p, i);
  }
}

static void end_sends(play* p, int doomed_too) {
  gsel_error* err;
  for (int i = 0; i < p->n_sent[p->rank]; ++i) {
    if (p->sent[p->rank][i].doomed && !doomed_too) {
      doom(p, i); /* one that somebody has met ends by itself */
      continue;
    }
    if (p->requests[i]) WELL(gsel_request_wait(p->requests[i], &err));
    gsel_request_free(p->requests[i]);
    p->requests[i] = NULL;
    if (i % 7 == 6 && p->data[i])
      WELL(gsel_mem_free(p->comm, p->data[i], &err));
    else
      free(p->data[i]);
    p->data[i] = NULL;
  }
}

static void look(play* p, posted* r) {
  gsel_error* err;
  gsel_message seen = GSEL_MESSAGE_INIT;
  int32_t found = 1;
  switch (drawn(p, 4)) {
    case 0: /* looks behind all that is there */
      if (WELL(gsel_iprobe(p->comm, GSEL_ANY_RANK, NO_TAG, &found, &seen, &err)) && found)
        wrong(p, "iprobe: found what nobody sent");
      break;
    case 1:
      if (WELL(gsel_iprobe(p->comm, r->source, r->tag, &found, &seen, &err)) && found)
        may_be(p, "iprobe", r, &seen, NULL);
      break;
    case 2:
      if (!WELL(gsel_probe(p->comm, r->source, r->tag, &seen, &err)) || !may_be(p, "probe", r, &seen, NULL)) return;
      if (first_from(p, seen.source, seen.tag) < 0 ||
          p->sent[seen.source][first_from(p, seen.source, seen.tag)].phase > p->phase)
        return; /* it saw a doomed one, which may be gone */
      r->source = seen.source;
      r->tag = seen.tag;
      break;
  }
}

/* A receive that is cancelled, unless it has met a message. */
static void receive_perhaps(play* p) {
  gsel_error* err;
  gsel_request* request;
  posted* r = &p->posted[0];
  int32_t cancelled = 0;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  empty_room(r);
  r->source = GSEL_ANY_RANK;
  r->tag = drawn(p, 2) ? GSEL_ANY_TAG : NO_TAG;
  call.kind = GSEL_COLLECTIVE_RECV;
  call.dtype = GSEL_U32;
  call.recv = r->room;
  call.count = LONGEST;
  call.root = r->source;
  call.tag = r->tag;
  call.received = &r->got;
  if (!WELL(gsel_comm_start(p->comm, &call, &request, &err))) return;
  WELL(gsel_request_cancel(request, &cancelled, &err));
  WELL(gsel_request_wait(request, &err));
  gsel_request_free(request);
  if (!cancelled && !p->text[0]) check_received(p, r);
  if (cancelled && (r->room[0] != 0x5a5a5a5au || r->got.source != 0)) wrong(p, "cancel: a message was received");
}

static void receive_one(play* p) {
  gsel_error* err;
  posted* r = &p->posted[0];
  pick_certain(p, &r->source, &r->tag);
  if (drawn(p, 2)) r->source = GSEL_ANY_RANK;
  if (drawn(p, 2)) r->tag = GSEL_ANY_TAG;
  look(p, r);
  empty_room(r);
  if (!p->text[0] && WELL(gsel_recv_tag(p->comm, r->room, LONGEST, GSEL_U32, r->source, r->tag, &r->got, &err)))
    check_received(p, r);
}

/* Receives that all end, whichever gets which message: of named senders, each with a message that those before it
 * leave; or all of any sender and of one tag, or of any. */
static int choose_receives(play* p) {
  const int all_alike = (int)drawn(p, 2), left = certain(p, GSEL_ANY_RANK, GSEL_ANY_TAG);
  int n = 0, most = 1 + (int)drawn(p, MOST_POSTED);
  sent* taken[MOST_POSTED];
  posted* r = p->posted;
  if (all_alike) {
    pick_certain(p, &r[0].source, &r[0].tag);
    if (drawn(p, 2)) r[0].tag = GSEL_ANY_TAG;
    const int suitable = certain(p, GSEL_ANY_RANK, r[0].tag);
    for (n = 0; n < most && n < suitable; ++n) r[n].source = GSEL_ANY_RANK, r[n].tag = r[0].tag;
    return n;
  }
  for (n = 0; n < most && n < left; ++n) {
    pick_certain(p, &r[n].source, &r[n].tag);
    if (drawn(p, 2)) r[n].tag = GSEL_ANY_TAG;
    taken[n] = &p->sent[r[n].source][first_from(p, r[n].source, r[n].tag)];
    taken[n]->taken = 1;
  }
  for (int i = 0; i < n; ++i) taken[i]->taken = 0;
  return n;
}

static void receive_several(play* p) {
  gsel_error* err;
  gsel_comm* comms[MOST_POSTED];
  gsel_collective calls[MOST_POSTED];
  const gsel_collective* pointers[MOST_POSTED];
  gsel_request* requests[MOST_POSTED] = {NULL};
  const int n = choose_receives(p), together = (int)drawn(p, 3) == 0;
  size_t index = 0;
  for (int i = 0; i < n; ++i) {
    posted* r = &p->posted[i];
    empty_room(r);
    comms[i] = p->comm;
    calls[i] = (gsel_collective)GSEL_COLLECTIVE_INIT;
    calls[i].kind = GSEL_COLLECTIVE_RECV;
    calls[i].dtype = GSEL_U32;
    calls[i].recv = r->room;
    calls[i].count = LONGEST;
    calls[i].root = r->source;
    calls[i].tag = r->tag;
    calls[i].received = &r->got;
    pointers[i] = &calls[i];
    if (!together && !WELL(gsel_comm_start(p->comm, &calls[i], &requests[i], &err))) break;
  }
  if (together && !p->text[0]) WELL(gsel_group_run(comms, pointers, (size_t)n, &err));
  const int any = (int)drawn(p, 2);
  for (int i = 0; !together && i < n && !p->text[0]; ++i)
    if (any)
      WELL(gsel_request_wait_any(requests, (size_t)n, &index, &err));
    else
      WELL(gsel_request_wait(requests[n - 1 - i], &err));
  for (int i = 0; i < n; ++i) gsel_request_free(requests[i]);
  for (int i = 0; i < n && !p->text[0]; ++i) check_received(p, &p->posted[i]);
}

/* What was doomed and is there nevertheless. All ranks have cancelled what they could. */
static void receive_the_doomed(play* p) {
  gsel_error* err;
  gsel_message seen = GSEL_MESSAGE_INIT;
  int32_t found = 1;
  posted* r = &p->posted[0];
  while (!p->text[0] && WELL(gsel_iprobe(p->comm, GSEL_ANY_RANK, GSEL_ANY_TAG, &found, &seen, &err)) && found) {
    r->source = seen.source;
    r->tag = seen.tag;
    empty_room(r);
    if (WELL(gsel_recv_tag(p->comm, r->room, LONGEST, GSEL_U32, r->source, r->tag, &r->got, &err)))
      check_received(p, r);
  }
}

const char* messages_play(gsel_comm* comm, uint64_t seed, int phases, char text[MESSAGES_TEXT]) {
  gsel_error* err;
  play* p = (play*)calloc(1, sizeof *p);
  text[0] = '\0';
  p->text = text;
  p->comm = comm;
  p->rank = gsel_comm_rank(comm);
  p->ranks = gsel_comm_world_size(comm);
  p->random = seed * 1000003u + (uint64_t)p->rank;
  for (int i = 0; i < MOST_POSTED; ++i) p->posted[i].room = (uint32_t*)malloc((LONGEST + 1) * sizeof(uint32_t));
  draw_messages(p, seed, phases);
  for (p->phase = 0; p->phase < phases && !text[0]; ++p->phase) {
    start_sends(p);
    while (!text[0] && certain(p, GSEL_ANY_RANK, GSEL_ANY_TAG) > 0) switch (drawn(p, 5)) {
        case 0:
          receive_perhaps(p);
          break;
        case 1:
        case 2:
          receive_one(p);
          break;
        default:
          receive_several(p);
      }
    end_sends(p, 0);
  }
  if (!text[0] && WELL(gsel_barrier(comm, &err))) receive_the_doomed(p);
  end_sends(p, 1);
  int32_t difference = p->doomed_sent - p->doomed_received;
  if (!text[0] && WELL(gsel_allreduce(comm, &difference, &difference, 1, GSEL_I32, GSEL_SUM, &err)) && difference != 0)
    wrong(p, "%d messages were neither cancelled nor received, or both", (int)difference);
  for (int i = 0; i < MOST_POSTED; ++i) free(p->posted[i].room);
  free(p);
  return text[0] ? text : NULL;
}
