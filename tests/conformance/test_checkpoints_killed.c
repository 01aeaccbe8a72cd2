/* Saves of several ranks, of which one is killed in its first, second, third, ... call of the system that changes the
 * disk, in the middle of a write as well, until it makes no more of them: by the thread that writes in the background
 * too. The others have an error or a checkpoint, the newest whole checkpoint is the one of before or the new one, and
 * one rank goes on from it to the bits of one that never stopped. */
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/layouts.h"
#include "support/trainer_trial.h"

/* ---- the functions of the C library that gsel calls to change the disk ---- */

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
static int calls_to_live = -1; /* negative: without end */
static bool dies_in_the_middle;

/* Whether this is the last call. Who has set calls_to_live to -1 is not killed any more. */
static bool is_last(void) {
  pthread_mutex_lock(&life);
  if (calls_to_live < 0 || calls_to_live-- > 0) {
    pthread_mutex_unlock(&life);
    return false;
  }
  return true; /* and keeps the lock */
}
static void die(void) {
  for (kill(getpid(), SIGKILL);;) pause();
}
static void pass(void) {
  if (is_last()) die();
}
static void set_calls_to_live(int calls) {
  pthread_mutex_lock(&life);
  calls_to_live = calls;
  pthread_mutex_unlock(&life);
}

#define REAL(type, name) __typeof__(type)* const call = (__typeof__(type)*)dlsym(RTLD_NEXT, #name)
#define SEEN __attribute__((visibility("default")))

SEEN ssize_t pwrite(int fd, const void* bytes, size_t n, off_t offset) {
  REAL(ssize_t(int, const void*, size_t, off_t), pwrite);
  if (is_last()) {
    if (dies_in_the_middle) call(fd, bytes, n / 2, offset);
    die();
  }
  return call(fd, bytes, n, offset);
}
SEEN int fsync(int fd) {
  REAL(int(int), fsync);
  pass();
  return call(fd);
}
SEEN int fallocate(int fd, int mode, off_t offset, off_t n) {
  REAL(int(int, int, off_t, off_t), fallocate);
  pass();
  return call(fd, mode, offset, n);
}
SEEN int mkdir(const char* path, mode_t mode) {
  REAL(int(const char*, mode_t), mkdir);
  pass();
  return call(path, mode);
}
SEEN int rename(const char* from, const char* to) {
  REAL(int(const char*, const char*), rename);
  pass();
  return call(from, to);
}
SEEN int remove(const char* path) {
  REAL(int(const char*), remove);
  pass();
  return call(path);
}
SEEN int open(const char* path, int flags, ...) {
  REAL(int(const char*, int, ...), open);
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  if ((flags & O_CREAT) != 0) pass();
  return call(path, flags, mode);
}

/* ---- a trial ---- */

struct death {
  trial t;
  const char* folder;
  bool in_background;
  int victim, calls;
  volatile int32_t survived, saved; /* the victim made fewer calls; ranks whose save has succeeded */
};

static gsel_status save(const struct death* death, session* s, gsel_error** err) {
  gsel_checkpoint_options options = GSEL_CHECKPOINT_OPTIONS_INIT;
  const gsel_str folder = gsel_str_from(death->folder);
  options.keep = 1;
  if (!death->in_background) return gsel_trainer_save(s->trainer, folder, &options, NULL, err);
  const gsel_status status = gsel_trainer_save_begin(s->trainer, folder, &options, NULL, err);
  return status ? status : gsel_trainer_save_wait(s->trainer, NULL, err);
}

static void dies_in_a_save(rank_run* run) {
  struct death* death = (struct death*)run->user;
  session s;
  gsel_error* err = NULL;
  run->user = &death->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(death->folder), NULL, NULL, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, NULL, &err), err);
  if (run->rank == death->victim) set_calls_to_live(death->calls);
  const gsel_status status = save(death, &s, &err);
  set_calls_to_live(-1);
  if (run->rank == death->victim) death->survived = 1;
  if (status)
    rank_fails(run, status, err, GSEL_ERR_PEER, "", -2);
  else
    __atomic_fetch_add(&death->saved, 1, __ATOMIC_SEQ_CST);
  close_session(&s);
}

static int remove_one(const char* path, const struct stat* status, int kind, struct FTW* at) {
  (void)status, (void)kind, (void)at;
  return unlinkat(AT_FDCWD, path, kind == FTW_DP ? AT_REMOVEDIR : 0);
}

/* One rank, from the newest checkpoint on. */
struct rest {
  trial t;
  const char* folder;
  int64_t step;
};

static void goes_on(rank_run* run) {
  struct rest* rest = (struct rest*)run->user;
  const outcome* expected = rest->t.expected;
  gsel_checkpoint_report report = GSEL_CHECKPOINT_REPORT_INIT;
  float params[EXACT_ELEMS];
  session s;
  gsel_error* err = NULL;
  run->user = &rest->t;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_load(s.trainer, gsel_str_from(rest->folder), &report, &err), err);
  rest->step = report.step;
  for (int64_t i = report.step; i < STEPS; ++i) {
    gsel_step_report step = GSEL_STEP_REPORT_INIT;
    rank_ok(run, gsel_trainer_step(s.trainer, &step, &err), err);
    rank_check(run, memcmp(&step.loss_sum, &expected->loss[i], sizeof step.loss_sum) == 0);
  }
  read_params(run, s.trainer, params);
  same_params(run, params, expected->params, EXACT_ELEMS);
  close_session(&s);
}

static void verify(const char* folder) {
  gsel_checkpoint* checkpoint = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_checkpoint_open(gsel_str_from(folder), &checkpoint, &err), err);
  check_ok(gsel_checkpoint_verify(checkpoint, NULL, &err), err);
  gsel_checkpoint_free(checkpoint);
}

/* Whether the victim died. */
static bool dies(const struct layout* layout, bool in_background, int victim, int calls, const outcome* expected) {
  char folder[] = "/tmp/gsel-killed-XXXXXX"; /* mkdtemp fills in the X */
  assert_non_null(mkdtemp(folder));
  struct death* death = (struct death*)shared_memory(sizeof *death);
  char config[1024];
  snprintf(config, sizeof config, "%s", config_of(layout, ""));
  *death = (struct death){plain(config, NULL), folder, in_background, victim, calls, 0, 0};
  rank_run* runs = ranks_prepare(layout->ranks, death);
  pid_t pids[8];
  bool died = false;
  for (int r = 0; r < layout->ranks; ++r) pids[r] = rank_fork(&runs[r], dies_in_a_save);
  for (int r = 0; r < layout->ranks; ++r) {
    int status = 0;
    waitpid(pids[r], &status, 0);
    if (r == victim) died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (r != victim || !died) assert_int_equal(status, 0);
  }
  ranks_verdict(runs, layout->ranks);
  assert_true(died == (death->survived == 0));
  if (!died) assert_int_equal(death->saved, layout->ranks);
  verify(folder);
  struct rest rest = {plain(config_of(&kLayouts[0], ""), NULL), folder, 0};
  rest.t.expected = expected;
  as_threads(1, goes_on, &rest);
  assert_true(rest.step == 2 || (rest.step == 1 && death->saved == 0));
  munmap(death, sizeof *death);
  assert_int_equal(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
  return died;
}

static void dies_in_each_call(const struct layout* layout, bool in_background, int victim, bool in_the_middle) {
  outcome* expected = shared_outcomes();
  trial alone = plain(config_of(&kLayouts[0], ""), expected);
  as_threads(1, train, &alone);
  dies_in_the_middle = in_the_middle;
  int calls = 0;
  while (dies(layout, in_background, victim, calls, expected)) ++calls;
  print_message("  %s: rank %d of %d died in %d calls\n", layout->name, victim, layout->ranks, calls);
  assert_true(calls > (victim == 0 ? 15 : 3));
  free_outcomes(expected);
}

static void the_rank_that_commits_is_killed_in_each_call(void** state) {
  (void)state;
  dies_in_each_call(&kLayouts[4], false, 0, false);
  dies_in_each_call(&kLayouts[12], true, 0, false);
}
static void another_rank_is_killed_in_each_call(void** state) {
  (void)state;
  dies_in_each_call(&kLayouts[6], false, 3, false);
  dies_in_each_call(&kLayouts[11], true, 1, false);
}
static void a_rank_is_killed_in_the_middle_of_each_write(void** state) {
  (void)state;
  dies_in_each_call(&kLayouts[2], true, 0, true);
  dies_in_each_call(&kLayouts[7], false, 1, true);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_rank_that_commits_is_killed_in_each_call),
      cmocka_unit_test(another_rank_is_killed_in_each_call),
      cmocka_unit_test(a_rank_is_killed_in_the_middle_of_each_write),
  };
  return cmocka_run_group_tests_name("saves that are killed", tests, NULL, NULL);
}
