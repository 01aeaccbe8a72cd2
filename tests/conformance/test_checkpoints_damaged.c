/* Checkpoints whose bytes have changed on the disk: a flipped bit is found under any layout, before the trainer is
 * changed where no rank reads its block as a whole; an older checkpoint is loaded instead; training goes on, and saves
 * the same step again. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/checkpoint_trial.h"
#include "support/layouts.h"
#include "support/scratch.h"
#include "support/share.h"

static char folder[256];

static const char* in_folder(const char* name) {
  static _Thread_local char path[400];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* Steps 1 and 2 of two ranks of a layout, each saved. */
static void saves_twice(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < 2; ++i) {
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
    rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(in_folder("run")), NULL, NULL, &err), err);
  }
  close_session(&s);
}

static void begin_anew(void) {
  if (remove_scratch(folder)) fail();
  BY_FIRST_PROCESS(assert_int_equal(mkdir(folder, 0700), 0));
}

static void save_twice(const struct layout* layout) {
  trial t = plain(config_of(layout, ""), NULL);
  begin_anew();
  as_processes(layout->ranks, saves_twice, &t);
}

struct damaged {
  trial t;
  const char* path; /* that is loaded */
  bool in_parts;    /* no rank reads a file as a whole */
};

/* The checkpoint of step 2 is damaged, and given by its path; then that of step 1. */
static void refuses_the_damaged_one(rank_run* run) {
  const struct damaged* what = (const struct damaged*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  float before[EXACT_ELEMS], after[EXACT_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  read_params(run, s.trainer, before);
  const gsel_status status =
      gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run/step-000000000002")), NULL, &err);
  if (status != GSEL_ERR_PARSE) rank_fails(run, status, err, GSEL_ERR_PEER, "the sum is", -2);
  if (status == GSEL_ERR_PARSE) gsel_error_free(err);
  err = NULL;
  if (what->in_parts) {
    read_params(run, s.trainer, after);
    same_params(run, after, before, EXACT_ELEMS);
    rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  } else {
    rank_fails(run, gsel_trainer_step(s.trainer, NULL, &err), err, GSEL_ERR_STATE, "load a whole checkpoint", -1);
    err = NULL;
    rank_fails(run, gsel_trainer_save(s.trainer, gsel_str_from(in_folder("other")), NULL, NULL, &err), err,
               GSEL_ERR_STATE, "load a whole checkpoint", -1);
    err = NULL;
    rank_fails(run, gsel_trainer_read_param(s.trainer, 0, after, sizeof(float) * 32, &err), err, GSEL_ERR_STATE,
               "load a whole checkpoint", -1);
    err = NULL;
  }
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run/step-000000000001")), &report, &err), err);
  rank_check(run, report.step == 1 && report.bytes == report.needed_bytes);
  for (int i = 1; i < STEPS; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, step.step == i);
    rank_check(run, memcmp(&step.loss_sum, &what->t.expected->loss[i], sizeof step.loss_sum) == 0);
  }
  read_params(run, s.trainer, after);
  same_params(run, after, what->t.expected->params, EXACT_ELEMS);
  close_session(&s);
}

static outcome* trained_alone(void) {
  outcome* out = shared_outcomes();
  trial t = plain(config_of(&kLayouts[0], ""), out);
  as_threads(1, train, &t);
  return out;
}

/* One rank reads all files as a whole; of the others none does. */
static void a_flipped_bit_is_found_under_any_layout(void** state) {
  (void)state;
  outcome* expected = trained_alone();
  const int saved[] = {7, 2}, loaded[] = {0, 8, 6, 11}; /* in kLayouts */
  for (size_t i = 0; i < sizeof saved / sizeof saved[0]; ++i)
    for (size_t j = 0; j < sizeof loaded / sizeof loaded[0]; ++j) {
      const struct layout* by = &kLayouts[loaded[j]];
      save_twice(&kLayouts[saved[i]]);
      BY_FIRST_PROCESS(flip_bit(in_folder("run/step-000000000002/rank-00001.safetensors"), 1));
      char config[1024];
      snprintf(config, sizeof config, "%s", config_of(by, ""));
      struct damaged what = {plain(config, NULL), NULL, loaded[j] != 0};
      what.t.expected = expected;
      as_threads(by->ranks, refuses_the_damaged_one, &what);
    }
  free_outcomes(expected);
}

/* Given the folder, the older one is loaded; the step that is damaged is saved again. */
static void takes_the_older_one(rank_run* run) {
  const struct damaged* what = (const struct damaged*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run")), &report, &err), err);
  rank_check(run, report.step == 1);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(in_folder("run")), NULL, NULL, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run")), &report, &err), err);
  rank_check(run, report.step == 2);
  for (int i = 2; i < STEPS; ++i) rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  float params[EXACT_ELEMS];
  read_params(run, s.trainer, params);
  same_params(run, params, what->t.expected->params, EXACT_ELEMS);
  close_session(&s);
}

static void an_older_checkpoint_is_taken(void** state) {
  (void)state;
  outcome* expected = trained_alone();
  const char* const files[] = {"index.json", "manifest.json", "rank-00000.safetensors", "rank-00001.safetensors"};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i)
    for (int whole = 0; whole < 2; ++whole) {
      const struct layout* by = &kLayouts[whole ? 2 : 8]; /* each rank reads all, or a part */
      char config[1024], path[100];
      save_twice(&kLayouts[7]);
      snprintf(path, sizeof path, "run/step-000000000002/%s", files[i]);
      BY_FIRST_PROCESS(flip_bit(in_folder(path), 40));
      snprintf(config, sizeof config, "%s", config_of(by, ""));
      struct damaged what = {plain(config, NULL), NULL, false};
      what.t.expected = expected;
      as_threads(by->ranks, takes_the_older_one, &what);
    }
  free_outcomes(expected);
}

/* The only one there is. */
static void has_no_older_one(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  const gsel_status status = gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run")), NULL, &err);
  rank_check(run, status == GSEL_ERR_PARSE || status == GSEL_ERR_PEER);
  char text[800] = "";
  gsel_error_format(err, text, sizeof text);
  rank_check(run, strstr(text, "step-000000000002") && strstr(text, "the sum is"));
  gsel_error_free(err);
  close_session(&s);
}

static void the_error_is_that_of_the_newest_where_there_is_no_other(void** state) {
  (void)state;
  save_twice(&kLayouts[7]);
  assert_int_equal(remove_scratch(in_folder("run/step-000000000001")), 0);
  BY_FIRST_PROCESS(flip_bit(in_folder("run/step-000000000002/rank-00001.safetensors"), 1));
  trial t = plain(config_of(&kLayouts[8], ""), NULL);
  as_threads(3, has_no_older_one, &t);
}

/* ---- states in 8 bits, whose values have a common scale in each block ---- */

#define EIGHT_BITS "[train]\noptimizer = \"adamw_8bit\"\nlearning_rate = 0.01\nbatch = 9\nseed = 5\n"
static const char* const kEightBits[] = {EIGHT_BITS, DDP("") EIGHT_BITS, ZERO("1", "") EIGHT_BITS};
static const int kEightBitRanks[] = {1, 2, 2};

static void is_told_as_damage(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  rank_ok(run, open_session(run, &s, &err), err);
  const gsel_status status =
      gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run/step-000000000002")), NULL, &err);
  if (status != GSEL_ERR_PARSE) rank_fails(run, status, err, GSEL_ERR_PEER, "the sum is", -2);
  if (status == GSEL_ERR_PARSE) gsel_error_free(err);
  err = NULL;
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(in_folder("run")), &report, &err), err);
  rank_check(run, report.step == 1);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  close_session(&s);
}

static void a_bit_of_a_state_in_8_bits_is_told_as_damage(void** state) {
  (void)state;
  for (int saved = 0; saved < 2; ++saved) {
    trial saves = plain(kEightBits[saved], NULL);
    begin_anew();
    as_processes(kEightBitRanks[saved], saves_twice, &saves);
    char file[400];
    snprintf(file, sizeof file, "%s", in_folder("run/step-000000000002/rank-00000.safetensors"));
    for (int loaded = 0; loaded < 3; ++loaded)
      for (off_t from_end = 2; from_end < 1200; from_end += 163) {
        trial loads = plain(kEightBits[loaded], NULL);
        BY_FIRST_PROCESS(flip_bit(file, from_end));
        as_threads(kEightBitRanks[loaded], is_told_as_damage, &loads);
        BY_FIRST_PROCESS(flip_bit(file, from_end));
      }
  }
}

/* ---- many files ---- */

enum { FILES = 200, MOST_OPEN = 100 };

static void loads_all(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(in_folder("many")), NULL, &err), err);
  close_session(&s);
}

static void more_files_than_a_process_may_open(void** state) {
  (void)state;
  gsel_checkpoint* checkpoint = NULL;
  gsel_error* err = NULL;
  save_twice(&kLayouts[0]);
  check_ok(gsel_checkpoint_open(gsel_str_from(in_folder("run")), &checkpoint, &err), err);
  BY_FIRST_PROCESS(
      check_ok(gsel_checkpoint_reshard(checkpoint, gsel_str_from(in_folder("many")), FILES, NULL, &err), err));
  gsel_checkpoint_free(checkpoint);
  struct rlimit before, few;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  few = before;
  few.rlim_cur = MOST_OPEN;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  trial t = plain(config_of(&kLayouts[0], ""), NULL);
  as_threads(1, loads_all, &t);
  check_ok(gsel_checkpoint_open(gsel_str_from(in_folder("many")), &checkpoint, &err), err);
  check_ok(gsel_checkpoint_verify(checkpoint, NULL, &err), err);
  gsel_checkpoint_free(checkpoint);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "damaged") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_flipped_bit_is_found_under_any_layout),
      cmocka_unit_test(an_older_checkpoint_is_taken),
      cmocka_unit_test(the_error_is_that_of_the_newest_where_there_is_no_other),
      cmocka_unit_test(a_bit_of_a_state_in_8_bits_is_told_as_damage),
      cmocka_unit_test(more_files_than_a_process_may_open),
  };
  return cmocka_run_group_tests_name("damaged checkpoints", tests, begin, end);
}
