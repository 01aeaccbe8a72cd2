/* support/selection.h: selection tests as tables. A row has the machine, the request and the expected result, and names
 * the document or upstream test that it is from. */
#ifndef GSEL_TESTS_SELECTION_H
#define GSEL_TESTS_SELECTION_H

#include "support/check.h"

struct selection_row {
  const char* source;  /* where the expected result comes from */
  const char* machine; /* a file of tests/data/inventory without .json, or "nvidia:4", "amd:2": so many equal cards */
  /* The request; NULL: not given. */
  const char *compat, *devices, *accelerator, *order, *include, *exclude, *hostfile; /* the hostfile's text */
  const char* env; /* NAME=VALUE, one per line; NULL: none */
  /* When it succeeds: indexes in bus order, such as "3,1"; a partition as "2:0", a tile as "2.1"; on a machine of
   * several hosts each entry begins with "host/". "" is a selection of no device. NULL: it is refused. */
  const char* chosen;
  const char* warning; /* a part of the warnings; NULL: not checked; "-": there must be none */
  /* When it is refused; NULL and 0: not checked. */
  gsel_status code;
  const char* token;
  int column;
  const char* message; /* a part of it */
  const char* input;   /* the variable or field */
};

/* By the name that a row gives it; the caller frees it. */
gsel_inventory* machine(const char* name);
gsel_status resolve_row(const struct selection_row* row, const gsel_inventory* inventory, gsel_selection** selection,
                        gsel_error** err);

/* The selection in the form of `chosen`. */
void chosen_text(const gsel_selection* selection, int several_hosts, char* text, size_t capacity);
void print_row(const struct selection_row* row);
void check_rows(const struct selection_row* rows, size_t count);
#define CHECK_ROWS(rows) check_rows(rows, sizeof(rows) / sizeof *(rows))

#endif
