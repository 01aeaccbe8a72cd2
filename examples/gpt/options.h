/* options.h: what the command line says. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdint.h>

#include "model.h"

struct options {
  const char* config; /* NULL: what gsel run --config names, else defaults */
  const char* data;
  const char* json;                      /* NULL: write none */
  const char* program;                   /* NULL: write none */
  const char *weights, *export_to, *map; /* NULL: begin with initial values; write none; the map of `config` */
  const char* checkpoints;               /* folder; NULL: none are read or written */
  int64_t save_every;                    /* steps */
  int64_t steps;                         /* 0: until `seconds` have passed */
  double seconds;
  int64_t sample; /* bytes of text to write at the end */
  int quiet;
  int check; /* the kernels, before training */
  struct gpt_sizes sizes;
  int finds_products; /* cuBLASLt is to be used where it is found */
};

/* Returns 0; 1 when help was asked and given; -1 when the line is wrong, which is said on standard error. */
int options_parse(struct options* options, int argc, char** argv);

#endif
