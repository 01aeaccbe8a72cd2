/* table.c: gpt-compare A.json B.json: two runs of the same training side by side, as `gpt --json` wrote them. It
 * answers three questions, and its exit status says whether all answers are yes: are the losses the same to within
 * rounding, do the ranks of a run hold the same parameters, did each rank send the bytes the closed form says? */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "record.h"

#define ROWS 20
#define LOSS_TOLERANCE 1e-3 /* nats: sums in another order differ by about 1e-6 at first, and drift apart slowly */

static const char* plural(int32_t n) {
  return n == 1 ? "rank" : "ranks";
}

static int show_losses(const struct record* a, const struct record* b) {
  const int64_t rows = a->steps < b->steps ? a->steps : b->steps;
  double largest = 0;
  printf("step   loss on %" PRId32 " %-5s   loss on %" PRId32 " %-5s   difference\n", a->ranks, plural(a->ranks),
         b->ranks, plural(b->ranks));
  for (int64_t i = 0; i < rows; ++i) {
    const double difference = b->losses[i] - a->losses[i];
    if (!(fabs(difference) <= largest)) largest = fabs(difference);
    if (i < ROWS) printf("%4" PRId64 "   %15.9f   %15.9f   %+10.1e\n", i, a->losses[i], b->losses[i], difference);
  }
  const int same = largest <= LOSS_TOLERANCE;
  printf("largest difference of %" PRId64 " steps: %.1e nats, %s %.0e\n\n", rows, largest,
         same ? "within" : "more than", LOSS_TOLERANCE);
  return same;
}

static int show_ranks(const struct record* record) {
  const double expected = record_closed_form(record);
  /* Exact for two ranks. With more, a rank's part of a bucket may be an element more or less than an nth. */
  const double allowed = record->ranks > 2 ? 1e-4 * expected : 0;
  int same = 1, counted = 1;
  printf("run on %" PRId32 " %s, %" PRId64 " steps, %.0f tokens/s\n", record->ranks, plural(record->ranks),
         record->steps, record->tokens_per_s);
  for (int32_t r = 0; r < record->ranks; ++r) {
    printf("  rank %" PRId32 "   parameters %016" PRIx64 "   gradient bytes sent %" PRIu64 "\n", r, record->hashes[r],
           record->bytes_sent[r]);
    same = same && record->hashes[r] == record->hashes[0];
    counted = counted && fabs((double)record->bytes_sent[r] - expected) <= allowed;
  }
  printf("  parameters %s on all ranks\n", same ? "are equal" : "DIFFER");
  printf("  closed form 2(n-1)/n * %" PRId64 " elements * 4 bytes * %" PRId64 " steps = %.0f bytes: %s\n\n",
         record->elements, record->steps, expected, counted ? "as counted" : "NOT as counted");
  return same && counted;
}

int main(int argc, char** argv) {
  struct record runs[2];
  char message[512];
  if (argc != 3) {
    fprintf(stderr, "usage: gpt-compare A.json B.json   (files that gpt --json wrote)\n");
    return 2;
  }
  for (int i = 0; i < 2; ++i)
    if (record_read(&runs[i], argv[1 + i], message, sizeof message)) {
      fprintf(stderr, "gpt-compare: %s\n", message);
      if (i) record_free(&runs[0]);
      return 1;
    }
  const int losses = show_losses(&runs[0], &runs[1]);
  const int first = show_ranks(&runs[0]), second = show_ranks(&runs[1]);
  for (int i = 0; i < 2; ++i) record_free(&runs[i]);
  return losses && first && second ? 0 : 1;
}
