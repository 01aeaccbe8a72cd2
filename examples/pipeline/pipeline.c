/* pipeline.c: samples stream through layers that are spread over ranks. gsel run -n 4 -- ./pipeline */
#include <gsel/gsel.h>
#include <stdio.h>

enum { LAYERS = 8, WIDTH = 256 };

/* A layer keeps its own weights; here they are random. y = max(0, W x) for each sample. */
static gsel_status layer(const gsel_call* call, void* weights) {
  const float *w = weights, *x = call->inputs[0].data;
  float* y = call->outputs[0].data;
  for (int64_t s = 0; s < call->n_samples; ++s, x += WIDTH)
    for (int i = 0; i < WIDTH; ++i, ++y) {
      *y = 0;
      for (int j = 0; j < WIDTH; ++j) *y += w[i * WIDTH + j] * x[j];
      if (*y < 0) *y = 0;
    }
  return GSEL_OK;
}

/* Asked on the rank that has the first layer. */
static gsel_status fill(const gsel_data_request* request, void* user_data) {
  const uint64_t first = (uint64_t)request->sample_ids[0] * WIDTH;
  (void)user_data;
  for (int64_t i = 0; i < request->dst.n_elems; ++i)
    ((float*)request->dst.data)[i] = gsel_random_normal(1, first + (uint64_t)i);
  return GSEL_OK;
}

int main(void) {
  static float weights[LAYERS][WIDTH * WIDTH];
  const int64_t width = WIDTH;
  char name[24];
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_model* model = NULL;
  gsel_pipeline* pipeline = NULL;
  gsel_pipeline_report r = GSEL_PIPELINE_REPORT_INIT;
  gsel_pipeline_options options = {
      .struct_size = sizeof options, .microbatches = 64, .microbatch_samples = 8, .data = fill};
  gsel_status status = gsel_comm_init(NULL, &comm, &err);
  if (!status) status = gsel_model_create(&model, &err);
  for (int32_t v = 0; v <= LAYERS && !status; ++v) {
    gsel_value_options x = {.struct_size = sizeof x, .dims = &width, .n_dims = 1, .flags = v ? 0 : GSEL_VALUE_INPUT};
    snprintf(name, sizeof name, "x%d", (int)v);
    x.name = gsel_str_from(name);
    status = gsel_model_add_value(model, &x, NULL, &err);
  }
  for (int32_t in = 0, out = 1; in < LAYERS && !status; ++in, ++out) {
    gsel_layer_options l = {.struct_size = sizeof l, .n_inputs = 1, .n_outputs = 1, .flags = GSEL_LAYER_OWN_PARAMS};
    snprintf(name, sizeof name, "layer%d", (int)in);
    l.name = gsel_str_from(name);
    l.inputs = &in;
    l.outputs = &out;
    l.forward = layer;
    l.user_data = weights[in];
    for (uint64_t i = 0; i < WIDTH * WIDTH; ++i) weights[in][i] = gsel_random_normal((uint64_t)out, i) / 12;
    status = gsel_model_add_layer(model, &l, NULL, &err);
  }
  if (!status) status = gsel_pipeline_create(comm, model, &options, &pipeline, &err);
  if (!status) status = gsel_pipeline_run(pipeline, GSEL_FORWARD, &r, &err);
  if (!status)
    printf("rank %d: %.1f ms, %.0f %% busy, %.0f %% idle, %llu messages of %llu bytes\n", (int)r.rank,
           1e3 * r.elapsed_s, 100 * r.busy_s / r.elapsed_s, 100 * r.idle_s / r.elapsed_s,
           (unsigned long long)r.messages_sent, (unsigned long long)r.bytes_sent);
  else
    fprintf(stderr, "%s\n", gsel_error_message(err).data);
  gsel_error_free(err);
  gsel_pipeline_free(pipeline);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return status != GSEL_OK;
}
