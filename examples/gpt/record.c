/* record.c: writes and reads the record of a run. The file is JSON for everyone, and one thing per line so that this
 * reader needs no JSON library. Losses have 17 digits: they come back bit for bit. */
#include "record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

const char* const sent_names[SENT_KINDS] = {
    "allreduce", "reduce_scatter", "reduce",         "allgather", "broadcast",
    "scatter",   "gather",         "loss_allreduce", "norm",      "overflow",
    "send",      "allreduce_tied", "forward",        "backward",  "allreduce_partial"};

#define RUN_LINE                                                            \
  "{\"ranks\": %" PRId32 ", \"steps\": %" PRId64 ", \"elements\": %" PRId64 \
  ", \"tokens_per_s\": %lf, "                                               \
  "\"strategy\": \"%31[^\"]\""
#define STEP_LINE                                                                                    \
  " {\"step\": %" PRId64                                                                             \
  ", \"loss\": %lf, \"seconds\": %lf, \"cpu_s\": %lf, \"compute_s\": %lf, \"exposed_comm_s\": %lf, " \
  "\"optimizer_s\": %lf, \"allgather_s\": %lf, \"exposed_allgather_s\": %lf"
#define RANK_LINE \
  " {\"rank\": %" PRId32 ", \"hash\": \"%" PRIx64 "\", \"peak_bytes\": %" PRIu64 ", \"peak_rss_bytes\": %" PRIu64 ","
#define SENT_LINE "  \"sent_%31[a-z_]\": %" PRIu64

int record_init(struct record* record, int32_t ranks) {
  *record = (struct record){.ranks = ranks, .of_rank = calloc((size_t)ranks, sizeof *record->of_rank)};
  return record->of_rank ? 0 : -1;
}

int record_add_step(struct record* record, const struct step_record* step) {
  if (record->steps % 1024 == 0) {
    struct step_record* longer = realloc(record->of_step, (size_t)(record->steps + 1024) * sizeof *longer);
    if (!longer) return -1;
    record->of_step = longer;
  }
  record->of_step[record->steps++] = *step;
  return 0;
}

void record_free(struct record* record) {
  free(record->of_step);
  free(record->of_rank);
  *record = (struct record){0};
}

uint64_t record_bytes_sent(const struct record* record, int32_t rank) {
  uint64_t sum = 0;
  for (int kind = 0; kind < SENT_KINDS; ++kind) sum += record->of_rank[rank].bytes_sent[kind];
  return sum;
}

uint64_t record_hash(uint64_t hash, const void* bytes, size_t n_bytes) {
  const uint8_t* p = bytes;
  for (size_t i = 0; i < n_bytes; ++i) hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
  return hash;
}

uint64_t record_peak_rss(void) {
  struct rusage usage;
  return getrusage(RUSAGE_SELF, &usage) ? 0 : (uint64_t)usage.ru_maxrss * 1024;
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static const char* comma(int64_t i, int64_t n) {
  return i + 1 < n ? "," : "";
}

static void write_step(FILE* file, int64_t i, const struct step_record* s, const char* end) {
  fprintf(file, " {\"step\": %" PRId64 ", \"loss\": %.17g, \"seconds\": %.9f, \"cpu_s\": %.9f, \"compute_s\": %.9f, ",
          i, s->loss, s->seconds, s->cpu_s, s->compute_s);
  fprintf(file, "\"exposed_comm_s\": %.9f, \"optimizer_s\": %.9f, \"allgather_s\": %.9f, \"exposed_allgather_s\": %.9f}%s\n",
          s->exposed_comm_s, s->optimizer_s, s->allgather_s, s->exposed_allgather_s, end);
}

static void write_rank(FILE* file, const struct record* record, int32_t r) {
  const struct rank_record* rank = &record->of_rank[r];
  fprintf(file, RANK_LINE "\n", r, rank->hash, rank->peak_bytes, rank->peak_rss_bytes);
  for (int kind = 0; kind < SENT_KINDS; ++kind)
    fprintf(file, "  \"sent_%s\": %" PRIu64 ",\n", sent_names[kind], rank->bytes_sent[kind]);
  fprintf(file, "  \"bytes_sent\": %" PRIu64 ",\n  \"memory\": [", record_bytes_sent(record, r));
  for (int i = 0; i < RECORD_PARTS && rank->parts[i].name[0]; ++i) {
    const struct memory_part* part = &rank->parts[i];
    fprintf(file,
            "%s\n   {\"part\": \"%s\", \"offloaded\": %" PRId64 ", \"forecast_bytes\": %" PRIu64
            ", \"peak_bytes\": %" PRIu64 "}",
            i ? "," : "", part->name, part->offloaded, part->forecast_bytes, part->peak_bytes);
  }
  fprintf(file, "]}%s\n", comma(r, record->ranks));
}

int record_write(const struct record* record, const char* path, char* message, size_t capacity) {
  FILE* file = fopen(path, "w");
  if (!file) {
    snprintf(message, capacity, "record %s: %s", path, strerror(errno));
    return -1;
  }
  fprintf(file, "{\"ranks\": %" PRId32 ", \"steps\": %" PRId64 ", \"elements\": %" PRId64, record->ranks, record->steps,
          record->elements);
  fprintf(file, ", \"tokens_per_s\": %.3f, \"strategy\": \"%s\",\n \"losses\": [\n", record->tokens_per_s,
          record->strategy);
  for (int64_t i = 0; i < record->steps; ++i) write_step(file, i, &record->of_step[i], comma(i, record->steps));
  fprintf(file, " ],\n \"per_rank\": [\n");
  for (int32_t r = 0; r < record->ranks; ++r) write_rank(file, record, r);
  fprintf(file, " ]}\n");
  errno = 0;
  const int failed = ferror(file), unclosed = fclose(file);
  if (!failed && !unclosed) return 0;
  snprintf(message, capacity, "record %s could not be written: %s", path, strerror(errno ? errno : EIO));
  return -1;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static int kind_named(const char* name) {
  int kind = 0;
  while (kind < SENT_KINDS && strcmp(sent_names[kind], name)) ++kind;
  return kind;
}

/* The lines behind the first, in order; others, such as those of memory, are passed over. Returns how many ranks it has
 * found, or -1. */
static int32_t read_lines(FILE* file, struct record* record) {
  char line[512], name[32];
  int32_t ranks = 0, rank;
  int64_t at;
  uint64_t bytes;
  struct step_record s;
  struct rank_record r = {0};
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, STEP_LINE, &at, &s.loss, &s.seconds, &s.cpu_s, &s.compute_s, &s.exposed_comm_s, &s.optimizer_s,
               &s.allgather_s, &s.exposed_allgather_s) == 9 &&
        at == record->steps) {
      if (record_add_step(record, &s)) return -1;
    } else if (sscanf(line, RANK_LINE, &rank, &r.hash, &r.peak_bytes, &r.peak_rss_bytes) == 4 && rank == ranks &&
               rank < record->ranks) {
      record->of_rank[ranks++] = r;
    } else if (ranks > 0 && sscanf(line, SENT_LINE, name, &bytes) == 2 && kind_named(name) < SENT_KINDS) {
      record->of_rank[ranks - 1].bytes_sent[kind_named(name)] = bytes;
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
  int32_t found = 0;
  int64_t steps = 0;
  struct record first = {0};
  char line[512];
  if (fgets(line, sizeof line, file) &&
      sscanf(line, RUN_LINE, &first.ranks, &steps, &first.elements, &first.tokens_per_s, first.strategy) == 5 &&
      first.ranks > 0 && first.ranks <= 1 << 20 && record_init(record, first.ranks) == 0) {
    record->elements = first.elements;
    record->tokens_per_s = first.tokens_per_s;
    memcpy(record->strategy, first.strategy, sizeof record->strategy);
    found = read_lines(file, record);
  }
  fclose(file);
  if (first.ranks > 0 && steps > 0 && found == first.ranks && record->steps == steps) return 0;
  snprintf(message, capacity, "record %s is not complete: %lld of %lld steps, %d of %d ranks; make it with gpt --json",
           path, (long long)record->steps, (long long)steps, (int)found, (int)first.ranks);
  record_free(record);
  return -1;
}
