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

static double embedding(void) {
  embedding_forward(y, tokens, w, b, ROWS, CONTEXT, IN);
  return dot(y, dy, ROWS * IN);
}
static void embedding_back(int accumulate) {
  embedding_backward(dw, db, dy, tokens, ROWS, VOCAB, CONTEXT, IN, accumulate);
}
static void test_embedding_gradients_match_differences(void** state) {
  (void)state;
  setup();
  check_accumulates(dw, VOCAB * IN, embedding_back);
  check_accumulates(db, CONTEXT * IN, embedding_back);
  check_slope("dwte", embedding, w, dw, VOCAB * IN);
  check_slope("dwpe", embedding, b, db, CONTEXT * IN);
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

static double cross_entropy(void) {
  return cross_entropy_forward(saved, x, tokens, ROWS, VOCAB);
}
static void test_cross_entropy_gradient_matches_differences(void** state) {
  (void)state;
  setup();
  cross_entropy();
  cross_entropy_backward(dx, x, saved, tokens, ROWS, VOCAB);
  check_slope("dlogits", cross_entropy, x, dx, ROWS * VOCAB);
}

static void test_equal_logits_cost_log_vocab_each_however_large(void** state) {
  (void)state;
  for (int i = 0; i < ROWS * VOCAB; ++i) x[i] = 1000;
  check_near((float)cross_entropy(), (float)(ROWS * log(VOCAB)), 1e-3f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_embedding_gradients_match_differences),
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
      cmocka_unit_test(test_equal_logits_cost_log_vocab_each_however_large),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
