/* fake/cuda/test_comm_mig.c: communicators on MIG instances: under `gsel run`, which gives each rank its own, and under
 * a launcher such as torchrun, which gives all ranks the same variables. */
#include "fake/cuda/program.h"

#define CARD "GPU-11111111-0000-0000-0000-000000000000" /* of fixtures/fake_nvml.c */
#define FIRST "MIG-33333333-0000-0000-0000-000000000000"
#define SECOND "MIG-44444444-0000-0000-0000-000000000000"

static void be_on_machine(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/fake_nvml.so", getenv("GSEL_TEST_BIN"));
  setenv("GSEL_NVML_LIBRARY", path, 1);
  snprintf(path, sizeof path, "%s/machines/nothing", getenv("GSEL_TEST_DATA"));
  setenv("GSEL_SYSFS_ROOT", path, 1);
  setenv("GSEL_FAKE_NVML", "mig", 1);
  setenv("GSEL_FAKE_CUDA_MIG", CARD ":" FIRST "," SECOND, 1);
}

/* ---- as rank of gsel run ---- */

static int be_rank(const char* own[2]) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  char text[600] = "";
  const int rank = atoi(getenv("RANK"));
  if (strcmp(getenv("CUDA_VISIBLE_DEVICES"), own[rank]) || strcmp(getenv("GSEL_DEVICE"), own[rank])) return 1;
  load_doubles("fake_libnccl.so");
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.accelerator = gsel_str_from("cuda");
  options.transport = gsel_str_from("host");
  const gsel_status status = gsel_comm_init(&options, &comm, &err);
  gsel_error_format(err, text, sizeof text);
  if (status) fprintf(stderr, "rank %d: %s\n", rank, text);
  gsel_comm_free(comm);
  return status ? 2 : 0;
}

static const char* self;

static void test_each_rank_of_gsel_run_has_its_instance(void** state) {
  (void)state;
  be_on_machine();
  char line[8192];
  static const char* const asked[] = {"mig:0.0,0.1", "mig:" FIRST "," SECOND, "mig:MIG-" CARD "/1/0,MIG-" CARD "/9/0"};
  for (int i = 0; i < 3; ++i) {
    snprintf(line, sizeof line, "\"$GSEL_TEST_BIN/bin/gsel\" run -n 2 --devices '%s' -- '%s' " FIRST " " SECOND,
             asked[i], self);
    const int status = system(line);
    if (status != 0) fail_msg("%s: wait status 0x%x", line, (unsigned)status);
  }
}

/* ---- as rank of another launcher ---- */

typedef struct launched {
  const char *local_rank, *mask, *shows;
  gsel_status code;
  const char* part; /* of the error; of one who joins, of the refusal of memory that is not its device's */
} launched;

static void under_launcher(rank_run* run) {
  const launched* l = (const launched*)run->user;
  be_on_machine();
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "1", 1);
  setenv("LOCAL_RANK", l->local_rank, 1);
  setenv("CUDA_VISIBLE_DEVICES", l->mask, 1);
  if (l->shows) setenv("GSEL_FAKE_CUDA_MIG_SHOWS", l->shows, 1);
  load_doubles("fake_libnccl.so");
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.accelerator = gsel_str_from("cuda");
  options.transport = gsel_str_from("host");
  if (l->code) {
    rank_fails(run, gsel_comm_init(&options, &comm, &err), err, l->code, l->part, -1);
    return;
  }
  float on_stack[4] = {0};
  rank_ok(run, gsel_comm_init(&options, &comm, &err), err);
  rank_fails(run, gsel_allreduce(comm, on_stack, on_stack, 4, GSEL_F32, GSEL_SUM, &err), err, GSEL_ERR_ARG, l->part,
             -1);
  gsel_comm_free(comm);
}

static void test_a_rank_never_gets_the_instance_of_another(void** state) {
  (void)state;
  static const launched all[] = {
      {"0", FIRST "," SECOND, NULL, GSEL_OK, "works on cuda:0"},
      {"1", FIRST "," SECOND, NULL, GSEL_ERR_NO_DEVICES,
       "device " SECOND " was asked for; this process sees " FIRST " of " CARD
       ": CUDA shows a process one MIG instance"},
      {"1", FIRST "," SECOND, "2", GSEL_OK, "works on cuda:1"}, /* were there a driver that shows both */
      {"2", FIRST "," SECOND, NULL, GSEL_ERR_RANK_OVERFLOW,
       "local rank 2 has no MIG instance: CUDA_VISIBLE_DEVICES=" FIRST "," SECOND " names 2, for local ranks 0 to 1"},
      {"1", SECOND, NULL, GSEL_OK, "works on cuda:0"}, /* the launcher shows each rank its own */
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) as_processes(1, under_launcher, (void*)(uintptr_t)&all[i]);
}

int main(int argc, char** argv) {
  if (argc > 2) return be_rank((const char* [2]){argv[1], argv[2]});
  self = argv[0];
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_rank_of_gsel_run_has_its_instance),
      cmocka_unit_test(test_a_rank_never_gets_the_instance_of_another),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
