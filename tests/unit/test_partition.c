/* The partition of layers into stages against all that there are: the least largest load where each rank has one stage,
 * and never worse than a bound where it has several; cuts only where they are allowed. The plugin's files are
 * compiled in, for they link to nothing. */
#include "../plugins/strategy/pp/partition.c"
#include "../plugins/strategy/pp/ranks.c"
#include "support/check.h"

enum { MOST_LAYERS = 10, MOST_STAGES = 6 };

struct problem {
  double time[MOST_LAYERS], kept[MOST_LAYERS], live[MOST_LAYERS], held[MOST_STAGES], weight[MOST_STAGES];
  unsigned char may_begin[MOST_LAYERS];
  int32_t rank_of_stage[MOST_STAGES];
  struct partition p;
};

static uint32_t draw_state = 1;
static int32_t draw(int32_t below) {
  draw_state = draw_state * 1664525u + 1013904223u;
  return (int32_t)((draw_state >> 8) % (uint32_t)below);
}

/* Several chunks are laid on the ranks in turn or as a V. */
static void draw_problem(struct problem* q, int32_t n_ranks, int32_t chunks) {
  const int32_t n_stages = n_ranks * chunks, n_layers = n_stages + draw(MOST_LAYERS - n_stages + 1), v = draw(2);
  double weight[MOST_STAGES];
  for (int32_t rank = 0; rank < n_ranks; ++rank) weight[rank] = 1 + draw(3);
  const int weighs = draw(2);
  memset(q, 0, sizeof *q);
  for (int32_t l = 0; l < n_layers; ++l) {
    q->time[l] = draw(20);
    q->kept[l] = draw(20);
    q->live[l] = draw(5);
    q->may_begin[l] = l == 0 || draw(5) > 0;
  }
  for (int32_t s = 0; s < n_stages; ++s) {
    q->held[s] = 1 + draw(4);
    q->rank_of_stage[s] = v && s / n_ranks % 2 ? n_ranks - 1 - s % n_ranks : s % n_ranks;
    q->weight[s] = weight[q->rank_of_stage[s]];
  }
  q->p = (struct partition){n_layers,
                            n_stages,
                            n_ranks,
                            q->rank_of_stage,
                            q->may_begin,
                            {q->time, NULL, NULL},
                            {q->kept, q->live, q->held},
                            weighs ? q->weight : NULL};
}

static double largest_load(const struct partition* p, const struct measure* m, const int32_t* begin) {
  double load[MOST_STAGES] = {0}, largest = 0;
  for (int32_t s = 0; s < p->n_stages; ++s) {
    double* mine = &load[p->rank_of_stage[s]];
    *mine += stage_amount(p, m, begin, s) / (p->weight ? p->weight[s] : 1);
    if (*mine > largest) largest = *mine;
  }
  return largest;
}

/* The best of all partitions: the least largest load, and of those with it the least of the second measure. */
static void best_of_all(const struct partition* p, int32_t* begin, int32_t stage, double* first, double* second) {
  if (stage == p->n_stages) {
    const double f = largest_load(p, &p->first, begin), s = largest_load(p, &p->second, begin);
    if (f < *first || (f == *first && s < *second)) {
      *first = f;
      *second = s;
    }
    return;
  }
  for (int32_t l = begin[stage - 1] + 1; l < p->n_layers; ++l) {
    if (!p->may_begin[l]) continue;
    begin[stage] = l;
    best_of_all(p, begin, stage + 1, first, second);
  }
}

static void check_allowed(const struct partition* p, const int32_t* begin) {
  assert_int_equal(begin[0], 0);
  for (int32_t s = 1; s < p->n_stages; ++s) {
    assert_true(begin[s] > begin[s - 1] && begin[s] < p->n_layers);
    assert_true(p->may_begin[begin[s]]);
  }
}

static void one_stage_for_each_rank_is_cut_as_evenly_as_can_be(void** state) {
  (void)state;
  int solved = 0;
  for (int round = 0; round < 3000; ++round) {
    struct problem q;
    int32_t begin[MOST_STAGES], other[MOST_STAGES] = {0};
    double first = DBL_MAX, second = DBL_MAX;
    draw_problem(&q, 1 + draw(5), 1);
    best_of_all(&q.p, other, 1, &first, &second);
    const int status = partition_layers(&q.p, begin);
    assert_int_equal(status, first == DBL_MAX ? PARTITION_IMPOSSIBLE : PARTITION_OK);
    if (status) continue;
    check_allowed(&q.p, begin);
    assert_float_equal(largest_load(&q.p, &q.p.first, begin), first, 1e-6);
    assert_float_equal(largest_load(&q.p, &q.p.second, begin), second, 1e-6);
    ++solved;
  }
  assert_true(solved > 2000);
}

static void several_stages_for_each_rank_are_cut_so_that_ranks_are_even(void** state) {
  (void)state;
  int solved = 0;
  for (int round = 0; round < 3000; ++round) {
    struct problem q;
    int32_t begin[MOST_STAGES], other[MOST_STAGES] = {0};
    double first = DBL_MAX, second = DBL_MAX;
    draw_problem(&q, 1 + draw(3), 2);
    best_of_all(&q.p, other, 1, &first, &second);
    if (partition_layers(&q.p, begin)) continue;
    check_allowed(&q.p, begin);
    assert_float_equal(largest_load(&q.p, &q.p.first, begin), first, 1e-6);
    ++solved;
  }
  assert_true(solved > 2000);
}

/* Too many ways to look at all: what is found is near an even share all the same. */
static void many_stages_for_each_rank_come_near_to_it(void** state) {
  (void)state;
  enum { LAYERS = 300, RANKS = 8, STAGES = 32 };
  static double time[LAYERS], none[LAYERS];
  static unsigned char may_begin[LAYERS];
  int32_t rank_of_stage[STAGES], begin[STAGES];
  for (int l = 0; l < LAYERS; ++l) time[l] = 1 + draw(9), may_begin[l] = 1;
  for (int s = 0; s < STAGES; ++s) rank_of_stage[s] = s % RANKS;
  const struct partition p = {LAYERS, STAGES, RANKS, rank_of_stage, may_begin, {time, NULL, NULL}, {none, NULL, NULL},
                              NULL};
  assert_int_equal(partition_layers(&p, begin), PARTITION_OK);
  check_allowed(&p, begin);
  assert_true(largest_share(&p, &p.first, begin) < 1.03 / RANKS);
}

static void equal_layers_are_cut_in_equal_stages(void** state) {
  (void)state;
  enum { LAYERS = 1000, STAGES = 64 };
  static double ones[LAYERS], none[LAYERS];
  static unsigned char may_begin[LAYERS];
  int32_t rank_of_stage[STAGES], begin[STAGES];
  for (int l = 0; l < LAYERS; ++l) ones[l] = may_begin[l] = 1;
  for (int s = 0; s < STAGES; ++s) rank_of_stage[s] = s;
  const struct partition p = {LAYERS, STAGES, STAGES, rank_of_stage, may_begin, {ones, NULL, NULL}, {none, NULL, NULL},
                              NULL};
  assert_int_equal(partition_layers(&p, begin), PARTITION_OK);
  for (int s = 0; s < STAGES; ++s) {
    const int size = (s + 1 < STAGES ? begin[s + 1] : LAYERS) - begin[s];
    assert_in_range(size, LAYERS / STAGES, LAYERS / STAGES + 1);
  }
}

static void a_rank_that_weighs_more_gets_more_of_the_work(void** state) {
  (void)state;
  enum { LAYERS = 12 };
  double ones[LAYERS];
  unsigned char may_begin[LAYERS];
  const int32_t rank_of_stage[] = {0, 1, 2};
  const double weight[] = {1, 3, 2};
  int32_t begin[3];
  for (int l = 0; l < LAYERS; ++l) ones[l] = may_begin[l] = 1;
  const struct partition p = {LAYERS, 3, 3, rank_of_stage, may_begin, {ones, NULL, NULL}, {ones, NULL, NULL}, weight};
  assert_int_equal(partition_layers(&p, begin), PARTITION_OK);
  assert_int_equal(begin[1], 2);
  assert_int_equal(begin[2], 8);
  assert_float_equal(largest_share(&p, &p.first, begin), 1.0 / 3, 1e-12);
}

/* The layers of a Llama of 8 billion parameters on two ranks of two stages each: loads of ranks can be made equal to
 * the last norm by stages of unlike lengths, for which a schedule then waits. */
static void stages_of_a_rank_are_even_where_ranks_nearly_are(void** state) {
  (void)state;
  enum { OF_BLOCK = 9, BLOCKS = 32, N = OF_BLOCK * BLOCKS + 1 };
  static const double block[OF_BLOCK] = {0.1, 50.3, 25.2, 67.1, 50.3, 0.1, 352.3, 0.2, 176.2};
  static double time[N], kept[N];
  static unsigned char may_begin[N];
  double all = 0;
  for (int32_t l = 0; l < N; ++l) {
    all += time[l] = l + 1 < N ? block[l % OF_BLOCK] : 1576; /* the head */
    kept[l] = time[l];
    may_begin[l] = 1;
  }
  const int32_t rank_of_stage[] = {0, 1, 0, 1};
  int32_t begin[4];
  const struct partition p = {N, 4, 2, rank_of_stage, may_begin, {time, NULL, NULL}, {kept, NULL, NULL}, NULL};
  assert_int_equal(partition_layers(&p, begin), PARTITION_OK);
  assert_true(largest_share(&p, &p.first, begin) < 0.51);
  for (int32_t s = 0; s < 4; ++s)
    if (stage_amount(&p, &p.first, begin, s) > 0.27 * all)
      fail_msg("stage %d has %.3f of the work", (int)s, stage_amount(&p, &p.first, begin, s) / all);
}

static void more_stages_than_there_are_cuts_for_are_impossible(void** state) {
  (void)state;
  const double ones[] = {1, 1, 1, 1};
  const unsigned char may_begin[] = {1, 1, 0, 1};
  const int32_t rank_of_stage[] = {0, 1, 2, 3};
  int32_t begin[4];
  struct partition p = {4, 4, 4, rank_of_stage, may_begin, {ones, NULL, NULL}, {ones, NULL, NULL}, NULL};
  assert_int_equal(most_stages(&p), 3);
  assert_int_equal(partition_layers(&p, begin), PARTITION_IMPOSSIBLE);
  p.n_stages = p.n_ranks = 3;
  assert_int_equal(partition_layers(&p, begin), PARTITION_OK);
  assert_int_equal(begin[1], 1);
  assert_int_equal(begin[2], 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_stage_for_each_rank_is_cut_as_evenly_as_can_be),
      cmocka_unit_test(several_stages_for_each_rank_are_cut_so_that_ranks_are_even),
      cmocka_unit_test(many_stages_for_each_rank_come_near_to_it),
      cmocka_unit_test(equal_layers_are_cut_in_equal_stages),
      cmocka_unit_test(a_rank_that_weighs_more_gets_more_of_the_work),
      cmocka_unit_test(stages_of_a_rank_are_even_where_ranks_nearly_are),
      cmocka_unit_test(more_stages_than_there_are_cuts_for_are_impossible),
  };
  return cmocka_run_group_tests_name("partition", tests, NULL, NULL);
}
