/* See tensor_trial.h. */
#include "support/tensor_trial.h"

#include <math.h>

tensor_trial tensor_trial_of(const char* config, tensor_outcome* out) {
  tensor_trial t;
  memset(&t, 0, sizeof t);
  t.config = config;
  t.m.overflow_at_step = t.m.fail_at_step = -1;
  t.steps = TENSOR_STEPS;
  t.reads_whole = 1;
  t.other_rank = -1;
  t.out = out;
  return t;
}

gsel_status open_tensor(rank_run* run, tensor_session* s, gsel_error** err) {
  const tensor_trial* t = (const tensor_trial*)run->user;
  const char* config = run->rank == t->other_rank ? t->other_config : t->config;
  memset(s, 0, sizeof *s);
  s->m = (small_transformer*)malloc(sizeof *s->m);
  *s->m = t->m;
  s->m->rank = run->rank;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_status status = rank_join(run, &s->comm, err);
  if (!status) status = gsel_config_parse(gsel_str_from(config), gsel_str_from("trial.toml"), &s->config, err);
  if (!status) status = gsel_model_create(&s->model, err);
  if (!status) status = tm_describe(s->model, s->m, err);
  options.config = s->config;
  options.data = tm_data;
  if (!status) status = gsel_trainer_create(s->comm, s->model, &options, &s->trainer, err);
  return status;
}

void close_tensor(tensor_session* s) {
  gsel_trainer_free(s->trainer);
  gsel_model_free(s->model);
  gsel_config_free(s->config);
  gsel_comm_free(s->comm);
  free(s->m);
}

static void tensor_differs(rank_run* run, const char* how, int p, int64_t i, float got, float expected) {
  snprintf(run->failure, sizeof run->failure, "rank %d of %d: element %d of \"%s\" is %.9g %s, expected %.9g",
           (int)run->rank, (int)run->world_size, (int)i, kTmParams[p].name, got, how, expected);
}

static void compare_tensor(rank_run* run, const tensor_trial* t) {
  const tensor_outcome *out = &t->out[run->rank], *expected = t->expected;
  for (int p = 0; p < TM_PARAMS; ++p)
    for (int64_t i = 0; i < tm_elems(p) && !run->failure[0]; ++i) {
      const float* right = &expected->params[p][i];
      if (t->reads_whole && memcmp(&out->params[p][i], right, sizeof *right))
        tensor_differs(run, "as read", p, i, out->params[p][i], *right);
      if (out->is_noted[p][i] && memcmp(&out->noted[p][i], right, sizeof *right))
        tensor_differs(run, "as lent", p, i, out->noted[p][i], *right);
    }
  if (run->failure[0]) return;
  rank_check(run, memcmp(out->loss, expected->loss, sizeof out->loss) == 0);
  rank_check(run, memcmp(out->weight, expected->weight, sizeof out->weight) == 0);
  rank_check(run, memcmp(out->skipped, expected->skipped, sizeof out->skipped) == 0);
  rank_check(run, out->evaluated == expected->evaluated);
  for (int i = 0; i < t->steps && expected->norm[i] > 0; ++i) rank_check(run, out->norm[i] == expected->norm[i]);
}

gsel_status tensor_work(const gsel_work* work, small_transformer* m) {
  if (work->input) return tm_data(work->input, NULL);
  const struct tm_layer* l = &kTmLayers[work->call->layer];
  const gsel_layer_fn kernels[] = {NULL, NULL, l->forward, l->backward_input, l->backward_weight, l->backward};
  return kernels[work->kind](work->call, m);
}

/* What was counted is what the program's closed forms say. */
static void compare_counts(rank_run* run, tensor_outcome* out, const gsel_trainer* trainer, int steps) {
  const gsel_program* program = gsel_trainer_program(trainer);
  for (int kind = 1; kind < TENSOR_KINDS; ++kind)
    for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis) {
      const gsel_comm_count counted = trainer_counts(trainer, kind, axis);
      const gsel_comm_count setup = program_traffic(program, -1, kind, axis);
      const gsel_comm_count step = program_traffic(program, 0, kind, axis);
      out->counts[kind][axis] = counted, out->setup[kind][axis] = setup, out->step[kind][axis] = step;
      if (counted.calls == setup.calls + (uint64_t)steps * step.calls &&
          counted.bytes_sent == setup.bytes_sent + (uint64_t)steps * step.bytes_sent)
        continue;
      snprintf(run->failure, sizeof run->failure,
               "rank %d of %d: instruction %d on axis %d: counted %llu calls and %llu bytes in %d steps, forecast %llu "
               "and %llu of setup, %llu and %llu of a step",
               (int)run->rank, (int)run->world_size, kind, (int)axis, (unsigned long long)counted.calls,
               (unsigned long long)counted.bytes_sent, steps, (unsigned long long)setup.calls,
               (unsigned long long)setup.bytes_sent, (unsigned long long)step.calls,
               (unsigned long long)step.bytes_sent);
      return;
    }
}

static void train_tensor_in(rank_run* run, tensor_session* s) {
  const tensor_trial* t = (const tensor_trial*)run->user;
  tensor_outcome* out = &t->out[run->rank];
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  memset(out, 0, sizeof *out);
  for (int i = 0; i < t->steps; ++i) {
    rank_ok(run, gsel_trainer_step(s->trainer, &report, &err), err);
    out->loss[i] = report.loss_sum;
    out->weight[i] = report.weight;
    out->norm[i] = report.gradient_norm;
    out->skipped[i] = report.skipped;
  }
  out->largest = s->m->largest;
  compare_counts(run, out, s->trainer, t->steps);
  if (run->failure[0]) return;
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  for (int i = 0; !gsel_trainer_memory(s->trainer, i, &part, NULL); ++i)
    rank_check(run, part.forecast_bytes == part.peak_bytes);
  rank_ok(run, gsel_trainer_evaluate(s->trainer, 100, NULL, NULL, &report, &err), err);
  out->evaluated = report.loss_sum;
  memcpy(out->noted, s->m->noted, sizeof out->noted);
  memcpy(out->is_noted, s->m->is_noted, sizeof out->is_noted);
  for (int p = 0; p < TM_PARAMS && t->reads_whole; ++p)
    rank_ok(run, gsel_trainer_read_param(s->trainer, p, out->params[p], sizeof(float) * (size_t)tm_elems(p), &err),
            err);
  if (t->expected && !t->differs) compare_tensor(run, t);
}

void train_tensor(rank_run* run) {
  tensor_session s;
  gsel_error* err = NULL;
  const gsel_status status = open_tensor(run, &s, &err);
  if (!status) train_tensor_in(run, &s);
  close_tensor(&s);
  rank_ok(run, status, err);
}

void refuse_tensor(rank_run* run) {
  const tensor_trial* t = (const tensor_trial*)run->user;
  tensor_session s;
  gsel_error* err = NULL;
  gsel_status status = open_tensor(run, &s, &err);
  if (!status) status = gsel_trainer_step(s.trainer, NULL, &err);
  close_tensor(&s);
  rank_fails(run, status, err, t->refused, t->why, -1);
}

tensor_outcome* tensor_outcomes(void) {
  return (tensor_outcome*)shared_memory(sizeof(tensor_outcome) * RANKS_MAX);
}
void free_tensor_outcomes(tensor_outcome* o) {
  munmap(o, sizeof(tensor_outcome) * RANKS_MAX);
}

/* Between them the ranks' kernels saw every element of every parameter. */
static void all_was_noted(const tensor_outcome* out, int n) {
  for (int p = 0; p < TM_PARAMS; ++p)
    for (int64_t i = 0; i < tm_elems(p); ++i) {
      int noted = 0;
      for (int r = 0; r < n; ++r) noted |= out[r].is_noted[p][i];
      if (!noted) fail_msg("no rank's kernel saw element %d of \"%s\"", (int)i, kTmParams[p].name);
    }
}

void try_tensor(const tensor_trial* t, int n) {
  as_threads(n, train_tensor, (void*)(uintptr_t)t);
  all_was_noted(t->out, n);
}

tensor_outcome* tensor_reference(const tensor_trial* like, const char* train_section) {
  tensor_outcome* out = tensor_outcomes();
  tensor_trial t = *like;
  t.config = train_section;
  t.out = out;
  t.expected = NULL;
  as_threads(1, train_tensor, &t);
  all_was_noted(out, 1);
  const double scale = strstr(train_section, "fp16") ? 65536 : 1; /* a power of two, of the loss */
  assert_true(out->largest / scale < 16777216.0 / 64);            /* with room for what cancels */
  const int integers = !like->m.random && strstr(train_section, "sign_sgd");
  for (int p = 0; p < TM_PARAMS && integers; ++p) {
    double changed = 0;
    for (int64_t i = 0; i < tm_elems(p); ++i) {
      assert_true(out->params[p][i] == floorf(out->params[p][i]));
      changed += fabsf(out->params[p][i] - out->params[p][0]);
    }
    assert_true(changed > 0);
  }
  return out;
}
