/* What a trainer on devices has allocated when its first step has ended, as the double counts it, is what its forecast
 * says, to the byte, and what lib/train/memory/ledger.h leaves out: numbers of the step, the token that each link of
 * nccl has, and the scratch of the plugin for sums. Ten further steps and evaluations allocate nothing. */
#include <inttypes.h>

#include "fake/cuda/on_device.h"
#include "support/tensor_trial.h"
#include "support/trainer_trial.h"

enum { STEP_FACTOR_BYTES = 64, AXES = 4, LINK_BYTES = 4, SCRATCH_BYTES = 16, MORE_STEPS = 10, MOST_RANKS = 4 };

typedef struct counted {
  uint64_t device, pinned; /* of this rank's device */
} counted;
typedef struct row {
  const char *transport, *sections, *more; /* more: of [train] */
  int ranks;
  int links;                   /* of nccl, that the trainer makes */
  small_transformer* m;        /* NULL: the exact model */
  uint64_t pinned[MOST_RANKS]; /* that is no offload memory */
  atomic_uint_least64_t offloaded;
} row;

static counted count_of(int rank) {
  typedef uint64_t (*bytes_fn)(int, int);
  const bytes_fn bytes = (bytes_fn)dlsym(cuda.library, "fake_cuda_bytes");
  return (counted){bytes(rank, 0), bytes(rank, 1)};
}

static pthread_barrier_t together;
static int allocations(void) {
  pthread_barrier_wait(&together);
  const int n = CUDA("fake_cuda_allocations", void)();
  pthread_barrier_wait(&together);
  return n;
}

/* ---- what the program says ---- */

/* A word of a line of the program's text that follows this one; NULL: the line has none. */
static const char* after(const char* line, const char* word) {
  const char* at = strstr(line, word);
  return at && at < line + strcspn(line, "\n") ? at + strlen(word) : NULL;
}

/* Parameters of a bucket, or parts, that this rank of the data axis steps. */
static int pieces_of(const char* text, const char* line, int rank, int ranks) {
  enum { MOST = 64 };
  char names[1024], head[128];
  int64_t elems[MOST], all = 0, begin = 0;
  int n = 0, pieces = 0;
  const char* owner = after(line, " owner=");
  if (owner && atoi(owner) != rank) return 0;
  assert_int_equal(sscanf(line, "bucket params=%1023s", names), 1);
  for (char *rest = NULL, *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
    snprintf(head, sizeof head, "\nparam %s ", name);
    const char* at = strstr(text, head);
    assert_true(at && n < MOST);
    all += elems[n++] = atoll(at + strlen(head));
  }
  const int is_sharded = after(line, " shard=") != NULL;
  const int64_t size = is_sharded ? (all + ranks - 1) / ranks : all, from = is_sharded ? rank * size : 0;
  for (int i = 0; i < n; begin += elems[i++]) pieces += begin < from + size && begin + elems[i] > from;
  return pieces;
}

static int axis_of(const char* text, const char* word) {
  const char* size = after(strstr(text, "\nmesh ") + 1, word);
  return size ? atoi(size) : 1;
}

/* What the ledger leaves out. */
static uint64_t bytes_beside(const gsel_program* program, const row* r, int rank) {
  const char* text = gsel_program_text(program).data;
  const int data = axis_of(text, " data="), inner = axis_of(text, " tensor=") * axis_of(text, " context=");
  uint64_t calls = 0, checks = 0;
  int is_optimistic = 0; /* such a step has its numbers in memory of the host */
  for (const char* line = strstr(text, "\nbucket "); line; line = strstr(line + 1, "\nbucket "))
    calls += 1 + (uint64_t)pieces_of(text, line + 1, rank / inner % data, data);
  for (int32_t i = 0; i < gsel_program_length(program); ++i) {
    gsel_instr instr;
    gsel_program_instr(program, i, &instr, NULL);
    is_optimistic |= instr.kind == GSEL_INSTR_POST_VALIDATE;
    checks += instr.kind == GSEL_INSTR_NORM || instr.kind == GSEL_INSTR_OVERFLOW;
  }
  const uint64_t numbers = calls * STEP_FACTOR_BYTES + (2 + checks + AXES + 4) * sizeof(double);
  return (is_optimistic ? 0 : numbers) + (checks ? SCRATCH_BYTES : 0) + (uint64_t)r->links * LINK_BYTES;
}

/* ---- a trainer ---- */

static void read_forecast(rank_run* run, gsel_trainer* trainer, counted* out) {
  for (int32_t i = 0; i < gsel_trainer_memory_count(trainer); ++i) {
    gsel_memory_part part = GSEL_MEMORY_PART_INIT;
    rank_check(run, gsel_trainer_memory(trainer, i, &part, NULL) == GSEL_OK);
    if (part.forecast_bytes != part.peak_bytes)
      snprintf(run->failure, sizeof run->failure, "%s: forecast %llu, peak %llu", part.name,
               (unsigned long long)part.forecast_bytes, (unsigned long long)part.peak_bytes);
    *(part.offloaded ? &out->pinned : &out->device) += part.forecast_bytes;
  }
}

static void step_and_count(rank_run* run, session* s, row* r, counted before) {
  gsel_error* err = NULL;
  counted forecast = {0, 0};
  rank_ok(run, gsel_trainer_step(s->trainer, NULL, &err), err);
  const counted now = count_of(run->rank);
  read_forecast(run, s->trainer, &forecast);
  const uint64_t beside = bytes_beside(gsel_trainer_program(s->trainer), r, run->rank);
  if (!run->failure[0] && now.device - before.device != forecast.device + beside)
    snprintf(run->failure, sizeof run->failure,
             "rank %d has %" PRIu64 " bytes; forecast %" PRIu64 ", beside it %" PRIu64, (int)run->rank,
             now.device - before.device, forecast.device, beside);
  r->pinned[run->rank] = now.pinned - before.pinned - forecast.pinned;
  r->offloaded += forecast.pinned;
  const int n = allocations();
  for (int i = 0; i < MORE_STEPS; ++i) {
    rank_ok(run, gsel_trainer_step(s->trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_evaluate(s->trainer, 1000 + i, NULL, NULL, NULL, &err), err);
  }
  const int more = allocations() - n;
  if (more) snprintf(run->failure, sizeof run->failure, "%d allocations in later steps and evaluations", more);
}

static void open_and_count(rank_run* run) {
  row* r = (row*)run->user;
  char config[2048];
  session s;
  gsel_error* err = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  memset(&s, 0, sizeof s);
  s.m.fail_at_step = s.m.overflow_at_step = -1;
  snprintf(config, sizeof config,
           "%s"
           "[train]\nbatch = 8\nseed = 5\nlearning_rate = 0.5\nweight_decay = 0.0\n%s",
           r->sections, r->more);
  rank_ok(run, rank_join(run, &s.comm, &err), err);
  const counted before = count_of(run->rank);
  rank_ok(run, gsel_config_parse(gsel_str_from(config), gsel_str_from("trial.toml"), &s.config, &err), err);
  rank_ok(run, gsel_model_create(&s.model, &err), err);
  if (r->m) {
    s.transformer = (small_transformer*)malloc(sizeof *s.transformer);
    *s.transformer = *r->m;
    s.transformer->rank = run->rank;
  }
  rank_ok(run, r->m ? tm_describe(s.model, s.transformer, &err) : exact_describe(s.model, &s.m, &err), err);
  options.config = s.config;
  options.data = session_data(&s);
  rank_ok(run, gsel_trainer_create(s.comm, s.model, &options, &s.trainer, &err), err);
  step_and_count(run, &s, r, before);
  close_session(&s);
}

static void try_row(row* r) {
  print_message("  %d ranks over %s: %s%s\n", r->ranks, r->transport, r->sections, r->more);
  on_transport = r->transport;
  pthread_barrier_init(&together, NULL, (unsigned)r->ranks);
  as_threads(r->ranks, open_and_count, r);
  pthread_barrier_destroy(&together);
  on_transport = NULL;
  no_violations();
}
static void expect(int ranks, int links, const char* sections, const char* more, small_transformer* m) {
  row r = {.transport = "nccl", .sections = sections, .more = more, .ranks = ranks, .links = links, .m = m};
  try_row(&r);
}

/* ---- rows ---- */

#define SIGN "optimizer = \"sign_sgd\"\n"
static const char* const kMores[] = {SIGN, SIGN "microbatches = 2\nclip_norm = 1.0\n",
                                     SIGN "precision = \"bf16\"\nmicrobatches = 2\nrecompute = \"all\"\n",
                                     "optimizer = \"adamw\"\nprecision = \"fp16\"\n",
                                     "optimizer = \"adamw_8bit\"\nprecision = \"bf16\"\n"};
enum { N_MORES = sizeof kMores / sizeof *kMores };

static void of_one_rank(void** state) {
  (void)state;
  for (int i = 0; i < N_MORES; ++i) expect(1, 0, "", kMores[i], NULL);
}

static void on_the_data_axis(void** state) {
  (void)state;
  static const char* const rows[] = {DP(""),        DDP("bucket_bytes = 100\n"), ZERO("1", ""),
                                     ZERO("2", ""), ZERO("3", ALL_SHARDED),      ZERO("3", "persist_elems = 13\n")};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    for (size_t k = i; k < i + 2; ++k) expect(2, 0, rows[i], kMores[k % N_MORES], NULL);
}

/* What is offloaded is page-locked, beside the numbers that are there without it. */
static void of_what_is_offloaded(void** state) {
  (void)state;
  static const char* const rows[][2] = {{ZERO("1", ""), ZERO("1", "offload = \"state\"\n")},
                                        {ZERO("3", ALL_SHARDED), ZERO("3", ALL_SHARDED "offload = \"state\"\n")},
                                        {ZERO("3", ALL_SHARDED), ZERO("3", ALL_SHARDED "offload = \"all\"\n")}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    row plain = {.transport = "nccl", .sections = rows[i][0], .more = kMores[3 + i % 2], .ranks = 2};
    row far = plain;
    far.sections = rows[i][1];
    try_row(&plain);
    try_row(&far);
    assert_true(plain.offloaded == 0 && far.offloaded > 0);
    for (int rank = 0; rank < 2; ++rank) assert_int_equal(plain.pinned[rank], far.pinned[rank]);
  }
}

static void in_pipelines(void** state) {
  static const char* const schedules[] = {"1f1b", "gpipe", "zb-h1", "zb-h2", "zb-v", "interleaved-1f1b"};
  char sections[512];
  (void)state;
  for (size_t i = 0; i < sizeof schedules / sizeof *schedules; ++i) {
    const int n =
        snprintf(sections, sizeof sections,
                 "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\nschedule = \"%s\"\n", schedules[i]);
    expect(2, 0, sections, SIGN "microbatches = 4\nclip_norm = 1.0\n", NULL);
    if (i % 4) continue;
    snprintf(sections + n, sizeof sections - (size_t)n, "%s", ZERO("1", ""));
    expect(4, 2, sections, "optimizer = \"adamw\"\nmicrobatches = 4\n", NULL);
  }
}

static void on_axes_that_divide_layers(void** state) {
  static const char* const rows[] = {
      "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\n",
      "[mesh]\ntensor = 2\n[strategy.tensor]\nplugin = \"tp\"\nsequence_parallel = true\n",
      "[mesh]\ncontext = 2\n[strategy.context]\nplugin = \"cp\"\n"};
  small_transformer* m = (small_transformer*)calloc(1, sizeof *m); /* large */
  char sections[512];
  (void)state;
  m->overflow_at_step = m->fail_at_step = -1;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    expect(2, 0, rows[i], SIGN "microbatches = 2\n", m);
    if (i == 1) continue;
    snprintf(sections, sizeof sections, "%s%s", rows[i], ZERO("3", ALL_SHARDED));
    expect(4, 2, sections, "optimizer = \"adamw\"\nmicrobatches = 2\n", m);
  }
  free(m);
}

static void through_host_memory(void** state) {
  static const char* const rows[] = {DDP("bucket_bytes = 100\n"), ZERO("3", ALL_SHARDED)};
  (void)state;
  for (int i = 0; i < 2; ++i) {
    row r = {.transport = "host", .sections = rows[i], .more = SIGN "microbatches = 2\n", .ranks = 2};
    try_row(&r);
  }
}

static void with_compression(void** state) {
  (void)state;
  expect(2, 0, DDP("compress = \"f16\"\n"), SIGN, NULL);
  expect(2, 0, DDP("compress = \"low_rank\"\ncompress_rank = 1\ncompress_start = 2\n"), SIGN, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_one_rank),
      cmocka_unit_test(on_the_data_axis),
      cmocka_unit_test(of_what_is_offloaded),
      cmocka_unit_test(in_pipelines),
      cmocka_unit_test(on_axes_that_divide_layers),
      cmocka_unit_test(with_compression),
      cmocka_unit_test(through_host_memory),
  };
  return cmocka_run_group_tests_name("train_memory", tests, NULL, NULL);
}
