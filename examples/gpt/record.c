/* record.c: writes and reads the record of a run. The file is JSON for everyone, and one record per line so that this
 * reader, its only other one, needs no JSON library. Losses have 17 digits: they come back bit for bit. */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUN_LINE "{\"ranks\": %" PRId32 ", \"steps\": %" PRId64 ", \"elements\": %" PRId64 ", \"tokens_per_s\": %lf"
#define STEP_LINE " {\"step\": %" PRId64 ", \"loss\": "
#define RANK_LINE " {\"rank\": %" PRId32 ", \"hash\": \"%" PRIx64 "\", \"bytes_sent\": %" PRIu64 "}"

int record_init(struct record* record, int32_t ranks) {
  *record = (struct record){.ranks = ranks};
  record->hashes = calloc((size_t)ranks, sizeof *record->hashes);
  record->bytes_sent = calloc((size_t)ranks, sizeof *record->bytes_sent);
  if (record->hashes && record->bytes_sent) return 0;
  record_free(record);
  return -1;
}

int record_add_step(struct record* record, double loss) {
  if (record->steps % 1024 == 0) {
    double* longer = realloc(record->losses, (size_t)(record->steps + 1024) * sizeof *longer);
    if (!longer) return -1;
    record->losses = longer;
  }
  record->losses[record->steps++] = loss;
  return 0;
}

void record_free(struct record* record) {
  free(record->losses);
  free(record->hashes);
  free(record->bytes_sent);
  *record = (struct record){0};
}

double record_closed_form(const struct record* record) {
  return 2.0 * (record->ranks - 1) / record->ranks * (double)record->elements * sizeof(float) * (double)record->steps;
}

static const char* comma(int64_t i, int64_t n) {
  return i + 1 < n ? "," : "";
}

int record_write(const struct record* record, const char* path, char* message, size_t capacity) {
  FILE* file = fopen(path, "w");
  if (!file) {
    snprintf(message, capacity, "record %s: %s", path, strerror(errno));
    return -1;
  }
  fprintf(file, RUN_LINE ",\n", record->ranks, record->steps, record->elements, record->tokens_per_s);
  fprintf(file, " \"bytes_closed_form\": %.17g,\n \"losses\": [\n", record_closed_form(record));
  for (int64_t i = 0; i < record->steps; ++i)
    fprintf(file, STEP_LINE "%.17g}%s\n", i, record->losses[i], comma(i, record->steps));
  fprintf(file, " ],\n \"per_rank\": [\n");
  for (int32_t r = 0; r < record->ranks; ++r)
    fprintf(file, RANK_LINE "%s\n", r, record->hashes[r], record->bytes_sent[r], comma(r, record->ranks));
  fprintf(file, " ]}\n");
  errno = 0;
  const int failed = ferror(file), unclosed = fclose(file);
  if (!failed && !unclosed) return 0;
  snprintf(message, capacity, "record %s could not be written: %s", path, strerror(errno ? errno : EIO));
  return -1;
}

/* The lines behind the first, steps in order; others are passed over. Returns how many ranks it has found. */
static int32_t read_lines(FILE* file, struct record* record) {
  char line[256];
  int32_t ranks = 0, rank;
  int64_t step;
  double loss;
  uint64_t hash, bytes;
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, STEP_LINE "%lf", &step, &loss) == 2 && step == record->steps) {
      if (record_add_step(record, loss)) return -1;
    } else if (sscanf(line, RANK_LINE, &rank, &hash, &bytes) == 3 && rank == ranks && rank < record->ranks) {
      record->hashes[rank] = hash;
      record->bytes_sent[rank] = bytes;
      ++ranks;
    }
  }
  return ranks;
}

int record_read(struct record* record, const char* path, char* message, size_t capacity) {
  *record = (struct record){0};
  FILE* file = fopen(path, "r");
  if (!file) {
    snprintf(message, capacity, "record %s: %s", path, strerror(errno));
    return -1;
  }
  int32_t ranks = 0, found = 0;
  int64_t steps = 0, elements = 0;
  double tokens_per_s = 0;
  char line[256];
  if (fgets(line, sizeof line, file) && sscanf(line, RUN_LINE, &ranks, &steps, &elements, &tokens_per_s) == 4 &&
      ranks > 0 && ranks <= 1 << 20 && record_init(record, ranks) == 0) {
    record->elements = elements;
    record->tokens_per_s = tokens_per_s;
    found = read_lines(file, record);
  }
  fclose(file);
  if (ranks > 0 && steps > 0 && found == ranks && record->steps == steps) return 0;
  snprintf(message, capacity, "record %s is not complete: %lld of %lld steps, %d of %d ranks; make it with gpt --json",
           path, (long long)record->steps, (long long)steps, (int)found, (int)ranks);
  record_free(record);
  return -1;
}
