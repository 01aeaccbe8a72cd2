/* bench_decode [--layers N] [--width N] [--tokens N] [--rounds N]: a decoder makes tokens on one rank and on two that
 * share it, in turns, so that whatever else the machine does hits both; and what two cores gain by reading memory
 * together, measured between the rounds, which is the bound of the gain. Ranks are threads. Prints Markdown. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock_check.h"
#include "decoder.h"
#include "kernels.h"

enum { MOST_RANKS = 2, MOST_TOKENS = 4096, MOST_ROUNDS = 64 };

static int by_value(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}
static double quantile(const double* values, int n, double q) {
  double* sorted = malloc(sizeof(double) * (size_t)n);
  memcpy(sorted, values, sizeof(double) * (size_t)n);
  qsort(sorted, (size_t)n, sizeof(double), by_value);
  const double result = sorted[(int)(q * (n - 1) + 0.5)];
  free(sorted);
  return result;
}

/* ---- worlds: ranks that wait, asleep, for their turn ---- */

struct world;
struct rank {
  struct world* world;
  int rank;
  pthread_t thread;
};
struct world {
  const struct decoder_sizes* sizes;
  gsel_unique_id id;
  struct rank ranks[MOST_RANKS];
  int n, to_make; /* tokens of this turn; 0 ends */
  pthread_barrier_t turn, turned;
  int n_made;
  double seconds[MOST_TOKENS], overhead[MOST_TOKENS], between[MOST_TOKENS]; /* by token, of rank 0 */
  int32_t tokens[MOST_TOKENS];
};

static void make_token(struct world* w, int rank, struct decoder* d, gsel_pipeline* pipeline) {
  gsel_pipeline_report report = GSEL_PIPELINE_REPORT_INIT;
  gsel_error* err = NULL;
  const double begin = now();
  check(gsel_pipeline_run(pipeline, GSEL_FORWARD, &report, &err), &err);
  const double end = now();
  d->position = (d->position + 1) % d->sizes.context;
  if (rank != 0) return;
  w->seconds[w->n_made] = end - begin;
  w->overhead[w->n_made] = end - begin - report.busy_s - report.comm_s;
  w->between[w->n_made] = report.comm_s;
  w->tokens[w->n_made++] = d->token;
}

static void* rank_main(void* argument) {
  struct rank* r = argument;
  struct world* w = r->world;
  struct decoder d;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_pipeline_options settings = GSEL_PIPELINE_OPTIONS_INIT;
  gsel_comm* comm = NULL;
  gsel_model* model = NULL;
  gsel_pipeline* pipeline = NULL;
  gsel_error* err = NULL;
  options.rank = r->rank;
  options.world_size = w->n;
  options.id = &w->id;
  options.timeout_s = 120;
  check(gsel_comm_init(&options, &comm, &err), &err);
  check(gsel_model_create(&model, &err), &err);
  if (!decoder_make(&d, w->sizes)) check(GSEL_ERR_NOMEM, NULL);
  check(decoder_describe(model, &d, &err), &err);
  settings.microbatches = 1;
  settings.microbatch_samples = 1;
  settings.data = decoder_data;
  settings.data_user_data = &d;
  settings.tensor_ranks = w->n;
  check(gsel_pipeline_create(comm, model, &settings, &pipeline, &err), &err);
  for (;;) {
    pthread_barrier_wait(&w->turn);
    const int n = w->to_make;
    for (int i = 0; i < n; ++i) make_token(w, r->rank, &d, pipeline);
    pthread_barrier_wait(&w->turned);
    if (!n) break;
  }
  gsel_pipeline_free(pipeline);
  gsel_model_free(model);
  gsel_comm_free(comm);
  decoder_free(&d);
  return NULL;
}

static void begin_world(struct world* w, int n, const struct decoder_sizes* sizes) {
  gsel_error* err = NULL;
  memset(w, 0, sizeof *w);
  w->n = n;
  w->sizes = sizes;
  check(gsel_unique_id_create(&w->id, &err), &err);
  pthread_barrier_init(&w->turn, NULL, (unsigned)n + 1);
  pthread_barrier_init(&w->turned, NULL, (unsigned)n + 1);
  for (int r = 0; r < n; ++r) {
    w->ranks[r] = (struct rank){.world = w, .rank = r};
    if (pthread_create(&w->ranks[r].thread, NULL, rank_main, &w->ranks[r])) exit(1);
  }
}

static void take_turn(struct world* w, int tokens) {
  w->to_make = tokens;
  pthread_barrier_wait(&w->turn);
  pthread_barrier_wait(&w->turned);
}

static void end_world(struct world* w) {
  take_turn(w, 0);
  for (int r = 0; r < w->n; ++r) pthread_join(w->ranks[r].thread, NULL);
}

/* ---- reading alone ---- */

struct reading {
  const float* data;
  int64_t n;
  pthread_barrier_t* begin;
  float sum;
};

static void* read_main(void* argument) {
  struct reading* r = argument;
  pthread_barrier_wait(r->begin);
  r->sum = sum_of(r->data, r->n);
  return NULL;
}

/* Bytes per second of as many threads, each through its share of the data. */
static double read_by(int threads, const float* data, int64_t n) {
  pthread_t ids[MOST_RANKS];
  struct reading readings[MOST_RANKS];
  pthread_barrier_t begin;
  pthread_barrier_init(&begin, NULL, (unsigned)threads + 1);
  for (int t = 0; t < threads; ++t) {
    readings[t] = (struct reading){data + n / threads * t, n / threads, &begin, 0};
    if (pthread_create(&ids[t], NULL, read_main, &readings[t])) exit(1);
  }
  pthread_barrier_wait(&begin);
  const double begun = now();
  for (int t = 0; t < threads; ++t) pthread_join(ids[t], NULL);
  const double seconds = now() - begun;
  pthread_barrier_destroy(&begin);
  return 4.0 * (double)n / seconds;
}

/* ---- tables ---- */

static int same_tokens(const struct world* a, const struct world* b) {
  int n = 0;
  while (n < a->n_made && n < b->n_made && a->tokens[n] == b->tokens[n]) ++n;
  return n;
}

static void print_world(const struct world* w, double bytes, double read) {
  const double median = quantile(w->seconds, w->n_made, 0.5);
  printf("| %d | %.2f ms | %.2f ms | %.1f GB/s | %.0f %% | %.2f ms | %.0f us |\n", w->n, 1e3 * median,
         1e3 * quantile(w->seconds, w->n_made, 0.99), 1e-9 * bytes / median, 100 * bytes / median / read,
         1e3 * quantile(w->between, w->n_made, 0.5), 1e6 * quantile(w->overhead, w->n_made, 0.5));
}

static void compare(const struct decoder_sizes* sizes, int tokens, int rounds) {
  static struct world one, two;
  double reads[MOST_RANKS][MOST_ROUNDS];
  const double bytes = decoder_bytes(sizes);
  const int64_t n = (int64_t)(bytes / 4);
  float* data = malloc(4 * (size_t)n);
  if (!data) check(GSEL_ERR_NOMEM, NULL);
  for (int64_t i = 0; i < n; ++i) data[i] = 1;
  begin_world(&one, 1, sizes);
  begin_world(&two, 2, sizes);
  take_turn(&one, 2); /* warm, and forgotten but for the tokens */
  take_turn(&two, 2);
  const int warm = one.n_made;
  for (int i = 0; i < rounds; ++i) {
    take_turn(&one, tokens);
    take_turn(&two, tokens);
    for (int t = 0; t < 2; ++t) reads[t][i] = read_by(t + 1, data, n);
  }
  end_world(&one);
  end_world(&two);
  const int alike = same_tokens(&one, &two), made = one.n_made;
  for (struct world* w = &one; w; w = w == &one ? &two : NULL) {
    w->n_made -= warm;
    memmove(w->seconds, w->seconds + warm, sizeof(double) * (size_t)w->n_made);
    memmove(w->between, w->between + warm, sizeof(double) * (size_t)w->n_made);
    memmove(w->overhead, w->overhead + warm, sizeof(double) * (size_t)w->n_made);
  }
  const double by_one = quantile(reads[0], rounds, 0.5), by_two = quantile(reads[1], rounds, 0.5);
  const double ratio = quantile(two.seconds, two.n_made, 0.5) / quantile(one.seconds, one.n_made, 0.5);
  printf(
      "%d layers of width %d, %d heads, %d of keys, inner width %d, %d tokens to choose from: %.0f MB of f32 weights "
      "are read for a token.\n\n",
      sizes->layers, sizes->width, sizes->heads, sizes->kv_heads, sizes->inner, sizes->vocab, 1e-6 * bytes);
  printf(
      "| ranks | a token, median | 99th percentile | weights read | of memory's speed | between ranks | "
      "library |\n|---|---|---|---|---|---|---|\n");
  print_world(&one, bytes, by_one);
  print_world(&two, bytes, by_two);
  printf(
      "\nTwo ranks take %.3f of one rank's time (target: 0.65 where memory allows it). Memory is read at %.1f GB/s by "
      "one thread and at %.1f GB/s by two, so %.3f is the bound. The first %d of %d tokens are alike.\n",
      ratio, 1e-9 * by_one, 1e-9 * by_two, by_one / by_two, alike, made);
  free(data);
}

/* What a token costs where nothing is computed. */
static void cost_of_nothing(void) {
  const struct decoder_sizes tiny = {
      .layers = 4, .width = 16, .heads = 2, .kv_heads = 2, .head = 8, .inner = 16, .vocab = 16, .context = 16};
  static struct world worlds[MOST_RANKS];
  printf("\n| ranks | a token of a tiny decoder, median | between ranks | library |\n|---|---|---|---|\n");
  for (int n = 1; n <= MOST_RANKS; ++n) {
    struct world* w = &worlds[n - 1];
    begin_world(w, n, &tiny);
    take_turn(w, 2000);
    end_world(w);
    printf("| %d | %.1f us | %.1f us | %.1f us |\n", n, 1e6 * quantile(w->seconds, w->n_made, 0.5),
           1e6 * quantile(w->between, w->n_made, 0.5), 1e6 * quantile(w->overhead, w->n_made, 0.5));
  }
}

int main(int argc, char** argv) {
  struct decoder_sizes sizes = {
      .layers = 4, .width = 2048, .kv_heads = 4, .head = 128, .inner = 5632, .vocab = 8192, .context = 256};
  int tokens = 16, rounds = 5;
  const struct {
    const char* name;
    int* value;
    int most;
  } options[] = {{"--layers", &sizes.layers, 64},
                 {"--width", &sizes.width, 16384},
                 {"--tokens", &tokens, 64},
                 {"--rounds", &rounds, MOST_ROUNDS - 4}};
  for (int i = 1; i < argc; i += 2) {
    size_t o = 0;
    while (o < 4 && strcmp(argv[i], options[o].name) != 0) ++o;
    if (o == 4 || i + 1 == argc || (*options[o].value = atoi(argv[i + 1])) < 1 || *options[o].value > options[o].most) {
      fprintf(stderr, "bench_decode: %s %s; use --layers, --width, --tokens and --rounds with a number from 1\n",
              argv[i], i + 1 < argc ? argv[i + 1] : "");
      return 2;
    }
  }
  if (sizes.width % (sizes.kv_heads * sizes.head) != 0) {
    fprintf(stderr, "bench_decode: --width %d; use a multiple of %d\n", sizes.width, sizes.kv_heads * sizes.head);
    return 2;
  }
  sizes.heads = sizes.width / sizes.head;
  compare(&sizes, tokens, rounds);
  cost_of_nothing();
  return 0;
}
