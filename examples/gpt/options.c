/* options.c: reads the command line. Numbers are checked to their last character. */
#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: gpt --data FILE [--config gsel.toml] [--steps N | --seconds S] [--sample N] [--json FILE]\n"
    "           [--program PREFIX] [--check] [--quiet] [--layers N] [--width N] [--heads N] [--context N]\n"
    "           [--attention KIND] [--products KIND] [--tied] [--weights PATH] [--export FILE] [--map FILE]\n"
    "           [--checkpoints FOLDER] [--save-every N]\n"
    "  trains a small GPT on the bytes of FILE; alone, or on N ranks as: gsel run -n N -- gpt ...\n"
    "  --config   how it is trained: strategy, optimizer, batch (default: gsel run's --config, else defaults)\n"
    "  --steps    stop after N steps (default 300); --seconds: stop after S seconds\n"
    "  --sample   then write N bytes of text; --json: write losses, parameter hashes and bytes sent to FILE\n"
    "  --program  write each rank's program to PREFIX.RANK; --quiet: no progress lines\n"
    "  --check    run every kernel against its contract first\n"
    "  --layers, --width, --heads, --context  sizes (default: 4, 256, 4, 128); heads divide the width\n"
    "  --attention  whole (default); fused: does not store the probabilities; ring: the same, in blocks of keys and\n"
    "             values that ranks with some of the positions pass on\n"
    "  --products  of matrices, on a GPU: plain (default); cublaslt; auto: cublaslt where it is found, else plain\n"
    "  --tied     the head has the embedding of tokens as its weight\n"
    "  --weights  begin with the parameters of a safetensors file, or of a folder of a model hub; --export: write "
    "them\n"
    "             to FILE at the end; --map: the configuration whose [weights] says how they lie there (default: "
    "--config)\n"
    "  --checkpoints  go on from the newest checkpoint in FOLDER, and save there each N steps (default 100) and at "
    "the\n"
    "             end; with gsel run --restarts a run that fails goes on by itself\n"
    "  on a GPU: gsel run --devices ..., or [select] accelerator = \"cuda\" in the configuration; in bf16: [train]\n"
    "             precision = \"bf16\"\n";

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

/* Where an option's number goes; NULL when it is not one of those. */
static int64_t* count_of(struct options* o, const char* option) {
  const struct {
    const char* name;
    int64_t* count;
  } counts[] = {{"--steps", &o->steps},          {"--sample", &o->sample},     {"--layers", &o->sizes.layers},
                {"--width", &o->sizes.width},    {"--heads", &o->sizes.heads}, {"--context", &o->sizes.context},
                {"--save-every", &o->save_every}};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i)
    if (!strcmp(option, counts[i].name)) return counts[i].count;
  return NULL;
}

static int read_attention(struct options* o, const char* value) {
  static const char* const kinds[] = {[GPT_WHOLE] = "whole", [GPT_RING] = "ring", [GPT_FUSED] = "fused"};
  for (int i = 0; i < (int)(sizeof kinds / sizeof *kinds); ++i)
    if (!strcmp(value, kinds[i])) return o->sizes.attention = i, 0;
  return wrong("--attention", "takes whole, ring or fused");
}

static int read_products(struct options* o, const char* value) {
  o->sizes.products = !strcmp(value, "cublaslt") ? GPT_CUBLASLT : GPT_PLAIN;
  o->finds_products = !strcmp(value, "auto");
  return o->sizes.products || o->finds_products || !strcmp(value, "plain")
             ? 0
             : wrong("--products", "takes plain, cublaslt or auto");
}

/* An option with its value; -1 when wrong. */
static int take(struct options* o, const char* option, const char* value) {
  if (!strcmp(option, "--config")) return o->config = value, 0;
  if (!strcmp(option, "--data")) return o->data = value, 0;
  if (!strcmp(option, "--json")) return o->json = value, 0;
  if (!strcmp(option, "--program")) return o->program = value, 0;
  if (!strcmp(option, "--weights")) return o->weights = value, 0;
  if (!strcmp(option, "--export")) return o->export_to = value, 0;
  if (!strcmp(option, "--map")) return o->map = value, 0;
  if (!strcmp(option, "--checkpoints")) return o->checkpoints = value, 0;
  if (!strcmp(option, "--attention")) return read_attention(o, value);
  if (!strcmp(option, "--products")) return read_products(o, value);
  if (!strcmp(option, "--seconds"))
    return read_seconds(value, &o->seconds) ? wrong(option, "takes a number above 0") : 0;
  return read_count(value, count_of(o, option)) ? wrong(option, "takes a whole number from 1 to 1000000000") : 0;
}

static int takes_value(const char* option) {
  static const char* const others[] = {"--config",  "--data",      "--json",       "--program",
                                       "--seconds", "--attention", "--products",   "--weights",
                                       "--export",  "--map",       "--checkpoints"};
  for (size_t i = 0; i < sizeof others / sizeof *others; ++i)
    if (!strcmp(option, others[i])) return 1;
  struct options unused;
  return count_of(&unused, option) != NULL;
}

int options_parse(struct options* o, int argc, char** argv) {
  *o = (struct options){.save_every = 100, .sizes = GPT_DEFAULT_SIZES};
  for (int i = 1; i < argc; ++i) {
    if (takes_value(argv[i])) {
      if (i + 1 == argc) return wrong(argv[i], "needs a value");
      if (take(o, argv[i], argv[i + 1])) return -1;
      ++i;
    } else if (!strcmp(argv[i], "--quiet")) {
      o->quiet = 1;
    } else if (!strcmp(argv[i], "--check")) {
      o->check = 1;
    } else if (!strcmp(argv[i], "--tied")) {
      o->sizes.tied = 1;
    } else if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
      fputs(usage, stdout);
      return 1;
    } else {
      return wrong(argv[i], "is not an option");
    }
  }
  if (!o->data) return wrong("--data", "is missing: name a text file to train on");
  if (o->steps && o->seconds > 0) return wrong("--steps and --seconds", "exclude each other");
  if (o->sizes.width % o->sizes.heads) return wrong("--heads", "must divide --width");
  if (!o->steps && !(o->seconds > 0)) o->steps = 300;
  return 0;
}
