/* Both halves of a backward made of one fused kernel, which reads parameters whichever half is asked for
 * (GSEL_LAYER_WEIGHT_READS_PARAMS): the parameters trained are those of the fused backward, bit for bit, under every
 * data strategy and in pipelines whose schedules run the halves apart; where parameters are in shards they are gathered
 * for backward_weight as well. Without the flag it gets none. */
#include <stdlib.h>

#include "support/trainer_trial.h"

static int says_it_reads; /* what weight halves do, of layers that are described from here on */

/* The fused kernel of the layer, with scratch memory for what the half does not write. */
static gsel_status run_fused(const gsel_call* c, void* model, const gsel_tensor* of, int32_t n, int is_weight_half) {
  gsel_call fused = *c;
  gsel_tensor scratch[2];
  for (int i = 0; i < n; ++i) {
    scratch[i] = of[i];
    scratch[i].data = calloc((size_t)of[i].n_elems, sizeof(float));
    if (!scratch[i].data) return GSEL_ERR_NOMEM;
  }
  if (is_weight_half)
    fused.d_inputs = scratch;
  else
    fused.d_params = scratch;
  const gsel_status status =
      c->layer == L_FC1 ? exact_linear_backward(&fused, model) : exact_head_backward(&fused, model);
  for (int i = 0; i < n; ++i) free(scratch[i].data);
  return status;
}
static gsel_status input_half(const gsel_call* c, void* model) {
  return run_fused(c, model, c->params, c->n_params, 0);
}
static gsel_status weight_half(const gsel_call* c, void* model) {
  if (c->params[0].data) return run_fused(c, model, c->inputs, c->n_inputs, 1);
  snprintf(c->message, c->message_capacity, "there are no parameters");
  return GSEL_ERR_INTERNAL;
}

static void in_halves(gsel_layer_options* layer) {
  if (!layer->backward) return;
  layer->backward = NULL;
  layer->backward_input = input_half;
  layer->backward_weight = weight_half;
  if (says_it_reads) layer->flags |= GSEL_LAYER_WEIGHT_READS_PARAMS;
}

static void halves_of_fused_kernels_equal_them(void** state) {
  (void)state;
  static const char* const pipelines[] = {"1f1b", "zb-h1", "zb-h2"};
  const trial fused = plain(NULL, NULL);
  outcome *expected = exact_reference(&fused, TRAIN("6", "microbatches = 2\n")), *out = shared_outcomes();
  char config[1024];
  trial t = plain(config, out);
  t.vary = in_halves;
  t.expected = expected;
  says_it_reads = 1;
  for (int s = 0; s < N_STRATEGIES; ++s) {
    snprintf(config, sizeof config, "%s" TRAIN("6", "microbatches = 2\n"), kStrategies[s].section);
    print_message("  %s\n", kStrategies[s].name);
    as_threads(2, train, &t);
  }
  for (size_t s = 0; s < sizeof pipelines / sizeof *pipelines; ++s) {
    snprintf(config, sizeof config,
             "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n" TRAIN(
                 "6", "microbatches = 2\n"),
             pipelines[s]);
    print_message("  %s\n", pipelines[s]);
    as_threads(2, train, &t);
  }
  free_outcomes(expected);
  free_outcomes(out);
}

static void without_parameters(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_CALLBACK, "there are no parameters", -1);
  close_session(&s);
}

static void without_the_flag_there_are_no_parameters(void** state) {
  (void)state;
  trial t = plain(TRAIN("6", ""), NULL);
  t.vary = in_halves;
  says_it_reads = 0;
  as_threads(1, without_parameters, &t);
}

static void a_check_of_kernels_lends_them_too(void** state) {
  (void)state;
  gsel_error* err = NULL;
  for (says_it_reads = 0; says_it_reads < 2; ++says_it_reads) {
    exact_model m = {.fail_at_step = -1, .overflow_at_step = -1, .vary = in_halves};
    gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
    gsel_model* model = NULL;
    check_ok(gsel_model_create(&model, &err), err);
    check_ok(exact_describe(model, &m, &err), err);
    options.data = exact_data;
    if (says_it_reads)
      check_ok(gsel_model_check(model, &options, NULL, &err), err);
    else
      check_fails(gsel_model_check(model, &options, NULL, &err), err, GSEL_ERR_CALLBACK, "there are no parameters");
    gsel_model_free(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(halves_of_fused_kernels_equal_them),
      cmocka_unit_test(without_the_flag_there_are_no_parameters),
      cmocka_unit_test(a_check_of_kernels_lends_them_too),
  };
  return cmocka_run_group_tests_name("halves", tests, NULL, NULL);
}
