/* faults/test_comm_messages.c: a rank is killed while messages to and from it are under way, in every way they travel
 * and are waited for; the others get an error that names it, and nobody hangs. */
#include <poll.h>

#include "support/groups.h"
#include "support/ranks.h"

enum { MOST = 1 << 20, VICTIM = 1 };

typedef struct stage {
  size_t bytes;
  int way;
  int ready;
} stage;

enum way { RECV, SEND, SENDRECV, GROUP, REQUEST, LOOKING, BESIDE, WAYS };

static gsel_collective message_of(gsel_collective_kind kind, void* buffer, size_t bytes) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_U8;
  call.send = kind == GSEL_COLLECTIVE_SEND ? buffer : NULL;
  call.recv = kind == GSEL_COLLECTIVE_RECV ? buffer : NULL;
  call.count = bytes;
  call.root = VICTIM;
  return call;
}

static gsel_status looked_at(gsel_comm* comm, const gsel_collective* call, int looking, int beside, gsel_error** err) {
  gsel_request* request;
  gsel_status status = gsel_comm_start(comm, call, &request, err);
  if (status != GSEL_OK) return status;
  if (beside) { /* under a collective that the victim does not join either */
    gsel_barrier(comm, NULL);
  }
  int32_t done = !looking;
  while (!done) {
    status = gsel_request_test(request, &done, err);
    if (!done) poll(NULL, 0, 1);
  }
  if (!looking) status = gsel_request_wait(request, err);
  gsel_request_free(request);
  return status;
}

/* What waits for the victim, again and again until it fails. */
static gsel_status once(gsel_comm* comm, const stage* s, char* x, char* y, gsel_error** err) {
  const gsel_collective receive = message_of(GSEL_COLLECTIVE_RECV, y, s->bytes);
  call_group group = {0};
  switch (s->way) {
    case RECV:
      return gsel_recv(comm, y, s->bytes, GSEL_U8, VICTIM, err);
    case SEND:
      return gsel_send(comm, x, s->bytes, GSEL_U8, VICTIM, err);
    case SENDRECV:
      return gsel_sendrecv(comm, x, s->bytes, VICTIM, y, s->bytes, VICTIM, GSEL_U8, err);
    case GROUP:
      group_add(&group, comm, receive);
      group_add(&group, comm, message_of(GSEL_COLLECTIVE_SEND, x, s->bytes));
      return group_run(&group, err);
    default:
      return looked_at(comm, &receive, s->way == LOOKING, s->way == BESIDE, err);
  }
}

static void survives(rank_run* run) {
  stage* s = run->user;
  gsel_error* err;
  gsel_comm* comm;
  char *x = calloc(MOST, 1), *y = calloc(MOST, 1);
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run, gsel_barrier(comm, &err), err);
  if (run->rank == VICTIM) {
    __atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
    /* Serves a few messages, so that some are half way through when it dies. */
    for (int i = 0; s->way == SENDRECV; ++i)
      for (int32_t q = 0; q < run->world_size; ++q)
        if (q != VICTIM) gsel_sendrecv(comm, x, s->bytes, q, y, s->bytes, q, GSEL_U8, NULL);
    for (;;) pause();
  }
  gsel_status status;
  do status = once(comm, s, x, y, &err);
  while (status == GSEL_OK);
  rank_fails(run, status, err, GSEL_ERR_PEER, "rank 1 (pid ", VICTIM);
  rank_fails(run, gsel_barrier(comm, &err), err, GSEL_ERR_PEER, "rank 1 (pid ", VICTIM);
  free(x), free(y);
  gsel_comm_free(comm);
}

static void strike(int32_t n, size_t bytes, enum way way) {
  stage* s = shared_memory(sizeof *s);
  s->bytes = bytes;
  s->way = way;
  rank_run* runs = ranks_prepare(n, s);
  pid_t pids[RANKS_MAX];
  for (int32_t r = 0; r < n; ++r) pids[r] = rank_fork(&runs[r], survives);
  while (!__atomic_load_n(&s->ready, __ATOMIC_ACQUIRE)) poll(NULL, 0, 1);
  usleep((useconds_t)(rand() % 3000)); /* anywhere in it */
  kill(pids[VICTIM], SIGKILL);
  for (int32_t r = 0; r < n; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    if (r != VICTIM && status != 0 && !runs[r].failure[0])
      snprintf(runs[r].failure, sizeof runs[r].failure, "rank %d ended with wait status 0x%x", (int)r,
               (unsigned)status);
  }
  ranks_verdict(runs, n);
  munmap(s, sizeof *s);
}

static void a_rank_killed_with_messages_under_way_is_named(void** state) {
  (void)state;
  const size_t sizes[] = {8, 4096, 65536, 200000, MOST};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i)
    for (int way = 0; way < WAYS; ++way)
      for (int32_t n = 2; n <= 3; ++n) strike(n, sizes[i], (enum way)way);
}

int main(void) {
  srand(20262);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_rank_killed_with_messages_under_way_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
