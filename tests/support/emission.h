/* support/emission.h: the variables that a selection gives to a child, as tables. */
#ifndef GSEL_TESTS_EMISSION_H
#define GSEL_TESTS_EMISSION_H

#include "support/selection.h"

struct emission_row {
  struct selection_row asked; /* its result is not checked */
  const char* lines;   /* NAME=VALUE, one per line, of variables that must have these values; others are not checked */
  const char* warning; /* a part of the JSON; NULL: not checked */
};

/* Fails the test with each row that emits something else. */
void check_emission(const struct emission_row* rows, size_t count);
#define CHECK_EMISSION(rows) check_emission(rows, sizeof(rows) / sizeof *(rows))

#endif
