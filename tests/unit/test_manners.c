/* unit/test_manners.c: the library is a guest in its process. Ranks join, call, train, fail and leave, devices are
 * chosen, files are read; then the process is as it was before: its output, environment, signals, locale, masks,
 * folder, descriptors, threads and rounding. GSEL_LOG and sinks, which ask for output, are tested elsewhere. */
#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <sys/stat.h>

#include "support/trainer_trial.h"

extern char** environ;

typedef struct surroundings {
  char variables[1 << 16], locale[256], folder[512];
  void (*handlers[65])(int);
  int flags[65];
  sigset_t blocked;
  mode_t mask;
  int descriptors, threads, rounding;
} surroundings;

static int entries(const char* path) {
  DIR* folder = opendir(path);
  int n = 0;
  assert_non_null(folder);
  while (readdir(folder)) ++n;
  closedir(folder);
  return n;
}

static void look(surroundings* out) {
  size_t at = 0;
  memset(out, 0, sizeof *out);
  for (char** variable = environ; *variable; ++variable) {
    const int n = snprintf(out->variables + at, sizeof out->variables - at, "%s\n", *variable);
    at += (size_t)n;
    assert_true(at < sizeof out->variables);
  }
  snprintf(out->locale, sizeof out->locale, "%s", setlocale(LC_ALL, NULL));
  assert_non_null(getcwd(out->folder, sizeof out->folder));
  for (int s = 1; s < 65; ++s) {
    struct sigaction action;
    if (sigaction(s, NULL, &action)) continue; /* the C library's own */
    out->handlers[s] = action.sa_handler;
    out->flags[s] = action.sa_flags;
  }
  assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &out->blocked), 0);
  out->mask = umask(022);
  umask(out->mask);
  out->descriptors = entries("/proc/self/fd");
  out->threads = entries("/proc/self/task");
  out->rounding = fegetround();
}

/* Threads that have been joined may stand in /proc a moment longer. */
static int threads_left(int at_most) {
  int n = entries("/proc/self/task");
  for (int i = 0; i < 2000 && n > at_most; ++i, n = entries("/proc/self/task")) usleep(1000);
  return n;
}

static void compare(const surroundings* before) {
  surroundings after;
  look(&after);
  if (strcmp(after.variables, before->variables) != 0) fail_msg("a variable of the environment was changed");
  assert_string_equal(after.locale, before->locale);
  assert_string_equal(after.folder, before->folder);
  for (int s = 1; s < 65; ++s)
    if (after.handlers[s] != before->handlers[s] || after.flags[s] != before->flags[s])
      fail_msg("signal %d has another handler", s);
  assert_memory_equal(&after.blocked, &before->blocked, sizeof after.blocked);
  assert_int_equal(after.mask, before->mask);
  assert_int_equal(after.descriptors, before->descriptors);
  assert_int_equal(after.rounding, before->rounding);
  /* One thread looks after the deaths of other processes as long as the process lives. */
  assert_true(threads_left(before->threads + 1) <= before->threads + 1);
}

static void reads_and_chooses(void) {
  gsel_error* err = NULL;
  gsel_config* config = NULL;
  gsel_inventory* inventory = NULL;
  gsel_selection* selection = NULL;
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  char path[512];
  check_ok(gsel_config_load((gsel_str){NULL, 0}, &config, &err), err);
  gsel_config_free(config);
  config = NULL;
  check_fails(gsel_config_parse(gsel_str_from("[train]\nbatch = 0\n"), gsel_str_from("x"), &config, &err), err,
              GSEL_ERR_CONFIG, "train.batch");
  snprintf(path, sizeof path, "%s/inventory/l4x4.json", getenv("GSEL_TEST_DATA"));
  check_ok(gsel_inventory_load(gsel_str_from(path), &inventory, &err), err);
  options.inventory = inventory;
  options.devices = gsel_str_from("count:2");
  check_ok(gsel_resolve(&options, &selection, &err), err);
  gsel_selection_free(selection);
  gsel_inventory_free(inventory);
}

static void disagrees(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  float x[2] = {0, 0};
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, x, run->rank ? 2 : 1, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_MISMATCH,
             "called", 1);
  gsel_comm_abort(comm, gsel_str_from("enough"));
  gsel_comm_free(comm);
}

static void everything(const char* config, outcome* out) {
  trial t = plain(config, out);
  as_threads(2, train, &t);
  as_threads(2, disagrees, NULL);
  reads_and_chooses();
}

static void the_process_is_as_it_was_and_nothing_was_printed(void** state) {
  static const char* const configs[] = {
      "[strategy.data]\nplugin = \"ddp\"\n" TRAIN("8", "microbatch = 2\nprogress_steps = 1\nclip_norm = 1.0\n"),
      ZERO("3", ALL_SHARDED "offload = \"all\"\n") TRAIN("8", "recompute = \"all\"\n"),
      "[mesh]\npipeline = 2\n[strategy.pipeline]\nplugin = \"pp\"\n" TRAIN("8", "microbatches = 4\n"),
  };
  outcome* out = shared_outcomes();
  surroundings before;
  struct stat printed;
  const int file = memfd_create("printed", 0), kept[] = {dup(1), dup(2)};
  (void)state;
  assert_true(file >= 0);
  fflush(NULL);
  look(&before);
  dup2(file, 1), dup2(file, 2);
  everything(configs[0], out); /* files of plugins stay open, and so does what the C library keeps */
  before.descriptors = entries("/proc/self/fd");
  before.threads = entries("/proc/self/task");
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) everything(configs[i], out);
  fflush(NULL);
  dup2(kept[0], 1), dup2(kept[1], 2);
  assert_int_equal(fstat(file, &printed), 0);
  if (printed.st_size) fail_msg("%ld bytes were printed", (long)printed.st_size);
  compare(&before);
  close(file), close(kept[0]), close(kept[1]);
  free_outcomes(out);
}

static __thread int drives; /* whether this thread drives a trainer */

static void look_in_backward(void* foreign) {
  if (!drives) *(int*)foreign = 1;
}
static gsel_status look_in_data(const gsel_data_request* request, void* user) {
  return drives ? exact_data(request, user) : GSEL_ERR_STATE;
}
static void train_looking(rank_run* run) {
  session s;
  gsel_error* err = NULL;
  int foreign = 0;
  drives = 1;
  rank_ok(run, open_session(run, &s, &err), err);
  s.m.in_last_backward = look_in_backward;
  s.m.last_backward_user_data = &foreign;
  train_in(run, &s);
  close_session(&s);
  drives = 0;
  if (!run->failure[0]) rank_check(run, !foreign);
}

static void callbacks_run_on_the_thread_that_drives_the_trainer(void** state) {
  static const char* const configs[] = {ZERO("3", ALL_SHARDED) TRAIN("8", "microbatch = 2\n"),
                                        TRAIN("8", "check = \"kernels\"\n")};
  outcome* out = shared_outcomes();
  (void)state;
  for (size_t i = 0; i < sizeof configs / sizeof *configs; ++i) {
    trial t = plain(configs[i], out);
    t.data = look_in_data;
    as_threads(2, train_looking, &t);
  }
  free_outcomes(out);
}

int main(void) {
  unsetenv("GSEL_LOG");
  unsetenv("GSEL_TRACE");
  const struct CMUnitTest tests[] = {cmocka_unit_test(the_process_is_as_it_was_and_nothing_was_printed),
                                     cmocka_unit_test(callbacks_run_on_the_thread_that_drives_the_trainer)};
  return cmocka_run_group_tests_name("manners", tests, NULL, NULL);
}
