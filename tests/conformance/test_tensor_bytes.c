/* What a tensor axis sends and keeps, to the byte: counters of the executor and of memory against closed forms
 * (docs/tensor.md), written down from the description of support/small_transformer.h, on numbers of ranks that divide
 * its columns, heads and positions and on numbers that do not. Bytes are summed over the ranks of the axis, where an
 * all-reduce of X bytes is 2 (n-1) X, a reduce-scatter or an all-gather (n-1) X. */
#include "support/tensor_trial.h"

enum { SAMPLES = 6, COUNTED_STEPS = 2 };
enum way { BY_PARAMETERS, BY_PARAMETERS_AND_POSITIONS, BY_POSITIONS, WAYS };
static const char* const kWays[WAYS] = {"plugin = \"tp\"\n", "plugin = \"tp\"\nsequence_parallel = true\n",
                                        "plugin = \"cp\"\n"};
static const gsel_axis kAxes[WAYS] = {GSEL_AXIS_TENSOR, GSEL_AXIS_TENSOR, GSEL_AXIS_CONTEXT};

static uint64_t part_of(uint64_t units, int n, int coordinate) {
  const gsel_range r = gsel_shard_range((int64_t)units, n, coordinate);
  return (uint64_t)(r.end - r.begin);
}

/* Bytes of a value's columns, of all samples of a step. */
static uint64_t value_bytes(uint64_t columns) {
  return SAMPLES * TM_T * columns * sizeof(float);
}

struct traffic {
  uint64_t bytes, calls;
};
static void all_reduce(struct traffic* t, uint64_t n, uint64_t bytes, uint64_t calls) {
  t->bytes += 2 * (n - 1) * bytes;
  t->calls += calls;
}
/* Reduce-scatter, or all-gather. */
static void half(struct traffic* t, uint64_t n, uint64_t bytes, uint64_t calls) {
  t->bytes += (n - 1) * bytes;
  t->calls += calls;
}
/* All-to-all between positions and heads: all but what each rank has of both. */
static void exchange(struct traffic* t, int n, uint64_t columns, uint64_t heads, uint64_t calls) {
  uint64_t kept = 0;
  for (int r = 0; r < n; ++r) kept += part_of(TM_T, n, r) * part_of(heads, n, r);
  t->bytes += SAMPLES * (TM_T * heads - kept) * (columns / heads) * sizeof(float);
  t->calls += calls;
}

enum { FORWARD, BACKWARD, PARTIAL, LOSS, N_KINDS };
static const gsel_instr_kind kKinds[N_KINDS] = {GSEL_FORWARD, GSEL_BACKWARD_INPUT, GSEL_INSTR_ALLREDUCE_PARTIAL,
                                                GSEL_INSTR_LOSS_ALLREDUCE};

static void expected_traffic(enum way way, int n, uint64_t m, struct traffic* t) {
  const uint64_t u = (uint64_t)n, X = value_bytes(TM_W), one = value_bytes(1);
  const uint64_t rel = TM_T, by_position = TM_T * TM_W + 3 * TM_W + rel; /* position, scale, shift, bo, rel */
  const uint64_t kv = 2 * TM_KV * TM_D;
  const int few = n > TM_KV;
  memset(t, 0, sizeof *t * N_KINDS);
  if (way == BY_POSITIONS) {
    for (int direction = FORWARD; direction <= BACKWARD; ++direction) {
      exchange(&t[direction], n, TM_HEADS * TM_D, TM_HEADS, m); /* queries */
      exchange(&t[direction], n, TM_HEADS * TM_D, TM_HEADS, m); /* what attention leaves */
      if (few)
        half(&t[direction], u, value_bytes(kv), m);
      else
        exchange(&t[direction], n, kv, TM_KV, m);
    }
    all_reduce(&t[PARTIAL], u, TM_ELEMS * sizeof(float), 1);
    all_reduce(&t[LOSS], u, 2 * sizeof(double), 1);
    return;
  }
  for (int direction = FORWARD; direction <= BACKWARD; ++direction)
    if (way == BY_PARAMETERS)
      all_reduce(&t[direction], u, 3 * X, 3 * m); /* e, o, y; gradients of n, r, z */
    else
      half(&t[direction], u, 6 * X, 6 * m);
  all_reduce(&t[FORWARD], u, 4 * one, 3 * m); /* share; the two of the loss, one with a pair for each position */
  all_reduce(&t[BACKWARD], u, one, m);
  if (few) all_reduce(&t[BACKWARD], u, value_bytes(kv), m);
  if (few && way == BY_PARAMETERS_AND_POSITIONS) half(&t[FORWARD], u, X, m); /* keys read n as all do */
  all_reduce(&t[PARTIAL], u, (way == BY_PARAMETERS ? rel : by_position) * sizeof(float), 1);
}

static void bytes_sent_are_those_of_the_closed_forms(void** state) {
  (void)state;
  tensor_outcome* out = tensor_outcomes();
  for (int way = 0; way < WAYS; ++way)
    for (int n = 2; n <= 4; ++n)
      for (int m = 1; m <= 3; m += 2) {
        char config[512];
        struct traffic expected[N_KINDS];
        snprintf(config, sizeof config, "[mesh]\n%s = %d\n[strategy.%s]\n%s" TENSOR_TRAIN, gsel_axis_name(kAxes[way]),
                 n, gsel_axis_name(kAxes[way]), kWays[way], SAMPLES, m);
        tensor_trial t = tensor_trial_of(config, out);
        t.steps = COUNTED_STEPS;
        print_message("  %d ranks, %d micro-batches, %s", n, m, kWays[way]);
        as_threads(n, train_tensor, &t);
        expected_traffic((enum way)way, n, (uint64_t)m, expected);
        for (int k = 0; k < N_KINDS; ++k) {
          uint64_t bytes = 0;
          for (int r = 0; r < n; ++r) {
            bytes += out[r].counts[kKinds[k]][kAxes[way]].bytes_sent;
            const uint64_t calls = out[r].counts[kKinds[k]][kAxes[way]].calls;
            if (calls != COUNTED_STEPS * expected[k].calls)
              fail_msg("instruction %d: rank %d counted %llu calls, %llu expected", (int)kKinds[k], r,
                       (unsigned long long)calls, (unsigned long long)(COUNTED_STEPS * expected[k].calls));
          }
          if (bytes != COUNTED_STEPS * expected[k].bytes)
            fail_msg("instruction %d: %llu bytes were counted, %llu expected", (int)kKinds[k],
                     (unsigned long long)bytes, (unsigned long long)(COUNTED_STEPS * expected[k].bytes));
        }
      }
  free_tensor_outcomes(out);
}

/* ---- memory ---- */

static uint64_t elems_here(enum way way, int n, int coordinate) {
  uint64_t elems = 0;
  for (int p = 0; p < TM_PARAMS; ++p) {
    const struct tm_param* param = &kTmParams[p];
    uint64_t here = (uint64_t)tm_elems(p);
    if (way != BY_POSITIONS && param->shard_dim >= 0) {
      const uint64_t units = (uint64_t)(param->dims[param->shard_dim] / param->blocks / param->unit);
      if (units >= (uint64_t)n) here = here / units * part_of(units, n, coordinate);
    }
    elems += here;
  }
  return elems;
}

struct memory_check {
  tensor_trial trial;
  enum way way;
};

static void check_memory(rank_run* run) {
  const struct memory_check* check = (const struct memory_check*)run->user;
  rank_run mine = *run;
  mine.user = (void*)(uintptr_t)&check->trial;
  tensor_session s;
  gsel_error* err = NULL;
  rank_ok(run, open_tensor(&mine, &s, &err), err);
  for (int i = 0; i < 2; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  const uint64_t elems = elems_here(check->way, run->world_size, run->rank);
  const struct {
    const char* name;
    uint64_t bytes;
  } parts[] = {{"parameters", 4 * elems}, {"gradients", 4 * elems}, {"optimizer state", 8 * elems}};
  gsel_memory_part part = GSEL_MEMORY_PART_INIT;
  int found = 0;
  for (int i = 0; !gsel_trainer_memory(s.trainer, i, &part, NULL); ++i)
    for (int p = 0; p < 3; ++p) {
      if (strcmp(part.name, parts[p].name)) continue;
      ++found;
      if (part.peak_bytes == parts[p].bytes && part.forecast_bytes == parts[p].bytes) continue;
      snprintf(run->failure, sizeof run->failure, "rank %d of %d has %llu bytes of %s, expected %llu", (int)run->rank,
               (int)run->world_size, (unsigned long long)part.peak_bytes, part.name,
               (unsigned long long)parts[p].bytes);
    }
  close_tensor(&s);
  if (!run->failure[0]) rank_check(run, found == 3);
}

static void memory_of_model_states_is_that_of_the_parts(void** state) {
  (void)state;
  for (int way = 0; way < WAYS; ++way)
    for (int n = 2; n <= 4; ++n) {
      char config[512];
      snprintf(config, sizeof config, "[mesh]\n%s = %d\n[strategy.%s]\n%s[train]\nbatch = %d\n",
               gsel_axis_name(kAxes[way]), n, gsel_axis_name(kAxes[way]), kWays[way], SAMPLES);
      struct memory_check check = {tensor_trial_of(config, NULL), (enum way)way};
      print_message("  %d ranks, %s", n, kWays[way]);
      as_threads(n, check_memory, &check);
    }
}

/* ---- the files that docs/tensor.md shows ---- */

static const char* const kShown[] = {"tp", "tp-sp"}; /* by way */

static void compare_text(rank_run* run, const char* name, gsel_str text) {
  char path[512];
  snprintf(path, sizeof path, "%s/programs/%s.%d", getenv("GSEL_TEST_DATA"), name, (int)run->rank);
  if (getenv("GSEL_TEST_UPDATE")) {
    FILE* file = fopen(path, "w");
    rank_check(run, file && fwrite(text.data, 1, text.len, file) == text.len && !fclose(file));
    return;
  }
  char* shown = (char*)calloc(1, text.len + 2);
  FILE* file = fopen(path, "r");
  const size_t n = file ? fread(shown, 1, text.len + 1, file) : 0;
  if (file) fclose(file);
  if (n != text.len || memcmp(shown, text.data, n))
    snprintf(run->failure, sizeof run->failure,
             "%.300s differs from what is compiled; GSEL_TEST_UPDATE=1 writes it anew", path);
  free(shown);
}

static void show_program(rank_run* run) {
  const struct memory_check* check = (const struct memory_check*)run->user;
  rank_run mine = *run;
  mine.user = (void*)(uintptr_t)&check->trial;
  tensor_session s;
  gsel_error* err = NULL;
  rank_ok(run, open_tensor(&mine, &s, &err), err);
  compare_text(run, kShown[check->way], gsel_program_text(gsel_trainer_program(s.trainer)));
  close_tensor(&s);
}

static void documented_programs_are_those_that_are_compiled(void** state) {
  (void)state;
  for (int way = 0; way < BY_POSITIONS; ++way) {
    char config[512];
    snprintf(config, sizeof config, "[mesh]\n%s = 2\n[strategy.%s]\n%s[train]\nbatch = 4\n", gsel_axis_name(kAxes[way]),
             gsel_axis_name(kAxes[way]), kWays[way]);
    struct memory_check check = {tensor_trial_of(config, NULL), (enum way)way};
    as_threads(2, show_program, &check);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_sent_are_those_of_the_closed_forms),
      cmocka_unit_test(memory_of_model_states_is_that_of_the_parts),
      cmocka_unit_test(documented_programs_are_those_that_are_compiled),
  };
  return cmocka_run_group_tests_name("tensor_bytes", tests, NULL, NULL);
}
