/* fuzz/fuzz.h: what the areas of the fuzzer share: machines to ask about, a request made of an input's lines, and what
 * must hold of every answer whatever was asked. Does not know: who makes the inputs; libFuzzer or driver.c does.
 * A claim that fails prints what it is about and aborts. */
#ifndef GSEL_TESTS_FUZZ_H
#define GSEL_TESTS_FUZZ_H

#include <gsel/gsel.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

#define CLAIM(condition, ...)                                               \
  do {                                                                      \
    if (!(condition)) {                                                     \
      fprintf(stderr, "fuzz: %s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                                         \
      fprintf(stderr, "\n");                                                \
      abort();                                                              \
    }                                                                       \
  } while (0)

/* An input not yet read. */
struct rest {
  const char* at;
  size_t left;
};

/* What stands before the next `end` (or in all that is left), which is then behind us. */
gsel_str take(struct rest* rest, char end);
/* All that is left. */
gsel_str take_all(struct rest* rest);
/* The same, not given where it is empty. */
gsel_str unless_empty(gsel_str text);
int is_text(gsel_str text, const char* word);

/* A machine of tests/data/inventory by its name; some machine for any other word. Kept until the process ends. */
const gsel_inventory* machine_named(gsel_str name);

/* Resolves, twice, and claims of the outcome: success with an answer that holds together and is the same both times, or
 * a code that gsel_resolve documents, a message of one line, and a place that is inside what was given. */
void check_resolve(const gsel_resolve_options* options);

/* The same of the error of another call. `text` is what the error's line and column count in. */
void check_error(gsel_status status, const gsel_error* err, const gsel_resolve_options* options);

#endif
