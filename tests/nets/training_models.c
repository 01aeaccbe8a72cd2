/* nets/training_models.c: descriptions of the line of support/step_model.h, piece by piece: a, b, x, y, loss, weight,
 * and the two layers. */
#include "nets/training.h"

enum { PIECE_X = 2, PIECE_LOSS = 4, PIECE_LAYER = 6 };

static gsel_status add_param(player* p, gsel_model* model, int piece, int64_t width, gsel_error** err) {
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  int32_t id = -1;
  options.name = gsel_str_from(piece == STEP_A ? "a" : "b");
  options.dims = &width;
  options.n_dims = 1;
  options.init = GSEL_INIT_CALLBACK;
  options.init_fn = step_initial;
  const gsel_status status = gsel_model_add_param(model, &options, &id, err);
  if (!status) right(p, id == piece, "id of a parameter");
  return status;
}

static gsel_status add_value(player* p, gsel_model* model, int value, gsel_error** err) {
  static const char* const names[] = {"x", "y", "loss", "weight"};
  const int64_t width = STEP_WIDTH;
  gsel_value_options options = GSEL_VALUE_OPTIONS_INIT;
  int32_t id = -1;
  options.name = gsel_str_from(names[value]);
  options.dims = &width;
  options.n_dims = value < STEP_LOSS;
  options.dtype = value >= STEP_LOSS ? GSEL_F64 : GSEL_F32;
  options.flags = value == STEP_X ? GSEL_VALUE_INPUT : value < STEP_LOSS ? 0 : GSEL_VALUE_SCALAR;
  const gsel_status status = gsel_model_add_value(model, &options, &id, err);
  if (!status) right(p, id == value, "id of a value");
  return status;
}

static gsel_status add_layer(player* p, gsel_model* model, int is_loss, gsel_error** err) {
  static const int32_t x = STEP_X, y = STEP_Y, losses[] = {STEP_LOSS, STEP_WEIGHT}, params[] = {STEP_A, STEP_B};
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  int32_t id = -1;
  options.name = gsel_str_from(is_loss ? "loss" : "line");
  options.inputs = is_loss ? &y : &x;
  options.outputs = is_loss ? losses : &y;
  options.n_inputs = 1;
  options.n_outputs = 1 + is_loss;
  options.params = is_loss ? NULL : params;
  options.n_params = is_loss ? 0 : STEP_PARAMS;
  options.flags = is_loss ? GSEL_LAYER_LOSS : 0;
  options.forward = is_loss ? loss_forward : line_forward;
  if (is_loss)
    options.backward_input = loss_backward;
  else
    options.backward = line_backward;
  options.user_data = &mine(p)->line;
  const gsel_status status = gsel_model_add_layer(model, &options, &id, err);
  if (!status) right(p, id == is_loss, "id of a layer");
  return status;
}

gsel_status describe(player* p, gsel_model* model, int first, int end, int other, gsel_error** err) {
  gsel_status status = GSEL_OK;
  for (int i = first; i < end && !status; ++i)
    status = i < PIECE_X       ? add_param(p, model, i, STEP_WIDTH + (other && i == STEP_B), err)
             : i < PIECE_LAYER ? add_value(p, model, i - PIECE_X, err)
                               : add_layer(p, model, i > PIECE_LAYER, err);
  return status;
}

/* ---- pieces that are refused, and leave everything as it is ---- */

static void add_wrong_param(player* p, description* d, const op* o, gsel_status want) {
  static const int64_t none = 0, one = 1;
  static const gsel_dtype dtypes[] = {GSEL_I32, GSEL_F64, 77};
  gsel_param_options options = GSEL_PARAM_OPTIONS_INIT;
  gsel_error* err;
  const int flaw = o->b % 6;
  int32_t id = -5;
  options.name = gsel_str_from(flaw == 0 ? "" : flaw == 1 ? "a b" : "wrong");
  options.dims = flaw == 2 ? &none : &one;
  options.n_dims = 1;
  if (flaw == 3) options.flags = 1u << 20;
  if (flaw == 4) options.init = GSEL_INIT_CALLBACK;
  if (flaw == 5) options.dtype = dtypes[o->b / 6 % 3];
  if (want == GSEL_ERR_MODEL && flaw == 5) want = GSEL_ERR_UNSUPPORTED;
  CAME(want, gsel_model_add_param(d->model, &options, &id, &err));
  right(p, id == -5, "an id of what was refused");
}

static void add_wrong_layer(player* p, description* d, const op* o, gsel_status want) {
  static const int32_t x = STEP_X, y = STEP_Y, unknown = 99, below = -1;
  gsel_layer_options options = GSEL_LAYER_OPTIONS_INIT;
  gsel_error* err;
  const int flaw = o->b % 5;
  options.name = gsel_str_from("wrong");
  options.n_inputs = options.n_outputs = 1;
  options.inputs = flaw == 0 ? &unknown : flaw == 1 ? &below : flaw == 2 ? &y : &x;
  options.outputs = flaw == 3 ? &x : &y; /* 3: an input; 2: read before it is written, or written twice */
  options.forward = flaw == 4 ? NULL : line_forward;
  options.backward = line_backward;
  CAME(want, gsel_model_add_layer(d->model, &options, NULL, &err));
}

static void add_wrong(player* p, description* d, const op* o) {
  gsel_error* err;
  const gsel_status want = d->finished ? GSEL_ERR_STATE : GSEL_ERR_MODEL;
  switch (o->a % 4) {
    case 0:
      if (d->pieces > 0) CAME(want, add_param(p, d->model, STEP_A, STEP_WIDTH, &err));
      break;
    case 1:
      if (d->pieces > PIECE_X) CAME(want, add_value(p, d->model, STEP_X, &err));
      break;
    case 2:
      add_wrong_param(p, d, o, want);
      break;
    default:
      add_wrong_layer(p, d, o, want);
  }
}

/* ---- the rest ---- */

static void count(player* p, const description* d) {
  const int n = d->pieces, params = n < PIECE_X ? n : PIECE_X;
  const int values = n < PIECE_X ? 0 : n < PIECE_LAYER ? n - PIECE_X : PIECE_LAYER - PIECE_X;
  right(p, gsel_model_param_count(d->model) == params, "parameters");
  right(p, gsel_model_element_count(d->model) == params * STEP_WIDTH, "elements");
  right(p, gsel_model_value_count(d->model) == values, "values");
  right(p, gsel_model_layer_count(d->model) == (n < PIECE_LAYER ? 0 : n - PIECE_LAYER), "layers");
}

static void finish(player* p, description* d) {
  gsel_error* err;
  if (CAME(d->pieces == PIECES ? GSEL_OK : GSEL_ERR_MODEL, gsel_model_finish(d->model, &err))) d->finished = 1;
}

static void check(player* p, description* d) {
  gsel_error* err;
  gsel_model_check_report* told = NULL;
  mine(p)->now = NULL;
  const int whole = d->pieces == PIECES || d->pieces == 0; /* without a loss too */
  if (CAME(whole ? GSEL_OK : GSEL_ERR_MODEL, gsel_model_check(d->model, NULL, &told, &err))) {
    d->finished = 1;
    right(p, gsel_model_check_breach_count(told) == 0, "breaches");
    gsel_breach breach = GSEL_BREACH_INIT;
    CAME(GSEL_ERR_ARG, gsel_model_check_breach(told, 0, &breach, &err));
  } else {
    right(p, !told, "a report of what cannot be finished");
  }
  gsel_model_check_free(told);
}

void play_model(player* p, description* d, const op* o) {
  gsel_error* err;
  if (!d->model) {
    CAME(GSEL_OK, gsel_model_create(&d->model, &err));
    d->pieces = d->finished = 0;
    if (o->b % 4) return;
  }
  switch (o->b % 8) {
    case 0:
    case 1:
    case 2: {
      const int end = o->b % 8 ? PIECES : d->pieces + 1;
      if (d->pieces == PIECES || d->finished) return add_wrong(p, d, o);
      if (CAME(GSEL_OK, describe(p, d->model, d->pieces, end, 0, &err))) d->pieces = end;
      break;
    }
    case 3:
    case 4:
      add_wrong(p, d, o);
      break;
    case 5:
      finish(p, d);
      break;
    case 6:
      check(p, d);
      break;
    default:
      gsel_model_free(d->model); /* its trainers go on */
      memset(d, 0, sizeof *d);
      return;
  }
  count(p, d);
}
