/* nets/training_trainers.c: trainers, driven by their callbacks, and asked between steps. What is pulled stands in
 * training_pulls.c. */
#include "nets/training.h"

static gsel_status refuse_init(float* dst, int64_t first, int64_t count, uint64_t seed, void* user) {
  (void)dst, (void)first, (void)count, (void)seed, (void)user;
  return GSEL_ERR_IO;
}

/* ---- making one ---- */

static gsel_status step_by_sign(const gsel_optimizer_call* c, void* user) {
  training* t = (training*)user;
  for (int64_t i = 0; i < c->count; ++i) {
    c->values[i] -= (float)((c->gradient[i] > 0) - (c->gradient[i] < 0));
    if (c->states[0][i] != (float)(c->t - 1)) t->saw = "states of the optimizer";
    c->states[0][i] += 1;
  }
  if (c->t != t->steps + 1) t->saw = "t of the optimizer";
  return GSEL_OK;
}

enum { NO_PLUGIN, NO_PLUGIN_HERE, OTHER_BATCH, OTHER_MODEL, NO_MEMORY, BAD_INIT, TOO_MANY_STAGES, UNFINISHED, FLAWS };

static void write_config(const player* p, const training* t, int flaw, int odd, int microbatch, char text[1000]) {
  static const char* const strategies[] = {"",
                                           STEP_DDP,
                                           STEP_ZERO("1"),
                                           STEP_ZERO("2"),
                                           STEP_ZERO("3"),
                                           "[strategy.data]\nplugin = \"dp\"\n",
                                           "[strategy.pipeline]\nplugin = \"pp\"\n"};
  const int pipeline = flaw == TOO_MANY_STAGES ? 7 : t->strategy == BY_PP ? p->run.world_size : 1;
  const char* strategy = strategies[t->strategy];
  if (flaw == NO_PLUGIN || (flaw == NO_PLUGIN_HERE && odd)) strategy = "[strategy.data]\nplugin = \"nobody\"\n";
  snprintf(text, 1000,
           "[mesh]\npipeline = %d\n%s[train]\noptimizer = \"sign_sgd\"\nlearning_rate = 1.0\nweight_decay = 0.0\n"
           "batch = %d\nmicrobatch = %d\n%s%s",
           pipeline, strategy, t->batch + (flaw == OTHER_BATCH && odd), microbatch,
           flaw == NO_MEMORY ? "memory_bytes = 8\n" : "", t->unwritable ? "timeline = \"/dev/null/nowhere\"\n" : "");
}

static gsel_model* flawed_model(player* p, int flaw, int odd) {
  gsel_error* err;
  gsel_model* model = NULL;
  CAME(GSEL_OK, gsel_model_create(&model, &err));
  const int end = flaw == UNFINISHED ? PIECES - 1 : PIECES;
  if (flaw == BAD_INIT && odd) {
    gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
    const int64_t width = STEP_WIDTH;
    options.name = gsel_str_from("a");
    options.dims = &width;
    options.n_dims = 1;
    options.init = GSEL_INIT_CALLBACK;
    options.init_fn = refuse_init;
    CAME(GSEL_OK, gsel_model_add_param(model, &options, NULL, &err));
    CAME(GSEL_OK, describe(p, model, 1, end, 0, &err));
  } else {
    CAME(GSEL_OK, describe(p, model, 0, end, flaw == OTHER_MODEL && odd, &err));
  }
  return model;
}

static gsel_status expected_of_create(const player* p, const training* t, int flaw, int odd) {
  const int alone = p->run.world_size == 1;
  switch (flaw) {
    case NO_PLUGIN:
      return GSEL_ERR_NOT_FOUND;
    case NO_PLUGIN_HERE:
      return odd ? GSEL_ERR_NOT_FOUND : GSEL_ERR_PEER;
    case OTHER_BATCH:
      return alone ? GSEL_OK : GSEL_ERR_MISMATCH;
    case OTHER_MODEL:
      return alone ? GSEL_OK : GSEL_ERR_MISMATCH;
    case NO_MEMORY:
      return GSEL_ERR_NOMEM;
    case BAD_INIT:
      return odd ? GSEL_ERR_CALLBACK : GSEL_ERR_PEER;
    case TOO_MANY_STAGES:
      return GSEL_ERR_CONFIG;
    case UNFINISHED:
      return GSEL_ERR_MODEL;
    default: /* two layers are two stages */
      return t->strategy == BY_PP && p->run.world_size > 2 ? GSEL_ERR_CONFIG : GSEL_OK;
  }
}

void training_create(player* p, training* t, const op* o) {
  static const int batches[] = {1, 2, 4, 6}, microbatches[] = {0, 1, 2};
  const int odd = is_odd(p, o), flaw = o->slot / 16 < FLAWS ? o->slot / 16 : FLAWS;
  holdings* h = mine(p);
  ground* on = &h->grounds[o->b % GROUNDS];
  description* d = &h->models[o->b / 2 % MODELS];
  const int made = flaw == OTHER_MODEL || flaw == BAD_INIT || flaw == UNFINISHED;
  if (ground_is_busy(p, on) || on->broken || (!made && d->pieces < PIECES)) return;
  memset(t, 0, sizeof *t);
  t->strategy = o->a / 4 % STRATEGIES;
  t->batch = batches[o->b / 4 % 4];
  t->pull_only = o->b / 16 % 8 == 0;
  t->own_optimizer = o->b / 16 % 4 == 1;
  t->unwritable = o->b / 16 % 8 == 2;
  if (flaw < FLAWS && t->strategy > BY_ZERO_2) t->strategy = BY_DDP; /* under which every rank has everything */
  if (t->strategy == BY_PP || flaw == TOO_MANY_STAGES) t->batch = 4;
  char text[1000];
  gsel_config* config = NULL;
  gsel_error* err;
  gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
  optimizer.n_states = 1;
  optimizer.step = step_by_sign;
  optimizer.user_data = t;
  write_config(p, t, flaw, odd, microbatches[o->a % 3], text);
  CAME(GSEL_OK, gsel_config_parse(gsel_str_from(text), gsel_str_from("net.toml"), &config, &err));
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = config;
  options.data = t->pull_only ? NULL : line_data;
  options.data_user_data = p;
  if (t->own_optimizer) options.optimizer = &optimizer;
  gsel_model* model = made ? flawed_model(p, flaw, odd) : d->model;
  const gsel_status want = expected_of_create(p, t, flaw, odd);
  const int created = CAME(want, gsel_trainer_create(on->comm, model, &options, &t->trainer, &err));
  if (made)
    gsel_model_free(model);
  else
    d->finished = 1;
  gsel_config_free(config);
  if (!created || flaw < FLAWS) { /* what came of a flaw without effect is let go */
    right(p, created || !t->trainer, "a trainer beside an error");
    gsel_trainer_free(t->trainer);
    memset(t, 0, sizeof *t);
    return;
  }
  t->on = on;
  for (int k = 0; k < STEP_PARAMS; ++k) step_initial(t->params[k], 0, STEP_WIDTH, 0, NULL);
  const int whole = p->run.world_size == 1 || t->strategy <= BY_ZERO_2;
  right(p, gsel_trainer_holds_params(t->trainer) == whole, "holds_params");
}

/* ---- steps and evaluations ---- */

static void plan_fault(const player* p, training* t, const op* o) {
  t->fault = o->b % 4 ? NO_FAULT : 1 + o->b / 4 % NO_SAMPLES;
  t->with = o->a % p->run.world_size;
}

/* What must come of a batch, and whether the others hear of it at once. */
static void batch_came(player* p, training* t, const char* call, gsel_status got, gsel_error* err,
                       const gsel_step_report* r) {
  char text[300];
  const int fault = faulty(p, t), here = t->with == p->run.rank;
  const numbers n = batch_by_hand(p, t, t->first_sample, 0);
  if (fault) {
    const gsel_status others = fate_of_others(t);
    came_as(p, call, here ? GSEL_ERR_CALLBACK : GSEL_ERR_ABORTED, here ? GSEL_ERR_CALLBACK : others, got, err, text);
    const char* planned = t->fault == NO_SAMPLES ? "had no samples" : "as planned for";
    t->unaware = got == GSEL_OK || got == GSEL_ERR_IO;
    if (!t->unaware && !strstr(text, planned)) report(p, "the text of a callback's error", text);
    if (t->unaware) batch_ended(p, t, NULL);
    batch_failed(t);
  } else if (n.weight == 0) { /* a step breaks, an evaluation does not */
    came_as(p, call, GSEL_ERR_MODEL, GSEL_ERR_MODEL, got, err, text);
    if (t->way == IN_STEP) batch_failed(t);
    rest(t);
  } else {
    const gsel_status want = t->unwritable && t->way == IN_STEP ? GSEL_ERR_IO : GSEL_OK;
    came_as(p, call, want, want, got, err, text);
    batch_ended(p, t, got ? NULL : r);
  }
}

static void push_step(player* p, training* t, const op* o) {
  gsel_error* err = NULL;
  gsel_step_report r = GSEL_STEP_REPORT_INIT;
  if (t->way || t->pull_only) {
    CAME(GSEL_ERR_STATE, gsel_trainer_step(t->trainer, o->b % 2 ? &r : NULL, &err));
    return;
  }
  t->evaluation_waits = 0;
  if (t->broken) {
    const gsel_status got = gsel_trainer_step(t->trainer, &r, &err);
    return came_broken(p, t, "gsel_trainer_step", got, err);
  }
  plan_fault(p, t, o);
  batch_begins(p, t, IN_STEP, t->steps * t->batch);
  const gsel_status got = gsel_trainer_step(t->trainer, &r, &err);
  batch_came(p, t, "gsel_trainer_step", got, err, &r);
}

static void evaluate(player* p, training* t, const op* o) {
  gsel_error* err = NULL;
  gsel_step_report r = GSEL_STEP_REPORT_INIT;
  const int own_data = o->b / 64 % 2;
  const int64_t first = o->b % 16 == 15 ? -1 : o->b * 3;
  if (t->way || (t->pull_only && !own_data)) {
    CAME(GSEL_ERR_STATE, gsel_trainer_evaluate(t->trainer, 0, own_data ? line_data : NULL, p, &r, &err));
    return;
  }
  if (t->broken) {
    const gsel_status got = gsel_trainer_evaluate(t->trainer, 0, line_data, p, &r, &err);
    return came_broken(p, t, "gsel_trainer_evaluate", got, err);
  }
  if (first < 0) {
    CAME(GSEL_ERR_ARG, gsel_trainer_evaluate(t->trainer, first, line_data, p, &r, &err));
    return;
  }
  plan_fault(p, t, o);
  batch_begins(p, t, IN_EVALUATION, first);
  const gsel_status got = gsel_trainer_evaluate(t->trainer, first, own_data ? line_data : NULL, p, &r, &err);
  batch_came(p, t, "gsel_trainer_evaluate", got, err, &r);
}

/* ---- questions ---- */

static void infer(player* p, training* t, const op* o) {
  enum { MOST = 5 };
  gsel_error* err = NULL;
  float y[MOST * STEP_WIDTH];
  char text[300];
  const int64_t n = 1 + o->a % MOST;
  const size_t bytes = (size_t)n * STEP_WIDTH * sizeof *y;
  mine(p)->now = t;
  t->infers = 1;
  if (o->b % 4 == 0) {
    const int flaw = o->b / 4 % 5;
    CAME(
        t->way && flaw != 9 ? GSEL_ERR_STATE : GSEL_ERR_ARG,
        gsel_trainer_infer(t->trainer,
                           flaw == 0   ? STEP_VALUES
                           : flaw == 1 ? -1
                                       : STEP_Y,
                           flaw == 2 ? 0 : n, flaw == 3 ? NULL : line_data, p, y, flaw == 4 ? bytes + 4 : bytes, &err));
  } else if (t->way) {
    CAME(GSEL_ERR_STATE, gsel_trainer_infer(t->trainer, STEP_Y, n, line_data, p, y, bytes, &err));
  } else if (t->broken) {
    const gsel_status got = gsel_trainer_infer(t->trainer, STEP_Y, n, line_data, p, y, bytes, &err);
    if (t->unaware)
      came_as(p, "gsel_trainer_infer", GSEL_ERR_ABORTED, GSEL_ERR_ABORTED, got, err, text);
    else
      came_as(p, "gsel_trainer_infer", GSEL_ERR_STATE, GSEL_ERR_STATE, got, err, text);
  } else {
    t->fault = o->b % 4 == 1 ? 1 + o->b / 4 % 2 : NO_FAULT; /* in data or forward, and nothing is broken by it */
    t->with = o->a % p->run.world_size;
    const int fails = t->fault && (t->strategy != BY_PP || t->with == 0);
    const gsel_status others = t->strategy == BY_PP ? GSEL_ERR_PEER : GSEL_OK;
    const gsel_status want = !fails ? GSEL_OK : t->with == p->run.rank ? GSEL_ERR_CALLBACK : others;
    const gsel_status got = gsel_trainer_infer(t->trainer, STEP_Y, n, line_data, p, y, bytes, &err);
    if (came_as(p, "gsel_trainer_infer", want, want, got, err, text))
      for (int i = 0; i < n * STEP_WIDTH; ++i) {
        const float x = step_sample(i / STEP_WIDTH, i % STEP_WIDTH);
        if (y[i] != t->params[STEP_A][i % STEP_WIDTH] * x + t->params[STEP_B][i % STEP_WIDTH])
          report(p, "gsel_trainer_infer", "a wrong number");
      }
    t->fault = NO_FAULT;
  }
  t->infers = 0;
}

static void read_params(player* p, training* t, const op* o) {
  gsel_error* err;
  float values[STEP_WIDTH + 1];
  const size_t bytes = STEP_WIDTH * sizeof *values;
  CAME(GSEL_ERR_ARG, gsel_trainer_read_param(t->trainer, o->b % 2 ? STEP_PARAMS : -1, values, bytes, &err));
  CAME(GSEL_ERR_ARG, gsel_trainer_read_param(t->trainer, STEP_A, values, bytes + 4, &err));
  CAME(GSEL_ERR_ARG, gsel_trainer_read_param(t->trainer, STEP_A, NULL, bytes, &err));
  if (t->broken) return;
  for (int k = 0; k < STEP_PARAMS; ++k)
    if (CAME(t->way ? GSEL_ERR_STATE : GSEL_OK, gsel_trainer_read_param(t->trainer, k, values, bytes, &err)))
      right(p, !memcmp(values, t->params[k], bytes), "values of a parameter");
}

static void ask(player* p, training* t) {
  gsel_error* err;
  gsel_step_report r = GSEL_STEP_REPORT_INIT;
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  gsel_str json;
  const int any = t->steps > 0;
  if (CAME(any || t->evaluation_waits ? GSEL_OK : GSEL_ERR_STATE, gsel_trainer_report(t->trainer, &r, &err)))
    compare_numbers(p, "gsel_trainer_report", &r, t->evaluation_waits ? &t->evaluation : &t->last);
  t->evaluation_waits = 0;
  if (CAME(any ? GSEL_OK : GSEL_ERR_STATE, gsel_trainer_report(t->trainer, &r, &err)))
    compare_numbers(p, "gsel_trainer_report", &r, &t->last);
  if (CAME(any ? GSEL_OK : GSEL_ERR_STATE, gsel_trainer_step_json(t->trainer, &json, &err))) {
    char key[40];
    snprintf(key, sizeof key, "\"step\":%ld,", (long)t->last.step);
    right(p, json.data[0] == '{' && strlen(json.data) == json.len && strstr(json.data, key), "JSON of a step");
  }
  CAME(GSEL_OK, gsel_trainer_memory(t->trainer, 0, &part, &err));
  CAME(GSEL_ERR_ARG, gsel_trainer_memory(t->trainer, -1, &part, &err));
  CAME(GSEL_ERR_ARG, gsel_trainer_memory(t->trainer, 1000, &part, &err));
  right(p, gsel_trainer_param_used(t->trainer, -1) == GSEL_ERR_ARG, "param_used below 0");
  if (any && !t->way && !t->broken)
    right(p, gsel_trainer_param_used(t->trainer, STEP_A) == t->had_samples, "param_used");
  right(p, gsel_program_length(gsel_trainer_program(t->trainer)) > 0, "length of the program");
}

static void refused(player* p, training* t, const op* o) {
  gsel_error* err;
  gsel_trainer* none = (gsel_trainer*)t;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  CAME(GSEL_ERR_ARG, gsel_trainer_step(NULL, NULL, &err));
  if (o->b % 2) options.struct_size = 3;
  CAME(o->b % 2 ? GSEL_ERR_VERSION : GSEL_ERR_ARG, gsel_trainer_create(t->on->comm, NULL, &options, &none, &err));
  right(p, !none, "a trainer of nothing");
  CAME(GSEL_ERR_STATE, gsel_trainer_complete(t->trainer, t->work.ticket + 1 + o->b, GSEL_OK, gsel_str_from(""), &err));
}

void play_training(player* p, training* t, const op* o) {
  if (!t->trainer) return training_create(p, t, o);
  if (t->on->broken && !t->broken) { /* by another trainer: of the rest only freeing is known */
    gsel_trainer_free(t->trainer);
    memset(t, 0, sizeof *t);
    return;
  }
  /* What is under way alone uses the communicator. */
  if (!t->way && ground_is_busy(p, t->on)) return;
  switch (o->what / 16 % 12) {
    case 0:
    case 1:
      return push_step(p, t, o);
    case 2:
      return evaluate(p, t, o);
    case 3:
      return infer(p, t, o);
    case 4:
      return read_params(p, t, o);
    case 5:
      return ask(p, t);
    case 6:
      return refused(p, t, o);
    default:
      return training_pull(p, t, o);
  }
}
