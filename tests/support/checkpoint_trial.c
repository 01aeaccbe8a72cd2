/* See checkpoint_trial.h. */
#include "support/checkpoint_trial.h"

#include <fcntl.h>
#include <unistd.h>

struct ending* shared_ending(void) {
  return (struct ending*)shared_memory(sizeof(struct ending));
}
void free_ending(struct ending* ending) {
  munmap(ending, sizeof *ending);
}

static void take_step(rank_run* run, session* s, const struct going_on* what, int i, gsel_step_report* report) {
  gsel_error* err = NULL;
  if (what->before_step) what->before_step(run, s, i);
  if (run->failure[0]) return;
  rank_ok(run, gsel_trainer_step(s->trainer, report, &err), err);
  rank_check(run, report->step == i);
}

/* Steps [first, end), which are those of the one that never stopped, if one is given. */
static void take_steps(rank_run* run, session* s, const struct going_on* what, int first, int end) {
  const outcome* expected = what->ending ? &what->ending->out : NULL;
  for (int i = first; i < end && !run->failure[0]; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    take_step(run, s, what, i, &step);
    if (run->failure[0] || !expected) continue;
    rank_check(run, memcmp(&step.loss_sum, &expected->loss[i], sizeof step.loss_sum) == 0);
    rank_check(run, memcmp(&step.weight, &expected->weight[i], sizeof step.weight) == 0);
    rank_check(run, step.skipped == expected->skipped[i]);
  }
}

static void read_numbers(rank_run* run, const session* s, gsel_training_numbers* numbers) {
  gsel_error* err = NULL;
  gsel_state* state = NULL;
  gsel_training_numbers_init(numbers, sizeof *numbers);
  rank_ok(run, gsel_state_open(s->trainer, &state, &err), err);
  rank_ok(run, gsel_state_numbers(state, numbers, &err), err);
  gsel_state_free(state);
}

void never_stops(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  struct ending own;
  memset(&own, 0, sizeof own);
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  for (int i = 0; i < STEPS && !run->failure[0]; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    take_step(run, &s, what, i, &step);
    own.out.loss[i] = step.loss_sum;
    own.out.weight[i] = step.weight;
    own.out.skipped[i] = step.skipped;
  }
  if (run->failure[0]) return;
  own.out.largest = s.transformer ? s.transformer->largest : s.m.largest;
  read_session_params(run, &s, own.out.params);
  read_numbers(run, &s, &own.numbers);
  if (run->rank == 0) *what->ending = own;
  close_session(&s);
}

/* Steps change every element of the state while it is written. */
static void save_beside_steps(rank_run* run, session* s, const struct going_on* what, gsel_checkpoint_report* report) {
  gsel_error* err = NULL;
  gsel_step_report step = GSEL_STEP_REPORT_INIT;
  rank_check(run, gsel_trainer_save_state(s->trainer) == GSEL_SAVE_NONE);
  rank_ok(run, gsel_trainer_save_begin(s->trainer, gsel_str_from(what->path), NULL, report, &err), err);
  rank_check(run, report->step == BEFORE && report->bytes == 0 && report->copy_seconds <= report->blocked_seconds);
  for (int i = BEFORE; i < STEPS; ++i) {
    take_step(run, s, what, i, &step);
    if (run->failure[0]) return;
    rank_check(run, step.save == GSEL_SAVE_UNDER_WAY || step.save == GSEL_SAVE_DONE);
  }
  rank_ok(run, gsel_trainer_save_wait(s->trainer, report, &err), err);
  rank_check(run, gsel_trainer_save_state(s->trainer) == GSEL_SAVE_NONE);
  rank_ok(run, gsel_trainer_report(s->trainer, &step, &err), err);
  rank_check(run, step.save == GSEL_SAVE_NONE);
}

void save_after_some_steps(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  take_steps(run, &s, what, 0, BEFORE);
  if (run->failure[0]) return;
  if (what->in_background)
    save_beside_steps(run, &s, what, &report);
  else
    rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(what->path), NULL, &report, &err), err);
  if (run->failure[0]) return;
  rank_check(run, report.step == BEFORE && report.seconds >= report.blocked_seconds);
  __atomic_fetch_add(what->written, report.bytes, __ATOMIC_RELAXED);
  close_session(&s);
}

void load_and_go_on(rank_run* run) {
  const struct going_on* what = (const struct going_on*)run->user;
  session s;
  gsel_error* err = NULL;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  gsel_training_numbers numbers;
  float params[MOST_ELEMS];
  run->user = (void*)&what->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(what->path), &report, &err), err);
  rank_check(run, report.step == BEFORE && report.bytes == report.needed_bytes);
  take_steps(run, &s, what, BEFORE, STEPS);
  if (run->failure[0]) return;
  read_session_params(run, &s, params);
  if (run->failure[0] || !same_params(run, params, what->ending->out.params, session_elems(&s))) return;
  read_numbers(run, &s, &numbers);
  rank_check(run, memcmp(&numbers, &what->ending->numbers, sizeof numbers) == 0);
  close_session(&s);
}

uint64_t saved_on(int ranks, const struct going_on* what) {
  struct going_on saving = *what;
  saving.written = (uint64_t*)shared_memory(sizeof *saving.written);
  as_threads(ranks, save_after_some_steps, &saving);
  const uint64_t written = *saving.written;
  munmap(saving.written, sizeof *saving.written);
  return written;
}

void flip_bit(const char* path, off_t from_end) {
  char byte = 0;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  assert_true(fd >= 0);
  const off_t at = lseek(fd, 0, SEEK_END) - from_end;
  assert_int_equal(pread(fd, &byte, 1, at), 1);
  byte = (char)(byte ^ 4);
  assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  close(fd);
}

gsel_checkpoint* opened_checkpoint(const char* path) {
  gsel_checkpoint* checkpoint = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_checkpoint_open(gsel_str_from(path), &checkpoint, &err), err);
  check_ok(gsel_checkpoint_verify(checkpoint, NULL, &err), err);
  return checkpoint;
}

void same_state(gsel_checkpoint* a, gsel_checkpoint* b) {
  gsel_checkpoint_differences* differences = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_checkpoint_diff(a, b, NULL, &differences, &err), err);
  assert_int_equal(gsel_checkpoint_difference_count(differences), 0);
  gsel_checkpoint_differences_free(differences);
}
