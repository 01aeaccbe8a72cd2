/* main.c: trains the GPT on a text. Start here: run() is the whole life of a program that uses gsel.
 *
 *     gpt --data kjv.txt                                  one rank
 *     gsel run -n 2 --config gpt.toml -- gpt --data kjv.txt --seconds 60 --sample 400
 *
 * How many ranks there are and which strategy they follow is not written here: gsel reads it from the environment
 * and from gsel.toml. Every rank runs this same program; rank 0 speaks. */
#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "data.h"
#include "model.h"
#include "options.h"
#include "record.h"
#include "sample.h"

static const struct gpt_sizes sizes = GPT_DEFAULT_SIZES;

/* All that is open. Empty at first, and closed in any state by finish(). */
struct session {
  struct options options;
  gsel_error* err; /* of the last gsel call */
  gsel_comm* comm;
  gsel_config* config;
  struct text text;
  struct gpt_model gpt;
  gsel_trainer* trainer;
  struct record record;
  int32_t rank; /* -1 before it is known */
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Says what failed, and on which rank. Always -1. */
static int failed(const struct session* s, const char* what, const char* why) {
  char rank[32] = "";
  if (s->rank >= 0) snprintf(rank, sizeof rank, "rank %" PRId32 ": ", s->rank);
  fprintf(stderr, "gpt: %s%s%s%s\n", rank, what, *what ? ": " : "", why);
  return -1;
}

/* The same for a gsel call that was given &s->err: 0 when it went well. */
static int check(struct session* s, const char* what, gsel_status status) {
  char why[1024];
  if (status == GSEL_OK) return 0;
  if (s->err)
    gsel_error_format(s->err, why, sizeof why);
  else
    snprintf(why, sizeof why, "%s", gsel_status_text(status));
  gsel_error_free(s->err);
  s->err = NULL;
  return failed(s, what, why);
}

/* ---- before the first step ---------------------------------------------------------------------------- */

/* gsel asks for the samples of a micro-batch: tokens, or the same shifted by one byte. */
static gsel_status fill(const gsel_data_request* request, void* user_data) {
  const struct session* s = user_data;
  const size_t context = (size_t)sizes.context, shift = request->value == s->gpt.targets ? 1 : 0;
  uint8_t* dst = request->dst.data;
  for (int64_t i = 0; i < request->n_samples; ++i)
    memcpy(dst + (size_t)i * context, text_sample(&s->text, request->sample_ids[i]) + shift, context);
  return GSEL_OK;
}

static uint64_t seed_of(const gsel_config* config) {
  const gsel_str seed = gsel_config_get(config, (gsel_str)GSEL_STR("train.seed"));
  return seed.data ? strtoull(seed.data, NULL, 10) : 1;
}

static int start(struct session* s) {
  char why[512];
  const gsel_str path = GSEL_STR(s->options.config);
  if (check(s, "", gsel_config_load(path, &s->config, &s->err))) return -1;
  gsel_comm_config joining = GSEL_COMM_CONFIG_INIT; /* rank and world size come from the environment */
  joining.config = s->config;
  if (check(s, "", gsel_comm_init(&joining, &s->comm, &s->err))) return -1;
  s->rank = gsel_comm_rank(s->comm);
  if (text_load(&s->text, s->options.data, sizes.context, seed_of(s->config), why, sizeof why))
    return failed(s, "", why);
  if (check(s, "", gpt_model_create(&sizes, &s->gpt, &s->err))) return -1;

  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.config = s->config;
  options.data = fill;
  options.data_user_data = s;
  if (check(s, "", gsel_trainer_create(s->gpt.model, s->comm, &options, &s->trainer, &s->err))) return -1;
  return record_init(&s->record, gsel_comm_world_size(s->comm)) ? failed(s, "", "out of memory") : 0;
}

/* ---- training ----------------------------------------------------------------------------------------- */

/* A line about once a second; on a terminal it is written over the one before. */
static void show_progress(const struct session* s, const gsel_step_report* report, double passed, double tokens) {
  const int terminal = isatty(STDOUT_FILENO);
  const double part =
      s->options.steps ? (double)(report->step + 1) / (double)s->options.steps : passed / s->options.seconds;
  const double left = part < 1 ? passed / part - passed : 0;
  printf("%sstep %5" PRId64 "   loss %.4f nats/byte   %6.0f tokens/s   %4.0f s left%s", terminal ? "\r" : "",
         report->step + 1, report->loss, tokens / passed, left, terminal ? " " : "\n");
  fflush(stdout);
}

/* Rank 0 has the clock; the others learn from it whether there is another step, so that all stop at the same one. */
static int another_step(struct session* s, double passed, int* more) {
  if (s->options.steps) {
    *more = s->record.steps < s->options.steps;
    return 0;
  }
  int32_t flag = s->record.steps == 0 || passed < s->options.seconds;
  const int result = check(s, "", gsel_broadcast(s->comm, &flag, &flag, 1, GSEL_I32, 0, &s->err));
  *more = flag;
  return result;
}

static int train(struct session* s) {
  const int speaks = s->rank == 0 && !s->options.quiet;
  const double begin = now();
  double shown = begin, tokens = 0;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  for (int more;;) {
    if (another_step(s, now() - begin, &more)) return -1;
    if (!more) break;
    char step[32];
    snprintf(step, sizeof step, "step %" PRId64, s->record.steps + 1);
    if (check(s, step, gsel_trainer_step(s->trainer, &report, &s->err))) return -1;
    if (record_add_step(&s->record, report.loss)) return failed(s, step, "out of memory");
    tokens += report.weight;
    if (speaks && (now() - shown >= 1 || s->record.steps == 1)) {
      shown = now();
      show_progress(s, &report, shown - begin, tokens);
    }
  }
  const double seconds = now() - begin;
  s->record.tokens_per_s = tokens / seconds;
  if (s->rank == 0)
    printf("%strained %" PRId64 " steps, %.0f tokens in %.1f s on %" PRId32 " rank%s: %.0f tokens/s, last loss %.4f\n",
           speaks && isatty(STDOUT_FILENO) ? "\n" : "", s->record.steps, tokens, seconds, s->record.ranks,
           s->record.ranks == 1 ? "" : "s", s->record.tokens_per_s, s->record.losses[s->record.steps - 1]);
  if (s->rank == 0 && report.n_reduces > 0)
    printf("gradients in %" PRId32 " buckets; in the last step %" PRId32
           " of them were reduced while backward went on\n",
           report.n_reduces, report.n_overlapped);
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

static int write_sample(struct session* s) {
  if (s->rank != 0 || !s->options.sample) return 0;
  printf("--- %" PRId64 " bytes written by the model:\n", s->options.sample);
  const gsel_status status =
      sample_text(s->trainer, &s->gpt, sizes.context, "\n", s->options.sample, 0.8, seed_of(s->config), &s->err);
  printf("\n---\n");
  return check(s, "sampling", status);
}

/* FNV-1a, 64 bits, over all parameters as this rank holds them. */
static int hash_params(struct session* s, uint64_t* out) {
  *out = UINT64_C(0xcbf29ce484222325);
  for (int32_t p = 0; p < s->gpt.n_params; ++p) {
    const size_t n_bytes = (size_t)s->gpt.param_elems[p] * sizeof(float);
    uint8_t* bytes = malloc(n_bytes);
    if (!bytes) return failed(s, "hash", "out of memory");
    const int result = check(s, "hash", gsel_trainer_read_param(s->trainer, p, bytes, n_bytes, &s->err));
    for (size_t i = 0; i < n_bytes && result == 0; ++i) *out = (*out ^ bytes[i]) * UINT64_C(0x100000001b3);
    free(bytes);
    if (result) return -1;
  }
  return 0;
}

static int write_record(struct session* s) {
  char why[512];
  struct record* record = &s->record;
  uint64_t hash, sent;
  if (!s->options.json) return 0;
  sent = gsel_trainer_counts(s->trainer, GSEL_INSTR_REDUCE, GSEL_AXIS_DATA).bytes_sent;
  if (hash_params(s, &hash)) return -1;
  if (check(s, "", gsel_allgather(s->comm, &hash, record->hashes, 1, GSEL_U64, &s->err))) return -1;
  if (check(s, "", gsel_allgather(s->comm, &sent, record->bytes_sent, 1, GSEL_U64, &s->err))) return -1;
  record->elements = gsel_model_element_count(s->gpt.model);
  if (s->rank == 0 && record_write(record, s->options.json, why, sizeof why)) return failed(s, "", why);
  return 0;
}

/* What is open is closed; ranks that still wait for this one get an error that names it. */
static void finish(struct session* s) {
  record_free(&s->record);
  gsel_trainer_free(s->trainer);
  gpt_model_free(&s->gpt);
  text_free(&s->text);
  gsel_config_free(s->config);
  gsel_comm_destroy(s->comm);
}

/* Each part has said what went wrong when it answers anything but 0. */
static int run(struct session* s) {
  return start(s) || train(s) || write_program(s) || write_record(s) || write_sample(s);
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
