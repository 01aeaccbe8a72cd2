/* nets/machine.c: see machine.h. */
#include "nets/machine.h"

void report(player* p, const char* call, const char* what) {
  const op* o = &p->ops[p->at];
  if (p->failure[0]) return;
  int32_t nobody = -1;
  __atomic_compare_exchange_n(&p->of_all->rank, &nobody, p->run.rank, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  for (size_t first = __atomic_load_n(&p->of_all->call, __ATOMIC_RELAXED); p->at < first;)
    if (__atomic_compare_exchange_n(&p->of_all->call, &first, p->at, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) break;
  if (p->at >= p->n_ops)
    snprintf(p->failure, sizeof p->failure, "behind the last call, rank %d: %s: %.300s", (int)p->run.rank, call, what);
  else
    snprintf(p->failure, sizeof p->failure, "call %zu (%d %d %d %d), rank %d: %.120s: %.300s", p->at, o->what, o->slot,
             o->a, o->b, (int)p->run.rank, call, what);
}

int came(player* p, const char* call, gsel_status want, gsel_status got, gsel_error* err) {
  char text[300] = "", line[400];
  if (err) gsel_error_format(err, text, sizeof text);
  if (got != want || gsel_error_code(err) != got) {
    snprintf(line, sizeof line, "expected %s, got %s: %s", gsel_status_name(want), gsel_status_name(got), text);
    report(p, call, line);
  }
  gsel_error_free(err);
  return got == GSEL_OK && want == GSEL_OK;
}

void right(player* p, int condition, const char* what) {
  if (!condition) report(p, what, "wrong");
}

void meet(player* p) {
  pthread_barrier_wait(p->all);
}

struct actor {
  const machine* m;
  player p;
};

static void* act(void* argument) {
  struct actor* a = (struct actor*)argument;
  player* p = &a->p;
  p->own = calloc(1, a->m->own_bytes);
  a->m->open(p);
  for (p->at = 0; p->at < p->n_ops; ++p->at) {
    a->m->play(p, &p->ops[p->at]);
    meet(p);
    if (__atomic_load_n(&p->of_all->call, __ATOMIC_RELAXED) <= p->at) break; /* in which all are */
  }
  a->m->close(p);
  free(p->own);
  return NULL;
}

const char* machine_run(const machine* m, const uint8_t* data, size_t size, char text[MACHINE_TEXT]) {
  static struct actor actors[MACHINE_MOST_RANKS];
  static op ops[MACHINE_MOST_OPS + 1];
  pthread_t threads[MACHINE_MOST_RANKS];
  pthread_barrier_t all;
  gsel_unique_id id;
  size_t n = size / MACHINE_OP_BYTES;
  if (n > MACHINE_MOST_OPS) n = MACHINE_MOST_OPS;
  memcpy(ops, data, n * sizeof *ops);
  struct findings found = {SIZE_MAX, -1};
  const int32_t ranks = m->fewest_ranks + (n ? data[1] % (m->most_ranks - m->fewest_ranks + 1) : 0);
  gsel_unique_id_create(&id, NULL);
  pthread_barrier_init(&all, NULL, (unsigned)ranks);
  for (int32_t r = 0; r < ranks; ++r) {
    memset(&actors[r], 0, sizeof actors[r]);
    actors[r].m = m;
    actors[r].p.run = (rank_run){r, ranks, id, 30, 30, NULL, ""};
    actors[r].p.all = &all;
    actors[r].p.ops = ops;
    actors[r].p.n_ops = n;
    actors[r].p.of_all = &found;
    pthread_create(&threads[r], NULL, act, &actors[r]);
  }
  for (int32_t r = 0; r < ranks; ++r) pthread_join(threads[r], NULL);
  pthread_barrier_destroy(&all);
  return found.rank < 0 ? NULL : strcpy(text, actors[found.rank].p.failure);
}
