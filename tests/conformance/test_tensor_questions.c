/* What a trainer is asked between steps where ranks share a model along the tensor axis: parameters and values are
 * whole on every rank and bit for bit those of one rank, on every mesh; an inference asks for inputs where they are
 * read; a rank that fails in one is named to the others of its replica, and all go on. */
#include "support/ranks.h"
#include "support/tensor_model.h"

enum { Q_SAMPLES = 3, Q_MOST = Q_SAMPLES * T_POSITIONS * 2 * T_HIDDEN, Q_STEPS = 2 };

typedef struct answers {
  float params[TP_PARAMS][T_MOST];
  char values[TV_VALUES][8 * Q_MOST];
} answers;

typedef struct question {
  const char* config;
  answers* out; /* of one rank: written; of several: compared with */
  int holds;
  int data_ranks, tensor_ranks;
  const char* fails_in; /* of rank 1: "tokens", or a layer; NULL: none */
  int fetches[8];       /* by rank: inputs asked for in the last inference */
} question;

/* ---- a session ---- */

typedef struct session {
  rank_run* run;
  question* q;
  tensor_model m;
  tensor_init inits[TP_PARAMS];
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
  int asks_fail;
} session;

static gsel_status open_session(session* s, gsel_error** err) {
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  s->run->timeout_s = 20;
  gsel_status status = rank_join(s->run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(s->q->config), gsel_str_from("question.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = tensor_describe(s->model, &s->m, s->inits, err);
  options.config = s->config;
  options.data = tensor_data;
  return status ? status : gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
}
static void close_session(session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
}

static gsel_status asked_data(const gsel_data_request* r, void* user) {
  session* s = (session*)user;
  ++s->q->fetches[s->run->rank];
  if (s->asks_fail) return GSEL_ERR_IO;
  return tensor_data(r, NULL);
}

static size_t value_size(int v) {
  const int64_t channels = kTensorValues[v].channels ? kTensorValues[v].channels : 1;
  return v >= TV_LOSS ? 8 : (size_t)(Q_SAMPLES * T_POSITIONS * channels) * 4;
}
static size_t param_size(int p) {
  return (size_t)(kTensorParams[p].dims[0] * kTensorParams[p].dims[1]) * 4;
}

/* ---- the same answers as on one rank ---- */

static void ask_all(session* s) {
  rank_run* run = s->run;
  question* q = s->q;
  gsel_error* err = NULL;
  answers* got = (answers*)calloc(1, sizeof *got);
  answers* all = run->world_size == 1 ? q->out : got;
  for (int p = 0; p < TP_PARAMS && !run->failure[0]; ++p)
    if (gsel_trainer_read_param(s->trainer, p, all->params[p], param_size(p), &err))
      snprintf(run->failure, sizeof run->failure, "rank %d: parameter %s: %s", run->rank, kTensorParams[p].name,
               gsel_error_message(err).data);
    else if (memcmp(all->params[p], q->out->params[p], param_size(p)))
      snprintf(run->failure, sizeof run->failure, "rank %d: parameter %s differs", run->rank, kTensorParams[p].name);
  for (int v = 0; v < TV_VALUES && !run->failure[0]; ++v)
    for (int again = 0; again < 2 && !run->failure[0]; ++again)
      if (gsel_trainer_infer(s->trainer, v, Q_SAMPLES, asked_data, s, all->values[v], value_size(v), &err))
        snprintf(run->failure, sizeof run->failure, "rank %d: value %s: %s", run->rank, kTensorValues[v].name,
                 gsel_error_message(err).data);
      else if (memcmp(all->values[v], q->out->values[v], value_size(v)))
        snprintf(run->failure, sizeof run->failure, "rank %d: value %s differs", run->rank, kTensorValues[v].name);
  gsel_error_free(err);
  free(got);
}

static void ask_between_steps(rank_run* run) {
  gsel_error* err = NULL;
  session s = {.run = run, .q = (question*)run->user};
  rank_ok(run, open_session(&s, &err), err);
  rank_check(run, gsel_trainer_holds_params(s.trainer) == (run->world_size == 1 || s.q->holds));
  for (int i = 0; i < Q_STEPS; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  ask_all(&s);
  if (run->failure[0]) return;
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

#define TRAIN_SECTION \
  "[train]\nbatch = 8\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\nseed = 3\n"
#define MESH(tensor, pipeline) "[mesh]\ntensor = " #tensor "\npipeline = " #pipeline "\n"
#define TP "[strategy.tensor]\nplugin = \"tp\"\n"
#define SP TP "sequence_parallel = true\n"
#define CP_MESH(context, pipeline) "[mesh]\ncontext = " #context "\npipeline = " #pipeline "\n"
#define CP "[strategy.context]\nplugin = \"cp\"\n"
#define PP "[strategy.pipeline]\nplugin = \"pp\"\n"
#define ZERO(stage) "[strategy.data]\nplugin = \"zero\"\nstage = " #stage "\n"
#define ZERO3 ZERO(3) "persist_elems = 0\n"
#define DP "[strategy.data]\nplugin = \"dp\"\n"

struct row {
  const char* name;
  int ranks;
  const char *keys, *sections;
};

static const struct row kRows[] = {
    {"tp on 2", 2, "", MESH(2, 1) TP},
    {"tp on 3", 3, "", MESH(3, 1) TP},
    {"sequence parallel on 2", 2, "", MESH(2, 1) SP},
    {"sequence parallel on 3", 3, "", MESH(3, 1) SP},
    {"cp on 2", 2, "", CP_MESH(2, 1) CP},
    {"cp on 3", 3, "", CP_MESH(3, 1) CP},
    {"tp on 2, ddp on 2", 4, "", MESH(2, 1) TP},
    {"tp on 2, zero 1 on 2", 4, "", MESH(2, 1) TP ZERO(1)},
    {"tp on 3, zero 2 on 2", 6, "", MESH(3, 1) TP ZERO(2)},
    {"tp on 2, zero 3 on 2", 4, "", MESH(2, 1) TP ZERO3},
    {"sequence parallel on 2, zero 3 on 2", 4, "", MESH(2, 1) SP ZERO3},
    {"tp on 2, dp on 2", 4, "", MESH(2, 1) TP DP},
    {"tp on 2, pp on 2", 4, "microbatches = 2\n", MESH(2, 2) TP PP},
    {"sequence parallel on 2, pp on 2", 4, "microbatches = 2\n", MESH(2, 2) SP PP},
    {"tp on 2, pp on 3", 6, "microbatches = 2\n", MESH(2, 3) TP PP},
    {"tp on 2, pp on 2 by zb-v", 4, "microbatches = 4\n", MESH(2, 2) TP PP "schedule = \"zb-v\"\n"},
    {"tp on 2, pp on 2, zero 1 on 2", 8, "microbatches = 2\n", MESH(2, 2) TP PP ZERO(1)},
    {"tp on 2, pp on 2, zero 3 on 2", 8, "microbatches = 2\n", MESH(2, 2) TP PP ZERO3},
    {"cp on 2, pp on 2", 4, "microbatches = 2\n", CP_MESH(2, 2) CP PP},
    {"pp on 3", 3, "microbatches = 2\n", MESH(1, 3) PP},
    {"zero 3 on 2", 2, "", ZERO3},
};

static void compare_with_one_rank(const char* keys) {
  char config[1024];
  question q;
  memset(&q, 0, sizeof q);
  q.out = (answers*)calloc(1, sizeof *q.out);
  q.config = config;
  snprintf(config, sizeof config, TRAIN_SECTION "%s", keys);
  as_threads(1, ask_between_steps, &q);
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    print_message("  %s%s%s\n", kRows[i].name, *keys ? ", " : "", keys);
    snprintf(config, sizeof config, TRAIN_SECTION "%s%s%s", kRows[i].keys, keys, kRows[i].sections);
    as_threads(kRows[i].ranks, ask_between_steps, &q);
  }
  free(q.out);
}

static void answers_are_those_of_one_rank(void** state) {
  (void)state;
  compare_with_one_rank("");
}
static void parameters_in_16_bits_are_read_exactly(void** state) {
  (void)state;
  compare_with_one_rank("precision = \"bf16\"\n");
}
static void memory_that_moves_is_asked_as_well(void** state) {
  (void)state;
  compare_with_one_rank("lending = \"moved\"\n");
}

/* ---- inputs are asked for where they are read ---- */

static void ask_for_x(rank_run* run) {
  gsel_error* err = NULL;
  session s = {.run = run, .q = (question*)run->user};
  float u[Q_SAMPLES * T_POSITIONS * T_WIDTH];
  rank_ok(run, open_session(&s, &err), err);
  rank_ok(run, gsel_trainer_infer(s.trainer, TV_U, Q_SAMPLES, asked_data, &s, u, sizeof u, &err), err);
  close_session(&s);
}

static void inputs_are_asked_for_where_they_are_read(void** state) {
  (void)state;
  question q;
  memset(&q, 0, sizeof q);
  q.config = TRAIN_SECTION "microbatches = 2\n" MESH(2, 2) TP PP "cuts = \"fc2\"\n";
  as_threads(4, ask_for_x, &q);
  for (int r = 0; r < 4; ++r) assert_int_equal(q.fetches[r], r < 2); /* stage 1 reads tokens for its loss alone */
}

/* ---- failures ---- */

static void fail_and_go_on(rank_run* run) {
  gsel_error* err = NULL;
  session s = {.run = run, .q = (question*)run->user};
  const question* q = s.q;
  const int is_input = !strcmp(q->fails_in, "tokens"), fails = run->rank == 1;
  const int replica = run->rank / q->tensor_ranks % q->data_ranks;
  double loss = -1, before = -1;
  rank_ok(run, open_session(&s, &err), err);
  rank_ok(run, gsel_trainer_infer(s.trainer, TV_LOSS, Q_SAMPLES, asked_data, &s, &before, sizeof before, &err), err);
  s.asks_fail = fails && is_input;
  s.m.fails_in = fails && !is_input ? q->fails_in : NULL;
  for (int i = 0; i < 2; ++i) {
    const gsel_status status =
        gsel_trainer_infer(s.trainer, TV_LOSS, Q_SAMPLES, asked_data, &s, &loss, sizeof loss, &err);
    if (fails)
      rank_fails(run, status, err, GSEL_ERR_CALLBACK, "failed in an inference", -1);
    else if (replica == 0)
      rank_fails(run, status, err, GSEL_ERR_PEER, is_input ? "rank 1: input \"tokens\" failed" : "was told to fail", 1);
    else
      rank_ok(run, status, err);
  }
  s.asks_fail = 0;
  s.m.fails_in = NULL;
  rank_ok(run, gsel_trainer_infer(s.trainer, TV_LOSS, Q_SAMPLES, asked_data, &s, &loss, sizeof loss, &err), err);
  rank_check(run, loss == before);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void a_failure_is_told_to_the_replica_and_all_go_on(void** state) {
  (void)state;
  static const struct {
    int ranks, data, tensor;
    const char* config;
    const char* layer; /* of stage 0 */
  } rows[] = {
      {2, 1, 2, TRAIN_SECTION MESH(2, 1) TP, "loss"},
      {3, 1, 3, TRAIN_SECTION MESH(3, 1) SP, "gate"},
      {4, 2, 2, TRAIN_SECTION MESH(2, 1) TP, "gate"},
      {4, 2, 2, TRAIN_SECTION MESH(2, 1) TP ZERO3, "loss"},
      {4, 1, 2, TRAIN_SECTION "microbatches = 2\n" MESH(2, 2) TP PP "cuts = \"fc2\"\n", "gate"},
      {8, 2, 2, TRAIN_SECTION "microbatches = 2\n" MESH(2, 2) TP PP "cuts = \"fc2\"\n" ZERO3, "gate"},
      {2, 1, 1, TRAIN_SECTION "microbatches = 2\n" MESH(1, 2) PP "cuts = \"gate\"\n", "gate"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    for (int input = 0; input < 2; ++input) {
      question q;
      memset(&q, 0, sizeof q);
      q.config = rows[i].config;
      q.data_ranks = rows[i].data;
      q.tensor_ranks = rows[i].tensor;
      q.fails_in = input ? "tokens" : rows[i].layer;
      print_message("  %d ranks, %s fails\n", rows[i].ranks, q.fails_in);
      as_threads(rows[i].ranks, fail_and_go_on, &q);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(answers_are_those_of_one_rank),
      cmocka_unit_test(parameters_in_16_bits_are_read_exactly),
      cmocka_unit_test(memory_that_moves_is_asked_as_well),
      cmocka_unit_test(inputs_are_asked_for_where_they_are_read),
      cmocka_unit_test(a_failure_is_told_to_the_replica_and_all_go_on),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
