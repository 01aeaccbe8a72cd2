/* table.c: gpt-table A.json ...: runs of the same training, as `gpt --json` wrote them, as a Markdown table: where they
 * got to, how fast, with how much memory and how many bytes sent. Its exit status is 1 when ranks of one run hold
 * different parameters. */
#include <inttypes.h>
#include <stdio.h>

#include "record.h"

static void show_megabytes(double first, double second) {
  if (first < second + 5e4 && second < first + 5e4)
    printf(" %.1f |", first / 1e6);
  else
    printf(" %.1f, %.1f |", first / 1e6, second / 1e6);
}

/* The first rank's, and the last one's where it differs. */
static int show(const struct record* record) {
  const struct rank_record *first = &record->of_rank[0], *last = &record->of_rank[record->ranks - 1];
  const double steps = (double)record->steps;
  printf("| %s | %.6f | %016" PRIx64 " | %.0f |", record->strategy, record->of_step[record->steps - 1].loss,
         first->hash, record->tokens_per_s);
  show_megabytes((double)first->peak_bytes, (double)last->peak_bytes);
  show_megabytes((double)record_bytes_sent(record, 0) / steps,
                 (double)record_bytes_sent(record, record->ranks - 1) / steps);
  printf("\n");
  for (int32_t r = 1; r < record->ranks; ++r)
    if (record->of_rank[r].hash != first->hash) {
      fprintf(stderr, "gpt-table: %s: rank %" PRId32 " holds other parameters than rank 0\n", record->strategy, r);
      return -1;
    }
  return 0;
}

int main(int argc, char** argv) {
  struct record record;
  char message[512];
  int result = 0;
  if (argc < 2) {
    fprintf(stderr, "usage: gpt-table A.json ...   (files that gpt --json wrote)\n");
    return 2;
  }
  printf("| strategy | loss at the end | parameters | tokens/s | peak MB per rank | MB sent per rank and step |\n");
  printf("|---|---|---|---|---|---|\n");
  for (int i = 1; i < argc; ++i) {
    if (record_read(&record, argv[i], message, sizeof message)) {
      fprintf(stderr, "gpt-table: %s\n", message);
      return 1;
    }
    if (show(&record)) result = 1;
    record_free(&record);
  }
  return result;
}
