/* checkpoint_matrix.c: gpt-checkpoints TEXT [--short]: what was saved under each layout is loaded under each, as a
 * Markdown table. The model is the exact one (exact_layers.c): after the steps that follow a load, parameters and loss
 * must be those of one rank that never stopped, bit for bit, and each rank must have read the bytes that it holds and
 * no others. The optimizer is Lion, whose state is a function of sums that are exact here. The exit status is 0 when
 * all is so. --short: each layout is saved, and loaded under two. */
#define _XOPEN_SOURCE 700 /* nftw */

#include <cblas.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "exact_layers.h"
#include "job.h"

struct layout {
  const char *name, *sections;
  int32_t ranks;
};
#define DATA(plugin, more) "[strategy.data]\nplugin = \"" plugin "\"\n" more
#define ZERO(stage, more) DATA("zero", "persist_elems = 0\nstage = " stage "\n" more)
#define PIPELINE(n, schedule) "pipeline = " n "\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"" schedule "\"\n"
#define STAGES "[strategy.pipeline]\nplugin = \"pp\"\n" /* beside TENSOR or CONTEXT: two */
#define TENSOR(n, more) "tensor = " n "\n[strategy.tensor]\nplugin = \"tp\"\n" more
#define CONTEXT(n) "context = " n "\n[strategy.context]\nplugin = \"cp\"\n"
static const struct layout layouts[] = {
    {"one rank", "", 1},
    {"dp 3", DATA("dp", ""), 3},
    {"ddp 2", DATA("ddp", ""), 2},
    {"ddp 4", DATA("ddp", "bucket_bytes = 1000\n"), 4},
    {"zero 1, 3", ZERO("1", "offload = \"state\"\n"), 3},
    {"zero 2, 2", ZERO("2", "bucket_bytes = 1000\n"), 2},
    {"zero 3, 4", ZERO("3", ""), 4},
    {"zero 3, 3, offload", ZERO("3", "offload = \"all\"\n"), 3},
    {"pp 2, 1f1b", PIPELINE("2", "1f1b"), 2},
    {"pp 2, zb-v", PIPELINE("2", "zb-v"), 2},
    {"tp 2", TENSOR("2", ""), 2},
    {"tp 4, sequence parallel", TENSOR("4", "sequence_parallel = true\n"), 4},
    {"cp 2", CONTEXT("2"), 2},
    {"tp 2 x zero 1, 2", TENSOR("2", "") ZERO("1", ""), 4},
    {"tp 2 x zero 3, 2", TENSOR("2", "sequence_parallel = true\n") ZERO("3", ""), 4},
    {"cp 2 x zero 2, 2", CONTEXT("2") ZERO("2", ""), 4},
    {"tp 2 x zero 1, 2 x pp 2", TENSOR("2", "") ZERO("1", "") STAGES, 8},
    {"cp 2 x pp 2", CONTEXT("2") STAGES, 4},
    {"cp 2 x zero 2, 2 x pp 2", CONTEXT("2") ZERO("2", "") STAGES, 8},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts, BEFORE = 2, AFTER = 1 };

static const char train_section[] =
    "[train]\noptimizer = \"lion\"\nlearning_rate = 0.00390625\nweight_decay = 0.0\nclip_norm = 0.0\nbatch = 48\n"
    "seed = 3\n";

static void config_of(const struct layout* layout, char* text, size_t capacity) {
  const int is_piped = strstr(layout->sections, "\"pp\"") != NULL;
  const int is_mixed = is_piped && !strstr(layout->sections, "pipeline = ");
  snprintf(text, capacity, "[mesh]\n%s%s%s%s", is_mixed ? "pipeline = 2\n" : "", layout->sections, train_section,
           is_piped ? "microbatches = 4\n" : "");
}

static int run(struct job job, const struct layout* layout, struct job_result* result) {
  char config[1024];
  config_of(layout, config, sizeof config);
  job.config = config;
  job.ranks = layout->ranks;
  job_run(&job, result);
  if (!result->status) return 0;
  fprintf(stderr, "gpt-checkpoints: %s: %s\n", layout->name, result->message);
  return -1;
}

static int is_same(const struct job_result* a, const struct job_result* b) {
  return a->alike && !memcmp(a->params, b->params, (size_t)b->n_elems * sizeof *b->params) &&
         memcmp(&a->loss, &b->loss, sizeof a->loss) == 0;
}

static void folder_of(const char* folder, int saved, char* path, size_t capacity) {
  snprintf(path, capacity, "%s/%d", folder, saved);
}

/* The cells of one row; how many are not as they should be. */
static int show_row(const struct job* job, const struct job_result* expected, const char* folder, int saved,
                    int is_short) {
  char path[128];
  struct job saving = *job, loading = *job;
  struct job_result result;
  int wrong = 0;
  folder_of(folder, saved, path, sizeof path);
  saving.steps = BEFORE;
  saving.save_to = path;
  printf("| %d %s |", saved + 1, layouts[saved].name);
  if (run(saving, &layouts[saved], &result)) {
    printf(" NOT saved |\n");
    return 1;
  }
  free(result.params);
  loading.steps = AFTER;
  loading.load_from = path;
  for (int loaded = 0; loaded < LAYOUTS; ++loaded) {
    if (is_short && loaded != (saved * 7 + 3) % LAYOUTS && loaded != (saved * 5 + 1) % LAYOUTS) {
      printf(" |");
      continue;
    }
    if (run(loading, &layouts[loaded], &result)) {
      printf(" NOT run |");
      ++wrong;
      continue;
    }
    const int same = is_same(&result, expected);
    printf(same ? " = |" : " NOT equal |");
    wrong += !same;
    free(result.params);
  }
  printf("\n");
  fflush(stdout);
  return wrong;
}

static int show_table(const struct job* job, const char* folder, int is_short) {
  struct job whole = *job;
  struct job_result expected;
  int wrong = 0;
  whole.steps = BEFORE + AFTER;
  if (run(whole, &layouts[0], &expected)) return -1;
  printf("| saved under, loaded under |");
  for (int i = 0; i < LAYOUTS; ++i) printf(" %d |", i + 1);
  printf("\n|---|");
  for (int i = 0; i < LAYOUTS; ++i) printf("---|");
  printf("\n");
  for (int saved = 0; saved < LAYOUTS; ++saved) wrong += show_row(job, &expected, folder, saved, is_short);
  free(expected.params);
  if (wrong) fprintf(stderr, "gpt-checkpoints: %d cells are not as they should be\n", wrong);
  return wrong ? -1 : 0;
}

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* at) {
  (void)status, (void)kind, (void)at;
  return remove(path);
}

int main(int argc, char** argv) {
  const int is_short = argc == 3 && !strcmp(argv[2], "--short");
  char folder[] = "/tmp/gpt-checkpoints-XXXXXX", why[512]; /* mkdtemp fills in the X */
  struct text text;
  struct job job = {
      .sizes = {.layers = 4, .width = 16, .heads = 4, .context = 8}, .kinds = &exact_layers, .text = &text};
  if (argc != 2 && !is_short) {
    fprintf(stderr, "usage: gpt-checkpoints TEXT [--short]\n");
    return 2;
  }
  openblas_set_num_threads(1);
  if (text_load(&text, argv[1], job.sizes.context, 3, why, sizeof why)) {
    fprintf(stderr, "gpt-checkpoints: %s\n", why);
    return 1;
  }
  if (!mkdtemp(folder)) {
    perror("gpt-checkpoints: /tmp");
    return 1;
  }
  const int result = show_table(&job, folder, is_short);
  nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
  text_free(&text);
  return result ? 1 : 0;
}
