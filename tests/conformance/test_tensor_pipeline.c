/* Pipelines without a trainer whose stages are shared by ranks of a tensor axis: declared parameters are frozen and
 * each rank has its part of them, from the same initial values; what runs forward is bit for bit what one rank
 * computes. */
#include "support/ranks.h"
#include "support/tensor_model.h"

enum { PIPE_RUNS = 3, PIPE_MOST = 8 };

typedef struct pipe_outcome {
  double loss[PIPE_RUNS], weight[PIPE_RUNS];
  float params[TP_PARAMS][T_MOST];
  unsigned char has[TP_PARAMS][T_MOST];
} pipe_outcome;

typedef struct shared_pipe {
  int ranks, tensor_ranks, microbatches;
  const char* schedule;
  const int32_t* first_layers;
  int n_first_layers;
  int odd_rank_shares; /* rank 1 says that as many ranks share a stage; 0: what all say */
  int fails;           /* rank 1's gate fails in the last run */
  pipe_outcome* out;   /* [ranks] */
} shared_pipe;

typedef struct pipe_session {
  tensor_model m;
  tensor_init inits[TP_PARAMS];
  gsel_comm* comm;
  gsel_model* model;
  gsel_pipeline* pipeline;
} pipe_session;

static gsel_status open_shared(rank_run* run, pipe_session* s, gsel_error** err) {
  const shared_pipe* t = (const shared_pipe*)run->user;
  gsel_pipeline_options options = GSEL_PIPELINE_OPTIONS_INIT;
  run->timeout_s = 20;
  memset(s, 0, sizeof *s);
  s->m.frozen = 1;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = tensor_describe(s->model, &s->m, s->inits, err);
  options.schedule = gsel_str_from(t->schedule);
  options.microbatches = t->microbatches;
  options.microbatch_samples = 8 / t->microbatches;
  options.first_layers = t->first_layers;
  options.n_first_layers = t->n_first_layers;
  options.data = tensor_data;
  options.tensor_ranks = run->rank == 1 && t->odd_rank_shares ? t->odd_rank_shares : t->tensor_ranks;
  return status ? status : gsel_pipeline_create(s->comm, s->model, &options, &s->pipeline, err);
}
static void close_shared(pipe_session* s) {
  gsel_pipeline_free(s->pipeline);
  gsel_model_free(s->model);
  gsel_comm_free(s->comm);
}

/* Stages count the layers of the model, and name the first by its id. */
static void look_at_stages(rank_run* run, const pipe_session* s, int tensor_ranks) {
  gsel_pipeline_stage stage = GSEL_PIPELINE_STAGE_INIT;
  gsel_error* err = NULL;
  const int pipeline_ranks = run->world_size / tensor_ranks, pipeline_rank = run->rank / tensor_ranks;
  int layers = 0;
  for (int i = 0; gsel_pipeline_stage_get(s->pipeline, i, &stage, &err) == GSEL_OK; ++i) {
    rank_check(run, stage.n_layers >= 1 && stage.first_layer >= 0 && stage.first_layer + stage.n_layers <= T_LAYERS);
    rank_check(run, (stage.stage == 0) == (stage.first_layer == 0));
    layers += stage.n_layers;
  }
  gsel_error_free(err);
  rank_check(run, pipeline_ranks > 1 || layers == T_LAYERS);
  rank_check(run, pipeline_rank >= 0 && layers >= 1);
}

static void run_shared(rank_run* run) {
  const shared_pipe* t = (const shared_pipe*)run->user;
  pipe_outcome* out = &t->out[run->rank];
  pipe_session s;
  gsel_error* err = NULL;
  rank_ok(run, open_shared(run, &s, &err), err);
  for (int i = 0; i < PIPE_RUNS; ++i) {
    gsel_pipeline_report report = GSEL_PIPELINE_REPORT_INIT;
    rank_ok(run, gsel_pipeline_run(s.pipeline, GSEL_FORWARD, &report, &err), err);
    out->loss[i] = report.loss_sum;
    out->weight[i] = report.loss_weight;
    rank_check(run, report.busy_s >= 0 && report.comm_s >= 0 && report.elapsed_s > 0);
  }
  memcpy(out->params, s.m.seen, sizeof s.m.seen);
  memcpy(out->has, s.m.has_seen, sizeof s.m.has_seen);
  look_at_stages(run, &s, t->tensor_ranks ? t->tensor_ranks : 1);
  close_shared(&s);
}

static pipe_outcome* outcomes(void) {
  return (pipe_outcome*)shared_memory(sizeof(pipe_outcome) * PIPE_MOST);
}
static void free_outcomes(pipe_outcome* out) {
  munmap(out, sizeof *out * PIPE_MOST);
}

static void equals_one_rank(const shared_pipe* like, const pipe_outcome* expected) {
  pipe_outcome* out = outcomes();
  shared_pipe t = *like;
  t.out = out;
  print_message("  %d ranks, %d share a stage, %s\n", t.ranks, t.tensor_ranks, t.schedule);
  as_threads(t.ranks, run_shared, &t);
  for (int r = 0; r < t.ranks; ++r)
    for (int i = 0; i < PIPE_RUNS; ++i)
      if (out[r].loss[i] != expected->loss[i] || out[r].weight[i] != expected->weight[i])
        fail_msg("run %d of rank %d: loss %g of weight %g; one rank: %g of %g", i, r, out[r].loss[i], out[r].weight[i],
                 expected->loss[i], expected->weight[i]);
  for (int p = 0; p < TP_PARAMS; ++p)
    for (int i = 0; i < T_MOST; ++i) {
      int holders = 0;
      for (int r = 0; r < t.ranks; ++r) {
        holders += out[r].has[p][i];
        if (out[r].has[p][i] && out[r].params[p][i] != expected->params[p][i])
          fail_msg("rank %d has %g in element %d of %s; one rank has %g", r, out[r].params[p][i], i,
                   kTensorParams[p].name, expected->params[p][i]);
      }
      if (!holders != !expected->has[p][i]) fail_msg("element %d of %s is nowhere", i, kTensorParams[p].name);
      if (kTensorParams[p].shard && p != TP_TABLE && holders > 1)
        fail_msg("element %d of %s is on %d ranks", i, kTensorParams[p].name, holders);
    }
  free_outcomes(out);
}

static const int32_t kAtFc2[] = {5}, kAtFc1AndAdd[] = {2, 6};

static void stages_shared_by_ranks_compute_what_one_rank_does(void** state) {
  (void)state;
  for (int microbatches = 1; microbatches <= 4; microbatches *= 2) {
    pipe_outcome* expected = outcomes();
    shared_pipe one = {.ranks = 1, .microbatches = microbatches, .schedule = "1f1b", .out = expected};
    as_threads(1, run_shared, &one);
    assert_true(expected->weight[0] > 0 && expected->loss[0] != expected->loss[1]);
    const shared_pipe rows[] = {
        {2, 2, microbatches, "1f1b", NULL, 0, 0, 0, NULL},         {3, 3, microbatches, "gpipe", NULL, 0, 0, 0, NULL},
        {4, 2, microbatches, "1f1b", NULL, 0, 0, 0, NULL},         {4, 2, microbatches, "gpipe", kAtFc2, 1, 0, 0, NULL},
        {6, 2, microbatches, "1f1b", kAtFc1AndAdd, 2, 0, 0, NULL}, {6, 3, microbatches, "zb-v", NULL, 0, 0, 0, NULL},
        {2, 1, microbatches, "1f1b", NULL, 0, 0, 0, NULL},         {2, 0, microbatches, "1f1b", NULL, 0, 0, 0, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
      if (strcmp(rows[i].schedule, "zb-v") != 0 || microbatches >= 4) equals_one_rank(&rows[i], expected);
    free_outcomes(expected);
  }
}

/* ---- refusals and failures ---- */

static void disagree(rank_run* run) {
  pipe_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_shared(run, &s, &err);
  rank_fails(run, status, err, GSEL_ERR_MISMATCH, "gsel_pipeline_options.tensor_ranks", -1);
  close_shared(&s);
}

static void ranks_agree_on_how_many_share_a_stage(void** state) {
  (void)state;
  shared_pipe t = {.ranks = 4, .tensor_ranks = 2, .microbatches = 2, .schedule = "1f1b", .odd_rank_shares = 4};
  as_threads(4, disagree, &t);
}

static void share_by_three(rank_run* run) {
  pipe_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_shared(run, &s, &err);
  rank_fails(run, status, err, GSEL_ERR_ARG, "tensor_ranks is 3, and the communicator has 4 ranks", -1);
  close_shared(&s);
}

static void ranks_that_share_stages_divide_all_ranks(void** state) {
  (void)state;
  shared_pipe t = {.ranks = 4, .tensor_ranks = 3, .microbatches = 2, .schedule = "1f1b"};
  as_threads(4, share_by_three, &t);
}

static void fail_in_gate(rank_run* run) {
  pipe_session s;
  gsel_error* err = NULL;
  rank_ok(run, open_shared(run, &s, &err), err);
  rank_ok(run, gsel_pipeline_run(s.pipeline, GSEL_FORWARD, NULL, &err), err);
  s.m.fails_in = run->rank == 1 ? "gate" : NULL;
  const gsel_status status = gsel_pipeline_run(s.pipeline, GSEL_FORWARD, NULL, &err);
  rank_fails(run, status, err, run->rank == 1 ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, "gate was told to fail", 1);
  rank_fails(run, gsel_pipeline_run(s.pipeline, GSEL_FORWARD, NULL, &err), err, GSEL_ERR_STATE, "an earlier run failed",
             -1);
  close_shared(&s);
}

static void a_failing_rank_is_named_to_those_that_share_its_stage(void** state) {
  (void)state;
  shared_pipe t = {.ranks = 2, .tensor_ranks = 2, .microbatches = 1, .schedule = "1f1b"};
  as_threads(2, fail_in_gate, &t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(stages_shared_by_ranks_compute_what_one_rank_does),
      cmocka_unit_test(ranks_agree_on_how_many_share_a_stage),
      cmocka_unit_test(ranks_that_share_stages_divide_all_ranks),
      cmocka_unit_test(a_failing_rank_is_named_to_those_that_share_its_stage),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
