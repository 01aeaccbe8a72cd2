/* test_gpt_kernels.c: the GPT example's kernels are right: each backward half equals central differences of its
 * forward, parameters' gradients accumulate when asked, attention sees no later position, and the forward results
 * that can be written down are met. Sizes are small and odd, so that vector loops have tails. */
#include <math.h>
#include <stdlib.h>

#include "kernels.h"
#include "support/check.h"

enum { ROWS = 6, CONTEXT = 3, IN = 7, OUT = 19, VOCAB = 5, HEADS = 2, HEAD = 5, SAMPLES = 2, LONG = 37 };

/* Numbers in [-1, 1), the same in each run. */
static void fill(float* x, int n, uint32_t seed) {
  for (int i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
  }
}

static double dot(const float* a, const float* b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += (double)a[i] * b[i];
  return sum;
}

/* Fails for a NaN as well, which assert_float_equal lets through. */
#define check_near(got, expected, tolerance)                                                               \
  do {                                                                                                     \
    const double got_ = (got), expected_ = (expected);                                                     \
    if (!(fabs(got_ - expected_) <= (tolerance))) fail_msg(#got ": expected %g, got %g", expected_, got_); \
  } while (0)

/* Compares dx[n] with the slope of f along each x[i]. f reads x through its own statics. */
static void check_slope(const char* what, double (*f)(void), float* x, const float* dx, int n) {
  const float h = 1.0f / 128;
  for (int i = 0; i < n; ++i) {
    const float at = x[i];
    x[i] = at + h;
    const double above = f();
    x[i] = at - h;
    const double below = f();
    x[i] = at;
    const double slope = (above - below) / (2 * (double)h);
    if (!(fabs(slope - dx[i]) <= 1e-3 * (1 + fabs(slope))))
      fail_msg("%s[%d]: backward gives %.6f, central difference %.6f", what, i, (double)dx[i], slope);
  }
}

/* Run once to overwrite rubbish and once to add: the second result must be twice the first. */
#define check_accumulates(dx, n, backward_with)                                                  \
  do {                                                                                           \
    float first[n];                                                                              \
    for (int i_ = 0; i_ < (n); ++i_) (dx)[i_] = 7;                                               \
    backward_with(0);                                                                            \
    memcpy(first, (dx), sizeof first);                                                           \
    backward_with(1);                                                                            \
    for (int i_ = 0; i_ < (n); ++i_)                                                             \
      if (!(fabsf((dx)[i_] - 2 * first[i_]) <= 1e-5f * (1 + fabsf(first[i_]))))                  \
        fail_msg(#dx "[%d]: %f once, %f after adding", i_, (double)first[i_], (double)(dx)[i_]); \
    backward_with(0);                                                                            \
  } while (0)

static float x[8192], y[8192], dx[8192], dy[8192], w[8192], dw[8192], b[8192], db[8192], saved[8192];

static void setup(void) {
  fill(x, 8192, 1);
  fill(dy, 8192, 2);
  fill(w, 8192, 3);
  fill(b, 8192, 4);
}

/* ---- embedding ---------------------------------------------------------------------------------------- */

static const uint8_t tokens[ROWS] = {4, 0, 1, 4, 4, 2};

/* Words [begin, begin + count) of the vocabulary; positions [begin, begin + count) of CONTEXT. */
static int begin, count;

static double token(void) {
  token_forward(y, tokens, w, ROWS, begin, count, IN);
  return dot(y, dy, ROWS * IN);
}
static void token_back(int accumulate) {
  token_backward(dw, dy, tokens, ROWS, begin, count, IN, accumulate);
}
static void test_token_gradients_match_differences(void** state) {
  (void)state;
  setup();
  begin = 0, count = VOCAB;
  check_accumulates(dw, VOCAB * IN, token_back);
  for (begin = 0; begin < VOCAB; ++begin)
    for (count = 1; begin + count <= VOCAB; ++count) {
      token_back(0);
      check_slope("dwte", token, w, dw, count * IN);
    }
}

static void test_parts_of_a_vocabulary_add_up_to_all_of_it(void** state) {
  (void)state;
  float expected[ROWS * IN], sum[ROWS * IN] = {0};
  setup();
  token_forward(expected, tokens, w, ROWS, 0, VOCAB, IN);
  for (int i = 0; i < VOCAB; i += 2) {
    token_forward(y, tokens, w + i * IN, ROWS, i, i + 2 < VOCAB ? 2 : VOCAB - i, IN);
    for (int k = 0; k < ROWS * IN; ++k) sum[k] += y[k];
  }
  assert_memory_equal(sum, expected, sizeof expected);
}

static double position(void) {
  position_forward(y, x, b, ROWS / CONTEXT, begin, count, IN);
  return dot(y, dy, ROWS / CONTEXT * count * IN);
}
static void position_back(int accumulate) {
  position_backward(db, dy, ROWS / CONTEXT, CONTEXT, begin, count, IN, accumulate);
}
static void test_position_gradients_match_differences(void** state) {
  (void)state;
  setup();
  for (begin = 0; begin < CONTEXT; ++begin)
    for (count = 1; begin + count <= CONTEXT; ++count) {
      check_accumulates(db, CONTEXT * IN, position_back);
      check_slope("dwpe", position, b, db, CONTEXT * IN);
      check_slope("dx", position, x, dy, ROWS / CONTEXT * count * IN);
    }
}

/* ---- linear ------------------------------------------------------------------------------------------- */

static double linear(void) {
  linear_forward(y, x, w, b, ROWS, IN, OUT);
  return dot(y, dy, ROWS * OUT);
}
static void linear_back(int accumulate) {
  linear_backward_weight(dw, db, dy, x, ROWS, IN, OUT, accumulate);
}
static void test_linear_gradients_match_differences(void** state) {
  (void)state;
  setup();
  linear_backward_input(dx, dy, w, ROWS, IN, OUT);
  check_slope("dx", linear, x, dx, ROWS * IN);
  check_accumulates(dw, OUT * IN, linear_back);
  check_accumulates(db, OUT, linear_back);
  check_slope("dw", linear, w, dw, OUT * IN);
  check_slope("db", linear, b, db, OUT);
}

static void test_linear_without_bias_overwrites_its_output(void** state) {
  (void)state;
  setup();
  fill(y, ROWS * OUT, 9);
  linear_forward(y, x, w, NULL, ROWS, IN, OUT);
  for (int r = 0; r < ROWS; ++r)
    for (int o = 0; o < OUT; ++o) check_near(y[r * OUT + o], (float)dot(x + r * IN, w + o * IN, IN), 1e-5f);
}

/* ---- layer norm --------------------------------------------------------------------------------------- */

static double layernorm(void) {
  layernorm_forward(y, saved, x, w, b, ROWS, OUT);
  return dot(y, dy, ROWS * OUT);
}
static void layernorm_back(int accumulate) {
  layernorm_backward_weight(dw, db, dy, x, saved, ROWS, OUT, accumulate);
}
static void test_layernorm_gradients_match_differences(void** state) {
  (void)state;
  setup();
  layernorm();
  layernorm_backward_input(dx, dy, x, saved, w, ROWS, OUT);
  check_accumulates(dw, OUT, layernorm_back);
  check_accumulates(db, OUT, layernorm_back);
  check_slope("dx", layernorm, x, dx, ROWS * OUT);
  check_slope("dg", layernorm, w, dw, OUT);
  check_slope("db", layernorm, b, db, OUT);
}

static void test_layernorm_rows_have_mean_0_and_deviation_1(void** state) {
  (void)state;
  setup();
  for (int i = 0; i < OUT; ++i) w[i] = 1, b[i] = 0;
  layernorm();
  for (int r = 0; r < ROWS; ++r) {
    double sum = 0;
    for (int i = 0; i < OUT; ++i) sum += (double)y[r * OUT + i];
    check_near((float)sum, 0.0f, 1e-5f);
    check_near((float)(dot(y + r * OUT, y + r * OUT, OUT) / OUT), 1.0f, 1e-3f);
  }
}

/* ---- attention ---------------------------------------------------------------------------------------- */

enum { WIDTH = HEADS * HEAD, QKV = SAMPLES * LONG * 3 * WIDTH, MIXED = SAMPLES * LONG * WIDTH };

static double attention(void) {
  attention_forward(y, saved, x, SAMPLES, LONG, HEADS, HEAD);
  return dot(y, dy, MIXED);
}
static void test_attention_gradients_match_differences(void** state) {
  (void)state;
  setup();
  attention();
  fill(dx, QKV, 9); /* rubbish to be overwritten */
  assert_int_equal(attention_backward(dx, dy, x, saved, SAMPLES, LONG, HEADS, HEAD), 0);
  check_slope("dqkv", attention, x, dx, QKV);
}

static void test_attention_sees_no_later_position(void** state) {
  (void)state;
  float before[MIXED];
  for (int changed = 1; changed < LONG; ++changed) {
    setup();
    attention();
    memcpy(before, y, sizeof before);
    fill(x + changed * 3 * WIDTH, 3 * WIDTH, 77); /* position `changed` of sample 0: query, key and value */
    attention();
    assert_memory_equal(before, y, (size_t)changed * WIDTH * sizeof *y);
    assert_memory_equal(before + LONG * WIDTH, y + LONG * WIDTH, LONG * WIDTH * sizeof *y); /* sample 1 */
    assert_memory_not_equal(before + changed * WIDTH, y + changed * WIDTH, WIDTH * sizeof *y);
  }
}

static void test_first_position_attends_to_itself_alone(void** state) {
  (void)state;
  setup();
  attention();
  for (int s = 0; s < SAMPLES; ++s)
    for (int i = 0; i < WIDTH; ++i) check_near(y[s * LONG * WIDTH + i], x[s * LONG * 3 * WIDTH + 2 * WIDTH + i], 1e-6f);
}

/* ---- gelu, residual, cross-entropy -------------------------------------------------------------------- */

static double gelu(void) {
  gelu_forward(y, x, 101);
  return dot(y, dy, 101);
}
static void test_gelu_gradient_matches_differences(void** state) {
  (void)state;
  setup();
  for (int i = 0; i < 101; ++i) x[i] *= 4;
  gelu_backward(dx, dy, x, 101);
  check_slope("dx", gelu, x, dx, 101);
}

static void test_gelu_is_x_or_0_far_from_0(void** state) {
  (void)state;
  const float far[] = {-1e4f, -50, -20, -10.5f, 10.5f, 20, 50, 1e4f};
  for (int i = 0; i < 101; ++i) x[i] = far[i % 8], dy[i] = 1;
  gelu_forward(y, x, 101);
  gelu_backward(dx, dy, x, 101);
  for (int i = 0; i < 101; ++i) {
    check_near(y[i], x[i] > 0 ? x[i] : 0, 1e-6f * fabsf(x[i]));
    check_near(dx[i], x[i] > 0 ? 1 : 0, 1e-6f);
  }
}

static double residual(void) {
  residual_forward(y, x, w, b, ROWS, OUT);
  return dot(y, dy, ROWS * OUT);
}
static void residual_back(int accumulate) {
  residual_backward_weight(db, dy, ROWS, OUT, accumulate);
}
static void test_residual_gradients_match_differences(void** state) {
  (void)state;
  setup();
  check_accumulates(db, OUT, residual_back);
  check_slope("db", residual, b, db, OUT);
  check_slope("dx", residual, x, dy, ROWS * OUT);
  check_slope("df", residual, w, dy, ROWS * OUT);
}

static float tops[ROWS], sums[2 * ROWS];

static double cross_entropy(void) {
  cross_entropy_tops(tops, x, ROWS, VOCAB);
  cross_entropy_sums(sums, x, tops, tokens, ROWS, 0, VOCAB);
  return cross_entropy_loss(saved, tops, sums, ROWS);
}
static void test_cross_entropy_gradient_matches_differences(void** state) {
  (void)state;
  setup();
  cross_entropy();
  cross_entropy_backward(dx, x, saved, tokens, ROWS, 0, VOCAB);
  check_slope("dlogits", cross_entropy, x, dx, ROWS * VOCAB);
}

/* Columns [from, from + n) of the logits in x, by themselves. */
static const float* part_of_logits(int from, int n) {
  static float part[ROWS * VOCAB];
  for (int r = 0; r < ROWS; ++r) memcpy(part + r * n, x + r * VOCAB + from, (size_t)n * sizeof *part);
  return part;
}

static void test_cross_entropy_of_parts_is_that_of_the_whole(void** state) {
  (void)state;
  enum { PARTS = 2, SPLIT = 3 };
  static const int from[PARTS] = {0, SPLIT}, size[PARTS] = {SPLIT, VOCAB - SPLIT};
  float all_tops[ROWS], all_sums[2 * ROWS] = {0}, expected_d[ROWS * VOCAB];
  setup();
  const double expected = cross_entropy();
  cross_entropy_backward(expected_d, x, saved, tokens, ROWS, 0, VOCAB);
  for (int r = 0; r < ROWS; ++r) all_tops[r] = -1e30f;
  for (int p = 0; p < PARTS; ++p) {
    cross_entropy_tops(tops, part_of_logits(from[p], size[p]), ROWS, size[p]);
    for (int r = 0; r < ROWS; ++r) all_tops[r] = fmaxf(all_tops[r], tops[r]);
  }
  for (int p = 0; p < PARTS; ++p) {
    cross_entropy_sums(sums, part_of_logits(from[p], size[p]), all_tops, tokens, ROWS, from[p], size[p]);
    for (int r = 0; r < 2 * ROWS; ++r) all_sums[r] += sums[r];
  }
  check_near(cross_entropy_loss(saved, all_tops, all_sums, ROWS), expected, 1e-5);
  for (int p = 0; p < PARTS; ++p) {
    cross_entropy_backward(dx, part_of_logits(from[p], size[p]), saved, tokens, ROWS, from[p], size[p]);
    for (int r = 0; r < ROWS; ++r)
      for (int i = 0; i < size[p]; ++i) check_near(dx[r * size[p] + i], expected_d[r * VOCAB + from[p] + i], 1e-6);
  }
}

static void test_equal_logits_cost_log_vocab_each_however_large(void** state) {
  (void)state;
  for (int i = 0; i < ROWS * VOCAB; ++i) x[i] = 1000;
  check_near((float)cross_entropy(), (float)(ROWS * log(VOCAB)), 1e-3f);
}

/* ---- attention in blocks ------------------------------------------------------------------------------- */

/* Positions of LONG are dealt out in `n` blocks that begin at bounds[i], each to a rank that has queries and keys of it
 * alone; every rank sees all blocks, its own first, and the result and the gradients, put together, are attention's. */
enum { WIDE = HEADS * HEAD };

/* Rows [from, to) of each sample of all[SAMPLES][LONG][row], or back into it. */
static void take_rows(float* part, const float* all, int from, int to, int row) {
  for (int s = 0; s < SAMPLES; ++s)
    memcpy(part + s * (to - from) * row, all + (s * LONG + from) * row, (size_t)((to - from) * row) * sizeof *part);
}
static void put_rows(float* all, const float* part, int from, int to, int row) {
  for (int s = 0; s < SAMPLES; ++s)
    memcpy(all + (s * LONG + from) * row, part + s * (to - from) * row, (size_t)((to - from) * row) * sizeof *part);
}

static struct attention_keys keys_of(const float* qkv, int from, int to) {
  return (struct attention_keys){qkv + WIDE, from, to - from, 3 * WIDE};
}

static void check_blocks(const int* bounds, int n) {
  enum { ALL = SAMPLES * LONG * WIDE };
  static float expected_y[ALL], expected_d[3 * ALL], probs[SAMPLES * HEADS * LONG * LONG];
  static float part[3 * ALL], keys[3 * ALL], out[ALL], dout[ALL], log_sums[SAMPLES * HEADS * LONG], dqkv[3 * ALL];
  static float dkeys[LONG][3 * ALL]; /* of each block, layout as its qkv */
  setup();
  attention_forward(expected_y, probs, x, SAMPLES, LONG, HEADS, HEAD);
  assert_int_equal(attention_backward(expected_d, dy, x, probs, SAMPLES, LONG, HEADS, HEAD), 0);
  memset(dkeys, 0, sizeof dkeys);
  for (int rank = 0; rank < n; ++rank) {
    const int from = bounds[rank], to = bounds[rank + 1];
    take_rows(part, x, from, to, 3 * WIDE);
    take_rows(dout, dy, from, to, WIDE);
    memset(dqkv, 0, sizeof dqkv);
    const struct attention_queries q = {part, from, to - from, SAMPLES, HEADS, HEAD};
    for (int k = 0; k < n; ++k) {
      const int block = (rank + n - k) % n;
      take_rows(keys, x, bounds[block], bounds[block + 1], 3 * WIDE);
      const struct attention_keys of_block = keys_of(keys, bounds[block], bounds[block + 1]);
      assert_int_equal(attention_block_forward(out, log_sums, &q, &of_block, k == 0), 0);
    }
    for (int k = 0; k < n; ++k) {
      const int block = (rank + n - k) % n;
      take_rows(keys, x, bounds[block], bounds[block + 1], 3 * WIDE);
      const struct attention_keys of_block = keys_of(keys, bounds[block], bounds[block + 1]);
      assert_int_equal(attention_block_backward(dqkv, dkeys[block] + WIDE, dout, out, log_sums, &q, &of_block), 0);
    }
    for (int s = 0; s < SAMPLES; ++s)
      for (int i = from; i < to; ++i)
        for (int c = 0; c < WIDE; ++c) {
          const int at = s * (to - from) + i - from;
          check_near(out[at * WIDE + c], expected_y[(s * LONG + i) * WIDE + c], 1e-5);
          check_near(dqkv[at * 3 * WIDE + c], expected_d[(s * LONG + i) * 3 * WIDE + c], 1e-5);
        }
  }
  for (int block = 0; block < n; ++block) {
    static float d[3 * ALL];
    put_rows(d, dkeys[block], bounds[block], bounds[block + 1], 3 * WIDE);
    for (int s = 0; s < SAMPLES; ++s)
      for (int i = bounds[block]; i < bounds[block + 1]; ++i)
        for (int c = WIDE; c < 3 * WIDE; ++c) {
          const int at = (s * LONG + i) * 3 * WIDE + c;
          check_near(d[at], expected_d[at], 1e-5);
        }
  }
}

static void test_attention_in_blocks_is_attention(void** state) {
  (void)state;
  check_blocks((const int[]){0, LONG}, 1);
  check_blocks((const int[]){0, 20, LONG}, 2);
  check_blocks((const int[]){0, 1, 17, LONG}, 3);
  check_blocks((const int[]){0, 9, 18, 27, LONG}, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_token_gradients_match_differences),
      cmocka_unit_test(test_parts_of_a_vocabulary_add_up_to_all_of_it),
      cmocka_unit_test(test_position_gradients_match_differences),
      cmocka_unit_test(test_linear_gradients_match_differences),
      cmocka_unit_test(test_linear_without_bias_overwrites_its_output),
      cmocka_unit_test(test_layernorm_gradients_match_differences),
      cmocka_unit_test(test_layernorm_rows_have_mean_0_and_deviation_1),
      cmocka_unit_test(test_attention_gradients_match_differences),
      cmocka_unit_test(test_attention_sees_no_later_position),
      cmocka_unit_test(test_first_position_attends_to_itself_alone),
      cmocka_unit_test(test_gelu_gradient_matches_differences),
      cmocka_unit_test(test_gelu_is_x_or_0_far_from_0),
      cmocka_unit_test(test_residual_gradients_match_differences),
      cmocka_unit_test(test_cross_entropy_gradient_matches_differences),
      cmocka_unit_test(test_cross_entropy_of_parts_is_that_of_the_whole),
      cmocka_unit_test(test_equal_logits_cost_log_vocab_each_however_large),
      cmocka_unit_test(test_attention_in_blocks_is_attention),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
