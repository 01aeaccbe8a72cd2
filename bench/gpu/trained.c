/* See trained.h. */
#define _GNU_SOURCE
#include "trained.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "clock_check.h"

int trained_sizes(struct gpt_sizes* z, const char* text) {
  int length = 0;
  if (sscanf(text, "%" SCNd64 ",%" SCNd64 ",%" SCNd64 ",%" SCNd64 "%n", &z->layers, &z->width, &z->heads, &z->context,
             &length) != 4)
    return -1;
  z->products = !strcmp(text + length, ",cublaslt") ? GPT_CUBLASLT : GPT_PLAIN;
  return text[length] && z->products == GPT_PLAIN ? -1 : 0;
}

double trained_number(const struct trained* t, const char* key) {
  return atof(gsel_config_get(t->config, gsel_str_from(key)).data);
}

static gsel_status fill(const gsel_data_request* request, void* user_data) {
  struct trained* t = user_data;
  return device_fill(&t->on_device, &t->text, request->value == t->gpt.targets, request);
}

static void skip(const char* why) {
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
  exit(77);
}

static void join(struct trained* t) {
  gsel_error* err = NULL;
  gsel_comm_options joining = GSEL_COMM_OPTIONS_INIT;
  if (!t->in_job) joining.world_size = 1;
  joining.accelerator = gsel_str_from(t->in_job ? "cuda" : "cuda:0");
  const gsel_status joined = gsel_comm_init(&joining, &t->comm, &err);
  if (joined == GSEL_ERR_NO_DEVICES || joined == GSEL_ERR_UNSUPPORTED) skip(gsel_error_message(err).data);
  check(joined, &err);
}

void trained_open(struct trained* t, const char* config_path, const char* text_path) {
  gsel_error* err = NULL;
  char why[512];
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  check(gsel_config_load(gsel_str_from(config_path), &t->config, &err), &err);
  if (text_load(&t->text, text_path, t->sizes.context, (uint64_t)trained_number(t, "train.seed"), why, sizeof why)) {
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
    exit(1);
  }
  if (!strcmp(gsel_config_get(t->config, gsel_str_from("train.precision")).data, "bf16")) t->sizes.dtype = GSEL_BF16;
  join(t);
  if (device_refusal(&t->sizes)) skip(device_refusal(&t->sizes));
  check(gpt_model_create(&t->sizes, &device_layers, &t->gpt, &err), &err);
  options.config = t->config;
  options.data = fill;
  options.data_user_data = t;
  check(gsel_trainer_create(t->comm, t->gpt.model, &options, &t->trainer, &err), &err);
}

void trained_close(struct trained* t) {
  gsel_trainer_free(t->trainer);
  device_text_free(&t->on_device);
  gpt_model_free(&t->gpt);
  gsel_comm_free(t->comm);
  gsel_config_free(t->config);
  text_free(&t->text);
}

double trained_steps(struct trained* t, int n, double* losses) {
  gsel_error* err = NULL;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  const double begin = now();
  for (int i = 0; i < n; ++i) {
    check(gsel_trainer_step(t->trainer, &report, &err), &err);
    if (losses) losses[i] = report.loss;
  }
  return (now() - begin) / n;
}
