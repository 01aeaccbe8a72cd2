/* pp/ranks.c: see search.h. The better of two partitions has the smaller largest rank, then the smaller largest stage,
 * then the smaller second measure of the largest rank, then is more even. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "search.h"

struct score {
  double rank_first, stage_first, rank_second, squares;
};

/* Loads of ranks closer than this count as equal: then shorter stages matter more for a schedule. */
static const double kAsGood = 0.01;

static struct score score_of(const struct search* q, const int32_t* begin) {
  const struct partition* p = q->p;
  struct score score = {0, 0, 0, 0};
  double all = 0;
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
    all += first[rank];
  }
  const double step = kAsGood * all / p->n_ranks;
  if (step > 0 && p->n_stages > p->n_ranks) score.rank_first = ceil(score.rank_first / step - kSlack) * step;
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

/* The next possible position of a cut in one direction; its own if its neighbours leave none. */
static int32_t neighbour(const struct partition* p, const int32_t* begin, int32_t cut, int32_t step) {
  for (int32_t l = begin[cut] + step; l > begin[cut - 1] && l < end_of(p, begin, cut); l += step)
    if (p->may_begin[l]) return l;
  return begin[cut];
}

/* Tries each cut at every position between its neighbours. */
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

/* Tries pairs of cuts, each moved to its next position. */
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

/* ---- exhaustive search within a budget ---- */

enum { MOST_VISITS = 50000 };

struct walk {
  const struct search* q;
  struct score score; /* of best */
  int32_t* best;      /* [n_stages] */
  int32_t* begin;     /* [n_stages] of the current partition */
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

int share_among_ranks(const struct search* q, int32_t* begin) {
  move_cuts(q, begin);
  return look_at_all(q, begin);
}
