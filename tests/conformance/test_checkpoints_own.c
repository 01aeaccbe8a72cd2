/* Checkpoints of states that depend on the layout: in 8 bits, whose blocks ranks divide, and what compression has left
 * over on each rank. Under the layout that saved, training goes on to the same bits. Another one has the same values,
 * or says why it cannot have them before anything is changed. */
#include <sys/stat.h>
#include <unistd.h>

#include "support/scratch.h"
#include "support/trainer_trial.h"

enum { BEFORE = 2 };

#define BYTES "[train]\noptimizer = \"adamw_8bit\"\nlearning_rate = 0.01\nbatch = 9\nseed = 5\n"
#define LOW_RANK DDP("compress = \"low_rank\"\ncompress_rank = 1\ncompress_start = 1\n")

struct layout {
  const char *name, *text;
  int ranks, in_bytes;
};
static const struct layout kLayouts[] = {
    {"8 bits, one rank", BYTES, 1, 1},
    {"8 bits, ddp", DDP("") BYTES, 2, 1},
    {"8 bits, zero 1", ZERO("1", "") BYTES, 2, 1},
    {"8 bits, zero 2, offload", ZERO("2", "offload = \"state\"\n") BYTES, 3, 1},
    {"8 bits, zero 3", ZERO("3", ALL_SHARDED) BYTES "precision = \"bf16\"\n", 3, 1},
    {"ddp, bf16", DDP("compress = \"bf16\"\n") SGD("0.01", "9", ""), 2, 0},
    {"ddp, f16", DDP("compress = \"f16\"\n") SGD("0.01", "9", "momentum = 0.5\n"), 3, 0},
    {"low rank", LOW_RANK SGD("0.01", "9", ""), 3, 0},
    {"low rank, a bucket per parameter",
     DDP("bucket_bytes = 1\nfirst_bucket_bytes = 1\ncompress = \"low_rank\"\ncompress_rank = 1\ncompress_start = 0\n")
         SGD("0.01", "9", ""),
     2, 0},
    {"low rank, clipped", LOW_RANK SGD("0.01", "9", "momentum = 0.5\nclip_norm = 0.5\n"), 2, 0},
};
enum { N_LAYOUTS = sizeof kLayouts / sizeof kLayouts[0], ONE = 0, ZERO_1 = 2, BF16 = 5, LOW_RANK_OF_3 = 7 };

struct going_on {
  trial t;
  const char *from, *to; /* folders; NULL: neither loads nor saves */
  const char* refusal;   /* of the load, on the rank that finds it */
};

static char folder[64];

static const char* path_of(const char* name) {
  static char paths[4][128];
  static int next;
  char* path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "checkpoints") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

static void save_after_some_steps(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->to), NULL, NULL, &err), err);
  close_session(&s);
}

/* Steps before the load change everything that it has to replace. */
static void load_and_go_on(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  const outcome* expected = what->t.expected ? &what->t.expected[run->rank] : NULL;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  float params[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i <= BEFORE; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(what->from), &report, &err), err);
  rank_check(run, report.step == BEFORE && report.bytes == report.needed_bytes);
  if (what->to) rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->to), NULL, NULL, &err), err);
  for (int i = BEFORE; i < STEPS && !run->failure[0]; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, step.step == i);
    if (expected) rank_check(run, memcmp(&step.loss_sum, &expected->loss[i], sizeof step.loss_sum) == 0);
  }
  read_params(run, s.trainer, params);
  if (expected) same_params(run, params, expected->params, EXACT_ELEMS);
  close_session(&s);
}

static struct going_on going(const struct layout* layout, outcome* out) {
  struct going_on what;
  memset(&what, 0, sizeof what);
  what.t = plain(layout->text, out);
  what.t.random = 1;
  return what;
}

static void saved(const struct layout* layout, const char* path) {
  struct going_on what = going(layout, NULL);
  what.to = path;
  as_threads(layout->ranks, save_after_some_steps, &what);
}

static void the_layout_that_saved_goes_on_to_the_same_bits(void** state) {
  (void)state;
  for (const struct layout* layout = kLayouts; layout < kLayouts + N_LAYOUTS; ++layout) {
    print_message("  %s\n", layout->name);
    outcome* out = shared_outcomes();
    struct going_on what = going(layout, out);
    as_threads(layout->ranks, train, &what.t);
    char name[32];
    snprintf(name, sizeof name, "same-%d", (int)(layout - kLayouts));
    saved(layout, path_of(name));
    what.from = path_of(name);
    what.t.expected = out;
    as_threads(layout->ranks, load_and_go_on, &what);
    free_outcomes(out);
  }
}

/* A rank that has a part of a block takes the block's scale for it. */
static void bytes_keep_their_values_where_ranks_divide_them(void** state) {
  (void)state;
  gsel_error* err = NULL;
  saved(&kLayouts[ONE], path_of("whole"));
  for (const struct layout* layout = kLayouts; layout < kLayouts + N_LAYOUTS && layout->in_bytes; ++layout) {
    print_message("  %s\n", layout->name);
    char name[32];
    snprintf(name, sizeof name, "again-%d", (int)(layout - kLayouts));
    struct going_on what = going(layout, NULL);
    what.from = path_of("whole"), what.to = path_of(name);
    as_threads(layout->ranks, load_and_go_on, &what);
    gsel_checkpoint *whole = NULL, *again = NULL;
    gsel_checkpoint_differences* differences = NULL;
    check_ok(gsel_checkpoint_open(gsel_str_from(path_of("whole")), &whole, &err), err);
    check_ok(gsel_checkpoint_open(gsel_str_from(path_of(name)), &again, &err), err);
    check_ok(gsel_checkpoint_diff(whole, again, NULL, &differences, &err), err);
    assert_int_equal(gsel_checkpoint_difference_count(differences), 0);
    gsel_checkpoint_differences_free(differences);
    gsel_checkpoint_free(again);
    gsel_checkpoint_free(whole);
  }
}

static void is_refused(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  float before[EXACT_ELEMS], after[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  read_params(run, s.trainer, before);
  const gsel_status status = gsel_trainer_load(s.trainer, gsel_str_from(what->from), NULL, &err);
  char text[1024] = "";
  if (status) gsel_error_format(err, text, sizeof text);
  rank_check(run, status == GSEL_ERR_MISMATCH && strstr(text, what->refusal));
  gsel_error_free(err);
  err = NULL;
  read_params(run, s.trainer, after);
  rank_check(run, memcmp(before, after, sizeof before) == 0);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void what_another_layout_cannot_hold_is_refused_before_it_changes(void** state) {
  (void)state;
  saved(&kLayouts[ZERO_1], path_of("divided"));
  struct going_on what = going(&kLayouts[ONE], NULL);
  what.from = path_of("divided");
  what.refusal = "the ranks that saved had divided this block of 8-bit states";
  as_threads(1, is_refused, &what);
  saved(&kLayouts[LOW_RANK_OF_3], path_of("of-three"));
  what = going(&kLayouts[LOW_RANK_OF_3], NULL);
  what.from = path_of("of-three");
  what.refusal = "is what compression has left over on each of 3 ranks in it, and there are 2 now";
  as_threads(2, is_refused, &what);
}

static void state_by_name(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_state* names = NULL;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  if (what->refusal)
    rank_fails(run, gsel_state_open(s.trainer, &names, &err), err, GSEL_ERR_UNSUPPORTED, what->refusal, -2);
  else
    rank_ok(run, gsel_state_open(s.trainer, &names, &err), err);
  gsel_state_free(names);
  close_session(&s);
}

static void programs_see_states_that_have_no_layout(void** state) {
  (void)state;
  static const struct {
    int layout;
    const char* refusal;
  } rows[] = {{ONE, "keeps states in 8 bits"}, {BF16, NULL}, {LOW_RANK_OF_3, "compressed in low rank"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    struct going_on what = going(&kLayouts[rows[i].layout], NULL);
    what.refusal = rows[i].refusal;
    as_threads(kLayouts[rows[i].layout].ranks, state_by_name, &what);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_layout_that_saved_goes_on_to_the_same_bits),
      cmocka_unit_test(bytes_keep_their_values_where_ranks_divide_them),
      cmocka_unit_test(what_another_layout_cannot_hold_is_refused_before_it_changes),
      cmocka_unit_test(programs_see_states_that_have_no_layout),
  };
  return cmocka_run_group_tests_name("checkpoints of states that depend on the layout", tests, begin, end);
}
