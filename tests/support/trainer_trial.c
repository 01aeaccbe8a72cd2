/* See trainer_trial.h. */
#include "support/trainer_trial.h"

#include <math.h>

#include "support/tensor_trial.h"

_Static_assert((int)EXACT_ELEMS <= (int)MOST_ELEMS, "an outcome holds the parameters of either model");

trial plain(const char* config, outcome* out) {
  trial t;
  memset(&t, 0, sizeof t);
  t.config = config;
  t.steps = STEPS;
  t.wide_on_rank = t.fail_at_step = t.overflow_at_step = -1;
  t.out = out;
  return t;
}

outcome* shared_outcomes(void) {
  return (outcome*)shared_memory(sizeof(outcome) * RANKS_MAX);
}
void free_outcomes(outcome* o) {
  munmap(o, sizeof(outcome) * RANKS_MAX);
}

gsel_status call_layer(const gsel_work* work, exact_model* m) {
  const exact_layer* l = &kExactLayers[work->call->layer];
  const gsel_layer_fn kernels[] = {NULL, NULL, l->forward, l->backward_input, l->backward_weight, l->backward};
  return kernels[work->kind](work->call, m);
}

gsel_status pull_works(gsel_trainer* trainer, exact_model* m, gsel_error** err) {
  for (;;) {
    gsel_work work = GSEL_WORK_INIT;
    gsel_status status = gsel_trainer_next_work(trainer, &work, err);
    if (status) return status;
    if (work.kind == GSEL_WORK_DONE) return GSEL_OK;
    const gsel_status result = work.input ? exact_data(work.input, NULL) : call_layer(&work, m);
    const gsel_str none = {NULL, 0};
    status =
        gsel_trainer_complete(trainer, work.ticket, result, work.call ? gsel_str_from(work.call->message) : none, err);
    if (status) return status;
  }
}
gsel_status pull_step(gsel_trainer* trainer, exact_model* m, gsel_step_report* report, gsel_error** err) {
  const gsel_status status = pull_works(trainer, m, err);
  return status ? status : gsel_trainer_report(trainer, report, err);
}

void read_params(rank_run* run, gsel_trainer* trainer, float* out) {
  gsel_error* err = NULL;
  for (int p = 0; p < N_PARAMS; out += kExactElems[p++])
    rank_ok(run, gsel_trainer_read_param(trainer, p, out, sizeof(float) * (size_t)kExactElems[p], &err), err);
}

gsel_status session_work(session* s, const gsel_work* work) {
  if (s->transformer) return tensor_work(work, s->transformer);
  return work->input ? exact_data(work->input, NULL) : call_layer(work, &s->m);
}
gsel_data_fn session_data(const session* s) {
  return s->transformer ? tm_data : exact_data;
}
int session_elems(const session* s) {
  return s->transformer ? TM_ELEMS : EXACT_ELEMS;
}
void read_session_params(rank_run* run, const session* s, float* out) {
  gsel_error* err = NULL;
  if (!s->transformer) {
    read_params(run, s->trainer, out);
    return;
  }
  for (int p = 0; p < TM_PARAMS; out += tm_elems(p++))
    rank_ok(run, gsel_trainer_read_param(s->trainer, p, out, sizeof(float) * (size_t)tm_elems(p), &err), err);
}

static gsel_status describe(session* s, const trial* t, int rank, gsel_error** err) {
  if (!t->transformer) return exact_describe(s->model, &s->m, err);
  s->transformer = (small_transformer*)malloc(sizeof *s->transformer); /* large */
  *s->transformer = *t->transformer;
  s->transformer->rank = rank;
  return tm_describe(s->model, s->transformer, err);
}

gsel_status open_session(rank_run* run, session* s, gsel_error** err) {
  const trial* t = (const trial*)run->user;
  const char* config = run->rank == 1 && t->other_config_on_1 ? t->other_config_on_1 : t->config;
  memset(s, 0, sizeof *s);
  s->m.count_all = t->count_all;
  s->m.random = t->random;
  s->m.loss_factor = t->loss_factor;
  s->m.rank = run->rank;
  s->m.wide_b1 = t->wide_on_rank == run->rank;
  s->m.fail_at_step = t->fail_at_step;
  s->m.fail_on_rank = t->fail_on_rank;
  s->m.overflow_at_step = t->overflow_at_step;
  s->m.batch = t->batch;
  s->m.at_failure = t->at_failure;
  s->m.vary = t->vary;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_status status = t->without_comm ? GSEL_OK : rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(config), gsel_str_from("trial.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = describe(s, t, run->rank, err);
  options.config = s->config;
  options.data = t->data ? t->data : session_data(s);
  options.optimizer = t->optimizer;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void close_session(session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
  free(s->transformer);
}

void compare_outcomes(rank_run* run, const outcome* out, const outcome* expected) {
  if (!same_params(run, out->params, expected->params, MOST_ELEMS)) return;
  rank_check(run, memcmp(out->loss, expected->loss, sizeof out->loss) == 0);
  rank_check(run, memcmp(out->weight, expected->weight, sizeof out->weight) == 0);
  rank_check(run, memcmp(out->skipped, expected->skipped, sizeof out->skipped) == 0);
}

void train_in(rank_run* run, session* s) {
  const trial* t = (const trial*)run->user;
  outcome* out = &t->out[run->rank];
  gsel_error* err = NULL;
  for (int i = 0; i < t->steps; ++i) {
    gsel_step_report report = GSEL_STEP_REPORT_INIT;
    if (t->pull)
      rank_ok(run, pull_step(s->trainer, &s->m, &report, &err), err);
    else
      rank_ok(run, gsel_trainer_step(s->trainer, &report, &err), err);
    out->loss[i] = report.loss_sum;
    out->weight[i] = report.weight;
    out->skipped[i] = report.skipped;
    out->norm[i] = report.gradient_norm;
    out->report = report;
    rank_check(run, report.step == i);
  }
  out->largest = s->transformer ? s->transformer->largest : s->m.largest;
  for (int k = 1; k < KINDS; ++k) out->counts[k] = trainer_counts(s->trainer, k, GSEL_AXIS_DATA);
  read_session_params(run, s, out->params);
  if (t->expected && !run->failure[0]) compare_outcomes(run, out, t->expected);
}

void train(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_status status = open_session(run, &s, &err);
  if (!status) train_in(run, &s);
  close_session(&s);
  rank_ok(run, status, err);
}

outcome* exact_reference(const trial* like, const char* train_section) {
  outcome* out = shared_outcomes();
  trial t = *like;
  t.config = train_section;
  t.out = out;
  t.expected = NULL;
  as_threads(1, train, &t);
  assert_true(out->largest < 16777216.0);
  for (int i = 0; i < EXACT_ELEMS; ++i) assert_true(out->params[i] == floorf(out->params[i]));
  return out;
}

/* ---- the strategies under test ---- */

struct strategy_row kStrategies[] = {
    {"dp", DP("")},
    {"dp, a bucket per parameter", DP("bucket_bytes = 1\n")},
    {"dp, without overlap", DP("bucket_bytes = 100\noverlap = false\n")},
    {"by default", ""},
    {"ddp, a bucket per parameter", DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\n")},
    {"ddp, without overlap", DDP("overlap = false\nfirst_bucket_bytes = 100\n")},
    {"zero 1", ZERO("1", "")},
    {"zero 1, a bucket per parameter", ZERO("1", "bucket_bytes = 1\n")},
    {"zero 1, offload state", ZERO("1", "bucket_bytes = 100\noffload = \"state\"\n")},
    {"zero 2", ZERO("2", "")},
    {"zero 2, a bucket per parameter", ZERO("2", "bucket_bytes = 1\n")},
    {"zero 2, without overlap", ZERO("2", "bucket_bytes = 100\noverlap = false\n")},
    {"zero 3", ZERO("3", ALL_SHARDED)},
    {"zero 3, without overlap", ZERO("3", ALL_SHARDED "overlap = false\n")},
    {"zero 3, small ones resident", ZERO("3", "persist_elems = 13\nbucket_bytes = 1\n")},
    {"zero 3, all resident", ZERO("3", "")},
    {"zero 3, keep forward", ZERO("3", ALL_SHARDED "keep = \"forward\"\n")},
    {"zero 3, keep step", ZERO("3", ALL_SHARDED "keep = \"step\"\n")},
    {"zero 3, nothing ahead", ZERO("3", ALL_SHARDED "prefetch_elems = 0\n")},
    {"zero 3, a little ahead", ZERO("3", ALL_SHARDED "prefetch_elems = 20\n")},
    {"zero 3, keep forward, a little ahead", ZERO("3", ALL_SHARDED "keep = \"forward\"\nprefetch_elems = 36\n")},
    {"zero 3, offload state", ZERO("3", ALL_SHARDED "offload = \"state\"\n")},
    {"zero 3, offload all", ZERO("3", ALL_SHARDED "offload = \"all\"\n")},
};

/* A strategy of somebody else's: the file that GSEL_TEST_SECTION names, such as [strategy.data] plugin = "mine", takes
 * the place of the first row, and is the only one that is tried. GSEL_PLUGIN_PATH says where its plugin is. */
__attribute__((constructor)) static void take_section_of_the_environment(void) {
  static char section[512];
  const char* path = getenv("GSEL_TEST_SECTION");
  if (!path) return;
  FILE* file = fopen(path, "r");
  const size_t n = file ? fread(section, 1, sizeof section - 1, file) : 0;
  if (n == 0 || n == sizeof section - 1) {
    fprintf(stderr, "GSEL_TEST_SECTION=%s: the file must have 1 to %zu bytes\n", path, sizeof section - 2);
    exit(1);
  }
  fclose(file);
  kStrategies[0].name = path;
  kStrategies[0].section = section;
}

int is_tried(int strategy) {
  const char* only = getenv("GSEL_TEST_STRATEGY");
  if (getenv("GSEL_TEST_SECTION")) return strategy == 0;
  return !only || strstr(kStrategies[strategy].name, only);
}
