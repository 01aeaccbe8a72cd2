/* train.c: the same with a backward, without a trainer: each layer keeps its weights, sums up their gradients over the
 * micro-batches of a run, and steps them itself between runs. Learns to sort pairs: the larger number first.
 *   gsel run -n 4 -- ./train [SCHEDULE]       1f1b, gpipe, zb-h1, ... or a file; see `gsel program --help` */
#include <gsel/gsel.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HIDDEN = 6, WIDTH = 8, MICROBATCHES = 16, SAMPLES = 32, RUNS = 120 };

struct layer {
  float w[WIDTH][WIDTH], dw[WIDTH][WIDTH]; /* the last element of an input is 1: the column of w for it is a bias */
};

/* y = x + tanh(w x) */
static gsel_status forward(const gsel_call* call, void* user_data) {
  const struct layer* l = user_data;
  const float* x = call->inputs[0].data;
  float *y = call->outputs[0].data, *h = call->saved;
  for (int64_t s = 0; s < call->n_samples; ++s, x += WIDTH, y += WIDTH, h += WIDTH)
    for (int i = 0; i < WIDTH; ++i) {
      float sum = 0;
      for (int j = 0; j < WIDTH; ++j) sum += l->w[i][j] * x[j];
      h[i] = tanhf(sum);
      y[i] = x[i] + h[i];
    }
  return GSEL_OK;
}

static gsel_status backward_input(const gsel_call* call, void* user_data) {
  const struct layer* l = user_data;
  const float *dy = call->d_outputs[0].data, *h = call->saved;
  float* dx = call->d_inputs[0].data;
  for (int64_t s = 0; dx && s < call->n_samples; ++s, dx += WIDTH, dy += WIDTH, h += WIDTH)
    for (int j = 0; j < WIDTH; ++j) {
      dx[j] = dy[j];
      for (int i = 0; i < WIDTH; ++i) dx[j] += l->w[i][j] * dy[i] * (1 - h[i] * h[i]);
    }
  return GSEL_OK;
}

static gsel_status backward_weight(const gsel_call* call, void* user_data) {
  struct layer* l = user_data;
  const float *x = call->inputs[0].data, *dy = call->d_outputs[0].data, *h = call->saved;
  for (int64_t s = 0; s < call->n_samples; ++s, x += WIDTH, dy += WIDTH, h += WIDTH)
    for (int i = 0; i < WIDTH; ++i)
      for (int j = 0; j < WIDTH; ++j) l->dw[i][j] += dy[i] * (1 - h[i] * h[i]) * x[j];
  return GSEL_OK;
}

/* Half the squared distance of y's first two elements from the pair in order. Its weight is the number of samples. */
static gsel_status loss(const gsel_call* call, void* user_data) {
  const float *y = call->inputs[0].data, *pair = call->inputs[1].data;
  double sum = 0;
  (void)user_data;
  for (int64_t s = 0; s < call->n_samples; ++s, y += WIDTH, pair += 2) {
    const float a = y[0] - fmaxf(pair[0], pair[1]), b = y[1] - fminf(pair[0], pair[1]);
    sum += (a * a + b * b) / 2;
  }
  *(double*)call->outputs[0].data = sum;
  *(double*)call->outputs[1].data = (double)call->n_samples;
  return GSEL_OK;
}

static gsel_status loss_backward(const gsel_call* call, void* user_data) {
  const float *y = call->inputs[0].data, *pair = call->inputs[1].data;
  float* dy = call->d_inputs[0].data;
  (void)user_data;
  for (int64_t s = 0; s < call->n_samples; ++s, y += WIDTH, dy += WIDTH, pair += 2) {
    for (int i = 0; i < WIDTH; ++i) dy[i] = 0;
    dy[0] = y[0] - fmaxf(pair[0], pair[1]);
    dy[1] = y[1] - fminf(pair[0], pair[1]);
  }
  return GSEL_OK;
}

/* The numbers of a sample, on the rank of the first layer and on that of the last. */
static gsel_status fill(const gsel_data_request* request, void* user_data) {
  float* to = request->dst.data;
  const int64_t width = request->dst.n_elems / request->n_samples;
  (void)user_data;
  for (int64_t s = 0; s < request->n_samples; ++s)
    for (int64_t i = 0; i < width; ++i, ++to)
      *to = i < 2 ? gsel_random_normal(1, 2 * (uint64_t)request->sample_ids[s] + (uint64_t)i) : i == WIDTH - 1;
  return GSEL_OK;
}

/* Values 0 the input, 1 to HIDDEN what layers write, then the pair again, the loss and its weight. */
static gsel_status describe(gsel_model* model, struct layer* layers, gsel_error** err) {
  enum { PAIR = HIDDEN + 1, LOSS, WEIGHT };
  const int64_t width = WIDTH, two = 2;
  const int32_t compared[] = {HIDDEN, PAIR}, sums[] = {LOSS, WEIGHT};
  char name[24];
  gsel_status status = GSEL_OK;
  for (int32_t v = 0; v <= WEIGHT && !status; ++v) {
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    snprintf(name, sizeof name, v <= HIDDEN ? "x%d" : v == PAIR ? "pair" : v == LOSS ? "loss" : "weight", (int)v);
    value.name = gsel_str_from(name);
    value.dims = v == PAIR ? &two : &width;
    value.n_dims = v < LOSS;
    value.dtype = v < LOSS ? GSEL_F32 : GSEL_F64;
    value.flags = v == 0 || v == PAIR ? GSEL_VALUE_INPUT : v < LOSS ? 0 : GSEL_VALUE_SCALAR;
    status = gsel_model_add_value(model, &value, NULL, err);
  }
  for (int32_t in = 0, out = 1; in < HIDDEN && !status; ++in, ++out) {
    gsel_layer_options l = GSEL_LAYER_OPTIONS_INIT;
    snprintf(name, sizeof name, "layer%d", (int)in);
    l.name = gsel_str_from(name);
    l.inputs = &in;
    l.outputs = &out;
    l.n_inputs = l.n_outputs = 1;
    l.flags = GSEL_LAYER_OWN_PARAMS;
    l.saved_bytes_per_sample = WIDTH * sizeof(float);
    l.forward = forward;
    l.backward_input = backward_input;
    l.backward_weight = backward_weight;
    l.user_data = &layers[in];
    status = gsel_model_add_layer(model, &l, NULL, err);
  }
  gsel_layer_options end = GSEL_LAYER_OPTIONS_INIT;
  end.name = gsel_str_from("loss");
  end.inputs = compared;
  end.outputs = sums;
  end.n_inputs = end.n_outputs = 2;
  end.flags = GSEL_LAYER_LOSS;
  end.forward = loss;
  end.backward_input = loss_backward;
  return status ? status : gsel_model_add_layer(model, &end, NULL, err);
}

/* Every kernel against its contract; what the layers have added to their gradients meanwhile is cleared. */
static gsel_status check_kernels(gsel_model* model, struct layer* layers, gsel_error** err) {
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  gsel_model_check_report* report = NULL;
  options.data = fill;
  const gsel_status status = gsel_model_check(model, &options, &report, err);
  if (!status) printf("%s\n", gsel_model_check_summary(report).data);
  gsel_model_check_free(report);
  for (int l = 0; l < HIDDEN; ++l) memset(layers[l].dw, 0, sizeof layers[l].dw);
  return status;
}

/* Layers of other ranks have no gradient, so that nothing happens to them here. */
static void step(struct layer* l, double weight) {
  for (int i = 0; i < WIDTH; ++i)
    for (int j = 0; j < WIDTH; ++j) {
      l->w[i][j] -= 0.1f * l->dw[i][j] / (float)weight;
      l->dw[i][j] = 0;
    }
}

int main(int argc, char** argv) {
  static struct layer layers[HIDDEN];
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_model* model = NULL;
  gsel_pipeline* pipeline = NULL;
  gsel_pipeline_options options = GSEL_PIPELINE_OPTIONS_INIT;
  gsel_pipeline_report report = GSEL_PIPELINE_REPORT_INIT;
  for (uint64_t i = 0; i < HIDDEN * WIDTH * WIDTH; ++i)
    layers[i / WIDTH / WIDTH].w[i / WIDTH % WIDTH][i % WIDTH] = gsel_random_normal(2, i) / 4;
  options.schedule = gsel_str_from(argc > 1 ? argv[1] : NULL);
  options.microbatches = MICROBATCHES;
  options.microbatch_samples = SAMPLES;
  options.data = fill;
  gsel_status status = gsel_comm_init(NULL, &comm, &err);
  if (!status) status = gsel_model_create(&model, &err);
  if (!status) status = describe(model, layers, &err);
  if (!status && gsel_comm_rank(comm) == 0) status = check_kernels(model, layers, &err);
  if (!status) status = gsel_pipeline_create(comm, model, &options, &pipeline, &err);
  for (int run = 0; run < RUNS && !status; ++run) {
    status = gsel_pipeline_run(pipeline, GSEL_FORWARD_BACKWARD, &report, &err);
    for (int l = 0; l < HIDDEN && !status; ++l) step(&layers[l], report.loss_weight);
    if (!status && report.rank == 0 && (run % 30 == 0 || run == RUNS - 1))
      printf("run %d: loss %.6f\n", run, report.loss_sum / report.loss_weight);
  }
  char text[512];
  if (status) gsel_error_format(err, text, sizeof text), fprintf(stderr, "%s\n", text);
  gsel_error_free(err);
  gsel_pipeline_free(pipeline);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return status != GSEL_OK;
}
