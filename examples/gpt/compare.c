/* compare.c: gpt-compare A.json B.json: two runs of the same training side by side, as `gpt --json` wrote them. It
 * answers three questions, and its exit status says whether all answers are yes: are the losses the same to within
 * rounding, do the ranks of a run hold the same parameters, did each rank send the gradients the closed form says? */
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
    const double of_a = a->of_step[i].loss, of_b = b->of_step[i].loss, difference = of_b - of_a;
    if (!(fabs(difference) <= largest)) largest = fabs(difference);
    if (i < ROWS) printf("%4" PRId64 "   %15.9f   %15.9f   %+10.1e\n", i, of_a, of_b, difference);
  }
  const int same = largest <= LOSS_TOLERANCE;
  printf("largest difference of %" PRId64 " steps: %.1e nats, %s %.0e\n\n", rows, largest,
         same ? "within" : "more than", LOSS_TOLERANCE);
  return same;
}

/* How often a rank sends all gradients in a step: ring algorithms over n ranks. To one rank alone they are reduced in
 * parts, of which the others then send theirs to it. */
struct closed_form {
  const char* text;
  double times;
};
static struct closed_form closed_form_of(const struct record* record, int32_t rank) {
  const double n = record->ranks, parts = (n - 1) / n;
  const uint64_t* sent = record->of_rank[rank].bytes_sent;
  if (sent[SENT_REDUCE])
    return rank ? (struct closed_form){"1", 1} : (struct closed_form){"1, on rank 0 (n-1)/n,", parts};
  if (sent[SENT_REDUCE_SCATTER]) return (struct closed_form){"(n-1)/n", parts};
  return (struct closed_form){"2(n-1)/n", 2 * parts};
}

static uint64_t gradient_bytes(const struct record* record, int32_t rank) {
  const uint64_t* sent = record->of_rank[rank].bytes_sent;
  return sent[SENT_ALLREDUCE] + sent[SENT_REDUCE_SCATTER] + sent[SENT_REDUCE];
}

/* 4, or 2 where gradients were rounded to 16 bits on their way. */
static int bytes_per_gradient(const struct record* record) {
  const double elements = closed_form_of(record, 0).times * (double)(record->elements * record->steps);
  return (double)gradient_bytes(record, 0) < 3 * elements ? 2 : 4;
}

/* Whose ranks have different layers, or parts of layers, of which each reduces its own gradients. */
static const char* what_is_divided(const struct record* record) {
  const uint64_t* sent = record->of_rank[0].bytes_sent;
  if (sent[SENT_SEND]) return sent[SENT_FORWARD] ? "a part of its layers" : "its layers";
  return sent[SENT_FORWARD] ? "its part of the layers" : NULL;
}

static int show_ranks(const struct record* record) {
  const int each = bytes_per_gradient(record);
  const double all = (double)(record->elements * each * record->steps);
  int same = 1, counted = 1;
  printf("%s: %" PRId32 " %s, %" PRId64 " steps, %.0f tokens/s\n", record->strategy, record->ranks,
         plural(record->ranks), record->steps, record->tokens_per_s);
  for (int32_t r = 0; r < record->ranks; ++r) {
    const struct rank_record* rank = &record->of_rank[r];
    const uint64_t gradients = gradient_bytes(record, r);
    const double expected = closed_form_of(record, r).times * all;
    /* Exact for two ranks. With more, a rank's part of a bucket may be an element more or less than an nth. */
    const double allowed = record->ranks > 2 ? 1e-4 * expected : 0;
    printf("  rank %" PRId32 "   parameters %016" PRIx64 "   gradient bytes sent %" PRIu64 " of %" PRIu64 "\n", r,
           rank->hash, gradients, record_bytes_sent(record, r));
    same = same && rank->hash == record->of_rank[0].hash;
    counted = counted && fabs((double)gradients - expected) <= allowed;
  }
  printf("  parameters %s on all ranks\n", same ? "are equal" : "DIFFER");
  if (what_is_divided(record)) {
    printf("  of gradients a rank sends those of %s\n\n", what_is_divided(record));
    return same;
  }
  printf("  closed form %s * %" PRId64 " elements * %d bytes * %" PRId64 " steps: %s\n\n",
         closed_form_of(record, 0).text, record->elements, each, record->steps,
         counted ? "as counted" : "NOT as counted");
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
