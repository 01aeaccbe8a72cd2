/* fake/cuda/test_comm_or_host.c: a rank without a device has an error, which says how to ask for the host; where it
 * is asked for ("cuda | cpu"), the host stands in on all ranks or on none, and the log and gsel_comm_explain say so. A
 * driver that lacks a function stands for one that is not there. */
#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

#define HOW "; gsel_comm_options.accelerator = \"cuda | cpu\" takes the host where no rank has such a device"

typedef struct asked {
  const char* accelerator[2];
  int has[2]; /* a device */
  gsel_status code;
  const char *own, *other; /* parts of the error of the first rank without a device, and of the other one */
  const char* device;      /* uuid */
} asked;

static char logged[4096];

static void keep_line(gsel_log_level level, gsel_str component, gsel_str line, void* user_data) {
  (void)user_data;
  if (level != GSEL_LOG_WARN || strncmp(component.data, "comm", component.len)) return;
  const size_t used = strlen(logged);
  snprintf(logged + used, sizeof logged - used, "%.*s\n", (int)line.len, line.data);
}

static gsel_status join(rank_run* run, const asked* a, gsel_comm** comm, gsel_error** err) {
  if (!a->has[run->rank]) setenv("GSEL_FAKE_CUDA_LACKS", "cuStreamGetCtx", 1);
  load_doubles("fake_libnccl.so");
  gsel_log_set(keep_line, GSEL_LOG_WARN, NULL, NULL);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.join_timeout_s = 20;
  options.accelerator = gsel_str_from(a->accelerator[run->rank]);
  if (a->device) options.device = gsel_str_from(a->device);
  return gsel_comm_init(&options, comm, err);
}

static void is_refused(rank_run* run) {
  const asked* a = (const asked*)run->user;
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  const int first = !a->has[0] ? 0 : 1, is_first = run->rank == first;
  rank_fails(run, join(run, a, &comm, &err), err, a->code, is_first ? a->own : a->other, is_first ? -1 : first);
  rank_check(run, !comm && !logged[0]);
}

static void test_without_a_device_joining_is_an_error_that_says_how_to_take_the_host(void** state) {
  (void)state;
  static const char lacks[] = "libcuda.so.1 has no cuStreamGetCtx; expected a driver of version 525 or newer" HOW;
  static const asked all[] = {
      {{"cuda", "cuda"}, {1, 0}, GSEL_ERR_PLUGIN, lacks, "rank 1: device plugin \"cuda\" was refused: ", NULL},
      {{"cuda", "cuda"}, {0, 1}, GSEL_ERR_PLUGIN, lacks, "rank 0: device plugin \"cuda\" was refused: ", NULL},
      /* The host on one rank, a device on the other: neither. */
      {{"cuda | cpu", "cuda | cpu"},
       {1, 0},
       GSEL_ERR_PLUGIN,
       "; rank 0 has its device, and the ranks of a communicator are on devices or on the host together: give this "
       "rank a device, or every rank \"cpu\"",
       "; rank 0 has its device, and the ranks of a communicator are on devices or on the host together",
       NULL},
      {{"cuda", "cuda | cpu"}, {0, 1}, GSEL_ERR_PLUGIN, lacks, "rank 0: device plugin \"cuda\" was refused: ", NULL},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) as_processes(2, is_refused, (void*)(uintptr_t)&all[i]);
}

/* Both lack a device, and only one may take the host. */
static void one_may_not(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  rank_fails(run, join(run, (const asked*)run->user, &comm, &err), err, GSEL_ERR_PLUGIN,
             run->rank == 0 ? "was refused" : HOW, -1);
}

static void test_one_rank_that_does_not_allow_the_host_decides(void** state) {
  (void)state;
  static const asked a = {{"cuda | cpu", "cuda"}, {0, 0}, GSEL_ERR_PLUGIN, "", "", NULL};
  as_processes(2, one_may_not, (void*)(uintptr_t)&a);
}

static void explains(rank_run* run, gsel_comm* comm, const char* part) {
  gsel_error* err = NULL;
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  gsel_comm_explanation how = GSEL_COMM_EXPLANATION_INIT;
  rank_ok(run, gsel_comm_explain(comm, &call, &how, &err), err);
  rank_check(run, strstr(how.transport_reason, part));
}

static void is_on_host(rank_run* run) {
  const asked* a = (const asked*)run->user;
  gsel_error* err = NULL;
  gsel_comm *comm = NULL, *made = NULL;
  float x[2] = {(float)run->rank, 1};
  rank_ok(run, join(run, a, &comm, &err), err);
  rank_ok(run, gsel_allreduce(comm, x, x, 2, GSEL_F32, GSEL_SUM, &err), err);
  rank_check(run, x[0] == 1 && x[1] == 2);
  explains(run, comm, a->own);
  rank_check(run, strstr(logged, a->own));
  rank_ok(run, gsel_comm_dup(comm, &made, &err), err);
  explains(run, made, a->own);
  gsel_comm_free(made);
  gsel_comm_free(comm);
}

static void test_where_it_is_asked_for_the_host_stands_in_on_all_ranks(void** state) {
  (void)state;
  static const asked all[] = {
      {{"cuda | cpu", "cuda | cpu"},
       {0, 0},
       GSEL_OK,
       "the host stands in for a device that no rank has (rank 0: device plugin \"cuda\" was refused: ",
       "",
       NULL},
      {{"cuda:1|cpu", " cuda |cpu "}, {0, 0}, GSEL_OK, "has no cuStreamGetCtx", "", NULL},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) as_processes(2, is_on_host, (void*)(uintptr_t)&all[i]);
}

static void is_on_device(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  float x[2] = {0};
  rank_ok(run, join(run, (const asked*)run->user, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, x, x, 2, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG,
             run->rank ? "works on cuda:1" : "works on cuda:0", -1);
  rank_check(run, !strstr(logged, "stands in"));
  gsel_comm_free(comm);
}

static void test_the_host_stands_in_for_no_device_that_is_there(void** state) {
  (void)state;
  static const asked a = {{"cuda:0 | cpu", "cuda:1 | cpu"}, {1, 1}, GSEL_OK, "", "", NULL};
  as_processes(2, is_on_device, (void*)(uintptr_t)&a);
}

/* A device that is there and was named wrongly is no missing one. */
static void is_a_mistake(rank_run* run) {
  static const asked all[] = {
      {{"cuda:77 | cpu", ""}, {1, 0}, GSEL_ERR_ARG, "device 77 of cuda was asked for", "", NULL},
      {{"cuda:x | cpu", ""}, {1, 0}, GSEL_ERR_ARG, "\"cuda:x | cpu\"; expected a device such as", "", NULL},
      {{"abacus | cpu", ""}, {1, 0}, GSEL_ERR_NOT_FOUND, "no device plugin \"abacus\"", "", NULL},
      {{"cuda | cpu", ""},
       {1, 0},
       GSEL_ERR_NO_DEVICES,
       "; this rank's device was chosen, GPU-4711, and the host stands in where none was: leave out GSEL_DEVICE",
       "",
       "GPU-4711"},
      {{"cuda | hip", ""}, {1, 0}, GSEL_ERR_NOT_FOUND, "no device plugin \"cuda | hip\"", "", NULL},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    gsel_error* err = NULL;
    gsel_comm* comm = NULL;
    rank_fails(run, join(run, &all[i], &comm, &err), err, all[i].code, all[i].own, -1);
  }
}

static void test_a_mistake_is_no_reason_to_take_the_host(void** state) {
  (void)state;
  as_processes(1, is_a_mistake, NULL);
}

/* ---- a trainer without a communicator ---- */

static void trains_without_device(rank_run* run) {
  setenv("GSEL_FAKE_CUDA_LACKS", "cuStreamGetCtx", 1);
  load_doubles("fake_libnccl.so");
  train(run);
}

static void is_told_how(rank_run* run) {
  gsel_error* err = NULL;
  session s;
  setenv("GSEL_FAKE_CUDA_LACKS", "cuStreamGetCtx", 1);
  load_doubles("fake_libnccl.so");
  trial t = plain(TRAIN("6", "device = \"cuda\"\n"), NULL);
  t.without_comm = 1;
  run->user = &t;
  rank_fails(run, open_session(run, &s, &err), err, GSEL_ERR_PLUGIN,
             "; train.device = \"cuda | cpu\" takes the host where no rank has such a device", -1);
  close_session(&s);
}

static void test_a_trainer_takes_the_host_when_its_configuration_says_so(void** state) {
  (void)state;
  const trial like = plain(NULL, NULL);
  outcome *expected = exact_reference(&like, TRAIN("9", "")), *out = shared_outcomes();
  trial t = plain(TRAIN("9", "microbatch = 2\ndevice = \"cuda | cpu\"\n"), out);
  t.expected = expected;
  t.without_comm = 1;
  as_processes(1, trains_without_device, &t);
  as_processes(1, is_told_how, NULL);
  free_outcomes(expected);
  free_outcomes(out);
}

/* ---- as ranks of gsel run ---- */

static int be_rank(const char* accelerator) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  char text[1024] = "";
  float x = 1;
  setenv("GSEL_FAKE_CUDA_LACKS", "cuStreamGetCtx", 1);
  load_doubles("fake_libnccl.so");
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.accelerator = gsel_str_from(accelerator);
  gsel_status status = gsel_comm_init(&options, &comm, &err);
  if (!status) status = gsel_allreduce(comm, &x, &x, 1, GSEL_F32, GSEL_SUM, &err);
  gsel_error_format(err, text, sizeof text);
  gsel_comm_free(comm);
  if (status) return strstr(text, "device plugin \"cuda\" was refused") ? 3 : 4;
  return x == 2 ? 0 : 5;
}

static const char* self;

/* Exit status of a run on the recorded machine `cpu` or on one whose devices are hidden. */
static int run_status(const char* machine, const char* devices, const char* accelerator) {
  char line[8192];
  snprintf(line, sizeof line,
           "\"$GSEL_TEST_BIN/bin/gsel\" run --inventory \"$GSEL_TEST_DATA/inventory/%s.json\" -n 2 --devices '%s' -- "
           "'%s' '%s' 2> /dev/null",
           machine, devices, self, accelerator);
  const int status = system(line);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Both the selection and the program must allow the host. */
static void test_ranks_of_gsel_run_take_the_host_when_both_ask_for_it(void** state) {
  (void)state;
  assert_int_equal(run_status("cpu", "cuda | cpu", "cuda | cpu"), 0);
  assert_int_equal(run_status("cpu", "auto", "cuda | cpu"), 0); /* a machine without accelerators */
  assert_int_equal(run_status("cpu", "cuda | cpu", "cuda"), 3);
  assert_int_equal(run_status("cpu", "cuda", "cuda | cpu"), 2); /* gsel refuses, and no rank is started */
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  assert_int_equal(run_status("a100x8", "auto", "cuda | cpu"), 2); /* hidden is not absent */
  assert_int_equal(run_status("a100x8", "cuda | cpu", "cuda | cpu"), 0);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

int main(int argc, char** argv) {
  if (argc > 1) return be_rank(argv[1]);
  self = argv[0];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_without_a_device_joining_is_an_error_that_says_how_to_take_the_host),
      cmocka_unit_test(test_one_rank_that_does_not_allow_the_host_decides),
      cmocka_unit_test(test_where_it_is_asked_for_the_host_stands_in_on_all_ranks),
      cmocka_unit_test(test_the_host_stands_in_for_no_device_that_is_there),
      cmocka_unit_test(test_a_mistake_is_no_reason_to_take_the_host),
      cmocka_unit_test(test_a_trainer_takes_the_host_when_its_configuration_says_so),
      cmocka_unit_test(test_ranks_of_gsel_run_take_the_host_when_both_ask_for_it),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
