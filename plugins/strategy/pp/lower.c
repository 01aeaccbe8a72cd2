/* pp/lower.c: lowers a rank's row of the schedule to instructions. Messages of an ordered pair of ranks arrive in
 * order, but a value may be needed after one that was sent later (a skip over several stages of a rank): then all
 * earlier messages are received with it. To know these, the rows of peers are followed as well. */
#include <stdlib.h>

#include "hops.h"

/* Follows what a peer sends to this rank, in order. */
struct stream {
  int32_t action; /* in the peer's row */
  int32_t hop;    /* in that action's stage */
};

struct message {
  int32_t value;
  int32_t microbatch;
  uint32_t flags;
};

enum { VALUE_HERE = 1, GRADIENT_HERE = 2 };

struct lower {
  struct pp* pp;
  struct hops hops;
  struct stream* streams; /* [n_ranks] */
  unsigned char* arrived; /* [n_values][n_microbatches] VALUE_HERE, GRADIENT_HERE */
  int32_t* input_stage;   /* [n_values] first stage of this rank that reads it; -1: none */
};

/* ---- messages ---- */

static void emit_message(struct lower* lo, gsel_instr_kind kind, struct message m, int32_t rank) {
  const struct rewrite* w = &lo->pp->w;
  int32_t peer = w->api->rank_along(w->pass, GSEL_AXIS_PIPELINE, rank);
  emit(&lo->pp->w, (gsel_instr){kind, -1, m.value, m.microbatch, -1, -1, peer, m.flags});
}

/* The rank to which a hop's value, or in backward its gradient, is sent; -1: none. */
static int32_t destination(const struct hop* hop, int32_t kind) {
  if (kind == GSEL_FORWARD) return hop->next;
  return kind == GSEL_BACKWARD_WEIGHT || !hop->gives ? -1 : hop->previous;
}

static struct message message_of(const struct hop* hop, const gsel_action* action) {
  return (struct message){hop->value, action->microbatch, action->kind == GSEL_FORWARD ? 0 : GSEL_INSTR_GRADIENT};
}

/* The next message from a rank to this rank; 0 when there is none. */
static int next_message(struct lower* lo, int32_t from, struct message* out) {
  const struct rewrite* w = &lo->pp->w;
  struct stream* stream = &lo->streams[from];
  const int32_t n = w->api->schedule_length(lo->pp->schedule, from);
  for (; stream->action < n; ++stream->action, stream->hop = 0) {
    const gsel_action action = action_of(lo->pp, from, stream->action);
    const int32_t first = lo->hops.of_stage[action.stage], end = lo->hops.of_stage[action.stage + 1];
    while (first + stream->hop < end) {
      const struct hop* hop = &lo->hops.all[first + stream->hop++];
      if (destination(hop, action.kind) != w->rank) continue;
      *out = message_of(hop, &action);
      return 1;
    }
  }
  return 0;
}

static unsigned char* arrival(struct lower* lo, const struct message* m) {
  return &lo->arrived[m->value * (int64_t)lo->pp->n_microbatches + m->microbatch];
}

/* Receives the needed message and all that the same rank has sent before it. */
static void receive(struct lower* lo, struct message needed, int32_t from) {
  const unsigned char mark = needed.flags ? GRADIENT_HERE : VALUE_HERE;
  while (!lo->pp->w.status && !(*arrival(lo, &needed) & mark)) {
    struct message m;
    if (!next_message(lo, from, &m)) {
      rewrite_fail(&lo->pp->w, GSEL_ERR_INTERNAL, "value \"%s\" is never sent", lo->pp->values[needed.value].name);
      return;
    }
    *arrival(lo, &m) |= m.flags ? GRADIENT_HERE : VALUE_HERE;
    emit_message(lo, GSEL_INSTR_RECV, m, from);
  }
}

static void receive_all(struct lower* lo, const gsel_action* action) {
  for (int32_t h = lo->hops.of_stage[action->stage]; h < lo->hops.of_stage[action->stage + 1]; ++h) {
    const struct hop* hop = &lo->hops.all[h];
    const int forward = action->kind == GSEL_FORWARD;
    const int32_t from = forward ? hop->previous : hop->awaits ? hop->next : -1;
    if (from >= 0) receive(lo, message_of(hop, action), from);
  }
}

static void send_all(struct lower* lo, const gsel_action* action) {
  for (int32_t h = lo->hops.of_stage[action->stage]; h < lo->hops.of_stage[action->stage + 1]; ++h) {
    const int32_t to = destination(&lo->hops.all[h], action->kind);
    if (to >= 0) emit_message(lo, GSEL_INSTR_SEND, message_of(&lo->hops.all[h], action), to);
  }
}

/* ---- actions ---- */

static void emit_layer(struct lower* lo, gsel_instr_kind kind, int32_t layer, int32_t microbatch) {
  emit(&lo->pp->w, (gsel_instr){kind, layer, -1, microbatch, -1, -1, -1, 0});
}

static void emit_inputs(struct lower* lo, const gsel_action* action) {
  for (int32_t v = 0; v < lo->pp->n_values; ++v)
    if (lo->input_stage[v] == action->stage)
      emit(&lo->pp->w, (gsel_instr){GSEL_INPUT, -1, v, action->microbatch, -1, -1, -1, 0});
}

static void write_forward(struct lower* lo, const gsel_action* action) {
  emit_inputs(lo, action);
  receive_all(lo, action);
  for (int32_t l = lo->pp->begin[action->stage]; l < end_of_stage(lo->pp, action->stage); ++l)
    emit_layer(lo, GSEL_FORWARD, l, action->microbatch);
  send_all(lo, action);
}

/* A layer's backward in an action. If the action is both halves, the form of the base program; else the halves, or, if
 * the layer has no halves, the whole backward with the first half. */
static void emit_backward(struct lower* lo, int32_t l, const gsel_action* action) {
  const uint32_t b = lo->pp->w.layers[l].backward;
  const int whole = b & GSEL_BACKWARD_IN_ONE && (action->kind == GSEL_BACKWARD || !(b & GSEL_BACKWARD_IN_HALVES));
  if (!(b & (GSEL_BACKWARD_PRODUCES_INPUT | GSEL_BACKWARD_PRODUCES_WEIGHT))) return;
  if (whole) {
    if (action->kind != GSEL_BACKWARD_WEIGHT) emit_layer(lo, GSEL_BACKWARD, l, action->microbatch);
    return;
  }
  if (action->kind != GSEL_BACKWARD_WEIGHT && b & GSEL_BACKWARD_PRODUCES_INPUT)
    emit_layer(lo, GSEL_BACKWARD_INPUT, l, action->microbatch);
  if (action->kind != GSEL_BACKWARD_INPUT && b & GSEL_BACKWARD_PRODUCES_WEIGHT)
    emit_layer(lo, GSEL_BACKWARD_WEIGHT, l, action->microbatch);
}

/* The layers of l's run in this stage, up to l, before l's backward. */
static void emit_recomputation(struct lower* lo, int32_t l, const gsel_action* action) {
  const struct pp* pp = lo->pp;
  int32_t first = l;
  while (first > pp->begin[action->stage] && pp->run_of_layer[first - 1] == pp->run_of_layer[l]) --first;
  for (; first <= l; ++first) emit_layer(lo, GSEL_INSTR_RECOMPUTE, first, action->microbatch);
}

static void write_backward(struct lower* lo, const gsel_action* action) {
  const struct pp* pp = lo->pp;
  int32_t last_run = -1;
  receive_all(lo, action);
  for (int32_t l = end_of_stage(pp, action->stage) - 1; l >= pp->begin[action->stage]; --l) {
    const int32_t run = pp->run_of_layer[l];
    const int runs = (pp->w.layers[l].backward & (GSEL_BACKWARD_PRODUCES_INPUT | GSEL_BACKWARD_PRODUCES_WEIGHT)) != 0;
    if (run >= 0 && run != last_run && runs) {
      emit_recomputation(lo, l, action);
      last_run = run;
    }
    emit_backward(lo, l, action);
  }
  send_all(lo, action);
}

static void write_backward_weight(struct lower* lo, const gsel_action* action) {
  for (int32_t l = end_of_stage(lo->pp, action->stage) - 1; l >= lo->pp->begin[action->stage]; --l)
    emit_backward(lo, l, action);
}

static void write_action(struct lower* lo, const gsel_action* action) {
  if (action->kind == GSEL_FORWARD)
    write_forward(lo, action);
  else if (action->kind == GSEL_BACKWARD_WEIGHT)
    write_backward_weight(lo, action);
  else
    write_backward(lo, action);
}

/* ---- the step ---- */

static void find_input_stages(struct lower* lo) {
  const struct pp* pp = lo->pp;
  for (int32_t v = 0; v < pp->n_values; ++v) lo->input_stage[v] = -1;
  for (int32_t l = pp->w.n_layers - 1; l >= 0; --l) {
    const gsel_layer_info* layer = &pp->w.layers[l];
    const int32_t stage = pp->stage_of_layer[l];
    if (pp->rank_of_stage[stage] != pp->w.rank) continue;
    for (int32_t i = 0; i < layer->n_inputs; ++i)
      if (pp->values[layer->inputs[i]].producer < 0) lo->input_stage[layer->inputs[i]] = stage;
  }
}

static int is_pipeline_loss(const gsel_instr* instr) {
  return instr->kind == GSEL_INSTR_LOSS_ALLREDUCE && instr->axis == GSEL_AXIS_PIPELINE;
}

/* The losses of the pipeline: sent by the rank that has them and received by the others. */
static void write_losses(struct pp* pp) {
  struct rewrite* w = &pp->w;
  for (int32_t i = 0; i < w->n_base; ++i)
    if (is_pipeline_loss(&w->base[i])) emit(w, w->base[i]);
}

/* The action of this rank's row after which all losses are known; -1 if another rank has the loss. */
static int32_t last_loss(const struct pp* pp) {
  const struct rewrite* w = &pp->w;
  for (int32_t l = 0; l < w->n_layers; ++l) {
    const int32_t stage = pp->stage_of_layer[l];
    if (!(w->layers[l].flags & GSEL_LAYER_LOSS) || pp->rank_of_stage[stage] != w->rank) continue;
    for (int32_t i = w->api->schedule_length(pp->schedule, w->rank); i-- > 0;) {
      const gsel_action action = action_of(pp, w->rank, i);
      if (action.kind == GSEL_FORWARD && action.stage == stage) return i;
    }
  }
  return -1;
}

/* Whether the instruction reduces a property of the gradients over all pipeline ranks. */
static int can_be_optimistic(const gsel_instr* instr) {
  return looks_at_all_gradients(instr) && (instr->kind == GSEL_INSTR_NORM || instr->axis == GSEL_AXIS_PIPELINE);
}

/* The buckets are this rank's. Optimistic instructions come last: the step is optimistic from there on. */
static void write_end(struct pp* pp) {
  struct rewrite* w = &pp->w;
  for (int optimistic = 0; optimistic <= pp->post_validates; ++optimistic)
    for (int32_t i = w->end_of_backward; i < w->n_base; ++i) {
      gsel_instr instr = w->base[i];
      if (instr.kind == GSEL_INSTR_STEP || is_pipeline_loss(&instr)) continue;
      if ((pp->post_validates && can_be_optimistic(&instr)) != optimistic) continue;
      if (optimistic) instr.flags |= GSEL_INSTR_OPTIMISTIC;
      emit(w, instr);
    }
  for (int32_t b = 0; b < w->api->bucket_count(w->pass); ++b)
    emit(w, (gsel_instr){GSEL_INSTR_STEP, -1, -1, -1, b, -1, -1, 0});
}

/* Validates the previous step before the first backward and before anything of the loss is sent. The host moves
 * POST_VALIDATE so that no message crosses it. */
static void write_validation(struct lower* lo, int* open) {
  if (*open) emit(&lo->pp->w, (gsel_instr){GSEL_INSTR_POST_VALIDATE, -1, -1, -1, -1, -1, -1, 0});
  *open = 0;
}

static void write_row(struct lower* lo) {
  const struct rewrite* w = &lo->pp->w;
  const int32_t n = w->api->schedule_length(lo->pp->schedule, w->rank), last = last_loss(lo->pp);
  int validates = lo->pp->post_validates;
  for (int32_t i = 0; i < n && !w->status; ++i) {
    const gsel_action action = action_of(lo->pp, w->rank, i);
    if (action.kind != GSEL_FORWARD) write_validation(lo, &validates);
    write_action(lo, &action);
    if (i != last) continue;
    write_validation(lo, &validates);
    write_losses(lo->pp);
  }
  if (last < 0) write_losses(lo->pp);
}

void write_step(struct pp* pp) {
  struct lower lo = {.pp = pp};
  lo.streams = rewrite_alloc(&pp->w, pp->n_ranks, sizeof *lo.streams);
  lo.arrived = rewrite_alloc(&pp->w, pp->n_values * (int64_t)pp->n_microbatches, sizeof *lo.arrived);
  lo.input_stage = rewrite_alloc(&pp->w, pp->n_values, sizeof *lo.input_stage);
  find_hops(pp, &lo.hops);
  if (!pp->w.status) {
    find_input_stages(&lo);
    write_row(&lo);
    write_end(pp);
  }
  hops_free(&lo.hops);
  free(lo.streams);
  free(lo.arrived);
  free(lo.input_stage);
}
