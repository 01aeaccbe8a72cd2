/* matrix.c: gpt-matrix TEXT [--short] [--launched]: every combination of the strategies of the four axes, by
 * configuration alone, as a Markdown table. Each is tried twice against one rank: with exact arithmetic
 * (exact_layers.c), where the parameters must be the same bit for bit, and as the GPT that it is, whose loss may differ
 * by the rounding of sums in another order. The exit status is 0 when all is as it should be.
 *
 * A combination that a strategy refuses has a row with the reason; only `dp` with a pipeline may be one.
 *
 * --launched: ranks are not threads but the processes of a launcher such as `gsel run`, on one host or on several, and
 * the combinations those that have as many ranks; an axis that stands alone has them all. */
#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exact_layers.h"
#include "job.h"

/* A strategy of one axis: its name in the table, that of the axis in [mesh], its section. */
struct choice {
  const char *name, *axis, *section;
  int32_t ranks;
};
#define DATA "data", "[strategy.data]\nplugin = "
#define ZERO "\"zero\"\npersist_elems = 0\nstage = "
static const struct choice data_axis[] = {
    {"-", "", "", 1},
    {"dp", DATA "\"dp\"\n", 2},
    {"ddp", DATA "\"ddp\"\n", 2},
    {"zero 1", DATA ZERO "1\n", 2},
    {"zero 2", DATA ZERO "2\n", 2},
    {"zero 3", DATA ZERO "3\n", 2},
};
#define PIPELINE "pipeline", "[strategy.pipeline]\nplugin = \"pp\"\nschedule = "
static const struct choice pipeline_axis[] = {
    {"-", "", "", 1},
    {"1f1b", PIPELINE "\"1f1b\"\n", 2},
    {"zb-v", PIPELINE "\"zb-v\"\n", 2},
};
#define TENSOR "tensor", "[strategy.tensor]\nplugin = "
static const struct choice sharing_axis[] = {
    {"-", "", "", 1},
    {"tp", TENSOR "\"tp\"\n", 2},
    {"tp, sequence parallel", TENSOR "\"tp\"\nsequence_parallel = true\n", 2},
    {"cp", "context", "[strategy.context]\nplugin = \"cp\"\n", 2},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

struct cell {
  const struct choice *data, *pipeline, *sharing;
  int32_t world; /* ranks that a launcher has started; 0: as many threads as it takes */
};
/* Of an axis of a cell. */
static int32_t size_of(const struct cell* c, const struct choice* axis) {
  const int stands_alone = c->data->ranks * c->pipeline->ranks * c->sharing->ranks == axis->ranks;
  return axis->ranks > 1 && stands_alone && c->world ? c->world : axis->ranks;
}
static int32_t ranks_of(const struct cell* c) {
  return size_of(c, c->data) * size_of(c, c->pipeline) * size_of(c, c->sharing);
}

/* [train] of the exact model, and of the GPT as gpt.toml trains it. A step of the exact one has 16 samples of 8 bytes,
 * and all factors are powers of two, so that no rounding hides a gradient that was summed or divided once too often. */
static const char exact_train[] =
    "[train]\noptimizer = \"sgd\"\nlearning_rate = 0.00390625\nweight_decay = 0.0\nclip_norm = 0.0\n"
    "batch = 16\nseed = 3\n";
static const char gpt_train[] =
    "[train]\noptimizer = \"adamw\"\nlearning_rate = 1e-3\nweight_decay = 0.1\nbeta2 = 0.99\nclip_norm = 1.0\n"
    "batch = 16\nseed = 1\n";
#define LOSS_TOLERANCE 1e-4 /* nats, after a few steps */

static const char* config_of(const struct cell* c, const char* train, char* text, size_t capacity) {
  const struct choice* axes[] = {c->sharing, c->data, c->pipeline};
  int at = snprintf(text, capacity, "[mesh]\n");
  for (int i = 0; i < 3; ++i)
    if (axes[i]->ranks > 1)
      at += snprintf(text + at, capacity - (size_t)at, "%s = %" PRId32 "\n", axes[i]->axis, size_of(c, axes[i]));
  snprintf(text + at, capacity - (size_t)at, "%s%s%s%s%s", c->sharing->section, c->data->section, c->pipeline->section,
           train, c->pipeline->ranks > 1 ? "microbatches = 4\n" : "");
  return text;
}

/* One of the two ways to try a cell, and what one rank came to. */
struct trial {
  struct job job;
  const char* train;
  struct job_result one;
};

static void try_cell(const struct trial* trial, const struct cell* cell, struct job_result* result) {
  char text[1024];
  struct job job = trial->job;
  job.config = config_of(cell, trial->train, text, sizeof text);
  job.ranks = ranks_of(cell);
  job_run(&job, result);
}

static int equals(const struct job_result* a, const struct job_result* b) {
  return a->n_elems == b->n_elems && !memcmp(a->params, b->params, (size_t)a->n_elems * sizeof *a->params) &&
         a->alike && b->alike && memcmp(&a->loss, &b->loss, sizeof a->loss) == 0;
}

/* ---- the table ---------------------------------------------------------------------------------------- */

static void show_sent(const struct job_result* r, int32_t ranks, int32_t steps, int axis) {
  uint64_t most = 0;
  for (int32_t i = 0; i < ranks; ++i) most = r->sent[i][axis] > most ? r->sent[i][axis] : most;
  if (most)
    printf(" %.2f |", (double)most / 1e6 / steps);
  else
    printf(" |");
}

static void show_peak(const struct job_result* r, int32_t ranks) {
  uint64_t most = 0;
  for (int32_t i = 0; i < ranks; ++i) most = r->peak_bytes[i] > most ? r->peak_bytes[i] : most;
  printf(" %.1f |\n", (double)most / 1e6);
}

static void show_name(const struct cell* c) {
  printf("| %s | %s | %s | %" PRId32 " |", c->data->name, c->pipeline->name, c->sharing->name, ranks_of(c));
}

static void show_head(const struct trial* gpt) {
  printf(
      "| data | pipeline | tensor or context | ranks | exact model | GPT: loss - that of one rank | MB sent, tensor | "
      "data | "
      "pipeline | context | peak MB |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
      "| - | - | - | 1 | | %.6f | | | | |",
      gpt->one.loss);
  show_peak(&gpt->one, 1);
}

/* Whether this is the one refusal that is right. */
static int may_refuse(const struct cell* c) {
  return !strcmp(c->data->name, "dp") && c->pipeline->ranks > 1;
}
static int show_refusal(const struct job_result* r) {
  static const char link[] = "caused by: ";
  const char* why = r->message;
  for (const char* next; (next = strstr(why, link)) != NULL;) why = next + strlen(link);
  printf(" refused: %s | | | | | | |\n", why);
  return r->status == GSEL_ERR_CONFIG || r->status == GSEL_ERR_UNSUPPORTED;
}

/* 0 when the cell is as it should be. */
static int show_cell(const struct trial* exact, const struct trial* gpt, const struct cell* c) {
  struct job_result a, b;
  const int32_t ranks = ranks_of(c);
  int wrong = 1;
  show_name(c);
  try_cell(exact, c, &a);
  if (a.status) {
    printf("%s", may_refuse(c) ? "" : " NOT run:");
    return !(show_refusal(&a) && may_refuse(c));
  }
  try_cell(gpt, c, &b);
  if (b.status) {
    printf(" NOT run: %s | | | | | | |\n", b.message);
  } else {
    const int equal = equals(&a, &exact->one), near = fabs(b.loss - gpt->one.loss) <= LOSS_TOLERANCE;
    printf(" %s | %+.1e%s%s |", equal ? "equal" : "NOT equal", b.loss - gpt->one.loss, near ? "" : ", TOO MUCH",
           b.alike ? "" : ", ranks DIFFER");
    for (int axis = 0; axis < JOB_AXES; ++axis) show_sent(&b, ranks, gpt->job.steps, axis);
    show_peak(&b, ranks);
    wrong = !equal || !near || !b.alike || may_refuse(c);
  }
  fflush(stdout);
  free(a.params);
  free(b.params);
  return wrong;
}

static int run_one_rank(struct trial* trial) {
  const struct cell one = {data_axis, pipeline_axis, sharing_axis, 0};
  try_cell(trial, &one, &trial->one);
  if (!trial->one.status) return 0;
  fprintf(stderr, "gpt-matrix: one rank: %s\n", trial->one.message);
  return -1;
}

/* --short tries each pair of neighbours once: a diagonal through the table. */
static int is_tried(const struct cell* c, int is_short, size_t d, size_t p, size_t t) {
  if (d + p + t == 0 || (c->world && ranks_of(c) != c->world)) return 0;
  return !is_short || (d + p + 2 * t) % 5 == 3;
}

static int show_table(struct trial* exact, struct trial* gpt, int is_short) {
  const int32_t world = gpt->job.world ? gsel_comm_world_size(gpt->job.world) : 0;
  int wrong = 0;
  if (run_one_rank(exact) || run_one_rank(gpt)) return -1;
  show_head(gpt);
  for (size_t p = 0; p < COUNT(pipeline_axis); ++p)
    for (size_t d = 0; d < COUNT(data_axis); ++d)
      for (size_t t = 0; t < COUNT(sharing_axis); ++t) {
        const struct cell cell = {&data_axis[d], &pipeline_axis[p], &sharing_axis[t], world};
        if (is_tried(&cell, is_short, d, p, t)) wrong += show_cell(exact, gpt, &cell);
      }
  free(exact->one.params);
  free(gpt->one.params);
  if (wrong) fprintf(stderr, "gpt-matrix: %d rows are not as they should be\n", wrong);
  return wrong ? -1 : 0;
}

/* The ranks that a launcher has started; the first of them shows the table. */
static gsel_comm* join_launched(void) {
  gsel_comm* world = NULL;
  gsel_error* err = NULL;
  if (gsel_comm_init(NULL, &world, &err)) {
    fprintf(stderr, "gpt-matrix: %s\n", err ? gsel_error_message(err).data : "out of memory");
    gsel_error_free(err);
  } else if (gsel_comm_world_size(world) > JOB_RANKS) {
    fprintf(stderr, "gpt-matrix: %" PRId32 " ranks were started; 2 to %d are tried\n", gsel_comm_world_size(world),
            JOB_RANKS);
    gsel_comm_free(world);
    world = NULL;
  } else if (gsel_comm_rank(world) > 0 && !freopen("/dev/null", "w", stdout)) {
    perror("gpt-matrix: /dev/null");
  }
  return world;
}

int main(int argc, char** argv) {
  int is_short = 0, is_launched = 0, known = argc > 1;
  for (int i = 2; i < argc; ++i) {
    const int asks_short = !strcmp(argv[i], "--short"), asks_launched = !strcmp(argv[i], "--launched");
    is_short |= asks_short;
    is_launched |= asks_launched;
    known &= asks_short || asks_launched;
  }
  struct text exact_text, gpt_text;
  char why[512];
  if (!known) {
    fprintf(stderr, "usage: gpt-matrix TEXT [--short] [--launched]\n");
    return 2;
  }
  struct trial exact = {.job = {.steps = 3, .sizes = {4, 16, 4, 8, 0}, .kinds = &exact_layers, .text = &exact_text},
                        .train = exact_train};
  struct trial gpt = {
      .job = {.steps = is_short ? 2 : 3, .sizes = GPT_DEFAULT_SIZES, .kinds = &gpt_layers, .text = &gpt_text},
      .train = gpt_train};
  if (is_short || is_launched) gpt.job.sizes = (struct gpt_sizes){4, 64, 4, 32, 0};
  openblas_set_num_threads(1);
  if (text_load(&exact_text, argv[1], exact.job.sizes.context, 3, why, sizeof why) ||
      text_load(&gpt_text, argv[1], gpt.job.sizes.context, 1, why, sizeof why)) {
    fprintf(stderr, "gpt-matrix: %s\n", why);
    return 1;
  }
  if (is_launched && !(exact.job.world = gpt.job.world = join_launched())) return 1;
  const int result = show_table(&exact, &gpt, is_short);
  gsel_comm_free(gpt.job.world);
  text_free(&exact_text);
  text_free(&gpt_text);
  return result ? 1 : 0;
}
