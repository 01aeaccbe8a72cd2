/* Initial values, parameters in 16 bits, and the loss scale. */
#include <math.h>

#include "support/counts.h"
#include "support/step_equals.h"

/* ---- initial values ---- */

/* Other values than on rank 0, which a broadcast must replace: in their master copies too. */
static gsel_status other_on_each_rank(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  const gsel_status status = step_initial(dst, first, count, seed, user);
  for (int64_t i = 0; i < count; ++i) dst[i] += 5.0f * (float)((const step_model*)user)->rank;
  return status;
}

static void parameters_become_those_of_rank_0(void** state) {
  (void)state;
  static const char* const trains[] = {STEP_SIGN("6", ""), STEP_SIGN("6", "precision = \"bf16\"\n")};
  static const char* const strategies[] = {"", STEP_ZERO("1"), STEP_ZERO("2")}; /* stage 3 has nobody to send them */
  float *expected = (float*)shared_memory(sizeof(float) * N_ELEMS),
        *out = (float*)shared_memory(sizeof(float) * N_ELEMS * RANKS_MAX);
  char config[640];
  trial t = {nothing(), RUN_STEPS, NULL, expected};
  t.m.config = trains[0];
  as_threads(1, run_steps, &t);
  t.m.init = other_on_each_rank;
  t.m.config = config;
  t.out = out;
  t.expected = expected;
  for (size_t k = 0; k < 6; ++k)
    for (int n = 1; n <= 3; ++n) {
      snprintf(config, sizeof config, "%s%s", strategies[k / 2], trains[k % 2]);
      as_threads(n, run_steps, &t);
    }
  munmap(expected, sizeof(float) * N_ELEMS);
  munmap(out, sizeof(float) * N_ELEMS * RANKS_MAX);
}

/* ---- 16 bits ---- */

static void integers_in_16_bits_train_as_in_f32(void** state) {
  (void)state;
  const step_model m = nothing();
  equals(&m, STEP_SIGN("6", "microbatch = 2\n"), &m, STEP_SIGN("6", "microbatch = 2\nprecision = \"bf16\"\n"));
  equals(&m, STEP_SIGN("6", ""), &m, STEP_SIGN("6", "precision = \"bf16\"\nlending = \"moved\"\n"));
}

static void a_parameter_described_as_bf16_is_lent_as_bf16(void** state) {
  (void)state;
  const step_model m = nothing();
  step_model narrow = m;
  narrow.dtype = GSEL_BF16;
  narrow.forward = step_forward_bf16;
  equals(&m, STEP_SIGN("6", ""), &narrow, STEP_SIGN("6", ""));
}

/* A rate of 2^-13 beside 1 is lost in bf16, whose numbers near 1 are 2^-7 apart, and kept in the master copy. */
static gsel_status sees_integers(const gsel_call* c, void* user) {
  const float* a = (const float*)c->params[STEP_A].data;
  for (int i = 0; i < STEP_WIDTH; ++i)
    if (c->params[STEP_A].dtype != GSEL_F32 || a[i] != floorf(a[i])) return GSEL_ERR_INTERNAL;
  return step_forward(c, user);
}

static void the_master_copy_keeps_what_16_bits_cannot(void** state) {
  (void)state;
  step_model rounded = nothing();
  rounded.forward = sees_integers;
  float* expected = (float*)shared_memory(sizeof(float) * N_ELEMS);
  trial t = {rounded, RUN_STEPS, NULL, expected};
#define TINY(more) \
  "[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 0.0001220703125\nweight_decay = 0.0\nbatch = 6\n" more
  t.m.config = TINY("precision = \"bf16\"\n");
  as_threads(1, run_steps, &t);
  int moved = 0;
  for (int i = 0; i < N_ELEMS; ++i) moved += expected[i] != floorf(expected[i]);
  assert_true(moved > 0);
  munmap(expected, sizeof(float) * N_ELEMS);
  equals(&rounded, TINY("precision = \"bf16\"\n"), &rounded, TINY("precision = \"bf16\"\n"));
}

/* ---- the loss scale ---- */

typedef struct overflow {
  int step, rank;
} overflow;

static gsel_status overflows(const gsel_call* c, void* user) {
  const step_model* m = (const step_model*)user;
  const overflow* o = (const overflow*)m->user;
  const gsel_status status = step_backward(c, user);
  if (c->step == o->step && m->rank == o->rank) ((float*)c->d_params[STEP_B].data)[1] = HUGE_VALF;
  return status;
}

static void skip_together(rank_run* run) {
  static const overflow once = {1, 1};
  step_model m = *(const step_model*)run->user;
  step_session s;
  gsel_error* err = NULL;
  float before[N_ELEMS], after[N_ELEMS];
  static const double scales[] = {8, 8, 4, 4};
  m.backward = overflows;
  m.user = (void*)(uintptr_t)&once;
  rank_ok(run, step_open(run, &m, &s, &err), err);
  for (int i = 0; i < RUN_STEPS; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    rank_ok(run, step_params(s.trainer, before, &err), err);
    rank_ok(run, gsel_trainer_step(s.trainer, &report, &err), err);
    rank_ok(run, step_params(s.trainer, after, &err), err);
    rank_check(run, report.skipped == (i == once.step));
    rank_check(run, report.loss_scale == scales[i]);
    rank_check(run, (memcmp(before, after, sizeof before) == 0) == (i == once.step));
    rank_check(run, trainer_counts(s.trainer, GSEL_INSTR_OVERFLOW, GSEL_AXIS_DATA).calls == (uint64_t)i + 1);
  }
  step_close(&s);
}

#define FP16                                                                                             \
  "precision = \"fp16\"\nloss_scale_initial = 8.0\nloss_scale_window = 100\nloss_scale_hysteresis = 1\n" \
  "loss_scale_minimum = 1.0\n"

static void an_overflow_on_one_rank_skips_the_step_on_all_and_lowers_the_scale(void** state) {
  (void)state;
  step_model m = nothing();
  char config[640];
  for (size_t z = 0; z < N_STEP_STRATEGIES; ++z) {
    snprintf(config, sizeof config, "%s%s", kStepStrategies[z], STEP_SIGN("6", FP16));
    m.config = config;
    as_threads(2, skip_together, &m);
    as_threads(3, skip_together, &m);
  }
}

/* One SGD step in powers of two shows a factor that is wrong by the scale. */
static void the_loss_scale_is_divided_out_again(void** state) {
  (void)state;
  const step_model m = nothing();
  equals_after(1, &m, STEP_SGD("0.00390625", "4", ""), &m, STEP_SGD("0.00390625", "4", FP16));
  equals_after(1, &m, STEP_SGD("0.00390625", "4", ""), &m, STEP_SGD("0.00390625", "4", FP16 "microbatch = 1\n"));
}

/* ---- a loss that reads 8 or 16 bits ---- */

typedef struct small_format {
  gsel_dtype dtype;
  int bytes, fraction, bias;
} small_format;
static const small_format kSmall[] = {{GSEL_F16, 2, 10, 15}, {GSEL_BF16, 2, 7, 127}, {GSEL_F8E4M3, 1, 3, 7}};

/* Of numbers that the format has, none of them subnormal. */
static void store_small(const small_format* f, void* dst, const float* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    int exponent = 0;
    const float part = frexpf(fabsf(src[i]), &exponent);
    unsigned bits = 0;
    if (src[i] != 0)
      bits = ((unsigned)(exponent - 1 + f->bias) << f->fraction) + (unsigned)ldexpf(2 * part - 1, f->fraction);
    if (src[i] < 0) bits |= 1u << (8 * f->bytes - 1);
    if (f->bytes == 1)
      ((uint8_t*)dst)[i] = (uint8_t)bits;
    else
      ((uint16_t*)dst)[i] = (uint16_t)bits;
  }
}
static void load_small(const small_format* f, float* dst, const void* src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const unsigned bits = f->bytes == 1 ? ((const uint8_t*)src)[i] : ((const uint16_t*)src)[i];
    const unsigned magnitude = bits & ((1u << (8 * f->bytes - 1)) - 1), one = 1u << f->fraction;
    const float part = (float)(one + magnitude % one);
    dst[i] = magnitude ? ldexpf(part, (int)(magnitude / one) - f->bias - f->fraction) : 0;
    if (bits != magnitude) dst[i] = -dst[i];
  }
}

/* Calls an f32 callback with an f32 copy of one tensor, which it reads or writes. */
enum { MOST_ELEMS = 8 * STEP_WIDTH };
static gsel_status with_wide(gsel_layer_fn callback, const gsel_call* c, const gsel_tensor** slot, int reads) {
  const small_format* f = (const small_format*)((const step_model*)c->user_data)->user;
  const gsel_tensor small = **slot;
  float wide[MOST_ELEMS];
  gsel_tensor copy = small;
  if (small.dtype != f->dtype || small.n_elems > MOST_ELEMS) return GSEL_ERR_INTERNAL;
  copy.data = wide;
  if (reads) load_small(f, wide, small.data, small.n_elems);
  *slot = &copy;
  const gsel_status status = callback(c, c->user_data);
  if (!reads) store_small(f, small.data, wide, small.n_elems);
  return status;
}
static gsel_status small_forward(const gsel_call* c, void* user) {
  gsel_call wide = *c;
  (void)user;
  return with_wide(step_forward, &wide, &wide.outputs, 0);
}
static gsel_status small_backward(const gsel_call* c, void* user) {
  gsel_call wide = *c;
  (void)user;
  return with_wide(step_backward, &wide, &wide.d_outputs, 1);
}
static gsel_status small_loss_forward(const gsel_call* c, void* user) {
  gsel_call wide = *c;
  (void)user;
  return with_wide(step_loss_forward, &wide, &wide.inputs, 1);
}
/* The gradient is the input. */
static gsel_status small_loss_backward(const gsel_call* c, void* user) {
  const small_format* f = (const small_format*)((const step_model*)user)->user;
  memcpy(c->d_inputs[0].data, c->inputs[0].data, (size_t)(f->bytes * c->d_inputs[0].n_elems));
  return GSEL_OK;
}

static void a_loss_that_reads_16_bits_has_a_scaled_gradient(void** state) {
  (void)state;
  const step_model m = nothing();
  for (size_t i = 0; i < sizeof kSmall / sizeof *kSmall; ++i) {
    step_model small = m;
    small.output = kSmall[i].dtype;
    small.forward = small_forward;
    small.backward = small_backward;
    small.loss_forward = small_loss_forward;
    small.loss_backward = small_loss_backward;
    small.user = (void*)(uintptr_t)&kSmall[i];
    equals_after(1, &m, STEP_SGD("0.00390625", "4", ""), &small, STEP_SGD("0.00390625", "4", FP16));
    equals_after(1, &m, STEP_SGD("0.00390625", "4", ""), &small, STEP_SGD("0.00390625", "4", FP16 "microbatch = 1\n"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parameters_become_those_of_rank_0),
      cmocka_unit_test(integers_in_16_bits_train_as_in_f32),
      cmocka_unit_test(a_parameter_described_as_bf16_is_lent_as_bf16),
      cmocka_unit_test(the_master_copy_keeps_what_16_bits_cannot),
      cmocka_unit_test(an_overflow_on_one_rank_skips_the_step_on_all_and_lowers_the_scale),
      cmocka_unit_test(the_loss_scale_is_divided_out_again),
      cmocka_unit_test(a_loss_that_reads_16_bits_has_a_scaled_gradient),
  };
  return cmocka_run_group_tests_name("step numbers", tests, NULL, NULL);
}
