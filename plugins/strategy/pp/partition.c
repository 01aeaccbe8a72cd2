/* pp/partition.c: see partition.h. Dynamic programming over (stages so far, layers so far): minimises the bottleneck,
 * then, within it, the bottleneck of the second measure, then, within both, the unevenness. Ranks with several stages
 * start from the result (ranks.c). */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "search.h"

/* ---- amounts ---- */

static int make_sums(const struct measure* m, int32_t n_layers, struct sums* s) {
  s->fixed = calloc((size_t)n_layers + 1, sizeof *s->fixed);
  s->scaled = calloc((size_t)n_layers + 1, sizeof *s->scaled);
  if (!s->fixed || !s->scaled) return PARTITION_NO_MEMORY;
  for (int32_t l = 0; l < n_layers; ++l) {
    s->fixed[l + 1] = s->fixed[l] + m->fixed[l];
    s->scaled[l + 1] = s->scaled[l] + (m->factor ? m->scaled[l] : 0);
  }
  return PARTITION_OK;
}

double stage_amount(const struct partition* p, const struct measure* m, const int32_t* begin, int32_t stage) {
  double result = 0;
  for (int32_t l = begin[stage]; l < end_of(p, begin, stage); ++l)
    result += m->fixed[l] + (m->factor ? m->factor[stage] * m->scaled[l] : 0);
  return result;
}

double largest_share(const struct partition* p, const struct measure* m, const int32_t* begin) {
  double largest = 0, total = 0, weights = 0;
  for (int32_t rank = 0; rank < p->n_ranks; ++rank) {
    double sum = 0, weight = 1;
    for (int32_t s = 0; s < p->n_stages; ++s)
      if (p->rank_of_stage[s] == rank) {
        sum += stage_amount(p, m, begin, s);
        weight = weight_of(p, s);
      }
    largest = fmax(largest, sum / weight);
    total += sum;
    weights += weight;
  }
  return total > 0 ? largest / total * (weights / p->n_ranks) : 0;
}

int32_t most_stages(const struct partition* p) {
  int32_t n = p->n_layers > 0;
  for (int32_t l = 1; l < p->n_layers; ++l) n += p->may_begin[l];
  return n;
}

/* ---- the least bottleneck ---- */

enum goal { LEAST_FIRST, LEAST_SECOND, LEAST_SQUARES };

struct limits {
  double first, second; /* per stage */
};

/* DBL_MAX if it exceeds a limit. More layers never cost less. */
static double cost(const struct search* q, enum goal goal, const struct limits* limits, int32_t s, int32_t begin,
                   int32_t end) {
  const double first = amount(q->p, &q->p->first, &q->first, s, begin, end);
  const double second = amount(q->p, &q->p->second, &q->second, s, begin, end);
  if (first > limits->first || second > limits->second) return DBL_MAX;
  return goal == LEAST_FIRST ? first : goal == LEAST_SECOND ? second : first * first;
}

/* The earliest and latest positions at which stages can begin within the limits, ignoring may_begin. Limits near the
 * minimum leave few positions. 0: no solution. */
static int find_windows(struct search* q, const struct limits* limits) {
  const int32_t n = q->p->n_stages, n_layers = q->p->n_layers;
  int32_t l = 0;
  for (int32_t s = 0; s <= n; ++s) {
    q->latest[s] = l;
    while (s < n && l < n_layers - (n - 1 - s) && cost(q, LEAST_FIRST, limits, s, q->latest[s], l + 1) < DBL_MAX) ++l;
  }
  l = n_layers;
  for (int32_t s = n; s >= 0; --s) {
    q->earliest[s] = l;
    while (s > 0 && l > s - 1 && cost(q, LEAST_FIRST, limits, s - 1, l - 1, q->earliest[s]) < DBL_MAX) --l;
  }
  return q->latest[n] == n_layers && q->earliest[0] == 0;
}

static void extend(struct search* q, enum goal goal, const struct limits* limits, int32_t s, int32_t end) {
  const int32_t width = q->p->n_layers + 1;
  double* best = &q->best[(s + 1) * (int64_t)width + end];
  *best = DBL_MAX;
  for (int32_t begin = end <= q->latest[s] ? end - 1 : q->latest[s]; begin >= q->earliest[s]; --begin) {
    const double before = q->best[s * (int64_t)width + begin];
    if (before == DBL_MAX || (begin > 0 && !q->p->may_begin[begin])) continue;
    const double own = cost(q, goal, limits, s, begin, end);
    if (own >= *best) break;
    const double both = goal == LEAST_SQUARES ? before + own : fmax(before, own);
    if (both >= *best) continue;
    *best = both;
    q->from[(s + 1) * (int64_t)width + end] = begin;
  }
}

/* DBL_MAX if there is no solution. */
static double solve(struct search* q, enum goal goal, const struct limits* limits, int32_t* begin) {
  const int32_t width = q->p->n_layers + 1, n = q->p->n_stages;
  if (!find_windows(q, limits)) return DBL_MAX;
  q->best[0] = 0;
  for (int32_t s = 0; s < n; ++s)
    for (int32_t end = q->earliest[s + 1]; end <= q->latest[s + 1]; ++end) extend(q, goal, limits, s, end);
  const double result = q->best[n * (int64_t)width + width - 1];
  if (result == DBL_MAX) return result;
  for (int32_t s = n - 1, end = width - 1; s >= 0; --s) end = begin[s] = q->from[(s + 1) * (int64_t)width + end];
  return result;
}

/* Cuts as soon as the ranks so far have their weighted part of the first measure: an upper bound. */
static double cut_evenly(const struct search* q, int32_t* begin) {
  const struct partition* p = q->p;
  int32_t left = most_stages(p) - 1, s = 0; /* possible cuts */
  double weights = 0, largest = 0;
  for (int32_t i = 0; i < p->n_stages; ++i) weights += weight_of(p, i);
  double due = weight_of(p, 0);
  begin[0] = 0;
  for (int32_t l = 1; l < p->n_layers && s + 1 < p->n_stages; ++l) {
    if (!p->may_begin[l]) continue;
    if (q->first.fixed[l] * weights >= q->first.fixed[p->n_layers] * due || left == p->n_stages - 1 - s) {
      begin[++s] = l;
      due += weight_of(p, s);
    }
    --left;
  }
  for (int32_t i = 0; i < p->n_stages; ++i)
    largest = fmax(largest, amount(p, &p->first, &q->first, i, begin[i], end_of(p, begin, i)));
  return largest;
}

/* ---- entry points ---- */

static int prepare(struct search* q) {
  const size_t cells = ((size_t)q->p->n_stages + 1) * ((size_t)q->p->n_layers + 1);
  q->best = calloc(cells, sizeof *q->best);
  q->from = calloc(cells, sizeof *q->from);
  q->earliest = calloc((size_t)q->p->n_stages + 1, sizeof *q->earliest);
  q->latest = calloc((size_t)q->p->n_stages + 1, sizeof *q->latest);
  q->load = calloc(2 * (size_t)q->p->n_ranks + 1, sizeof *q->load);
  if (make_sums(&q->p->first, q->p->n_layers, &q->first) || make_sums(&q->p->second, q->p->n_layers, &q->second))
    return PARTITION_NO_MEMORY;
  return q->best && q->from && q->earliest && q->latest && q->load ? PARTITION_OK : PARTITION_NO_MEMORY;
}

static void release(struct search* q) {
  free(q->best);
  free(q->from);
  free(q->earliest);
  free(q->latest);
  free(q->load);
  free(q->first.fixed);
  free(q->first.scaled);
  free(q->second.fixed);
  free(q->second.scaled);
}

int partition_layers(const struct partition* p, int32_t* begin) {
  if (p->n_stages < 1 || most_stages(p) < p->n_stages) return PARTITION_IMPOSSIBLE;
  struct search q = {.p = p};
  int status = prepare(&q);
  if (status == PARTITION_OK) {
    struct limits limits = {cut_evenly(&q, begin) * (1 + kSlack), DBL_MAX / 2};
    limits.first = solve(&q, LEAST_FIRST, &limits, begin) * (1 + kSlack);
    limits.second = solve(&q, LEAST_SECOND, &limits, begin) * (1 + kSlack);
    solve(&q, LEAST_SQUARES, &limits, begin);
    if (p->n_stages > p->n_ranks) {
      status = share_among_ranks(&q, begin);
    }
  }
  release(&q);
  return status;
}
