/* options.c: reads the command line. Numbers are checked to their last character. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: gpt --data FILE [--config gsel.toml] [--steps N | --seconds S] [--sample N] [--json FILE]\n"
    "           [--program PREFIX] [--quiet]\n"
    "  trains a small GPT on the bytes of FILE; alone, or on N ranks as: gsel run -n N -- gpt ...\n"
    "  --config   how it is trained: strategy, optimizer, batch (default: gsel run's --config, else defaults)\n"
    "  --steps    stop after N steps (default 300); --seconds: stop after S seconds\n"
    "  --sample   then write N bytes of text; --json: write losses, parameter hashes and bytes sent to FILE\n"
    "  --program  write each rank's program to PREFIX.RANK; --quiet: no progress lines\n";

static int wrong(const char* option, const char* why) {
  fprintf(stderr, "gpt: %s %s\n%s", option, why, usage);
  return -1;
}

static int read_count(const char* text, int64_t* out) {
  char* end;
  errno = 0;
  const long long n = strtoll(text, &end, 10);
  if (end == text || *end || errno || n < 1 || n > 1000000000) return -1;
  *out = n;
  return 0;
}

static int read_seconds(const char* text, double* out) {
  char* end;
  const double s = strtod(text, &end);
  if (end == text || *end || !isfinite(s) || s <= 0) return -1;
  *out = s;
  return 0;
}

/* An option with its value; -1 when wrong. */
static int take(struct options* o, const char* option, const char* value) {
  if (!strcmp(option, "--config")) return o->config = value, 0;
  if (!strcmp(option, "--data")) return o->data = value, 0;
  if (!strcmp(option, "--json")) return o->json = value, 0;
  if (!strcmp(option, "--program")) return o->program = value, 0;
  if (!strcmp(option, "--seconds"))
    return read_seconds(value, &o->seconds) ? wrong(option, "takes a number above 0") : 0;
  return read_count(value, strcmp(option, "--steps") ? &o->sample : &o->steps)
             ? wrong(option, "takes a whole number from 1 to 1000000000")
             : 0;
}

int options_parse(struct options* o, int argc, char** argv) {
  static const char* const with_value[] = {"--config",  "--data",  "--json",  "--program",
                                           "--seconds", "--steps", "--sample"};
  *o = (struct options){0};
  for (int i = 1; i < argc; ++i) {
    size_t k = 0;
    while (k < sizeof with_value / sizeof *with_value && strcmp(argv[i], with_value[k])) ++k;
    if (k < sizeof with_value / sizeof *with_value) {
      if (i + 1 == argc) return wrong(argv[i], "needs a value");
      if (take(o, argv[i], argv[i + 1])) return -1;
      ++i;
    } else if (!strcmp(argv[i], "--quiet")) {
      o->quiet = 1;
    } else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      fputs(usage, stdout);
      return 1;
    } else {
      return wrong(argv[i], "is not an option");
    }
  }
  if (!o->data) return wrong("--data", "is missing: name a text file to train on");
  if (o->steps && o->seconds > 0) return wrong("--steps and --seconds", "exclude each other");
  if (!o->steps && !(o->seconds > 0)) o->steps = 300;
  return 0;
}
