/* gsel_model_check on the models that other tests train: right kernels pass, whatever their model has. Faults stand in
 * test_model_check_faults.c; here is the one that a division by positions alone shows. */
#include "support/exact_model.h"
#include "support/long_model.h"
#include "support/small_transformer.h"
#include "support/step_model.h"
#include "support/tensor_model.h"

/* ---- right kernels ---- */

static void passes(gsel_model* model, gsel_data_fn data, void* user_data, const char* summary) {
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  gsel_model_check_report* report = NULL;
  gsel_error* err = NULL;
  options.data = data;
  options.data_user_data = user_data;
  const gsel_status status = gsel_model_check(model, &options, &report, &err);
  gsel_breach breach = GSEL_BREACH_INIT;
  for (int32_t i = 0; report && i < gsel_model_check_breach_count(report); ++i) {
    if (!gsel_model_check_breach(report, i, &breach, NULL)) print_error("false alarm: %s\n", breach.text.data);
  }
  for (int32_t i = 0; i < gsel_model_check_note_count(report); ++i)
    print_message("  note: %s\n", gsel_model_check_note(report, i).data);
  check_ok(status, err);
  assert_string_equal(gsel_model_check_summary(report).data, summary);
  gsel_model_check_free(report);
  gsel_model_free(model);
}

static gsel_model* empty_model(void) {
  gsel_model* model = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_model_create(&model, &err), err);
  return model;
}

static void the_exact_model_passes(void** state) {
  (void)state;
  for (int random = 0; random < 2; ++random) {
    exact_model m = {.random = random, .fail_at_step = -1, .overflow_at_step = -1};
    gsel_error* err = NULL;
    gsel_model* model = empty_model();
    check_ok(exact_describe(model, &m, &err), err);
    passes(model, exact_data, NULL, "kernels: 7 layers checked, no breach");
  }
}

static void the_tensor_model_passes(void** state) {
  (void)state;
  for (int ring = 0; ring < 2; ++ring) {
    static tensor_model m;
    tensor_init inits[TP_PARAMS];
    gsel_error* err = NULL;
    gsel_model* model = empty_model();
    memset(&m, 0, sizeof m);
    m.ring = ring;
    check_ok(tensor_describe(model, &m, inits, &err), err);
    passes(model, tensor_data, NULL, "kernels: 9 layers checked, no breach");
  }
}

static void the_small_transformer_passes(void** state) {
  (void)state;
  static small_transformer m;
  gsel_error* err = NULL;
  gsel_model* model = empty_model();
  memset(&m, 0, sizeof m);
  m.overflow_at_step = m.fail_at_step = -1;
  check_ok(tm_describe(model, &m, &err), err);
  passes(model, tm_data, NULL, "kernels: 15 layers checked, no breach");
}

static void the_step_model_passes_on_random_inputs(void** state) {
  (void)state;
  step_model m = {0};
  gsel_error* err = NULL;
  gsel_model* model = empty_model();
  check_ok(step_describe(model, &m, &err), err);
  passes(model, NULL, NULL, "kernels: 2 layers checked, no breach");
}

/* Its split layers write a sign and give it the gradient of a line: a surrogate, which is found, and may be skipped. */
static void the_long_model_passes_but_for_its_surrogate_gradient(void** state) {
  (void)state;
  static long_model m;
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  gsel_error* err = NULL;
  gsel_model* model = empty_model();
  m.fail_at_step = -1;
  options.data = exact_data;
  check_ok(long_describe(model, &m, &err), err);
  check_fails(gsel_model_check(model, &options, NULL, &err), err, GSEL_ERR_MODEL,
              "layer \"split0\" backward_input: d_inputs[0]");
  options.skip = 1u << GSEL_BREACH_GRADIENT;
  check_ok(gsel_model_check(model, &options, NULL, &err), err);
  gsel_model_free(model);
}

static void parameters_in_16_bits_pass(void** state) {
  (void)state;
  step_model m = {.forward = step_forward_bf16, .dtype = GSEL_BF16};
  gsel_error* err = NULL;
  gsel_model* model = empty_model();
  check_ok(step_describe(model, &m, &err), err);
  passes(model, step_data, NULL, "kernels: 2 layers checked, no breach");
}

/* ---- a fault that only a division by positions shows ---- */

static gsel_status positions_from_the_first_row(const gsel_call* c, void* user) {
  gsel_shard shard = c->output_shards[0];
  gsel_call wrong = *c;
  shard.begin = 0;
  wrong.output_shards = &shard;
  return t_positions_forward(&wrong, user);
}
static void with_positions_from_the_first_row(gsel_layer_options* layer) {
  if (!strcmp(layer->name.data, "positions")) layer->forward = positions_from_the_first_row;
}

static void a_layer_that_ignores_which_positions_it_has_is_named(void** state) {
  (void)state;
  static tensor_model m = {.vary = with_positions_from_the_first_row};
  tensor_init inits[TP_PARAMS];
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  gsel_error* err = NULL;
  gsel_model* model = empty_model();
  check_ok(tensor_describe(model, &m, inits, &err), err);
  options.data = tensor_data;
  check_fails(gsel_model_check(model, &options, NULL, &err), err, GSEL_ERR_MODEL,
              "layer \"positions\" forward: outputs[0] \"y\" element 12 [0][3][0]: is ");
  options.skip = 1u << GSEL_BREACH_PARTS;
  check_ok(gsel_model_check(model, &options, NULL, &err), err);
  options.skip = 0;
  options.tensor_ranks = 1;
  check_ok(gsel_model_check(model, &options, NULL, &err), err);
  gsel_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_exact_model_passes),
      cmocka_unit_test(the_tensor_model_passes),
      cmocka_unit_test(the_small_transformer_passes),
      cmocka_unit_test(the_step_model_passes_on_random_inputs),
      cmocka_unit_test(the_long_model_passes_but_for_its_surrogate_gradient),
      cmocka_unit_test(parameters_in_16_bits_pass),
      cmocka_unit_test(a_layer_that_ignores_which_positions_it_has_is_named),
  };
  return cmocka_run_group_tests_name("model check", tests, NULL, NULL);
}
