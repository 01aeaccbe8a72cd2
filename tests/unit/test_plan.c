/* unit/test_plan.c: gsel/plan.h: a plan from a config.json, its candidates, texts and files, estimates, comparisons,
 * and what is refused with its place. */
#include <gsel/gsel.h>
#include <stdlib.h>

#include "support/check.h"
#include "support/share.h"

static const char* const kModel =
    "{\"model_type\":\"llama\",\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
    "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"vocab_size\":128256,\"max_position_embeddings\":8192}";

static gsel_plan_options options_for(const char* cluster) {
  gsel_plan_options options = GSEL_PLAN_OPTIONS_INIT;
  options.model = gsel_str_from(kModel);
  options.model_name = gsel_str_from("config.json");
  options.cluster = gsel_str_from(cluster);
  options.batch = 256;
  options.sequence = 4096;
  return options;
}

static gsel_plan* plan_for(const gsel_plan_options* options) {
  gsel_error* err = NULL;
  gsel_plan* plan = NULL;
  check_ok(gsel_plan_create(options, &plan, &err), err);
  return plan;
}

static void candidates_are_in_order(void** state) {
  (void)state;
  gsel_plan_options options = options_for("8xH100");
  options.nodes = 2;
  gsel_plan* plan = plan_for(&options);
  const int32_t n = gsel_plan_candidate_count(plan);
  assert_true(n > 4);
  gsel_error* err = NULL;
  double before = 0;
  for (int32_t i = 0; i < n; ++i) {
    gsel_plan_candidate c = GSEL_PLAN_CANDIDATE_INIT;
    check_ok(gsel_plan_candidate_get(plan, i, &c, &err), err);
    assert_int_equal(c.tensor * c.context * c.data * c.pipeline, 16);
    assert_int_equal(c.microbatch * c.microbatches * c.data, 256);
    assert_true(c.step_s >= before && c.memory_bytes > 0 && c.memory_bytes < 0.98 * 78.8 * 0x1p30);
    assert_true(c.mfu > 0 && c.mfu <= c.hfu && c.hfu < 1);
    assert_true(c.tokens_per_s > 0 && c.name.len > 0);
    before = c.step_s;
  }
  gsel_plan_candidate none = GSEL_PLAN_CANDIDATE_INIT;
  check_fails(gsel_plan_candidate_get(plan, n, &none, &err), err, GSEL_ERR_ARG, "the candidate is");
  check_fails(gsel_plan_candidate_get(plan, -1, &none, &err), err, GSEL_ERR_ARG, "the candidate is -1");
  assert_non_null(strstr(gsel_plan_text(plan).data, "Does the model fit one device?"));
  assert_non_null(strstr(gsel_plan_json(plan).data, "\"candidates\""));
  gsel_plan_free(plan);
}

/* No file is written whose programs a run refuses: finalists that the plan left to closed forms are compiled first. */
static void no_file_is_written_that_a_run_refuses(void** state) {
  (void)state;
  gsel_plan_options options = options_for("2xA40+2xRTX3090");
  options.batch = 48, options.sequence = 2048;
  gsel_plan* plan = plan_for(&options);
  const int32_t n = gsel_plan_candidate_count(plan);
  int32_t written = 0, refused = 0;
  for (int32_t i = 0; i < n; ++i) {
    if (!in_share() && i > 0) continue;
    gsel_error* err = NULL;
    gsel_str toml;
    const gsel_status status = gsel_plan_toml(plan, i, &toml, &err);
    if (status == GSEL_OK)
      ++written;
    else
      ++refused, check_fails(status, err, GSEL_ERR_NOMEM, "needs ");
    if (i == 0) assert_int_equal(status, GSEL_OK);
  }
  assert_true(written > 0 && (SANITIZED || (written > refused && refused > 0)));
  gsel_plan_free(plan);
}

/* The largest number behind a key. */
static double most_of(const char* text, const char* key) {
  double most = -1;
  for (const char* at = strstr(text, key); at; at = strstr(at + 1, key)) {
    const double value = strtod(at + strlen(key), NULL);
    if (value > most) most = value;
  }
  return most;
}

static void a_candidate_is_a_configuration(void** state) {
  (void)state;
  gsel_plan_options options = options_for("8xH100");
  options.fixed = gsel_str_from("pipeline=4");
  gsel_plan* plan = plan_for(&options);
  gsel_error* err = NULL;
  gsel_str toml, simulation, drawn;
  check_ok(gsel_plan_toml(plan, 0, &toml, &err), err);
  gsel_config* config = NULL;
  check_ok(gsel_config_parse(toml, gsel_str_from("plan.toml"), &config, &err), err);
  assert_string_equal(gsel_config_get(config, gsel_str_from("mesh.pipeline")).data, "4");
  const gsel_config* const configs[] = {config, config};
  gsel_plan* compared = NULL;
  check_ok(gsel_plan_compare(&options, configs, 2, &compared, &err), err);
  assert_non_null(strstr(gsel_plan_text(compared).data, "plan.toml"));
  assert_int_equal(gsel_plan_candidate_count(compared), 0);
  check_fails(gsel_plan_toml(compared, 0, &toml, &err), err, GSEL_ERR_ARG, "there are none");
  gsel_plan* none = NULL;
  check_fails(gsel_plan_compare(&options, configs, 0, &none, &err), err, GSEL_ERR_ARG, "one at least");
  gsel_plan_free(compared);
  gsel_config_free(config);

  check_ok(gsel_plan_simulation(plan, 0, &simulation, &err), err);
  gsel_timeline* timeline = NULL;
  check_ok(gsel_timeline_create(&timeline, &err), err);
  check_ok(gsel_timeline_add(timeline, simulation, gsel_str_from("plan"), &err), err);
  check_ok(gsel_timeline_draw(timeline, GSEL_TIMELINE_SVG, &drawn, &err), err);
  assert_non_null(strstr(drawn.data, "<svg"));
  /* Times are seconds: microseconds of Chrome's, milliseconds of the picture, and each stage is a process. */
  const double makespan = most_of(simulation.data, "\"makespan\": ");
  char stated[64];
  snprintf(stated, sizeof stated, "makespan %.3f ms", makespan * 1e3);
  if (!strstr(drawn.data, stated)) fail_msg("no \"%s\" in the picture", stated);
  check_ok(gsel_timeline_draw(timeline, GSEL_TIMELINE_CHROME, &drawn, &err), err);
  const double last = most_of(drawn.data, "\"ts\": ");
  if (last > makespan * 1e6 || last < makespan * 0.9e6) fail_msg("%g us at the end of %g s", last, makespan);
  assert_true(most_of(drawn.data, "\"pid\": ") == 3);
  gsel_timeline_free(timeline);
  gsel_plan_free(plan);
}

/* Own measurements shift every time by one factor, and the text says so. */
static void a_plan_is_calibrated_on_measurements(void** state) {
  (void)state;
  gsel_plan_options options = options_for("8xH100");
  options.fixed = gsel_str_from("tensor=1, pipeline=1, zero=1, recompute=all, microbatch=1");
  options.precision = gsel_str_from("megatron-bf16");
  gsel_plan* plan = plan_for(&options);
  gsel_error* err = NULL;
  gsel_plan_candidate before = GSEL_PLAN_CANDIDATE_INIT, after = GSEL_PLAN_CANDIDATE_INIT;
  check_ok(gsel_plan_candidate_get(plan, 0, &before, &err), err);
  gsel_str picture;
  check_ok(gsel_plan_picture(plan, &picture, &err), err);
  assert_non_null(strstr(picture.data, "<svg"));
  gsel_plan_free(plan);
  options.measured = gsel_str_from(
      "model\tlayers\thidden\tffn\theads\tkv_heads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tgpus_per_node\tdp\ttp\tpp\tzero\t"
      "recompute\tprecision\tmetric\tvalue\n"
      "Llama\t32\t4096\t14336\t32\t8\t4096\t128256\t256\t1\t8\tH100-SXM\t8\t8\t1\t1\t1\tfull\tbf16\titeration_s\t60\n");
  plan = plan_for(&options);
  check_ok(gsel_plan_candidate_get(plan, 0, &after, &err), err);
  assert_true(after.step_s > 1.5 * before.step_s);
  assert_non_null(strstr(gsel_plan_text(plan).data, "calibrated on 1 measured row: a scalar of "));
  gsel_plan_free(plan);
  options.cluster = gsel_str_from("8xMI300X");
  check_fails(gsel_plan_create(&options, &plan, &err), err, GSEL_ERR_CONFIG,
              "measured has no time of a step on MI300X");
}

static void an_estimate_has_every_strategy(void** state) {
  (void)state;
  gsel_plan_options options = options_for("8xA100-40GB");
  gsel_error* err = NULL;
  gsel_plan* plan = NULL;
  check_ok(gsel_plan_estimate(&options, &plan, &err), err);
  const char* const strategies[] = {"one device", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "TP 8", "PP 8"};
  for (size_t i = 0; i < sizeof strategies / sizeof *strategies; ++i) {
    assert_non_null(strstr(gsel_plan_text(plan).data, strategies[i]));
    assert_non_null(strstr(gsel_plan_json(plan).data, strategies[i]));
  }
  gsel_plan_free(plan);
}

/* What another program does is planned, and said not to be gsel's; its file is not written as something else. */
static void a_plan_that_the_trainer_cannot_run_says_so(void** state) {
  (void)state;
  const char* const precisions[] = {"megatron-bf16", "ddp-f32"};
  const char* const nearest[] = {"the nearest that it runs is precision gsel-bf16",
                                 "the nearest that it runs is precision gsel-f32"};
  gsel_error* err = NULL;
  gsel_str toml;
  for (int i = 0; i < 2; ++i) {
    gsel_plan_options options = options_for("8xB200");
    options.precision = gsel_str_from(precisions[i]);
    gsel_plan* plan = plan_for(&options);
    assert_true(gsel_plan_candidate_count(plan) > 0);
    assert_non_null(strstr(gsel_plan_text(plan).data, nearest[i]));
    assert_non_null(strstr(gsel_plan_json(plan).data, nearest[i]));
    check_fails(gsel_plan_toml(plan, 0, &toml, &err), err, GSEL_ERR_ARG, nearest[i]);
    gsel_plan_free(plan);
  }
  gsel_plan_options options = options_for("8xB200");
  options.precision = gsel_str_from("gsel-f32");
  gsel_plan* plan = plan_for(&options);
  assert_null(strstr(gsel_plan_text(plan).data, "cannot run"));
  assert_null(strstr(gsel_plan_json(plan).data, "not_run"));
  check_ok(gsel_plan_toml(plan, 0, &toml, &err), err);
  assert_non_null(strstr(toml.data, "precision = \"f32\""));
  gsel_plan_free(plan);

  options.fixed = gsel_str_from("recompute=selective");
  check_fails(gsel_plan_create(&options, &plan, &err), err, GSEL_ERR_ARG,
              "recompute=selective is not accepted with gsel-f32, whose kernels do not keep the scores");
  options.precision = gsel_str_from("ddp-f32");
  plan = plan_for(&options);
  assert_non_null(strstr(gsel_plan_text(plan).data, "recomputed attention"));
  assert_null(strstr(gsel_plan_text(plan).data, "were compiled and verified"));
  gsel_plan_free(plan);
}

static void an_estimate_takes_what_its_rows_do_not_decide(void** state) {
  (void)state;
  gsel_plan_options options = options_for("8xA100-40GB");
  gsel_error* err = NULL;
  gsel_plan* plan = NULL;
  const char* const refused[] = {"tensor=3", "zero=1", "offload=all", "sequence_parallel=true"};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i) {
    options.fixed = gsel_str_from(refused[i]);
    check_fails(gsel_plan_estimate(&options, &plan, &err), err, GSEL_ERR_ARG,
                "is fixed, and an estimate has rows of strategies that decide it; accepted: devices, microbatch");
  }
  options.fixed = gsel_str_from("microbatch=4, recompute=all, devices=4");
  check_ok(gsel_plan_estimate(&options, &plan, &err), err);
  assert_non_null(strstr(gsel_plan_text(plan).data, "micro-batch 4 of 4096 tokens, recompute all"));
  gsel_plan_free(plan);
}

static int32_t end_at_once(int64_t n_tried, void* user_data) {
  *(int64_t*)user_data = n_tried;
  return 1;
}

static void a_search_is_ended_by_its_caller(void** state) {
  (void)state;
  gsel_plan_options options = options_for("8xH100");
  int64_t tried = 0;
  options.nodes = 64, options.batch = 512 * 64;
  options.progress = end_at_once, options.user_data = &tried;
  gsel_error* err = NULL;
  gsel_plan* plan = NULL;
  check_fails(gsel_plan_create(&options, &plan, &err), err, GSEL_ERR_ABORTED, "the search was ended after");
  assert_null(plan);
  assert_true(tried > 0);
}

static void what_is_wrong_is_named(void** state) {
  (void)state;
  struct {
    const char *model, *cluster, *link, *precision, *fixed;
    int32_t nodes;
    gsel_status code;
    const char* says;
  } all[] = {
      {"{", "8xH100", NULL, NULL, NULL, 1, GSEL_ERR_PARSE, "config.json"},
      {"{}", "8xH100", NULL, NULL, NULL, 1, GSEL_ERR_CONFIG, "config.json: line 1: none of \"hidden_size\""},
      {kModel, "8xH1000", NULL, NULL, NULL, 1, GSEL_ERR_ARG,
       "accelerator \"H1000\" is not known; the nearest names are"},
      {kModel, "8xH100", "-1GB/s", NULL, NULL, 1, GSEL_ERR_ARG, "link \"-1GB/s\" is not understood"},
      {kModel, "8xH100", NULL, "fp4", NULL, 1, GSEL_ERR_ARG, "precision \"fp4\" is not known; accepted: gsel-bf16"},
      {kModel, "8xH100", NULL, NULL, "tensor=0", 1, GSEL_ERR_ARG, "tensor=0 is not accepted"},
      {kModel, "8xH100", NULL, NULL, "devices=9", 1, GSEL_ERR_ARG, "9 devices were asked for"},
      {kModel, "8xH100", NULL, NULL, NULL, -1, GSEL_ERR_ARG, "-1 nodes were asked for"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    gsel_plan_options options = options_for(all[i].cluster);
    gsel_error* err = NULL;
    gsel_plan* plan = NULL;
    options.model = gsel_str_from(all[i].model);
    if (all[i].link) options.link = gsel_str_from(all[i].link);
    if (all[i].precision) options.precision = gsel_str_from(all[i].precision);
    if (all[i].fixed) options.fixed = gsel_str_from(all[i].fixed);
    options.nodes = all[i].nodes;
    check_fails(gsel_plan_create(&options, &plan, &err), err, all[i].code, all[i].says);
    assert_null(plan);
  }
  gsel_plan_options none = GSEL_PLAN_OPTIONS_INIT;
  gsel_error* err = NULL;
  gsel_plan* plan = NULL;
  check_fails(gsel_plan_create(&none, &plan, &err), err, GSEL_ERR_ARG, "names no model");
  assert_int_equal(gsel_plan_candidate_count(NULL), 0);
  assert_null(gsel_plan_text(NULL).data);
  gsel_plan_free(NULL);
}

/* A live model is planned by its hints: the layers of a program. */
static void a_described_model_is_planned(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_model* model = NULL;
  check_ok(gsel_model_create(&model, &err), err);
  gsel_plan_options options = options_for("4xH100");
  options.model = (gsel_str){NULL, 0};
  options.described = model;
  gsel_plan* plan = NULL;
  check_fails(gsel_plan_create(&options, &plan, &err), err, GSEL_ERR_ARG, "has no layers");
  gsel_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(candidates_are_in_order),
      cmocka_unit_test(no_file_is_written_that_a_run_refuses),
      cmocka_unit_test(a_candidate_is_a_configuration),
      cmocka_unit_test(a_plan_that_the_trainer_cannot_run_says_so),
      cmocka_unit_test(an_estimate_takes_what_its_rows_do_not_decide),
      cmocka_unit_test(an_estimate_has_every_strategy),
      cmocka_unit_test(a_search_is_ended_by_its_caller),
      cmocka_unit_test(what_is_wrong_is_named),
      cmocka_unit_test(a_described_model_is_planned),
      cmocka_unit_test(a_plan_is_calibrated_on_measurements),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
