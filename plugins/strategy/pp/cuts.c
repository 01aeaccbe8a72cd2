/* pp/cuts.c: chooses where to cut the layer list: by strategy.pipeline.cuts, or by partitioning costs; explains the
 * choice in notes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "costs.h"
#include "partition.h"

/* ---- configured cuts ---- */

static int32_t find_layer(const struct pp* pp, const char* name, size_t length) {
  for (int32_t l = 0; l < pp->w.n_layers; ++l)
    if (strlen(pp->w.layers[l].name) == length && !memcmp(pp->w.layers[l].name, name, length)) return l;
  return -1;
}

static void refuse_cut(struct pp* pp, const char* format, int32_t stage, const char* name, size_t length) {
  char quoted[128], why[384];
  snprintf(quoted, sizeof quoted, "%.*s", (int)(length > 100 ? 100 : length), name);
  snprintf(why, sizeof why, format, stage);
  rewrite_fail(&pp->w, GSEL_ERR_CONFIG, why, quoted);
}

static void take_cut(struct pp* pp, const unsigned char* may_begin, int32_t stage, const char* name, size_t length) {
  int32_t l = find_layer(pp, name, length);
  while (l > 0 && !may_begin[l] && pp->w.layers[l - 1].redistributes)
    --l; /* a redistribution stays with the layer that reads it */
  if (l < 0)
    refuse_cut(pp, "cuts: stage %d is to begin with layer \"%%s\", which there is not", stage, name, length);
  else if (l <= pp->begin[stage - 1])
    refuse_cut(pp, "cuts: stage %d is to begin with layer \"%%s\", which does not come after the one before it", stage,
               name, length);
  else if (!may_begin[l])
    refuse_cut(pp, "cuts: stage %d is to begin with layer \"%%s\", and after the layer before it no cut is allowed",
               stage, name, length);
  else
    pp->begin[stage] = l;
}

static void take_cuts(struct pp* pp, const unsigned char* may_begin, const char* text) {
  int32_t n = 1;
  for (const char* comma = text; (comma = strchr(comma, ',')); ++comma) ++n;
  if (n != pp->n_stages - 1) {
    char why[256];
    snprintf(why, sizeof why, "cuts = \"%%s\" names %d layers, and %d stages have %d cuts between them", n,
             pp->n_stages, pp->n_stages - 1);
    rewrite_fail(&pp->w, GSEL_ERR_CONFIG, why, text);
    return;
  }
  for (int32_t stage = 1; stage < pp->n_stages && !pp->w.status; ++stage) {
    text += strspn(text, " ");
    const size_t length = strcspn(text, ",");
    size_t trimmed = length;
    while (trimmed && text[trimmed - 1] == ' ') --trimmed;
    take_cut(pp, may_begin, stage, text, trimmed);
    text += length + (text[length] == ',');
  }
}

/* ---- notes about cuts ---- */

static void write_size(double bytes, char* out, size_t capacity) {
  static const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  snprintf(out, capacity, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void explain_stages(struct pp* pp, const struct partition* p, const struct measure* time,
                           const struct measure* memory) {
  double all = 0;
  for (int32_t s = 0; s < pp->n_stages; ++s) all += stage_amount(p, time, pp->begin, s);
  for (int32_t s = 0; s < pp->n_stages; ++s) {
    char size[32];
    write_size(stage_amount(p, memory, pp->begin, s), size, sizeof size);
    note(pp, "pp: stage %d on rank %d: %s to %s (%d layers), %.1f %% of the work, about %s", s, pp->rank_of_stage[s],
         pp->w.layers[pp->begin[s]].name, pp->w.layers[end_of_stage(pp, s) - 1].name,
         end_of_stage(pp, s) - pp->begin[s], all > 0 ? 100 * stage_amount(p, time, pp->begin, s) / all : 0, size);
  }
}

/* The busiest rank's share after moving a cut by one layer; 0 if it may not move there. */
static double share_when_moved(struct pp* pp, const struct partition* p, const struct measure* m, int32_t cut,
                               int32_t step) {
  const int32_t old = pp->begin[cut];
  int32_t l = old + step;
  while (l > pp->begin[cut - 1] && l < end_of_stage(pp, cut) && !p->may_begin[l]) l += step;
  if (l <= pp->begin[cut - 1] || l >= end_of_stage(pp, cut)) return 0;
  pp->begin[cut] = l;
  const double share = largest_share(p, m, pp->begin);
  pp->begin[cut] = old;
  return share;
}

static void explain_cuts(struct pp* pp, const struct partition* p) {
  for (int32_t s = 1; s < pp->n_stages; ++s) {
    const double earlier = share_when_moved(pp, p, &p->first, s, -1), later = share_when_moved(pp, p, &p->first, s, 1);
    char text[2][64] = {"no earlier one", "no later one"};
    if (earlier > 0) snprintf(text[0], sizeof text[0], "%.1f %% one earlier", 100 * earlier);
    if (later > 0) snprintf(text[1], sizeof text[1], "%.1f %% one later", 100 * later);
    note(pp, "pp: cut before %s: the largest rank would have %s, %s", pp->w.layers[pp->begin[s]].name, text[0],
         text[1]);
  }
}

static void explain_fused(struct pp* pp) {
  int32_t n = 0, first = -1;
  int splits = 0;
  for (int32_t i = 0; i < pp->w.api->schedule_length(pp->schedule, 0) && !splits; ++i)
    splits = action_of(pp, 0, i).kind == GSEL_BACKWARD_INPUT;
  for (int32_t l = pp->w.n_layers - 1; l >= 0 && splits; --l) {
    const uint32_t b = pp->w.layers[l].backward;
    if (!(b & GSEL_BACKWARD_PRODUCES_WEIGHT) || b & GSEL_BACKWARD_IN_HALVES) continue;
    ++n;
    first = l;
  }
  if (n > 0)
    note(
        pp,
        "pp: layers whose backward is in one piece run it whole where its first half is due: %d of %d, the first is %s",
        n, pp->w.n_layers, pp->w.layers[first].name);
}

/* ---- choice ---- */

static void cut(struct pp* pp, const struct partition* p) {
  const char* given = pp->w.api->option_text(pp->w.pass, "cuts");
  if (given[0]) {
    take_cuts(pp, p->may_begin, given);
    return;
  }
  const int status = partition_layers(p, pp->begin);
  if (status == PARTITION_NO_MEMORY) rewrite_fail(&pp->w, GSEL_ERR_NOMEM, NULL, NULL);
}

static void check_count(struct pp* pp, const struct partition* p) {
  const int32_t most = most_stages(p), chunks = pp->n_stages / pp->n_ranks;
  char why[384];
  if (pp->n_stages <= most) return;
  snprintf(why, sizeof why,
           "%d stages were asked for (%d on each of %d ranks), and the model's %d layers can be cut into %d at "
           "most%%s; set mesh.pipeline = %d",
           pp->n_stages, chunks, pp->n_ranks, pp->w.n_layers, most, most / chunks > 1 ? most / chunks : 1);
  rewrite_fail(&pp->w, GSEL_ERR_CONFIG, why, most < pp->w.n_layers ? ", since some allow no cut after them" : "");
}

/* If weights differ between ranks, shares are reported as if all ranks had the mean weight. */
static void explain_weights(struct pp* pp, const struct partition* p) {
  char text[256] = "";
  int differ = 0;
  for (int32_t rank = 0; rank < pp->n_ranks; ++rank) {
    const double weight = pp->w.api->axis_weight(pp->w.pass, GSEL_AXIS_PIPELINE, rank);
    const size_t length = strlen(text);
    snprintf(text + length, sizeof text - length, "%s%g", rank ? ", " : "", weight);
    differ |= weight != p->weight[0];
  }
  if (differ) note(pp, "pp: ranks weigh %s, and shares count divided by that", text);
}

static void explain(struct pp* pp, const struct partition* p, const struct costs* c, const struct measure* time,
                    const struct measure* memory) {
  const int manual = pp->w.api->option_text(pp->w.pass, "cuts")[0] != 0;
  if (manual)
    note(pp, "pp: %d stages on %d ranks, cut as strategy.pipeline.cuts says; work is told by %s", pp->n_stages,
         pp->n_ranks, c->known);
  else
    note(pp, "pp: %d stages on %d ranks, cut by %s; the largest rank has %.1f %% of the %s, an even share is %.1f %%",
         pp->n_stages, pp->n_ranks, p->first.fixed == memory->fixed ? "memory" : c->known,
         100 * largest_share(p, &p->first, pp->begin), p->first.fixed == memory->fixed ? "bytes" : "work",
         100.0 / pp->n_ranks);
  explain_weights(pp, p);
  explain_stages(pp, p, time, memory);
  if (!manual) explain_cuts(pp, p);
  explain_fused(pp);
}

void choose_cuts(struct pp* pp) {
  static const char* const balances[] = {"time", "memory"};
  struct rewrite* w = &pp->w;
  struct costs c = {0};
  unsigned char* may_begin = rewrite_alloc(w, w->n_layers, 1);
  double* weight = rewrite_alloc(w, pp->n_stages, sizeof *weight);
  const int by_memory = rewrite_word(w, "balance", balances, 2);
  if (!w->status) find_costs(pp, &c);
  if (!w->status) {
    for (int32_t s = 0; s < pp->n_stages; ++s)
      weight[s] = w->api->axis_weight(w->pass, GSEL_AXIS_PIPELINE, pp->rank_of_stage[s]);
    may_begin[0] = 1;
    for (int32_t l = 1; l < w->n_layers; ++l) may_begin[l] = !(w->layers[l - 1].flags & GSEL_LAYER_NO_CUT_AFTER);
    const struct measure time = {c.time, NULL, NULL}, memory = {c.kept, c.live, c.held};
    const struct partition p = {w->n_layers,
                                pp->n_stages,
                                pp->n_ranks,
                                pp->rank_of_stage,
                                may_begin,
                                by_memory ? memory : time,
                                by_memory ? time : memory,
                                weight};
    check_count(pp, &p);
    if (!w->status) cut(pp, &p);
    for (int32_t s = 0; s < pp->n_stages && !w->status; ++s)
      for (int32_t l = pp->begin[s]; l < end_of_stage(pp, s); ++l) pp->stage_of_layer[l] = s;
    if (!w->status) explain(pp, &p, &c, &time, &memory);
  }
  free_costs(&c);
  free(may_begin);
  free(weight);
}
