/* job.c: see job.h. A rank joins, describes the model, trains and reads all parameters; that it is a thread makes no
 * difference to gsel. */
#include "job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_layers.h"

/* What a rank has open; rank 0's result is the job's. */
struct rank {
  const struct job* job;
  struct job_result* result;
  gsel_unique_id id;
  int32_t rank;
  gsel_comm* comm;
  gsel_config* config;
  struct gpt_model gpt;
  gsel_trainer* trainer;
  struct device_text on_device;
  float* params;
  gsel_status status;
  gsel_error* err;
};

static gsel_status fill(const gsel_data_request* request, void* user_data) {
  struct rank* r = user_data;
  const size_t context = (size_t)r->job->sizes.context, shift = request->value == r->gpt.targets ? 1 : 0;
  if (request->stream) return device_fill(&r->on_device, r->job->text, (int64_t)shift, request);
  for (int64_t i = 0; i < request->n_samples; ++i)
    memcpy((uint8_t*)request->dst.data + (size_t)i * context, text_sample(r->job->text, request->sample_ids[i]) + shift,
           context);
  return GSEL_OK;
}

static gsel_status join(struct rank* r) {
  gsel_comm_options joining = GSEL_COMM_OPTIONS_INIT;
  joining.rank = r->rank;
  joining.world_size = r->job->ranks;
  joining.id = &r->id;
  char accelerator[32];
  if (r->job->accelerator) {
    joining.config = r->config;
    const int device = r->job->on_one_device ? 0 : (int)r->rank;
    snprintf(accelerator, sizeof accelerator, "%s:%d", r->job->accelerator, device);
    joining.accelerator = gsel_str_from(accelerator);
    if (r->job->on_one_device) joining.transport = gsel_str_from("cuda_ipc"); /* of itself not taken for threads */
  }
  if (r->job->world && r->job->ranks > 1) return gsel_comm_dup(r->job->world, &r->comm, &r->err);
  return gsel_comm_init(&joining, &r->comm, &r->err);
}

static gsel_status start(struct rank* r) {
  const gsel_str text = {r->job->config, GSEL_NUL}, name = GSEL_STR("gpt-matrix");
  gsel_status status = gsel_config_parse(text, name, &r->config, &r->err);
  if (!status) status = join(r);
  if (!status) status = gpt_model_create(&r->job->sizes, r->job->kinds, &r->gpt, &r->err);
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = r->config;
  options.data = fill;
  options.data_user_data = r;
  return status ? status : gsel_trainer_create(r->comm, r->gpt.model, &options, &r->trainer, &r->err);
}

static void count_sent(const struct rank* r, uint64_t* sent) {
  for (gsel_axis axis = 0; axis < JOB_AXES; ++axis) {
    sent[axis] = 0;
    for (gsel_instr_kind kind = 1; kind <= GSEL_INSTR_ALLREDUCE_PARTIAL; ++kind) {
      gsel_comm_count count = GSEL_COMM_COUNT_INIT;
      if (!gsel_trainer_counts(r->trainer, kind, axis, &count, NULL)) sent[axis] += count.bytes_sent;
    }
  }
}

/* Each rank reads no more than it needs. */
static gsel_status load(struct rank* r) {
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  if (!r->job->load_from) return GSEL_OK;
  const gsel_status status = gsel_trainer_load(r->trainer, gsel_str_from(r->job->load_from), &report, &r->err);
  return status ? status : report.bytes == report.needed_bytes ? GSEL_OK : GSEL_ERR_INTERNAL;
}

static gsel_status train(struct rank* r) {
  uint64_t before[JOB_AXES], after[JOB_AXES];
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  gsel_status status = load(r);
  count_sent(r, before);
  for (int32_t i = 0; i < r->job->steps && !status; ++i) status = gsel_trainer_step(r->trainer, &report, &r->err);
  count_sent(r, after);
  for (int axis = 0; axis < JOB_AXES; ++axis) r->result->sent[r->rank][axis] = after[axis] - before[axis];
  r->result->peak_bytes[r->rank] = report.peak_bytes;
  if (r->rank == 0) r->result->loss = report.loss;
  if (r->job->save_to && !status)
    status = gsel_trainer_save(r->trainer, gsel_str_from(r->job->save_to), NULL, NULL, &r->err);
  return status;
}

static gsel_status read_params(struct rank* r) {
  gsel_status status = GSEL_OK;
  int64_t at = 0, all = gsel_model_element_count(r->gpt.model);
  r->params = malloc((size_t)all * sizeof *r->params);
  if (!r->params) return GSEL_ERR_NOMEM;
  for (int32_t p = 0; p < r->gpt.n_params && !status; at += r->gpt.param_elems[p++])
    status = gsel_trainer_read_param(r->trainer, p, r->params + at, (size_t)r->gpt.param_elems[p] * sizeof *r->params,
                                     &r->err);
  return status;
}

static void* rank_main(void* argument) {
  struct rank* r = argument;
  r->status = start(r);
  if (!r->status) r->status = train(r);
  if (!r->status) r->status = read_params(r);
  gsel_trainer_free(r->trainer);
  device_text_free(&r->on_device);
  gsel_config_free(r->config);
  gsel_comm_free(r->comm);
  return NULL;
}

/* The failure that names its cause: others only say that a rank has failed. */
static int is_echo(gsel_status status) {
  return status == GSEL_ERR_ABORTED || status == GSEL_ERR_PEER;
}
static void report_failure(struct job_result* result, gsel_status status, const char* text) {
  if (!status || (result->status && (is_echo(status) || !is_echo(result->status)))) return;
  result->status = status;
  snprintf(result->message, sizeof result->message, "%s", text);
}
static void failure_text(const struct rank* r, char* text, size_t capacity) {
  if (r->err)
    gsel_error_format(r->err, text, capacity);
  else
    snprintf(text, capacity, "%s", gsel_status_text(r->status));
}

static void close_rank(struct rank* r) {
  gpt_model_free(&r->gpt);
  gsel_error_free(r->err);
}

/* What the ranks of a launcher tell each other when they are done. */
struct told {
  gsel_status status;
  int32_t alike;
  double loss;
  uint64_t sent[JOB_AXES], peak_bytes;
  char message[sizeof((struct job_result*)0)->message];
};

/* Whether this rank's parameters are rank 0's. */
static gsel_status compare_with_first(const struct rank* r, int64_t n_elems, int32_t* alike, gsel_error** err) {
  float* first = malloc((size_t)n_elems * sizeof *first);
  if (!first) return GSEL_ERR_NOMEM;
  if (r->rank == 0) memcpy(first, r->params, (size_t)n_elems * sizeof *first);
  const gsel_status status = gsel_broadcast(r->job->world, first, first, (size_t)n_elems, GSEL_F32, 0, err);
  *alike = !status && !memcmp(first, r->params, (size_t)n_elems * sizeof *first);
  free(first);
  return status;
}

static void run_in_world(const struct job* job, struct job_result* result) {
  const int32_t rank = gsel_comm_rank(job->world);
  struct rank own = {.job = job, .result = result, .rank = rank};
  struct told mine = {.alike = 1}, all[JOB_RANKS];
  gsel_error* err = NULL;
  *result = (struct job_result){.alike = 1};
  rank_main(&own);
  mine.status = own.status;
  mine.loss = result->loss;
  memcpy(mine.sent, result->sent[rank], sizeof mine.sent);
  mine.peak_bytes = result->peak_bytes[rank];
  if (own.status) failure_text(&own, mine.message, sizeof mine.message);
  gsel_status status = gsel_allgather(job->world, &mine, all, sizeof mine, GSEL_U8, &err);
  for (int32_t i = 0; i < job->ranks && !status; ++i) report_failure(result, all[i].status, all[i].message);
  if (!status && !result->status) {
    result->n_elems = gsel_model_element_count(own.gpt.model);
    status = compare_with_first(&own, result->n_elems, &mine.alike, &err);
    if (!status) status = gsel_allgather(job->world, &mine, all, sizeof mine, GSEL_U8, &err);
  }
  for (int32_t i = 0; i < job->ranks && !status; ++i) {
    result->alike &= all[i].alike;
    memcpy(result->sent[i], all[i].sent, sizeof all[i].sent);
    result->peak_bytes[i] = all[i].peak_bytes;
    result->loss = all[0].loss;
  }
  if (status) report_failure(result, status, err ? gsel_error_message(err).data : gsel_status_text(status));
  gsel_error_free(err);
  if (result->status)
    free(own.params);
  else
    result->params = own.params;
  close_rank(&own);
}

void job_run(const struct job* job, struct job_result* result) {
  struct rank ranks[JOB_RANKS] = {0};
  pthread_t threads[JOB_RANKS];
  gsel_unique_id id;
  if (job->world && job->ranks > 1) {
    run_in_world(job, result);
    return;
  }
  *result = (struct job_result){.status = gsel_unique_id_create(&id, NULL), .alike = 1};
  if (result->status) return;
  for (int32_t i = 0; i < job->ranks; ++i) {
    ranks[i] = (struct rank){.job = job, .result = result, .id = id, .rank = i};
    if (pthread_create(&threads[i], NULL, rank_main, &ranks[i])) {
      perror("gpt-matrix: thread");
      exit(1);
    }
  }
  for (int32_t i = 0; i < job->ranks; ++i) pthread_join(threads[i], NULL);
  for (int32_t i = 0; i < job->ranks; ++i) {
    char text[sizeof result->message] = "";
    if (ranks[i].status) failure_text(&ranks[i], text, sizeof text);
    report_failure(result, ranks[i].status, text);
  }
  if (!result->status) result->n_elems = gsel_model_element_count(ranks[0].gpt.model);
  for (int32_t i = 0; i < job->ranks; ++i) {
    if (!result->status && memcmp(ranks[i].params, ranks[0].params, (size_t)result->n_elems * sizeof(float)))
      result->alike = 0;
    if (i > 0 || result->status) free(ranks[i].params);
    close_rank(&ranks[i]);
  }
  if (!result->status) result->params = ranks[0].params;
}
