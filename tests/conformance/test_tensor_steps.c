/* Steps of ranks that share a model along the tensor axis: what they train is bit for bit what one rank trains, split
 * by columns and rows, by positions, or exchanging one for the other, on two ranks and on three, where nothing divides
 * evenly; with the data axis and the pipeline around it. Parameters are seen where callbacks get them. */
#include <math.h>

#include "support/counts.h"
#include "support/ranks.h"
#include "support/tensor_model.h"

enum { T_STEPS = 4, T_RANKS = 8 };

typedef struct tensor_outcome {
  double loss_sum[T_STEPS], weight[T_STEPS], norm[T_STEPS];
  int32_t skipped[T_STEPS];
  float params[TP_PARAMS][T_MOST];
  unsigned char has[TP_PARAMS][T_MOST];
  int64_t widest_h;
  int in_place; /* what is redistributed for nothing, or summed, lies in one place */
  gsel_comm_count counts[GSEL_INSTR_POST_VALIDATE + 1]; /* on the tensor axis */
} tensor_outcome;

typedef struct tensor_trial {
  const char* config;
  int ranks;
  int init_differs;
  int ring; /* blocks of positions are passed on, but on the one rank */
  int overflow_at_step;
  const gsel_optimizer_options* optimizer;
  const char* refused; /* part of the error that creation ends with; NULL: it succeeds */
  tensor_outcome* out; /* [ranks] */
} tensor_trial;

static gsel_status open_trainer(rank_run* run, gsel_comm** comm, gsel_config** config, gsel_model** model,
                                tensor_model* m, tensor_init* inits, gsel_trainer** trainer, gsel_error** err) {
  const tensor_trial* t = (const tensor_trial*)run->user;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  m->differs_on_init = t->init_differs ? run->rank : 0;
  m->overflow_at_step = t->overflow_at_step;
  m->ring = t->ring;
  gsel_status status = rank_join(run, comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(t->config), gsel_str_from("trial.toml"), config, err);
  if (!status) status = gsel_model_create(model, err);
  if (!status) status = tensor_describe(*model, m, inits, err);
  options.config = *config;
  options.data = tensor_data;
  options.optimizer = t->optimizer;
  return status ? status : gsel_trainer_create(*comm, *model, &options, trainer, err);
}

/* What was sent is what the program says, on every axis. */
static void check_traffic(rank_run* run, const gsel_trainer* trainer) {
  const gsel_program* program = gsel_trainer_program(trainer);
  for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis)
    for (int kind = 0; kind <= GSEL_INSTR_POST_VALIDATE; ++kind) {
      const gsel_comm_count counted = trainer_counts(trainer, kind, axis);
      uint64_t bytes = 0, calls = 0;
      for (int step = -1; step < T_STEPS; ++step) {
        const gsel_comm_count told = program_traffic(program, step, kind, axis);
        bytes += told.bytes_sent;
        calls += told.calls;
      }
      if (kind == GSEL_INSTR_STEP || (counted.bytes_sent == bytes && counted.calls == calls)) continue;
      snprintf(run->failure, sizeof run->failure,
               "rank %d: instruction %d on axis %d sent %llu bytes in %llu calls, and should %llu in %llu", run->rank,
               kind, axis, (unsigned long long)counted.bytes_sent, (unsigned long long)counted.calls,
               (unsigned long long)bytes, (unsigned long long)calls);
    }
}

/* Sum of the numbers behind a key in the last step's record, as far as `axes` go. */
static double sum_over_axes(const char* json, const char* key) {
  double sum = 0;
  const char *at = strstr(json, "\"axes\":"), *end = at ? strchr(at, ']') : NULL;
  while (at && (at = strstr(at, key)) && at < end) sum += strtod(at += strlen(key), NULL);
  return sum;
}

/* What axes sent and were waited for makes up what the step did. */
static void check_axes(rank_run* run, gsel_trainer* trainer, const gsel_step_report* report) {
  gsel_error* err = NULL;
  gsel_str text = {0};
  rank_ok(run, gsel_trainer_step_json(trainer, &text, &err), err);
  char* json = strndup(text.data, text.len);
  const double bytes = sum_over_axes(json, "\"bytes_sent\":"), seconds = sum_over_axes(json, "\"exposed_s\":");
  free(json);
  if (bytes == (double)report->bytes_sent && fabs(seconds - report->exposed_comm_s) <= 1e-9) return;
  snprintf(run->failure, sizeof run->failure, "rank %d: axes sent %.0f bytes and took %g s; the step has %llu and %g",
           run->rank, bytes, seconds, (unsigned long long)report->bytes_sent, report->exposed_comm_s);
}

static void train_steps(rank_run* run, gsel_trainer* trainer, tensor_model* m, tensor_outcome* out) {
  gsel_error* err = NULL;
  for (int i = 0; i < T_STEPS; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(trainer, &report, &err), err);
    check_axes(run, trainer, &report);
    out->in_place = m->y && m->y == m->y_read && m->o && m->o == m->o_read && m->d_o && m->d_o == m->d_o_read;
    out->widest_h = m->widest_h;
    out->loss_sum[i] = report.loss_sum;
    out->weight[i] = report.weight;
    out->norm[i] = report.gradient_norm;
    out->skipped[i] = report.skipped;
  }
  for (int kind = 0; kind <= GSEL_INSTR_POST_VALIDATE; ++kind)
    out->counts[kind] = trainer_counts(trainer, kind, GSEL_AXIS_TENSOR);
  check_traffic(run, trainer);
  rank_ok(run, gsel_trainer_evaluate(trainer, 0, NULL, NULL, NULL, &err), err); /* reads what the last step left */
  memcpy(out->params, m->seen, sizeof m->seen);
  memcpy(out->has, m->has_seen, sizeof m->has_seen);
}

static void train(rank_run* run) {
  const tensor_trial* t = (const tensor_trial*)run->user;
  tensor_model m;
  tensor_init inits[TP_PARAMS];
  gsel_comm* comm = NULL;
  gsel_config* config = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  gsel_error* err = NULL;
  memset(&m, 0, sizeof m);
  run->timeout_s = 20;
  const gsel_status status = open_trainer(run, &comm, &config, &model, &m, inits, &trainer, &err);
  if (t->refused) {
    char text[1024] = "";
    gsel_error_format(err, text, sizeof text);
    gsel_error_free(err);
    if (!status || !strstr(text, t->refused))
      snprintf(run->failure, sizeof run->failure, "rank %d: expected an error with \"%s\", got \"%.600s\"", run->rank,
               t->refused, text);
  } else if (status) {
    gsel_error_format(err, run->failure, sizeof run->failure);
    gsel_error_free(err);
  } else {
    train_steps(run, trainer, &m, &t->out[run->rank]);
  }
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

#define TRAIN_SECTION \
  "[train]\nbatch = 8\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nseed = 3\n"

static tensor_outcome* outcomes(void) {
  return (tensor_outcome*)shared_memory(sizeof(tensor_outcome) * T_RANKS);
}
static void free_outcomes(tensor_outcome* out) {
  munmap(out, sizeof *out * T_RANKS);
}

static void run_trial(tensor_trial* t, tensor_outcome* out) {
  shared_clear(out, sizeof *out * T_RANKS);
  t->out = out;
  as_threads(t->ranks, train, t);
}

/* Each rank's parameters are the reference's at their positions; together they have all of them. */
static void compare(const tensor_outcome* out, int ranks, const tensor_outcome* expected, const char* what) {
  for (int p = 0; p < TP_PARAMS; ++p)
    for (int i = 0; i < T_MOST; ++i) {
      int seen = 0;
      for (int r = 0; r < ranks; ++r) {
        seen |= out[r].has[p][i];
        if (out[r].has[p][i] && memcmp(&out[r].params[p][i], &expected->params[p][i], sizeof(float)))
          fail_msg("%s: rank %d of %d has %g in element %d of parameter \"%s\", one rank has %g", what, r, ranks,
                   out[r].params[p][i], i, kTensorParams[p].name, expected->params[p][i]);
      }
      if (seen != expected->has[p][i])
        fail_msg("%s: element %d of parameter \"%s\" was seen by %s", what, i, kTensorParams[p].name,
                 seen ? "a rank, and is none" : "no rank");
    }
  for (int r = 0; r < ranks; ++r)
    for (int i = 0; i < T_STEPS; ++i)
      if (out[r].loss_sum[i] != expected->loss_sum[i] || out[r].weight[i] != expected->weight[i] ||
          out[r].norm[i] != expected->norm[i] || out[r].skipped[i] != expected->skipped[i])
        fail_msg(
            "%s: step %d of rank %d: loss %.17g of weight %g, norm %.17g, skipped %d; one rank: %.17g of %g, %.17g, %d",
            what, i, r, out[r].loss_sum[i], out[r].weight[i], out[r].norm[i], out[r].skipped[i], expected->loss_sum[i],
            expected->weight[i], expected->norm[i], expected->skipped[i]);
}

struct row {
  const char* name;
  int ranks;
  const char* sections; /* behind [train] and its keys */
};

#define TENSOR(n) "[mesh]\ntensor = " #n "\n[strategy.tensor]\nplugin = \"tp\"\n"
#define SEQUENCE(n) TENSOR(n) "sequence_parallel = true\n"
#define CONTEXT(n) "[mesh]\ncontext = " #n "\n[strategy.context]\nplugin = \"cp\"\n"

static const struct row kTensorAlone[] = {
    {"tp on 1", 1, TENSOR(1)},
    {"tp on 2", 2, TENSOR(2)},
    {"tp on 3", 3, TENSOR(3)},
    {"tp on 4", 4, TENSOR(4)},
    {"sequence parallel on 1", 1, SEQUENCE(1)},
    {"sequence parallel on 2", 2, SEQUENCE(2)},
    {"sequence parallel on 3", 3, SEQUENCE(3)},
    {"cp on 1", 1, CONTEXT(1)},
    {"cp on 2", 2, CONTEXT(2)},
    {"cp on 3", 3, CONTEXT(3)},
};

#define DATA(plugin) "[strategy.data]\nplugin = \"" plugin "\"\n"
#define MESH(t, d, p) "[mesh]\ntensor = " #t "\ndata = " #d "\npipeline = " #p "\n"
#define TP "[strategy.tensor]\nplugin = \"tp\"\n"
#define SP TP "sequence_parallel = true\n"
#define CP_MESH(c, d, p) "[mesh]\ncontext = " #c "\ndata = " #d "\npipeline = " #p "\n"
#define CP "[strategy.context]\nplugin = \"cp\"\n"
#define PP(schedule) "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"

static const struct row kMeshes[] = {
    {"tp 2, ddp 2", 4, MESH(2, 2, 1) TP DATA("ddp")},
    {"tp 3, ddp 2", 6, MESH(3, 2, 1) TP DATA("ddp")},
    {"sp 3, ddp 2, small buckets", 6, MESH(3, 2, 1) SP DATA("ddp") "bucket_bytes = 64\n"},
    {"tp 2, dp 2", 4, MESH(2, 2, 1) TP DATA("dp")},
    {"sp 2, dp 2", 4, MESH(2, 2, 1) SP DATA("dp")},
    {"cp 2, dp 2", 4, CP_MESH(2, 2, 1) CP DATA("dp")},
    {"tp 3, zero 1 on 2", 6, MESH(3, 2, 1) TP DATA("zero") "stage = 1\n"},
    {"sp 2, zero 2 on 2", 4, MESH(2, 2, 1) SP DATA("zero") "stage = 2\n"},
    {"sp 3, zero 3 on 2", 6, MESH(3, 2, 1) SP DATA("zero") "stage = 3\n"},
    {"cp 3, zero 1 on 2", 6, CP_MESH(3, 2, 1) CP DATA("zero") "stage = 1\n"},
    {"cp 2, zero 3 on 2, small buckets", 4, CP_MESH(2, 2, 1) CP DATA("zero") "stage = 3\nbucket_bytes = 64\n"},
};
static const struct row kPipelines[] = {
    {"tp 2, pp 2 1f1b", 4, MESH(2, 1, 2) TP PP("1f1b")},
    {"sp 3, pp 2 1f1b", 6, MESH(3, 1, 2) SP PP("1f1b")},
    {"sp 2, pp 3 zb-h1", 6, MESH(2, 1, 3) SP PP("zb-h1")},
    {"sp 2, pp 2 zb-v", 4, MESH(2, 1, 2) SP PP("zb-v")},
    {"cp 2, pp 2 zb-v", 4, CP_MESH(2, 1, 2) CP PP("zb-v")},
    {"cp 3, pp 2 gpipe", 6, CP_MESH(3, 1, 2) CP PP("gpipe")},
    {"tp 2, zero 1 on 2, pp 2", 8, MESH(2, 2, 2) TP PP("1f1b") DATA("zero") "stage = 1\n"},
    {"sp 2, ddp 2, pp 2", 8, MESH(2, 2, 2) SP PP("1f1b") DATA("ddp")},
};

/* One rank trains with `reference` in [train], the others with `keys`, too. */
static void equal_one_rank(const struct row* rows, size_t n, const char* reference, const char* keys,
                           tensor_trial like) {
  char config[1024], text[1024], train_keys[256];
  tensor_outcome *expected = outcomes(), *out = outcomes();
  snprintf(train_keys, sizeof train_keys, "%s%s", reference, keys);
  snprintf(config, sizeof config, TRAIN_SECTION "%s", reference);
  tensor_trial one = like;
  one.config = config;
  one.ranks = 1;
  one.ring = 0;
  run_trial(&one, expected);
  for (size_t i = 0; i < n; ++i) {
    print_message("  %s%s%s\n", rows[i].name, *train_keys ? ", " : "", *train_keys ? train_keys : "");
    snprintf(text, sizeof text, TRAIN_SECTION "%s%s", train_keys, rows[i].sections);
    tensor_trial trial = like;
    trial.config = text;
    trial.ranks = rows[i].ranks;
    run_trial(&trial, out);
    compare(out, rows[i].ranks, expected, rows[i].name);
  }
  free_outcomes(expected);
  free_outcomes(out);
}
#define EQUAL_IN(rows, reference, keys, ...) \
  equal_one_rank(rows, sizeof(rows) / sizeof *(rows), reference, keys, (tensor_trial){__VA_ARGS__})
#define EQUAL(rows, keys) EQUAL_IN(rows, "", keys, .ranks = 0)

static void ranks_of_the_axis_train_what_one_rank_trains(void** state) {
  (void)state;
  EQUAL(kTensorAlone, "");
}

/* A pair of layers split by columns and rows: the input of the first is its own copy, the sum of the second is made
 * where its parts lie, and its gradient is both's. With positions in parts there is work to do. */
static void nothing_is_copied_where_nothing_changes(void** state) {
  tensor_outcome* out = outcomes();
  tensor_trial trial = {.config = TRAIN_SECTION TENSOR(2), .ranks = 2};
  (void)state;
  run_trial(&trial, out);
  for (int r = 0; r < 2; ++r) {
    assert_true(out[r].in_place);
    assert_int_equal(out[r].widest_h, 2 * (r == 0 ? 6 : 4)); /* 5 units of 2 in each of 2 blocks */
  }
  trial.config = TRAIN_SECTION SEQUENCE(2);
  run_trial(&trial, out);
  assert_false(out[0].in_place);
  free_outcomes(out);
}
static void with_micro_batches_and_a_norm(void** state) {
  (void)state;
  EQUAL_IN(kTensorAlone, "clip_norm = 1e9\n", "microbatch = 3\n", .ranks = 0);
}
static void recomputing_changes_nothing(void** state) {
  (void)state;
  EQUAL(kTensorAlone, "recompute = \"all\"\nmicrobatch = 4\n");
  EQUAL(kTensorAlone, "recompute = \"embed, positions, fc1, fc2\"\n");
  EQUAL(kTensorAlone, "recompute = \"fc1, gate, head\"\n");
}
static void moving_what_is_lent_changes_nothing(void** state) {
  (void)state;
  EQUAL(kTensorAlone, "lending = \"moved\"\nmicrobatch = 4\n");
  EQUAL(kTensorAlone, "lending = \"moved\"\nrecompute = \"all\"\n");
}
static void sixteen_bits_change_nothing(void** state) {
  (void)state, EQUAL(kTensorAlone, "precision = \"bf16\"\n");
}
static void an_overflow_on_one_rank_is_found_by_all(void** state) {
  (void)state;
  EQUAL_IN(kTensorAlone, "precision = \"fp16\"\n", "", .overflow_at_step = 2);
  EQUAL_IN(kMeshes, "precision = \"fp16\"\nclip_norm = 1e9\n", "", .overflow_at_step = 2);
}
static void the_data_axis_changes_nothing(void** state) {
  (void)state;
  EQUAL_IN(kMeshes, "clip_norm = 1e9\n", "microbatch = 3\n", .ranks = 0);
  EQUAL(kMeshes, "precision = \"bf16\"\nrecompute = \"all\"\n");
}
static void the_pipeline_changes_nothing(void** state) {
  (void)state;
  EQUAL_IN(kPipelines, "clip_norm = 1e9\n", "microbatches = 4\n", .ranks = 0);
  EQUAL_IN(kPipelines, "precision = \"fp16\"\n", "microbatches = 2\nrecompute = \"all\"\n", .overflow_at_step = 2);
}
/* What each rank would begin with differs; one rank's counts. */
static void whole_parameters_begin_alike(void** state) {
  (void)state;
  EQUAL_IN(kTensorAlone, "", "", .init_differs = 1);
  EQUAL_IN(kMeshes, "", "", .init_differs = 1);
  EQUAL_IN(kMeshes, "", "precision = \"bf16\"\n", .init_differs = 1);
}

static void blocks_passed_on_change_nothing(void** state) {
  static const struct row alone[] = {{"no axis", 1, ""}};
  (void)state;
  EQUAL_IN(alone, "", "", .ring = 1);
  EQUAL_IN(kTensorAlone, "", "microbatch = 3\n", .ring = 1);
  EQUAL_IN(kTensorAlone, "", "recompute = \"all\"\nlending = \"moved\"\n", .ring = 1);
  EQUAL_IN(kMeshes, "", "", .ring = 1);
  EQUAL_IN(kPipelines, "", "microbatches = 4\n", .ring = 1);
}

/* ---- optimizers of the embedder ---- */

/* The update is the gradient; it is as long as the parameter, by norms of the whole: so sums over parts are whole. */
static gsel_status step_by_norms(const gsel_optimizer_call* call, void* user) {
  (void)user;
  if (call->phase == 0) return GSEL_OK;
  const float sign = call->param_norm > call->update_norm ? 1.0f : -1.0f;
  for (int64_t i = 0; i < call->count; ++i)
    call->values[i] -= sign * (float)((call->gradient[i] > 0) - (call->gradient[i] < 0));
  return GSEL_OK;
}
static void norms_of_split_parameters_are_those_of_the_whole(void** state) {
  const gsel_optimizer_options lamb = {
      .struct_size = sizeof lamb, .needs = GSEL_NEEDS_PARAM_NORM, .step = step_by_norms};
  (void)state;
  EQUAL_IN(kTensorAlone, "", "", .optimizer = &lamb);
  EQUAL_IN(kMeshes, "", "", .optimizer = &lamb);
}

static void an_optimizer_of_whole_parameters_is_refused(void** state) {
  const gsel_optimizer_options muon = {
      .struct_size = sizeof muon, .needs = GSEL_NEEDS_WHOLE_PARAM, .step = step_by_norms};
  tensor_trial trial = {.config = TRAIN_SECTION TENSOR(2),
                        .ranks = 2,
                        .optimizer = &muon,
                        .refused = "parameter \"table\" is split over 2 ranks of the tensor axis"};
  tensor_outcome* out = outcomes();
  (void)state;
  run_trial(&trial, out);
  free_outcomes(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_of_the_axis_train_what_one_rank_trains),
      cmocka_unit_test(nothing_is_copied_where_nothing_changes),
      cmocka_unit_test(with_micro_batches_and_a_norm),
      cmocka_unit_test(recomputing_changes_nothing),
      cmocka_unit_test(moving_what_is_lent_changes_nothing),
      cmocka_unit_test(sixteen_bits_change_nothing),
      cmocka_unit_test(an_overflow_on_one_rank_is_found_by_all),
      cmocka_unit_test(the_data_axis_changes_nothing),
      cmocka_unit_test(the_pipeline_changes_nothing),
      cmocka_unit_test(whole_parameters_begin_alike),
      cmocka_unit_test(blocks_passed_on_change_nothing),
      cmocka_unit_test(norms_of_split_parameters_are_those_of_the_whole),
      cmocka_unit_test(an_optimizer_of_whole_parameters_is_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
