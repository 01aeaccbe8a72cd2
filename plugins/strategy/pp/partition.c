/* pp/partition.c: see partition.h. Dynamic programming over (stages so far, layers so far): first the least bottleneck,
 * then, within it, the least bottleneck of the second measure, then the most even one within both. Where a rank has
 * several stages its sum counts, which depends on all cuts at once: from there cuts are moved while that betters it,
 * and then all ways are looked at that could be better still, as far as patience goes. */
#include "partition.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sums of doubles in another order differ in their last bits. */
static const double kSlack = 1e-9;

/* Sums of a measure over layers before i. */
struct sums {
  double *fixed, *scaled;
};

struct search {
  const struct partition* p;
  struct sums first, second;
  double* best;  /* [n_stages + 1][n_layers + 1] */
  int32_t* from; /* the same: where the last stage begins */
  double* load;  /* [2][n_ranks] */
};

struct score {
  double rank_first, stage_first, rank_second, squares;
};

/* ---- amounts ---- */

static double weight_of(const struct partition* p, int32_t stage) {
  return p->weight ? p->weight[stage] : 1;
}

static double amount(const struct partition* p, const struct measure* m, const struct sums* s, int32_t stage,
                     int32_t begin, int32_t end) {
  const double fixed = s->fixed[end] - s->fixed[begin];
  return (m->factor ? fixed + m->factor[stage] * (s->scaled[end] - s->scaled[begin]) : fixed) / weight_of(p, stage);
}

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

static int32_t end_of(const struct partition* p, const int32_t* begin, int32_t stage) {
  return stage + 1 < p->n_stages ? begin[stage + 1] : p->n_layers;
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
  double first, second; /* of a stage */
};

/* A stage's cost under a goal; DBL_MAX where it breaks a limit. A longer stage never costs less. */
static double cost(const struct search* q, enum goal goal, const struct limits* limits, int32_t s, int32_t begin,
                   int32_t end) {
  const double first = amount(q->p, &q->p->first, &q->first, s, begin, end);
  const double second = amount(q->p, &q->p->second, &q->second, s, begin, end);
  if (first > limits->first || second > limits->second) return DBL_MAX;
  return goal == LEAST_FIRST ? first : goal == LEAST_SECOND ? second : first * first;
}

static void extend(struct search* q, enum goal goal, const struct limits* limits, int32_t s, int32_t end) {
  const int32_t width = q->p->n_layers + 1;
  double* best = &q->best[(s + 1) * (int64_t)width + end];
  *best = DBL_MAX;
  for (int32_t begin = end - 1; begin >= s; --begin) {
    const double own = cost(q, goal, limits, s, begin, end);
    if (own >= *best) break;
    const double before = q->best[s * (int64_t)width + begin];
    if (before == DBL_MAX || (begin > 0 && !q->p->may_begin[begin])) continue;
    const double both = goal == LEAST_SQUARES ? before + own : fmax(before, own);
    if (both >= *best) continue;
    *best = both;
    q->from[(s + 1) * (int64_t)width + end] = begin;
  }
}

/* DBL_MAX where there is no way. */
static double solve(struct search* q, enum goal goal, const struct limits* limits, int32_t* begin) {
  const int32_t width = q->p->n_layers + 1, n = q->p->n_stages;
  for (int32_t l = 0; l < width; ++l) q->best[l] = l ? DBL_MAX : 0;
  for (int32_t s = 0; s < n; ++s) {
    for (int32_t l = 0; l < width; ++l) q->best[(s + 1) * (int64_t)width + l] = DBL_MAX;
    for (int32_t end = s + 1; end < width; ++end) extend(q, goal, limits, s, end);
  }
  const double result = q->best[n * (int64_t)width + width - 1];
  if (result == DBL_MAX) return result;
  for (int32_t s = n - 1, end = width - 1; s >= 0; --s) end = begin[s] = q->from[(s + 1) * (int64_t)width + end];
  return result;
}

/* ---- ranks with several stages ---- */

static struct score score_of(const struct search* q, const int32_t* begin) {
  const struct partition* p = q->p;
  struct score score = {0, 0, 0, 0};
  double *first = q->load, *second = q->load + p->n_ranks;
  for (int32_t rank = 0; rank < 2 * p->n_ranks; ++rank) q->load[rank] = 0;
  for (int32_t s = 0; s < p->n_stages; ++s) {
    const double own = amount(p, &p->first, &q->first, s, begin[s], end_of(p, begin, s));
    first[p->rank_of_stage[s]] += own;
    second[p->rank_of_stage[s]] += amount(p, &p->second, &q->second, s, begin[s], end_of(p, begin, s));
    score.stage_first = fmax(score.stage_first, own);
    score.squares += own * own;
  }
  for (int32_t rank = 0; rank < p->n_ranks; ++rank) {
    score.rank_first = fmax(score.rank_first, first[rank]);
    score.rank_second = fmax(score.rank_second, second[rank]);
  }
  return score;
}

static int clearly_less(double a, double b) {
  return a < b - kSlack * fabs(b);
}

static int is_better(const struct score* a, const struct score* b) {
  if (clearly_less(a->rank_first, b->rank_first)) return 1;
  if (clearly_less(b->rank_first, a->rank_first)) return 0;
  if (clearly_less(a->stage_first, b->stage_first)) return 1;
  if (clearly_less(b->stage_first, a->stage_first)) return 0;
  if (clearly_less(a->rank_second, b->rank_second)) return 1;
  if (clearly_less(b->rank_second, a->rank_second)) return 0;
  return clearly_less(a->squares, b->squares);
}

static int take_if_better(const struct search* q, const int32_t* begin, struct score* score) {
  const struct score now = score_of(q, begin);
  if (!is_better(&now, score)) return 0;
  *score = now;
  return 1;
}

/* The next position for a cut on one side; itself where there is none between its neighbours. */
static int32_t neighbour(const struct partition* p, const int32_t* begin, int32_t cut, int32_t step) {
  for (int32_t l = begin[cut] + step; l > begin[cut - 1] && l < end_of(p, begin, cut); l += step)
    if (p->may_begin[l]) return l;
  return begin[cut];
}

/* Each cut to every position between its neighbours. */
static int move_one(const struct search* q, int32_t* begin, struct score* score) {
  int moved = 0;
  for (int32_t cut = 1; cut < q->p->n_stages; ++cut) {
    int32_t kept = begin[cut];
    for (int32_t l = begin[cut - 1] + 1; l < end_of(q->p, begin, cut); ++l) {
      if (!q->p->may_begin[l]) continue;
      begin[cut] = l;
      if (!take_if_better(q, begin, score)) continue;
      kept = l;
      moved = 1;
    }
    begin[cut] = kept;
  }
  return moved;
}

/* Two cuts by one layer each. */
static int move_two(const struct search* q, int32_t* begin, struct score* score) {
  for (int32_t a = 1; a < q->p->n_stages; ++a)
    for (int32_t b = a + 1; b < q->p->n_stages; ++b)
      for (int32_t way = 0; way < 4; ++way) {
        const int32_t old_a = begin[a], old_b = begin[b];
        begin[b] = neighbour(q->p, begin, b, way & 1 ? 1 : -1);
        begin[a] = neighbour(q->p, begin, a, way & 2 ? 1 : -1);
        if (take_if_better(q, begin, score)) return 1;
        begin[a] = old_a;
        begin[b] = old_b;
      }
  return 0;
}

static void move_cuts(const struct search* q, int32_t* begin) {
  enum { MOST_ROUNDS = 1000, MOST_STAGES_IN_PAIRS = 64 };
  struct score score = score_of(q, begin);
  for (int round = 0; round < MOST_ROUNDS; ++round)
    if (!move_one(q, begin, &score) && !(q->p->n_stages <= MOST_STAGES_IN_PAIRS && move_two(q, begin, &score))) return;
}

/* ---- all ways, within a budget ---- */

enum { MOST_VISITS = 50000 };

struct walk {
  const struct search* q;
  struct score score; /* of best */
  int32_t* best;      /* [n_stages] */
  int32_t* begin;     /* [n_stages] of the way that is looked at */
  double* load;       /* [n_ranks] of its stages so far */
  int32_t visits;
};

// NOLINTNEXTLINE(misc-no-recursion): as deep as there are stages
static void visit(struct walk* walk, int32_t stage) {
  const struct partition* p = walk->q->p;
  const int32_t last = stage + 1 == p->n_stages, first = walk->begin[stage];
  double* load = &walk->load[p->rank_of_stage[stage]];
  const double before = *load;
  for (int32_t end = last ? p->n_layers : first + 1; end <= p->n_layers && walk->visits < MOST_VISITS; ++end) {
    if (end < p->n_layers && !p->may_begin[end]) continue;
    ++walk->visits;
    *load = before + amount(p, &p->first, &walk->q->first, stage, first, end);
    if (clearly_less(walk->score.rank_first, *load)) break;
    if (last) {
      if (take_if_better(walk->q, walk->begin, &walk->score))
        memcpy(walk->best, walk->begin, sizeof *walk->best * (size_t)p->n_stages);
    } else if (end < p->n_layers) {
      walk->begin[stage + 1] = end;
      visit(walk, stage + 1);
    }
  }
  *load = before;
}

static int look_at_all(const struct search* q, int32_t* begin) {
  struct walk walk = {.q = q, .score = score_of(q, begin), .best = begin};
  walk.begin = calloc((size_t)q->p->n_stages, sizeof *walk.begin);
  walk.load = calloc((size_t)q->p->n_ranks, sizeof *walk.load);
  const int status = walk.begin && walk.load ? PARTITION_OK : PARTITION_NO_MEMORY;
  if (status == PARTITION_OK) visit(&walk, 0);
  free(walk.begin);
  free(walk.load);
  return status;
}

/* ---- all of it ---- */

static int prepare(struct search* q) {
  const size_t cells = ((size_t)q->p->n_stages + 1) * ((size_t)q->p->n_layers + 1);
  q->best = calloc(cells, sizeof *q->best);
  q->from = calloc(cells, sizeof *q->from);
  q->load = calloc(2 * (size_t)q->p->n_ranks + 1, sizeof *q->load);
  if (make_sums(&q->p->first, q->p->n_layers, &q->first) || make_sums(&q->p->second, q->p->n_layers, &q->second))
    return PARTITION_NO_MEMORY;
  return q->best && q->from && q->load ? PARTITION_OK : PARTITION_NO_MEMORY;
}

static void release(struct search* q) {
  free(q->best);
  free(q->from);
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
    struct limits limits = {DBL_MAX / 2, DBL_MAX / 2};
    limits.first = solve(&q, LEAST_FIRST, &limits, begin) * (1 + kSlack);
    limits.second = solve(&q, LEAST_SECOND, &limits, begin) * (1 + kSlack);
    solve(&q, LEAST_SQUARES, &limits, begin);
    if (p->n_stages > p->n_ranks) {
      move_cuts(&q, begin);
      status = look_at_all(&q, begin);
    }
  }
  release(&q);
  return status;
}
