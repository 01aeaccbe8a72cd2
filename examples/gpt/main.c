/* main.c: trains the GPT on a text. Start here: run() is the whole life of a program that uses gsel.
 *
 *     gpt --data kjv.txt                                  one rank
 *     gsel run -n 2 --config gpt.toml -- gpt --data kjv.txt --seconds 60 --sample 400
 *
 * How many ranks there are and which strategy they follow is not written here: gsel reads it from the environment
 * and from gsel.toml. Every rank runs this same program and makes the same calls; rank 0 speaks. */
#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "cuda/products.h"
#include "data.h"
#include "device_layers.h"
#include "layers.h"
#include "model.h"
#include "options.h"
#include "record.h"
#include "sample.h"

/* All that is open. Empty at first, and closed in any state by finish(). */
struct session {
  struct options options;
  gsel_error* err; /* of the last gsel call */
  gsel_comm* comm; /* that the trainer works on: of a GPU where there is one */
  gsel_comm* host; /* the same ranks, for numbers of the host; without a GPU it is comm */
  gsel_config* config;
  gsel_config* map; /* of weights; NULL: config is */
  struct text text;
  struct gpt_model gpt;
  gsel_trainer* trainer;
  struct device_text on_device;
  struct record record;
  uint64_t sent_before[SENT_KINDS]; /* by this rank, to set up */
  int64_t earlier_steps;            /* of the run that left the checkpoint */
  int64_t saved_at;                 /* the step of the newest checkpoint */
  int32_t rank;                     /* -1 before it is known */
};

static int64_t steps_done(const struct session* s) {
  return s->earlier_steps + s->record.steps;
}

/* Says what failed, and on which rank. Always -1. */
static int failed(const struct session* s, const char* what, const char* why) {
  char rank[32] = "";
  if (s->rank >= 0) snprintf(rank, sizeof rank, "rank %" PRId32 ": ", s->rank);
  fprintf(stderr, "gpt: %s%s%s%s\n", rank, what, *what ? ": " : "", why);
  return -1;
}

/* The same of a gsel call, whose error is in s->err. Always behind the call, never around it, so that the error is read
 * when it is there:
 *
 *     if (gsel_call(..., &s->err)) return call_failed(s, "what it was for"); */
static int call_failed(struct session* s, const char* what) {
  char why[1024];
  gsel_error_format(s->err, why, sizeof why);
  gsel_error_free(s->err);
  s->err = NULL;
  return failed(s, what, why);
}

/* ---- before the first step ---------------------------------------------------------------------------- */

/* gsel asks for the samples of a micro-batch: tokens, or the same shifted by one byte. */
static gsel_status fill(const gsel_data_request* request, void* user_data) {
  struct session* s = user_data;
  const size_t context = (size_t)s->options.sizes.context, shift = request->value == s->gpt.targets ? 1 : 0;
  if (request->stream) return device_fill(&s->on_device, &s->text, (int64_t)shift, request);
  uint8_t* dst = request->dst.data;
  for (int64_t i = 0; i < request->n_samples; ++i)
    memcpy(dst + (size_t)i * context, text_sample(&s->text, request->sample_ids[i]) + shift, context);
  return GSEL_OK;
}

static uint64_t seed_of(const gsel_config* config) {
  const gsel_str seed = gsel_config_get(config, (gsel_str)GSEL_STR("train.seed"));
  return seed.data ? strtoull(seed.data, NULL, 10) : 1;
}

static void count_sent(const struct session* s, uint64_t* sent) {
  static const gsel_instr_kind kinds[SENT_KINDS] = {
      GSEL_INSTR_ALLREDUCE, GSEL_INSTR_REDUCE_SCATTER, GSEL_INSTR_REDUCE,
      GSEL_INSTR_ALLGATHER, GSEL_INSTR_BROADCAST,      GSEL_INSTR_SCATTER,
      GSEL_INSTR_GATHER,    GSEL_INSTR_LOSS_ALLREDUCE, GSEL_INSTR_NORM,
      GSEL_INSTR_OVERFLOW,  GSEL_INSTR_SEND,           GSEL_INSTR_ALLREDUCE_TIED,
      GSEL_FORWARD,         GSEL_BACKWARD_INPUT,       GSEL_INSTR_ALLREDUCE_PARTIAL};
  for (int i = 0; i < SENT_KINDS; ++i) {
    sent[i] = 0;
    for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis) {
      gsel_comm_count count = GSEL_COMM_COUNT_INIT;
      if (!gsel_trainer_counts(s->trainer, kinds[i], axis, &count, NULL)) sent[i] += count.bytes_sent;
    }
  }
}

/* Rank 0 runs each layer's kernels against the contract, on samples of the text; the others meet it at the trainer. */
static int check_kernels(struct session* s) {
  gsel_model_check_options options = GSEL_MODEL_CHECK_OPTIONS_INIT;
  gsel_model_check_report* report = NULL;
  if (!s->options.check || s->rank != 0) return 0;
  options.data = fill;
  options.data_user_data = s;
  const gsel_status status = gsel_model_check(s->gpt.model, &options, &report, &s->err);
  if (!status) printf("%s\n", gsel_model_check_summary(report).data);
  gsel_model_check_free(report);
  return status ? call_failed(s, "kernels") : 0;
}

/* Whether this rank trains on a GPU: where the configuration says [select] accelerator = "cuda", or names no kind and
 * the launcher has given the rank a device of NVIDIA's, as `gsel run --devices` does. */
static int is_on_gpu(const gsel_config* config) {
  const gsel_str kind = gsel_config_get(config, (gsel_str)GSEL_STR("select.accelerator"));
  const char* device = getenv("GSEL_DEVICE");
  if (kind.len == 4 && !memcmp(kind.data, "cuda", 4)) return 1;
  if (kind.data && !(kind.len == 4 && !memcmp(kind.data, "auto", 4))) return 0;
  return device && (!strncmp(device, "GPU-", 4) || !strncmp(device, "MIG-", 4));
}

/* What a GPU computes with: kernels for bf16 where parameters are kept in it, cuBLASLt where it is asked for and there.
 */
static void choose_kernels(struct session* s) {
  const gsel_str precision = gsel_config_get(s->config, (gsel_str)GSEL_STR("train.precision"));
  if (precision.len == 4 && !memcmp(precision.data, "bf16", 4)) s->options.sizes.dtype = GSEL_BF16;
  if (s->options.finds_products && !gpu_products_refusal()) s->options.sizes.products = GPT_CUBLASLT;
}

/* All ranks, on memory of the host; and once more on that of the GPU. */
static int join(struct session* s, int on_gpu) {
  gsel_comm_options joining = GSEL_COMM_OPTIONS_INIT; /* rank and world size come from the environment */
  joining.config = s->config;
  if (gsel_comm_init(&joining, &s->host, &s->err)) return call_failed(s, "");
  s->rank = gsel_comm_rank(s->host);
  s->comm = s->host;
  joining.accelerator = (gsel_str)GSEL_STR("cuda"); /* this rank's own */
  if (on_gpu && gsel_comm_init(&joining, &s->comm, &s->err)) return call_failed(s, "");
  return 0;
}

/* Says what a load or an export of weights did. */
static void show_weights(const struct session* s, const char* did, const gsel_weights_report* report,
                         const char* where) {
  if (s->rank == 0)
    printf("%s %" PRId32 " tensors, %" PRIu64 " bytes%s %s\n", did, report->n_tensors, report->bytes, where,
           *did == 'r' ? s->options.weights : s->options.export_to);
}

/* Parameters of another program in place of initial ones. */
static int load_weights(struct session* s) {
  gsel_weights_report report = GSEL_WEIGHTS_REPORT_INIT;
  const gsel_str map = GSEL_STR(s->options.map), path = GSEL_STR(s->options.weights);
  if (map.data && gsel_config_load(map, &s->map, &s->err)) return call_failed(s, "");
  if (!path.data) return 0;
  if (gsel_trainer_load_weights(s->trainer, path, s->map, &report, &s->err)) return call_failed(s, "");
  show_weights(s, "read", &report, " on this rank, from");
  return 0;
}

/* Where an earlier run has stopped, if it has left a checkpoint. */
static int go_on(struct session* s) {
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  const gsel_str folder = GSEL_STR(s->options.checkpoints);
  if (!folder.data) return 0;
  const gsel_status status = gsel_trainer_load(s->trainer, folder, &report, &s->err);
  if (status == GSEL_ERR_NOT_FOUND) return gsel_error_free(s->err), s->err = NULL, 0;
  if (status) return call_failed(s, "");
  s->earlier_steps = s->saved_at = report.step;
  if (s->rank == 0) printf("goes on after step %" PRId64 " of %s\n", report.step, s->options.checkpoints);
  return 0;
}

static int start(struct session* s) {
  char why[512];
  const gsel_str path = GSEL_STR(s->options.config);
  if (gsel_config_load(path, &s->config, &s->err)) return call_failed(s, "");
  const int on_gpu = is_on_gpu(s->config);
  if (on_gpu) choose_kernels(s);
  if (on_gpu && device_refusal(&s->options.sizes)) return failed(s, "", device_refusal(&s->options.sizes));
  if (on_gpu && s->options.check)
    return failed(s, "--check", "checks on memory of the host; on a GPU set [train] check = \"kernels\"");
  if (join(s, on_gpu)) return -1;
  if (text_load(&s->text, s->options.data, s->options.sizes.context, seed_of(s->config), why, sizeof why))
    return failed(s, "", why);
  if (gpt_model_create(&s->options.sizes, on_gpu ? &device_layers : &gpt_layers, &s->gpt, &s->err))
    return call_failed(s, "");
  if (check_kernels(s)) return -1;

  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = s->config;
  options.data = fill;
  options.data_user_data = s;
  if (gsel_trainer_create(s->comm, s->gpt.model, &options, &s->trainer, &s->err)) return call_failed(s, "");
  if (load_weights(s) || go_on(s)) return -1;
  if (record_init(&s->record, gsel_comm_world_size(s->comm))) return failed(s, "", "out of memory");
  count_sent(s, s->sent_before);
  return 0;
}

/* ---- training ----------------------------------------------------------------------------------------- */

/* Seconds of all steps so far, and what they went to. */
struct totals {
  double tokens, seconds, compute, waiting, optimizer;
};

static void add_step(struct totals* t, const struct step_record* step, double tokens) {
  t->tokens += tokens;
  t->seconds += step->seconds;
  t->compute += step->compute_s;
  t->waiting += step->exposed_comm_s;
  t->optimizer += step->optimizer_s;
}

/* A line about once a second; on a terminal it is written over the one before. */
static void show_progress(const struct session* s, const struct totals* t, double passed) {
  const int terminal = isatty(STDOUT_FILENO);
  const double done = (double)s->record.steps, percent = 100 / t->seconds;
  const double asked = (double)(s->options.steps - s->earlier_steps);
  const double part = s->options.steps ? done / asked : passed / s->options.seconds;
  const double left = part < 1 ? passed / part - passed : 0;
  printf("%sstep %5" PRId64
         "   loss %.4f nats/byte   %6.0f tokens/s   compute %2.0f %%, waiting %2.0f %%, "
         "optimizer %2.0f %%   %4.0f s left%s",
         terminal ? "\r" : "", steps_done(s), s->record.of_step[s->record.steps - 1].loss, t->tokens / passed,
         t->compute * percent, t->waiting * percent, t->optimizer * percent, left, terminal ? " " : "\n");
  fflush(stdout);
}

/* Rank 0 has the clock; the others learn from it whether there is another step, so that all stop at the same one. */
static int another_step(struct session* s, double passed, int* more) {
  if (s->options.steps) {
    *more = steps_done(s) < s->options.steps;
    return 0;
  }
  int32_t flag = s->record.steps == 0 || passed < s->options.seconds;
  if (gsel_broadcast(s->host, &flag, &flag, 1, GSEL_I32, 0, &s->err)) return call_failed(s, "");
  *more = flag;
  return 0;
}

static int one_step(struct session* s, struct totals* totals, gsel_step_report* report) {
  char what[32];
  snprintf(what, sizeof what, "step %" PRId64, steps_done(s) + 1);
  const double begin = now(), cpu_begin = cpu_time();
  if (gsel_trainer_step(s->trainer, report, &s->err)) return call_failed(s, what);
  if (!isfinite(report->loss))
    return failed(s, what, "the loss is not a finite number; try a smaller train.learning_rate");
  const struct step_record step = {.loss = report->loss,
                                   .seconds = now() - begin,
                                   .cpu_s = cpu_time() - cpu_begin,
                                   .compute_s = report->compute_s,
                                   .exposed_comm_s = report->exposed_comm_s,
                                   .optimizer_s = report->optimizer_s,
                                   .allgather_s = report->allgather_s,
                                   .exposed_allgather_s = report->exposed_allgather_s};
  add_step(totals, &step, report->weight);
  return record_add_step(&s->record, &step) ? failed(s, what, "out of memory") : 0;
}

/* In the background each so many steps, when the one before is on the disk; the last two are kept. */
static int save(struct session* s) {
  gsel_checkpoint_options options = GSEL_CHECKPOINT_OPTIONS_INIT;
  const gsel_str folder = GSEL_STR(s->options.checkpoints);
  options.keep = 2;
  if (gsel_trainer_save_wait(s->trainer, NULL, &s->err)) return call_failed(s, "save");
  if (gsel_trainer_save_begin(s->trainer, folder, &options, NULL, &s->err)) return call_failed(s, "save");
  s->saved_at = steps_done(s);
  return 0;
}

/* The state after the last step, on the disk. */
static int save_last(struct session* s) {
  if (!s->options.checkpoints) return 0;
  if (s->saved_at != steps_done(s) && save(s)) return -1;
  return gsel_trainer_save_wait(s->trainer, NULL, &s->err) ? call_failed(s, "save") : 0;
}

static int train(struct session* s) {
  const int speaks = s->rank == 0 && !s->options.quiet;
  const double begin = now();
  double shown = begin;
  struct totals totals = {0};
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  for (int more;;) {
    if (another_step(s, now() - begin, &more)) return -1;
    if (!more) break;
    if (one_step(s, &totals, &report)) return -1;
    if (s->options.checkpoints && steps_done(s) % s->options.save_every == 0 && save(s)) return -1;
    if (speaks && (now() - shown >= 1 || s->record.steps == 1)) {
      shown = now();
      show_progress(s, &totals, shown - begin);
    }
  }
  const double seconds = now() - begin;
  if (save_last(s)) return -1;
  s->record.tokens_per_s = totals.tokens / seconds;
  if (s->rank == 0)
    printf("%strained %" PRId64 " steps, %.0f tokens in %.1f s on %" PRId32 " rank%s: %.0f tokens/s, last loss %.4f\n",
           speaks && isatty(STDOUT_FILENO) ? "\n" : "", s->record.steps, totals.tokens, seconds, s->record.ranks,
           s->record.ranks == 1 ? "" : "s", s->record.tokens_per_s, report.loss);
  if (s->rank == 0 && report.n_reduces > 0)
    printf("gradients in %" PRId32 " bucket%s; reduced while backward went on, in the last step: %" PRId32 "\n",
           report.n_reduces, report.n_reduces == 1 ? "" : "s", report.n_overlapped);
  return 0;
}

/* ---- after the last step ------------------------------------------------------------------------------- */

/* The program this rank ran, as PREFIX.RANK: `gsel program --verify PREFIX.*` checks them together. */
static int write_program(struct session* s) {
  char path[4096];
  if (!s->options.program) return 0;
  const gsel_str text = gsel_program_text(gsel_trainer_program(s->trainer));
  snprintf(path, sizeof path, "%s.%" PRId32, s->options.program, s->rank);
  FILE* file = fopen(path, "w");
  const int written = file && fwrite(text.data, 1, text.len, file) == text.len;
  if (!file || fclose(file) || !written) return failed(s, path, strerror(errno));
  return 0;
}

static int export_weights(struct session* s) {
  gsel_weights_report report = GSEL_WEIGHTS_REPORT_INIT;
  const gsel_str path = GSEL_STR(s->options.export_to);
  if (!path.data) return 0;
  if (gsel_trainer_export_weights(s->trainer, path, s->map, GSEL_F32, &report, &s->err)) return call_failed(s, "");
  show_weights(s, "wrote", &report, ", to");
  return 0;
}

/* All ranks let the model run, for where parameters lie in shards that gathers them; rank 0 shows what it wrote. */
static int write_sample(struct session* s) {
  if (!s->options.sample) return 0;
  if (s->rank == 0) printf("--- %" PRId64 " bytes written by the model:\n", s->options.sample);
  const gsel_status status = sample_text(s->trainer, &s->gpt, s->options.sizes.context, "\n", s->options.sample, 0.8,
                                         seed_of(s->config), s->rank == 0 ? stdout : NULL, &s->err);
  if (s->rank == 0) printf("\n---\n");
  return status ? call_failed(s, "sampling") : 0;
}

/* Over all parameters as this rank reads them. */
static int hash_params(struct session* s, uint64_t* out) {
  *out = RECORD_HASH_BEGIN;
  for (int32_t p = 0; p < s->gpt.n_params; ++p) {
    const size_t n_bytes = (size_t)s->gpt.param_elems[p] * sizeof(float);
    void* bytes = malloc(n_bytes);
    if (!bytes) return failed(s, "hash", "out of memory");
    const gsel_status status = gsel_trainer_read_param(s->trainer, p, bytes, n_bytes, &s->err);
    if (!status) *out = record_hash(*out, bytes, n_bytes);
    free(bytes);
    if (status) return call_failed(s, "hash");
  }
  return 0;
}

/* How the run is called: by its configuration's file, without folders and extension. */
static void name_run(struct session* s) {
  const char* path = s->options.config ? s->options.config : getenv("GSEL_CONFIG");
  const char* slash = path ? strrchr(path, '/') : NULL;
  const char* name = slash ? slash + 1 : path;
  snprintf(s->record.strategy, sizeof s->record.strategy, "%.*s", name ? (int)strcspn(name, ".\"\n") : 8,
           name && *name ? name : "defaults");
}

static int read_memory(struct session* s, struct rank_record* own) {
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  const int32_t n_parts = gsel_trainer_memory_count(s->trainer);
  for (int32_t i = 0; i < RECORD_PARTS && i < n_parts; ++i) {
    const gsel_status status = gsel_trainer_memory(s->trainer, i, &part, NULL);
    if (status) return failed(s, "memory", gsel_status_text(status));
    own->parts[i] = (struct memory_part){
        .offloaded = part.offloaded, .forecast_bytes = part.forecast_bytes, .peak_bytes = part.peak_bytes};
    snprintf(own->parts[i].name, sizeof own->parts[i].name, "%s", part.name);
  }
  return 0;
}

static int write_record(struct session* s) {
  char why[512];
  struct rank_record own = {.peak_rss_bytes = record_peak_rss()};
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  if (!s->options.json) return 0;
  if (s->record.steps && gsel_trainer_report(s->trainer, &report, &s->err)) return call_failed(s, "");
  own.peak_bytes = report.peak_bytes;
  count_sent(s, own.bytes_sent);
  for (int i = 0; i < SENT_KINDS; ++i) own.bytes_sent[i] -= s->sent_before[i];
  if (read_memory(s, &own) || hash_params(s, &own.hash)) return -1;
  if (gsel_allgather(s->host, &own, s->record.of_rank, sizeof own, GSEL_U8, &s->err)) return call_failed(s, "");
  s->record.elements = gsel_model_element_count(s->gpt.model);
  name_run(s);
  if (s->rank == 0 && record_write(&s->record, s->options.json, why, sizeof why)) return failed(s, "", why);
  return 0;
}

/* What is open is closed; ranks that still wait for this one get an error that names it. */
static void finish(struct session* s) {
  record_free(&s->record);
  gsel_trainer_free(s->trainer);
  device_text_free(&s->on_device);
  gpt_model_free(&s->gpt);
  text_free(&s->text);
  gsel_config_free(s->map);
  gsel_config_free(s->config);
  if (s->comm != s->host) gsel_comm_free(s->comm);
  gsel_comm_free(s->host);
}

/* Each part has said what went wrong when it answers anything but 0. */
static int run(struct session* s) {
  return start(s) || train(s) || write_program(s) || export_weights(s) || write_record(s) || write_sample(s);
}

int main(int argc, char** argv) {
  struct session session = {.rank = -1};
  const int parsed = options_parse(&session.options, argc, argv);
  if (parsed) return parsed > 0 ? 0 : 2;
  openblas_set_num_threads(1); /* one core per rank: more cores are used by more ranks */
  const int result = run(&session);
  finish(&session);
  return result ? 1 : 0;
}
