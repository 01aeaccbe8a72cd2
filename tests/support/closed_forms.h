/* support/closed_forms.h: the bytes that all ranks together send under each strategy for the exact model, written out
 * by hand from the definitions (docs/strategies.md), to be compared with what the library forecasts and counts. */
#ifndef GSEL_TESTS_CLOSED_FORMS_H
#define GSEL_TESTS_CLOSED_FORMS_H

#include "support/trainer_trial.h"

GSEL_EXTERN_C_BEGIN

/* Buckets of the exact model: all in one; and one for each set of layers that read the same parameters. */
enum { TABLE = VOCAB * WIDTH, POSITION = TOKENS * WIDTH, FC1 = WIDTH * WIDTH + WIDTH, FC2 = WIDTH * WIDTH };

/* Elements of the largest of n shards. */
uint64_t shard_of(uint64_t elems, uint64_t n);

struct closed_form {
  const char* section;
  /* By instruction, bytes and calls of one rank, of one step with m micro-batches on n ranks. 0 for those not named. */
  struct {
    gsel_instr_kind kind;
    uint64_t bytes, calls;
  } per_step[6];
  uint64_t setup_broadcast; /* bytes */
};

enum { N_CLOSED_FORMS = 10 };

struct closed_form expected_traffic(int i, uint64_t n, uint64_t batch, uint64_t m, uint64_t largest);

extern const gsel_instr_kind kSending[8];

/* What a step should count for a kind, summed over ranks; *calls of each rank. */
uint64_t step_bytes(const struct closed_form* form, gsel_instr_kind kind, uint64_t* calls);

GSEL_EXTERN_C_END

#endif
