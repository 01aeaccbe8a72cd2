/* A tensor axis owes what every strategy owes: the single rank's result, bit for bit, alone and under every strategy of
 * the other axes. The model (support/small_transformer.h) has all that lies in parts; numbers are integers and the
 * optimizer is sign-SGD, so that no order of summation can hide a difference. Scale is checked by one plain step whose
 * numbers are powers of two, and by the norm. In every trial what was counted must be what the program's closed forms
 * say, and memory what was forecast. */
#include "support/share.h"
#include "support/tensor_trial.h"

struct tensor_row {
  const char *name, *section;
  int ranks;
  const char* axis; /* NULL: tensor */
};
#define TP "[strategy.tensor]\nplugin = \"tp\"\n"
#define TP_SP TP "sequence_parallel = true\n"
#define CP "[strategy.context]\nplugin = \"cp\"\n"
static const struct tensor_row kTensor[] = {
    {"no tensor axis", "", 1, NULL}, {"tp 1", TP, 1, NULL},       {"tp 2", TP, 2, NULL},
    {"tp 3", TP, 3, NULL},           {"tp 4", TP, 4, NULL},       {"tp 2 sp", TP_SP, 2, NULL},
    {"tp 3 sp", TP_SP, 3, NULL},     {"tp 4 sp", TP_SP, 4, NULL}, {"cp 1", CP, 1, "context"},
    {"cp 2", CP, 2, "context"},      {"cp 3", CP, 3, "context"},  {"cp 4", CP, 4, "context"},
};
enum { N_TENSOR = sizeof kTensor / sizeof *kTensor };

struct data_row {
  const char *name, *section;
  int ranks;
};
#define ZERO(stage, more) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\n" more
static const struct data_row kData[] = {
    {"alone", "", 1},
    {"ddp", "[strategy.data]\nplugin = \"ddp\"\n", 2},
    {"ddp, a bucket per parameter", "[strategy.data]\nplugin = \"ddp\"\nbucket_bytes = 1\nfirst_bucket_bytes = 1\n", 2},
    {"zero 1", ZERO("1", ""), 2},
    {"zero 2", ZERO("2", "bucket_bytes = 1\n"), 2},
    {"zero 3", ZERO("3", "persist_elems = 0\n"), 2},
    {"zero 3, keep step, small ones resident", ZERO("3", "persist_elems = 13\nkeep = \"step\"\n"), 2},
    {"dp", "[strategy.data]\nplugin = \"dp\"\n", 2},
};
enum {
  N_DATA = sizeof kData / sizeof *kData,
  DATA_ALONE = 0,
  DATA_DDP = 1,
  DATA_ZERO1 = 3,
  DATA_ZERO3 = 5,
  DATA_DP = 7
};

struct pipeline_row {
  const char *name, *section;
  int ranks;
};
#define PP(schedule) "[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"
static const struct pipeline_row kPipelines[] = {
    {"", "", 1}, {"1f1b", PP("1f1b"), 2}, {"zb-v", PP("zb-v"), 2}, {"1f1b over 4", PP("1f1b"), 4}};
enum { N_PIPELINES = sizeof kPipelines / sizeof *kPipelines };

enum { BATCH = 8, MICROBATCHES = 2 };

static const char* config_of(const struct tensor_row* t, const struct pipeline_row* p, const struct data_row* d,
                             const char* train) {
  static char text[1536];
  snprintf(text, sizeof text, "[mesh]\n%s = %d\npipeline = %d\ndata = %d\n%s%s%s%s", t->axis ? t->axis : "tensor",
           t->ranks, p->ranks, d->ranks, t->section, p->section, d->section, train);
  return text;
}

static const char* train_of(int batch, int microbatches, const char* more) {
  static char text[512];
  snprintf(text, sizeof text, TENSOR_TRAIN "%s", batch, microbatches, more);
  return text;
}

/* GSEL_TEST_TENSOR, a part of a row's name, picks some while one is looking for a mistake. */
static int is_tried(const struct tensor_row* t) {
  const char* only = getenv("GSEL_TEST_TENSOR");
  return !only || strstr(t->name, only);
}

static int ranks_of(const struct tensor_row* t, const struct pipeline_row* p, const struct data_row* d) {
  return t->ranks * p->ranks * d->ranks;
}

static void try_one(const struct tensor_row* t, const struct pipeline_row* p, const struct data_row* d,
                    tensor_trial trial, const char* train) {
  if (!is_tried(t) || (!trial.differs && !in_share())) return;
  trial.config = config_of(t, p, d, train);
  print_message("  %s, %s%s%s\n", t->name, p->name, *p->name ? ", " : "", d->name);
  try_tensor(&trial, ranks_of(t, p, d));
}

/* ---- equality ---- */

static void equals_one_rank(const struct pipeline_row* p) {
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  tensor_outcome* expected = tensor_reference(&trial, train_of(BATCH, 1, ""));
  trial.expected = expected;
  for (int t = 0; t < N_TENSOR; ++t)
    for (int d = 0; d < N_DATA; ++d) {
      const int over_pipeline = p->ranks > 1;
      if (ranks_of(&kTensor[t], p, &kData[d]) > 8 || (d == DATA_DP && over_pipeline)) continue;
      try_one(&kTensor[t], p, &kData[d], trial, train_of(BATCH, MICROBATCHES, ""));
    }
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}
static void alone_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kPipelines[0]);
}
static void over_1f1b_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kPipelines[1]);
}
static void over_zb_v_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kPipelines[2]);
}
static void over_four_stages_it_equals_one_rank(void** state) {
  (void)state, equals_one_rank(&kPipelines[3]);
}

/* Kernels of each rank saw all elements of all parameters. */
static void expect_whole(const tensor_outcome* out, int ranks) {
  for (int r = 0; r < ranks; ++r)
    for (int p = 0; p < TM_PARAMS; ++p)
      for (int64_t e = 0; e < tm_elems(p); ++e)
        if (!out[r].is_noted[p][e]) fail_msg("rank %d has no element %d of parameter %d", r, (int)e, p);
}

/* Layers that opt out: the network between two that are divided, heads whose keys are shared, a table that two layers
 * have, all of these, and one in the middle of others, which reads what was divided. */
static void with_layers_excluded_it_equals_one_rank(void** state) {
  (void)state;
  static const char* const excluded[] = {
      "up, gate, share, down", "queries,keys,attend,project", "embed, head, loss", "*", "gate", "u*,em*,head"};
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  tensor_outcome* expected = tensor_reference(&trial, train_of(BATCH, 1, ""));
  trial.expected = expected;
  for (size_t e = 0; e < sizeof excluded / sizeof *excluded; ++e)
    for (int sequence = 0; sequence < 2; ++sequence)
      for (int ranks = 2; ranks < 4; ++ranks) {
        char section[256];
        snprintf(section, sizeof section, TP "exclude = \"%s\"\n%s", excluded[e],
                 sequence ? "sequence_parallel = true\n" : "");
        const int all = *excluded[e] == '*';
        const struct tensor_row row = {all ? "all excluded" : "some excluded", section, ranks, NULL};
        const struct data_row* data = &kData[(int)(e + (size_t)ranks) % 2 ? DATA_ZERO3 : DATA_ALONE];
        const char* train = train_of(BATCH, MICROBATCHES, "");
        print_message("  exclude = \"%s\"\n", excluded[e]);
        if (!all) {
          try_one(&row, &kPipelines[sequence ? 0 : 1], data, trial, train);
        } else if (is_tried(&row)) {
          trial.config = config_of(&row, &kPipelines[0], data, train);
          try_tensor(&trial, ranks_of(&row, &kPipelines[0], data));
          expect_whole(out, ranks);
        }
      }
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

/* Each of these at a few sizes. `more` stands in the reference's section too where it changes what comes out. */
struct extra {
  const char *more, *reference;
};
static void equals_with(const struct extra* extras, size_t n, int overflow_at_step) {
  static const int tensor[] = {2, 3, 6, 7, 9, 11}, data[] = {DATA_ALONE, DATA_DDP, DATA_ZERO1, DATA_ZERO3};
  tensor_outcome* out = tensor_outcomes();
  for (size_t e = 0; e < n; ++e) {
    tensor_trial trial = tensor_trial_of(NULL, out);
    trial.m.overflow_at_step = overflow_at_step;
    trial.m.batch = BATCH;
    trial.m.count_all = strstr(extras[e].more, "clip_norm") != NULL;
    tensor_outcome* expected = tensor_reference(&trial, train_of(BATCH, 1, extras[e].reference));
    trial.expected = expected;
    print_message(" %s", extras[e].more);
    for (size_t t = 0; t < sizeof tensor / sizeof *tensor; ++t)
      for (size_t d = 0; d < sizeof data / sizeof *data; ++d)
        for (int p = 0; p < N_PIPELINES - 1; ++p)
          if (ranks_of(&kTensor[tensor[t]], &kPipelines[p], &kData[data[d]]) <= 8 && (t + d + (size_t)p + e) % 2 == 0)
            try_one(&kTensor[tensor[t]], &kPipelines[p], &kData[data[d]], trial,
                    train_of(BATCH, MICROBATCHES, extras[e].more));
    free_tensor_outcomes(expected);
  }
  free_tensor_outcomes(out);
}
static void with_all_that_a_step_may_have_it_equals_one_rank(void** state) {
  (void)state;
  static const struct extra extras[] = {
      {"recompute = \"all\"\n", ""},  {"recompute = \"norm, up, gate\"\n", ""},
      {"lending = \"moved\"\n", ""},  {"lending = \"moved\"\nrecompute = \"all\"\n", ""},
      {"precision = \"bf16\"\n", ""}, {"precision = \"fp16\"\n", ""},
  };
  equals_with(extras, sizeof extras / sizeof *extras, -1);
}

/* The norm of the mean gradient: a part that is counted twice, or divided twice, shows. */
static void norms_equal_those_of_one_rank(void** state) {
  (void)state;
  static const struct extra extras[] = {{"clip_norm = 1e9\n", "clip_norm = 1e9\n"},
                                        {"precision = \"fp16\"\nclip_norm = 1e9\n", "clip_norm = 1e9\n"}};
  equals_with(extras, sizeof extras / sizeof *extras, -1);
}

/* One rank of the tensor axis has a gradient that is not finite: nobody steps. */
static void an_overflow_on_one_rank_skips_the_step_on_all(void** state) {
  (void)state;
  static const struct extra extra = {"precision = \"fp16\"\n", "precision = \"fp16\"\n"};
  equals_with(&extra, 1, 1);
}

/* Sign-SGD does not see a gradient that is too large by a factor; one plain step does. All factors are powers of two.
 */
static void one_plain_step_equals_that_of_one_rank(void** state) {
  (void)state;
  static const char plain[] =
      "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.5\nweight_decay = 0.0\nseed = 5\nbatch = 8\nmicrobatches = %d\n";
  char train[256];
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  trial.m.count_all = 1;
  trial.steps = 1;
  snprintf(train, sizeof train, plain, 1);
  tensor_outcome* expected = tensor_reference(&trial, train);
  assert_true(expected->largest < 131072); /* 2^17 / 2^6 in steps of 2^-6: 24 bits hold it */
  assert_true(expected->weight[0] == 32);
  trial.expected = expected;
  snprintf(train, sizeof train, plain, MICROBATCHES);
  for (int t = 0; t < N_TENSOR; ++t)
    for (int p = 0; p < N_PIPELINES; ++p)
      for (int d = 0; d < N_DATA; ++d)
        if (ranks_of(&kTensor[t], &kPipelines[p], &kData[d]) <= 8 && !(p && d == DATA_DP))
          try_one(&kTensor[t], &kPipelines[p], &kData[d], trial, train);
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

/* Fewer samples than ranks of the data axis, and none at all in some micro-batches. */
static void ranks_without_samples_change_nothing(void** state) {
  (void)state;
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  tensor_outcome* expected = tensor_reference(&trial, train_of(3, 1, ""));
  trial.expected = expected;
  const struct data_row rows[] = {{"ddp over 4", "[strategy.data]\nplugin = \"ddp\"\n", 4},
                                  {"zero 2 over 2", ZERO("2", ""), 2}};
  for (int t = 0; t < N_TENSOR; ++t)
    for (size_t d = 0; d < 2; ++d)
      if (ranks_of(&kTensor[t], &kPipelines[0], &rows[d]) <= 8)
        try_one(&kTensor[t], &kPipelines[0], &rows[d], trial, train_of(3, 2, ""));
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

static void processes_equal_one_rank(void** state) {
  (void)state;
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  tensor_outcome* expected = tensor_reference(&trial, train_of(BATCH, 1, ""));
  trial.expected = expected;
  static const int tensor[] = {2, 6, 11};
  for (size_t t = 0; t < sizeof tensor / sizeof *tensor; ++t)
    for (int p = 0; p < 2; ++p) {
      trial.config = config_of(&kTensor[tensor[t]], &kPipelines[p], &kData[DATA_ALONE], train_of(BATCH, 2, ""));
      as_processes(kTensor[tensor[t]].ranks * kPipelines[p].ranks, train_tensor, &trial);
    }
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

/* ---- uneven shares ---- */

static void weights_change_who_has_what_and_not_what_comes_of_it(void** state) {
  (void)state;
  static const struct {
    const char* config;
    int ranks;
    int microbatches;
  } rows[] = {
      {"[mesh]\ntensor = 2\n" TP "weights = [3, 1]\n", 2, 2},
      {"[mesh]\ntensor = 2\n" TP_SP "weights = [1, 2.5]\n", 2, 2},
      {"[mesh]\ncontext = 2\n" CP "weights = [2, 1]\n", 2, 2},
      {"[mesh]\ntensor = 2\ndata = 2\n" TP "weights = [2, 1]\n[strategy.data]\nplugin = \"zero\"\nstage = 3\n"
       "persist_elems = 0\nweights = [3, 1]\n",
       4, 2},
      {"[mesh]\ndata = 3\n[strategy.data]\nplugin = \"ddp\"\nweights = [5, 1, 2]\n", 3, 2},
      {"[mesh]\ndata = 3\n[strategy.data]\nplugin = \"zero\"\nweights = [100, 1, 1]\n", 3, 1},
      {"[mesh]\npipeline = 3\n" PP("1f1b") "weights = [1, 2, 1]\n", 3, 4},
      {"[mesh]\npipeline = 2\ndata = 2\n" PP("zb-v") "weights = [1, 3]\n[strategy.data]\nplugin = \"zero\"\n"
                                                     "weights = [3, 1]\n",
       4, 2},
  };
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  trial.m.group_units = 1;
  tensor_outcome* expected = tensor_reference(&trial, train_of(BATCH, 1, ""));
  trial.expected = expected;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    char config[1024];
    snprintf(config, sizeof config, "%s%s", rows[i].config, train_of(BATCH, rows[i].microbatches, ""));
    trial.config = config;
    print_message("  %s", rows[i].config);
    try_tensor(&trial, rows[i].ranks);
  }
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

/* ---- mistakes ---- */

static void mistakes_of_the_description_are_refused(void** state) {
  (void)state;
  static const struct {
    int mistake, tensor;
    const char* why;
  } rows[] = {
      {TM_LOSS_NOT_REDUCED, 2, "layer \"loss\" has a shard of an input or parameter and writes value \"loss\" whole"},
      {TM_PARTIAL_TAKEN_AS_REPLICATED, 2,
       "layer \"down\" has a shard of an input or parameter and writes value \"y\" whole"},
      {TM_SHARD_TAKEN_AS_REPLICATED, 2,
       "layer \"head\" has a shard of an input or parameter and writes value \"logits\" whole"},
      {TM_BIAS_PER_RANK, 2, "layer \"project\" writes partial sums of value \"o\" and has all of parameter \"bo\""},
      {TM_LINEARS_NOT_BY_POSITION, 9,
       "cp: layer \"project\" reads shards of values and has the whole parameter \"wo\"; flag it "
       "GSEL_LAYER_POSITIONWISE"},
      {TM_NO_SEQUENCE_DIM, 9,
       "cp: layer \"project\" reads shards of values and has the whole parameter \"wo\"; its value \"o\" has no "
       "sequence_dim: give it the dimension of its positions"},
  };
  tensor_trial trial = tensor_trial_of(NULL, NULL);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    trial.m.mistake = rows[i].mistake;
    trial.refused = GSEL_ERR_MODEL;
    trial.why = rows[i].why;
    trial.config = config_of(&kTensor[rows[i].tensor], &kPipelines[0], &kData[DATA_ALONE], train_of(BATCH, 1, ""));
    as_threads(2, refuse_tensor, &trial);
  }
}

/* What cannot be seen from a description must be seen by the comparison, or this file proves nothing. */
static void other_mistakes_change_what_comes_of_it(void** state) {
  (void)state;
  static const struct {
    int mistake, tensor;
  } rows[] = {{TM_SHARE_NOT_REDUCED, 2}, {TM_BACKWARD_NOT_REDUCED, 2}, {TM_IGNORES_PARTS, 2}, {TM_NOT_BY_POSITION, 9}};
  tensor_outcome* out = tensor_outcomes();
  tensor_trial trial = tensor_trial_of(NULL, out);
  tensor_outcome* expected = tensor_reference(&trial, train_of(BATCH, 1, ""));
  trial.expected = expected;
  trial.differs = 1;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    trial.m.mistake = rows[i].mistake;
    try_one(&kTensor[rows[i].tensor], &kPipelines[0], &kData[DATA_ALONE], trial, train_of(BATCH, 1, ""));
    int different = 0;
    for (int p = 0; p < TM_PARAMS; ++p)
      for (int64_t e = 0; e < tm_elems(p); ++e)
        for (int r = 0; r < kTensor[rows[i].tensor].ranks; ++r)
          different += out[r].is_noted[p][e] && out[r].noted[p][e] != expected->noted[p][e];
    if (!different && is_tried(&kTensor[rows[i].tensor])) fail_msg("mistake %d was not seen", rows[i].mistake);
  }
  free_tensor_outcomes(expected);
  free_tensor_outcomes(out);
}

static void what_cannot_be_divided_is_refused_with_what_would_do(void** state) {
  (void)state;
  static const struct {
    const char* config;
    int ranks;
    gsel_status code;
    const char* why;
  } rows[] = {
      {"[mesh]\ntensor = 5\n" TP, 5, GSEL_ERR_CONFIG,
       "parameter \"wq\" cannot be split over 5 ranks of the tensor axis: its dimension 1 of 8 elements can be cut in "
       "4 at most, with a granularity of 2; set mesh.tensor = 4 or less"},
      {"[mesh]\ncontext = 5\n" CP, 5, GSEL_ERR_CONFIG,
       "its dimension 1 of 4 elements can be cut in 4 at most, with a granularity of 1; set mesh.context = 4"},
      {"[mesh]\ntensor = 2\n", 2, GSEL_ERR_CONFIG, "add [strategy.tensor] with plugin"},
      {"[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"ddp\"\n", 2, GSEL_ERR_CONFIG,
       "does not serve the tensor axis"},
      {"[mesh]\ntensor = 2\n" TP "sequence = true\n", 2, GSEL_ERR_CONFIG,
       "trial.toml:5: unknown key \"strategy.tensor.sequence\"; plugin \"tp\" has sequence_parallel, exclude"},
      {"[mesh]\ntensor = 2\n" TP "exclude = \"up, shard\"\n", 2, GSEL_ERR_CONFIG,
       "tp: strategy.tensor.exclude names \"shard\", and no layer has this name, the nearest is \"share\"; names with "
       "commas between are accepted"},
      {"[mesh]\ntensor = 2\n" TP "exclude = \"x*\"\n", 2, GSEL_ERR_CONFIG,
       "tp: strategy.tensor.exclude names \"x*\", and no layer has this name"},
      {"[mesh]\ntensor = 2\n" TP "exclude = \"norm\"\n", 2, GSEL_ERR_CONFIG,
       "tp: strategy.tensor.exclude names \"norm\", and nothing divides layer \"norm\"; leave it out"},
      {"[mesh]\ntensor = 2\n" TP "exclude = \"head\"\n", 2, GSEL_ERR_CONFIG,
       "tp: strategy.tensor.exclude names layer \"head\" and not layer \"embed\", and both have parameter \"table\"; "
       "name both or neither"},
      {"[mesh]\ntensor = 2\n" TP "weights = [1, 2, 3]\n", 2, GSEL_ERR_CONFIG,
       "trial.toml:5: strategy.tensor.weights = [1, 2, 3] has 3 numbers, and the tensor axis has 2 ranks; give "
       "one number for each rank"},
      {"[mesh]\ndata = 2\n[strategy.data]\nplugin = \"dp\"\nweights = [1, 2]\n", 2, GSEL_ERR_UNSUPPORTED,
       "dp: strategy.data.weights differ, and the master scatters even shards"},
      {"[mesh]\npipeline = 2\ndata = 2\n" PP("1f1b") "[strategy.data]\nplugin = \"ddp\"\nweights = [2, 1]\n", 4,
       GSEL_ERR_CONFIG,
       "strategy.data.weights = [2, 1] give coordinate 0 of the data axis 5 of train.batch = 8 samples, which are not "
       "2 "
       "equal "
       "micro-batches"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    char config[1024];
    snprintf(config, sizeof config, "%s%s", rows[i].config, train_of(BATCH, MICROBATCHES, ""));
    tensor_trial trial = tensor_trial_of(config, NULL);
    trial.refused = rows[i].code;
    trial.why = rows[i].why;
    print_message("  %s\n", rows[i].why);
    as_threads(rows[i].ranks, refuse_tensor, &trial);
  }
}

/* Attention finds that heads of queries came without their keys. */
static void a_failing_kernel_ends_the_step_everywhere(void** state) {
  (void)state;
  char config[1024];
  snprintf(config, sizeof config, "[mesh]\ntensor = 2\n" TP "weights = [3, 1]\n%s", train_of(BATCH, 1, ""));
  tensor_trial trial = tensor_trial_of(config, NULL);
  trial.refused = GSEL_ERR_INTERNAL;
  trial.why = "head 2 is here, its keys are not";
  rank_run* runs = ranks_prepare(2, &trial);
  ranks_run_threads(runs, 2, refuse_tensor);
  /* The other rank is told who failed. */
  const int one = !runs[0].failure[0] || strstr(runs[0].failure, "attend");
  const int other = !runs[1].failure[0] || strstr(runs[1].failure, "attend");
  if (!one || !other) fail_msg("%s\n%s", runs[0].failure, runs[1].failure);
  munmap(runs, sizeof *runs * 2);
}

static void ranks_that_disagree_on_weights_are_told(void** state) {
  (void)state;
  static const char* const axes[] = {"tensor", "data", "pipeline"};
  static const char* const sections[] = {TP, "[strategy.data]\nplugin = \"ddp\"\n", PP("1f1b")};
  for (int i = 0; i < 3; ++i) {
    char one[768], other[768];
    snprintf(one, sizeof one, "[mesh]\n%s = 2\n%s%s%s", axes[i], sections[i], "weights = [1, 1]\n",
             train_of(BATCH, 1, ""));
    snprintf(other, sizeof other, "[mesh]\n%s = 2\n%s%s%s", axes[i], sections[i], "weights = [1, 3]\n",
             train_of(BATCH, 1, ""));
    tensor_trial trial = tensor_trial_of(one, NULL);
    trial.other_rank = 1;
    trial.other_config = other;
    trial.refused = GSEL_ERR_MISMATCH;
    char why[128];
    snprintf(why, sizeof why, "setting strategy.%s.weights differs between rank 0 and rank 1", axes[i]);
    trial.why = why;
    as_threads(2, refuse_tensor, &trial);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(alone_it_equals_one_rank),
      cmocka_unit_test(over_1f1b_it_equals_one_rank),
      cmocka_unit_test(over_zb_v_it_equals_one_rank),
      cmocka_unit_test(over_four_stages_it_equals_one_rank),
      cmocka_unit_test(with_layers_excluded_it_equals_one_rank),
      cmocka_unit_test(with_all_that_a_step_may_have_it_equals_one_rank),
      cmocka_unit_test(norms_equal_those_of_one_rank),
      cmocka_unit_test(an_overflow_on_one_rank_skips_the_step_on_all),
      cmocka_unit_test(one_plain_step_equals_that_of_one_rank),
      cmocka_unit_test(ranks_without_samples_change_nothing),
      cmocka_unit_test(processes_equal_one_rank),
      cmocka_unit_test(weights_change_who_has_what_and_not_what_comes_of_it),
      cmocka_unit_test(mistakes_of_the_description_are_refused),
      cmocka_unit_test(other_mistakes_change_what_comes_of_it),
      cmocka_unit_test(what_cannot_be_divided_is_refused_with_what_would_do),
      cmocka_unit_test(a_failing_kernel_ends_the_step_everywhere),
      cmocka_unit_test(ranks_that_disagree_on_weights_are_told),
  };
  return cmocka_run_group_tests_name("tensor_strategies", tests, NULL, NULL);
}
