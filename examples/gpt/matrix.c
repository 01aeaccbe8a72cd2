/* matrix.c: gpt-matrix TEXT [--short] [--launched | --cuda | --one-card] [--ranks N]: every combination of the
 * strategies of the four axes, by configuration alone, as a Markdown table. Each is tried twice against one rank: with
 * exact arithmetic (exact_layers.c), where the parameters must be the same bit for bit, and as the GPT that it is,
 * whose loss may differ by the rounding of sums in another order. The exit status is 0 when all is as it should be.
 *
 * A combination that a strategy refuses has a row with the reason; only `dp` with a pipeline may be one.
 *
 * --launched: ranks are not threads but the processes of a launcher such as `gsel run`, on one host or on several, and
 * the combinations those that have as many ranks; an axis that stands alone has them all.
 * --cuda: each rank trains on a GPU of its own, one rank alone as well. What they are compared with is one rank on the
 * host: the exact model's parameters and loss bit for bit, since its numbers are integers on the GPU, too; the GPT's
 * loss within the same rounding, since its kernels add in another order than those of the host.
 * --one-card: the same, but all ranks train on the first GPU. They are threads, whose streams share its queues.
 * --ranks N: the combinations of at most N ranks; with --cuda as many GPUs are needed. */
#include <cblas.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device_layers.h"
#include "exact_device_layers.h"
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

/* One of the two ways to try a cell, and what one rank of the host came to. */
struct trial {
  struct job job;
  const char* train;
  const struct layer_kinds* on_device; /* where a cell is tried on GPUs */
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

static void show_head(const struct trial* gpt, int on_device) {
  printf(
      "| data | pipeline | tensor or context | ranks | exact model | GPT: loss - that of one rank | MB sent, tensor | "
      "data | "
      "pipeline | context | peak MB |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
      "| %s | - | - | 1 | | %.6f | | | | |",
      on_device ? "on the host" : "-", gpt->one.loss);
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

/* On the host, and what comes behind it on GPUs where that is asked for. */
static int run_one_rank(struct trial* trial, int on_device) {
  const struct cell one = {data_axis, pipeline_axis, sharing_axis, 0};
  try_cell(trial, &one, &trial->one);
  if (on_device) trial->job.kinds = trial->on_device, trial->job.accelerator = "cuda";
  if (!trial->one.status) return 0;
  fprintf(stderr, "gpt-matrix: one rank: %s\n", trial->one.message);
  return -1;
}

/* What the command line asks for. */
struct asked {
  int is_short, is_launched, on_device, on_one_device;
  int32_t ranks;
};

/* --short tries each pair of neighbours once: a diagonal through the table, and with --cuda every other row of it. */
static int is_tried(const struct asked* asked, const struct cell* c, size_t d, size_t p, size_t t) {
  if (d + p + t == 0) return asked->on_device;
  if (ranks_of(c) > asked->ranks || (c->world && ranks_of(c) != c->world)) return 0;
  return !asked->is_short || (asked->on_device ? (d + p + 2 * t) % 10 == 8 : (d + p + 2 * t) % 5 == 3);
}

static int show_table(struct trial* exact, struct trial* gpt, const struct asked* asked) {
  const int32_t world = gpt->job.world ? gsel_comm_world_size(gpt->job.world) : 0;
  int wrong = 0;
  if (run_one_rank(exact, asked->on_device) || run_one_rank(gpt, asked->on_device)) return -1;
  show_head(gpt, asked->on_device);
  for (size_t p = 0; p < COUNT(pipeline_axis); ++p)
    for (size_t d = 0; d < COUNT(data_axis); ++d)
      for (size_t t = 0; t < COUNT(sharing_axis); ++t) {
        const struct cell cell = {&data_axis[d], &pipeline_axis[p], &sharing_axis[t], world};
        if (is_tried(asked, &cell, d, p, t)) wrong += show_cell(exact, gpt, &cell);
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

static int parse(int argc, char** argv, struct asked* asked) {
  const char* usage = "usage: gpt-matrix TEXT [--short] [--launched | --cuda | --one-card] [--ranks N]\n";
  int known = argc > 1;
  for (int i = 2; i < argc && known; ++i) {
    if (!strcmp(argv[i], "--short")) {
      asked->is_short = 1;
    } else if (!strcmp(argv[i], "--launched")) {
      asked->is_launched = 1;
    } else if (!strcmp(argv[i], "--cuda")) {
      asked->on_device = 1;
    } else if (!strcmp(argv[i], "--one-card")) {
      asked->on_device = asked->on_one_device = 1;
    } else {
      known = !strcmp(argv[i], "--ranks") && i + 1 < argc && (asked->ranks = (int32_t)atoi(argv[++i])) >= 1;
    }
  }
  if (known && !(asked->is_launched && asked->on_device)) return 0;
  fputs(usage, stderr);
  return -1;
}

int main(int argc, char** argv) {
  struct asked asked = {.ranks = JOB_RANKS};
  struct text exact_text, gpt_text;
  char why[512];
  if (parse(argc, argv, &asked)) return 2;
  struct trial exact = {.job = {.steps = 3,
                                .sizes = {.layers = 4, .width = 16, .heads = 4, .context = 8},
                                .kinds = &exact_layers,
                                .text = &exact_text},
                        .train = exact_train,
                        .on_device = &exact_device_layers};
  struct trial gpt = {
      .job = {.steps = asked.is_short ? 2 : 3, .sizes = GPT_DEFAULT_SIZES, .kinds = &gpt_layers, .text = &gpt_text},
      .train = gpt_train,
      .on_device = &device_layers};
  if (asked.is_short || asked.is_launched)
    gpt.job.sizes = (struct gpt_sizes){.layers = 4, .width = 64, .heads = 4, .context = 32};
  if (asked.on_device) gpt.job.sizes = (struct gpt_sizes){.layers = 4, .width = 32, .heads = 4, .context = 16};
  exact.job.on_one_device = gpt.job.on_one_device = asked.on_one_device;
  if (asked.on_device && device_refusal(&gpt.job.sizes)) {
    fprintf(stderr, "gpt-matrix: %s\n", device_refusal(&gpt.job.sizes));
    return 1;
  }
  openblas_set_num_threads(1);
  if (text_load(&exact_text, argv[1], exact.job.sizes.context, 3, why, sizeof why) ||
      text_load(&gpt_text, argv[1], gpt.job.sizes.context, 1, why, sizeof why)) {
    fprintf(stderr, "gpt-matrix: %s\n", why);
    return 1;
  }
  if (asked.is_launched && !(exact.job.world = gpt.job.world = join_launched())) return 1;
  const int result = show_table(&exact, &gpt, &asked);
  gsel_comm_free(gpt.job.world);
  text_free(&exact_text);
  text_free(&gpt_text);
  return result ? 1 : 0;
}
