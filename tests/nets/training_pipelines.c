/* nets/training_pipelines.c: pipelines without a trainer, of support/pipe_model.h, whose numbers are integers that it
 * computes by hand. */
#include "nets/training.h"

enum {
  NO_MICROBATCHES,
  NO_SAMPLES_EACH,
  NO_CHUNKS,
  NO_SCHEDULE,
  OTHER_VALUE,
  OTHER_COUNT,
  DECLARES,
  NO_DATA,
  PARTS,
  FLAWS
};

static gsel_status expected_of_create(int flaw, int alone, int odd) {
  switch (flaw) {
    case NO_SCHEDULE:
      return GSEL_ERR_CONFIG;
    case OTHER_VALUE:
    case OTHER_COUNT:
      return alone ? GSEL_OK : GSEL_ERR_MISMATCH;
    case DECLARES:
      return odd ? GSEL_ERR_UNSUPPORTED : GSEL_ERR_PEER;
    case FLAWS:
      return GSEL_OK;
    default:
      return GSEL_ERR_ARG;
  }
}

/* Schedules with what they need: stages of each rank, and micro-batches that rounds divide. */
static void fill_config(const player* p, gsel_pipeline_options* c, piping* q, const op* o) {
  static const char* const schedules[] = {"", "1f1b", "gpipe", "naive", "zb-h1", "zb-h2", "zb-v", "interleaved-1f1b"};
  const int s = o->a % 8;
  q->microbatches = s == 7 ? p->run.world_size * (1 + o->b / 4 % 2) : 1 + o->b / 4 % 4;
  q->samples = 1 + o->b / 16 % 2;
  c->schedule = gsel_str_from(schedules[s]);
  c->microbatches = q->microbatches;
  c->microbatch_samples = q->samples;
  c->data = pipe_data;
  c->data_user_data = &q->m;
}

static void flaw_config(gsel_pipeline_options* c, pipe_model* m, int flaw, int odd) {
  if (flaw == NO_MICROBATCHES) c->microbatches = 0;
  if (flaw == NO_SAMPLES_EACH) c->microbatch_samples = -1;
  if (flaw == NO_CHUNKS) c->chunks = -1;
  if (flaw == NO_SCHEDULE) c->schedule = gsel_str_from("nobody's");
  if (flaw == OTHER_VALUE) m->wide_layer = odd ? 2 : 0;
  if (flaw == OTHER_COUNT) c->microbatches += odd ? 6 : 0;
  if (flaw == DECLARES) m->declares = odd;
  if (flaw == NO_DATA) c->data = NULL;
  if (flaw == PARTS) c->tensor_ranks = 5;
}

static void create(player* p, piping* q, const op* o) {
  gsel_error* err;
  gsel_model* model = NULL;
  gsel_pipeline_options c = GSEL_PIPELINE_OPTIONS_INIT;
  ground* on = &mine(p)->grounds[o->b % GROUNDS];
  const int flaw = o->slot / 16 < FLAWS ? o->slot / 16 : FLAWS, odd = is_odd(p, o);
  if (on->broken || ground_is_busy(p, on)) return;
  memset(q, 0, sizeof *q);
  q->m.layers = 6 + o->a / 8 % 3;
  q->m.without_loss = o->a / 32 % 4 == 0;
  q->m.rank = p->run.rank;
  fill_config(p, &c, q, o);
  flaw_config(&c, &q->m, flaw, odd);
  CAME(GSEL_OK, gsel_model_create(&model, &err));
  CAME(GSEL_OK, pipe_describe(model, &q->m, &err));
  const gsel_status want = expected_of_create(flaw, p->run.world_size == 1, odd);
  const int created = CAME(want, gsel_pipeline_create(on->comm, model, &c, &q->pipeline, &err));
  gsel_model_free(model);
  q->on = on;
  if (created && flaw == FLAWS) return;
  right(p, created || !q->pipeline, "a pipeline beside an error");
  gsel_pipeline_free(q->pipeline);
  memset(q, 0, sizeof *q);
}

/* Whether one of this rank's stages has the layer. */
static int has_layer(player* p, const piping* q, int layer) {
  gsel_error* err;
  gsel_pipeline_stage stage = GSEL_PIPELINE_STAGE_INIT;
  int has = 0, i = 0;
  for (; gsel_pipeline_stage_get(q->pipeline, i, &stage, NULL) == GSEL_OK; ++i)
    has |= layer >= stage.first_layer && layer < stage.first_layer + stage.n_layers;
  CAME(GSEL_ERR_ARG, gsel_pipeline_stage_get(q->pipeline, i, &stage, &err));
  return has;
}

static void compare_run(player* p, const piping* q, int64_t first, int learns, const gsel_pipeline_report* r) {
  const int64_t n = (int64_t)q->microbatches * q->samples;
  const pipe_result hand = pipe_by_hand(q->m.layers, first, first + n);
  if (!q->m.without_loss && (r->loss_sum != hand.loss || r->loss_weight != (double)n))
    report(p, "gsel_pipeline_run", "a wrong loss");
  for (int l = 0; l < q->m.layers; ++l) {
    const int here = has_layer(p, q, l);
    if (q->m.forwards[l] != (here ? 2 * q->microbatches : 0)) report(p, "gsel_pipeline_run", "a wrong number of calls");
    if (here && q->m.dw[l] != (learns && l < q->m.layers - 1 ? hand.dw[l] : 0))
      report(p, "gsel_pipeline_run", "a wrong gradient");
  }
  if (!q->m.without_loss || !has_layer(p, q, q->m.layers - 1)) return;
  for (int64_t i = first; i < first + n; ++i)
    if (memcmp(q->m.out[i], hand.out[i], sizeof hand.out[i])) return report(p, "gsel_pipeline_run", "a wrong output");
}

static void run(player* p, piping* q, const op* o) {
  gsel_error* err = NULL;
  gsel_pipeline_report r = GSEL_PIPELINE_REPORT_INIT;
  char text[300];
  const int learns = o->a % 2, what = learns ? GSEL_FORWARD_BACKWARD : GSEL_FORWARD;
  const int64_t n = (int64_t)q->microbatches * q->samples, first = q->runs[learns] * n;
  if (learns && q->m.without_loss) {
    CAME(GSEL_ERR_STATE, gsel_pipeline_run(q->pipeline, what, &r, &err));
    return;
  }
  const int fails = o->b % 8 == 0, layer = o->b / 8 % q->m.layers;
  const int backward = learns && o->b / 64 % 2 && layer < q->m.layers;
  memset(q->m.dw, 0, sizeof q->m.dw);
  memset(q->m.forwards, 0, sizeof q->m.forwards);
  memset(q->m.backwards, 0, sizeof q->m.backwards);
  q->m.fail_layer = layer;
  q->m.fail_backward = backward;
  q->m.fail_at_call = fails ? 1 + o->a / 2 % q->microbatches : 0;
  const gsel_status got = gsel_pipeline_run(q->pipeline, what, &r, &err);
  if (!fails) {
    if (came_as(p, "gsel_pipeline_run", GSEL_OK, GSEL_OK, got, err, text)) compare_run(p, q, first, learns, &r);
    ++q->runs[learns];
    return;
  }
  const int here = has_layer(p, q, layer);
  came_as(p, "a run that fails", here ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, here ? GSEL_ERR_CALLBACK : GSEL_OK, got,
          err, text);
  if (got && !strstr(text, "the numbers were not right")) report(p, "the text of a stage's error", text);
  q->broken = q->on->broken = 1;
  q->unaware = got == GSEL_OK;
}

/* A rank that was done before another failed hears of it in its next run. */
static void run_broken(player* p, piping* q) {
  gsel_error* err = NULL;
  char text[300];
  if (q->unaware) {
    const gsel_status got = gsel_pipeline_run(q->pipeline, GSEL_FORWARD, NULL, &err);
    came_as(p, "a run after one that failed", GSEL_ERR_ABORTED, GSEL_ERR_ABORTED, got, err, text);
    if (!strstr(text, "the numbers were not right")) report(p, "the text of a stage's error, a run later", text);
    q->unaware = 0;
  }
  CAME(GSEL_ERR_STATE, gsel_pipeline_run(q->pipeline, GSEL_FORWARD, NULL, &err));
}

void play_piping(player* p, piping* q, const op* o) {
  gsel_error* err;
  if (!q->pipeline) return create(p, q, o);
  if (ground_is_busy(p, q->on)) return;
  const int64_t n = (int64_t)q->microbatches * q->samples;
  const int full = (q->runs[0] + 1) * n > PIPE_MOST_SAMPLES || (q->runs[1] + 1) * n > PIPE_MOST_SAMPLES;
  if (full || (q->on->broken && !q->broken) || o->what / 16 % 8 == 0) {
    gsel_pipeline_free(q->pipeline);
    memset(q, 0, sizeof *q);
    return;
  }
  CAME(GSEL_ERR_ARG, gsel_pipeline_run(q->pipeline, 7, NULL, &err));
  CAME(GSEL_ERR_ARG, gsel_pipeline_run(NULL, GSEL_FORWARD, NULL, &err));
  right(p, gsel_program_length(gsel_pipeline_program(q->pipeline)) > 0, "length of a pipeline's program");
  if (q->broken)
    run_broken(p, q);
  else
    run(p, q, o);
}
