/* nets/training_line.c: the callbacks of trainers, which fail as they are told to and look at what they are told; and
 * the same step by hand. Numbers are small integers, and parameters step by 1: nothing is rounded. */
#include "nets/training.h"

static training* now_of(void* user) {
  return mine((player*)((step_model*)user)->user)->now;
}

static void saw(training* t, int good, const char* what) {
  if (!good && !t->saw) t->saw = what;
}

/* Whether this callback is to fail. */
static gsel_status faulted(const player* p, const training* t, int fault, char* message, size_t capacity) {
  static const gsel_status codes[] = {GSEL_ERR_IO, GSEL_ERR_NOMEM, -5000, 7};
  if (!t || fault == NO_FAULT || t->fault != fault || t->with != p->run.rank) return GSEL_OK;
  snprintf(message, capacity, "as planned for %d", t->with);
  return codes[(t->batch + fault) % 4];
}

gsel_status line_data(const gsel_data_request* r, void* user) {
  const player* p = (const player*)user;
  training* t = mine(p)->now;
  saw(t, r->value == STEP_X && r->n_samples > 0 && r->dst.n_elems == r->n_samples * STEP_WIDTH, "a request");
  if (!t->infers) {
    const gsel_range share = samples_asked(p, t, p->run.rank);
    for (int64_t s = 0; s < r->n_samples; ++s)
      saw(t, r->sample_ids[s] == t->first_sample + share.begin + t->asked + s, "ids of samples");
    t->asked += r->n_samples;
    saw(t, share.begin + t->asked <= share.end, "number of samples");
  }
  if (t->fault == NO_SAMPLES && t->with == p->run.rank) return GSEL_NO_SAMPLES;
  const gsel_status status = faulted(p, t, FAULT_INPUT, r->message, r->message_capacity);
  return status ? status : step_data(r, NULL);
}

static gsel_status call(const gsel_call* c, void* user, int fault, gsel_layer_fn body) {
  training* t = now_of(user);
  const int backward = fault == FAULT_BACKWARD;
  if (t && !t->infers) saw(t, c->step == t->steps && c->evaluating == (t->way == IN_EVALUATION), "step of a call");
  if (t) saw(t, !(backward && (t->infers || t->way == IN_EVALUATION)), "a backward without a step");
  const gsel_status status =
      faulted((const player*)((step_model*)user)->user, t, fault, c->message, c->message_capacity);
  return status ? status : body(c, NULL);
}

gsel_status line_forward(const gsel_call* c, void* user) {
  return call(c, user, FAULT_FORWARD, step_forward);
}
gsel_status line_backward(const gsel_call* c, void* user) {
  return call(c, user, FAULT_BACKWARD, step_backward);
}
gsel_status loss_forward(const gsel_call* c, void* user) {
  return call(c, user, FAULT_LOSS, step_loss_forward);
}
gsel_status loss_backward(const gsel_call* c, void* user) {
  return call(c, user, NO_FAULT, step_loss_backward);
}

gsel_status work_off(player* p, const gsel_work* work) {
  switch (work->kind) {
    case GSEL_INPUT:
      return line_data(work->input, p);
    case GSEL_FORWARD:
      return work->call->layer ? loss_forward(work->call, work->call->user_data)
                               : line_forward(work->call, work->call->user_data);
    case GSEL_BACKWARD:
      return line_backward(work->call, work->call->user_data);
    default:
      return loss_backward(work->call, work->call->user_data);
  }
}

/* ---- by hand ---- */

/* dp gives the master's samples out, and the stages of a pipeline pass theirs on. */
gsel_range samples_asked(const player* p, const training* t, int32_t rank) {
  if (t->strategy == BY_DP || t->strategy == BY_PP) return gsel_shard_range(rank ? 0 : t->batch, 1, 0);
  return gsel_shard_range(t->batch, p->run.world_size, rank);
}

numbers batch_by_hand(player* p, training* t, int64_t first_sample, int updates) {
  numbers n = {t->steps, 0, 0};
  float d[STEP_PARAMS][STEP_WIDTH] = {{0}};
  gsel_range absent = {0, 0};
  if (t->fault == NO_SAMPLES) absent = samples_asked(p, t, t->with);
  for (int64_t s = 0; s < t->batch; ++s) {
    if (s >= absent.begin && s < absent.end) continue;
    n.weight += 1;
    for (int i = 0; i < STEP_WIDTH; ++i) {
      const float x = step_sample(first_sample + s, i), y = t->params[STEP_A][i] * x + t->params[STEP_B][i];
      n.loss_sum += (double)y * (double)y / 2;
      d[STEP_A][i] += y * x;
      d[STEP_B][i] += y;
    }
  }
  for (int k = 0; updates && k < STEP_PARAMS; ++k)
    for (int i = 0; i < STEP_WIDTH; ++i) t->params[k][i] -= (float)((d[k][i] > 0) - (d[k][i] < 0));
  return n;
}

void compare_numbers(player* p, const char* call, const gsel_step_report* r, const numbers* n) {
  char line[300];
  if (r->step == n->step && r->loss_sum == n->loss_sum && r->weight == n->weight && r->loss == n->loss_sum / n->weight)
    return;
  snprintf(line, sizeof line, "expected step %ld, loss %g of %g; got step %ld, loss %g of %g, mean %g", (long)n->step,
           n->loss_sum, n->weight, (long)r->step, r->loss_sum, r->weight, r->loss);
  report(p, call, line);
}

/* ---- what frames a batch ---- */

void batch_begins(player* p, training* t, int way, int64_t first_sample) {
  mine(p)->now = t;
  t->way = way;
  t->first_sample = first_sample;
  t->asked = t->infers = 0;
}

void batch_failed(training* t) {
  t->broken = t->on->broken = 1;
  rest(t);
}

/* A rank without samples has no callbacks, and so cannot fail in one; ranks of a pipeline have a layer each. */
int faulty(const player* p, const training* t) {
  const gsel_range share = samples_asked(p, t, t->with);
  if (t->fault == NO_FAULT) return 0;
  if (t->fault == NO_SAMPLES)
    return (t->strategy == BY_DP || (t->strategy == BY_PP && p->run.world_size > 1)) && share.end > share.begin;
  if (t->fault == FAULT_BACKWARD && t->way == IN_EVALUATION) return 0;
  if (p->run.world_size == 1 || (t->strategy != BY_PP && t->strategy != BY_DP)) return share.end > share.begin;
  if (t->fault == FAULT_INPUT) return t->with == 0;
  if (t->fault == FAULT_LOSS) return t->with == (t->strategy == BY_PP);
  if (t->strategy == BY_PP) return t->with == 0;
  const gsel_range part = gsel_shard_range(t->batch, p->run.world_size, t->with);
  return part.end > part.begin;
}

gsel_status fate_of_others(const training* t) {
  if (t->strategy != BY_PP) return GSEL_ERR_ABORTED;
  return t->unwritable && t->way == IN_STEP ? GSEL_ERR_IO : GSEL_OK;
}

void came_broken(player* p, training* t, const char* call, gsel_status got, gsel_error* err) {
  char text[300];
  came_as(p, call, t->unaware ? GSEL_ERR_ABORTED : GSEL_ERR_STATE, t->unaware ? GSEL_ERR_ABORTED : GSEL_ERR_STATE, got,
          err, text);
  t->unaware = 0;
}

void batch_ended(player* p, training* t, const gsel_step_report* r) {
  const gsel_range share = samples_asked(p, t, p->run.rank);
  const numbers n = batch_by_hand(p, t, t->first_sample, t->way == IN_STEP);
  if (r) compare_numbers(p, t->way == IN_STEP ? "step" : "evaluation", r, &n);
  if (t->asked != share.end - share.begin) report(p, "batch", "samples that were never asked for");
  if (t->way == IN_STEP) {
    const gsel_range part = gsel_shard_range(t->batch, p->run.world_size, p->run.rank);
    t->last = n;
    ++t->steps;
    t->had_samples = t->strategy == BY_PP   ? p->run.rank == 0
                     : t->strategy == BY_DP ? part.end > part.begin
                                            : share.end > share.begin;
    if (t->fault == NO_SAMPLES && t->with == p->run.rank && n.weight < t->batch) t->had_samples = 0;
    t->evaluation_waits = 0;
  }
  if (t->saw) report(p, "a callback saw", t->saw);
  rest(t);
}
