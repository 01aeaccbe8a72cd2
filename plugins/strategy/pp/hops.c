/* pp/hops.c: see hops.h. */
#include "hops.h"

#include <stdlib.h>

/* State of a value during the walk over the layers. */
struct chain {
  int32_t first, last; /* of its hops, in order of finding; -1: none yet */
};

struct finder {
  struct pp* pp;
  struct chain* chains; /* [n_values] */
  struct hop* found;    /* [n_found] */
  int32_t* following;   /* [n_found] next hop of the same chain, or -1 */
  int* contributes;     /* [n_found] a layer on this rank adds to the gradient */
  int32_t n_found;
};

static int32_t rank_of(const struct pp* pp, int32_t stage) {
  return pp->rank_of_stage[stage];
}

/* The hop of a value on a rank, created if it does not exist yet. */
static int32_t hop_on(struct finder* f, int32_t value, int32_t stage) {
  struct chain* chain = &f->chains[value];
  for (int32_t h = chain->first; h >= 0; h = f->following[h])
    if (rank_of(f->pp, f->found[h].stage) == rank_of(f->pp, stage)) return h;
  const int32_t h = f->n_found++, before = chain->last;
  f->found[h] = (struct hop){value, stage, -1, -1, 0, 0};
  f->following[h] = -1;
  if (before >= 0) {
    f->found[h].previous = rank_of(f->pp, f->found[before].stage);
    f->found[before].next = rank_of(f->pp, stage);
    f->following[before] = h;
  } else {
    chain->first = h;
  }
  chain->last = h;
  return h;
}

static void visit_layer(struct finder* f, int32_t l) {
  const struct pp* pp = f->pp;
  const gsel_layer_info* layer = &pp->w.layers[l];
  for (int32_t i = 0; i < layer->n_inputs; ++i) {
    const int32_t v = layer->inputs[i];
    if (pp->values[v].producer < 0) continue;
    const int32_t h = hop_on(f, v, pp->stage_of_layer[l]);
    f->contributes[h] |= pp->values[v].needs_gradient && layer->backward & GSEL_BACKWARD_PRODUCES_INPUT;
  }
  for (int32_t i = 0; i < layer->n_outputs; ++i) hop_on(f, layer->outputs[i], pp->stage_of_layer[l]);
}

/* A gradient comes back from ranks that add to it, and from all ranks between these and the producer. Later hops of a
 * chain were found later, hence the reverse loop. */
static void find_ways_back(struct finder* f) {
  for (int32_t h = f->n_found - 1; h >= 0; --h) {
    const int32_t next = f->following[h];
    f->found[h].awaits = next >= 0 && f->found[next].gives;
    f->found[h].gives = f->found[h].previous >= 0 && (f->contributes[h] || f->found[h].awaits);
  }
}

static int by_stage_and_value(const void* a, const void* b) {
  const struct hop *x = a, *y = b;
  if (x->stage != y->stage) return x->stage < y->stage ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

static int64_t most_hops(const struct pp* pp) {
  int64_t n = 0;
  for (int32_t l = 0; l < pp->w.n_layers; ++l) n += pp->w.layers[l].n_inputs + pp->w.layers[l].n_outputs;
  return n;
}

void find_hops(struct pp* pp, struct hops* hops) {
  struct rewrite* w = &pp->w;
  const int64_t most = most_hops(pp);
  struct finder f = {.pp = pp,
                     .chains = rewrite_alloc(w, pp->n_values, sizeof *f.chains),
                     .found = rewrite_alloc(w, most, sizeof *f.found),
                     .following = rewrite_alloc(w, most, sizeof *f.following),
                     .contributes = rewrite_alloc(w, most, sizeof *f.contributes)};
  hops->of_stage = rewrite_alloc(w, pp->n_stages + 1, sizeof *hops->of_stage);
  if (!w->status) {
    for (int32_t v = 0; v < pp->n_values; ++v) f.chains[v] = (struct chain){-1, -1};
    for (int32_t l = 0; l < w->n_layers; ++l) visit_layer(&f, l);
    find_ways_back(&f);
    qsort(f.found, (size_t)f.n_found, sizeof *f.found, by_stage_and_value);
    for (int32_t h = 0; h < f.n_found; ++h) ++hops->of_stage[f.found[h].stage + 1];
    for (int32_t s = 0; s < pp->n_stages; ++s) hops->of_stage[s + 1] += hops->of_stage[s];
  }
  hops->all = f.found;
  free(f.chains);
  free(f.following);
  free(f.contributes);
}

void hops_free(struct hops* hops) {
  free(hops->all);
  free(hops->of_stage);
}
