/* fake/cuda/test_comm_run.c: ranks on devices as everybody starts them: `gsel run` executes this program for each, and
 * each has its device, its stream, and a communicator from what the environment says. */
#include "fake/cuda/program.h"

static int fail_with(const char* what, gsel_error* err) {
  char text[600] = "";
  gsel_error_format(err, text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  gsel_error_free(err);
  return 1;
}

/* how: NULL: by the launcher's number; "numbered": as "cuda:1"; "named": by GSEL_DEVICE, in the opposite order. */
static int be_rank(const char* transport, const char* how) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  char accelerator[32];
  snprintf(accelerator, sizeof accelerator, how && !strcmp(how, "numbered") ? "cuda:%s" : "cuda", getenv("LOCAL_RANK"));
  load_doubles("fake_libnccl.so");
  int device = atoi(getenv("LOCAL_RANK"));
  if (how && !strcmp(how, "named")) {
    static const char* const names[] = {"GPU-33333333-3333-3333-3333-333333333333",
                                        "GPU-22222222-2222-2222-2222-222222222222",
                                        "GPU-11111111-1111-1111-1111-111111111111"};
    setenv("GSEL_DEVICE", names[device], 1);
    device = 2 - device;
  }
  const gpu g = open_gpu(device);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.accelerator = gsel_str_from(accelerator);
  options.transport = gsel_str_from(transport);
  if (gsel_comm_init(&options, &comm, &err)) return fail_with("init", err);
  const int32_t rank = gsel_comm_rank(comm), n = gsel_comm_world_size(comm);
  void* memory = NULL;
  const float mine[] = {(float)rank, 1};
  float got[2] = {0};
  if (gsel_comm_set_stream(comm, g.stream, &err)) return fail_with("set_stream", err);
  if (gsel_mem_alloc(comm, sizeof mine, &memory, &err)) return fail_with("alloc", err);
  copy(&g, memory, mine, sizeof mine);
  for (int i = 0; i < 2; ++i)
    if (gsel_allreduce(comm, memory, memory, 2, GSEL_F32, GSEL_SUM, &err)) return fail_with("allreduce", err);
  if (gsel_comm_synchronize(comm, &err)) return fail_with("synchronize", err);
  copy(&g, got, memory, sizeof got);
  finish(&g);
  gsel_comm_free(comm);
  if (got[0] == (float)(n * n * (n - 1) / 2) && got[1] == (float)(n * n) && cuda.violations() == 0) return 0;
  fprintf(stderr, "rank %d of %d: %g %g, %d violations\n", (int)rank, (int)n, (double)got[0], (double)got[1],
          cuda.violations());
  return 1;
}

static const char* self;

static void run_over(const char* arguments) {
  char line[8192];
  snprintf(line, sizeof line, "\"$GSEL_TEST_BIN/bin/gsel\" run -n 3 -- '%s' %s", self, arguments);
  const int status = system(line);
  if (status != 0) fail_msg("%s: wait status 0x%x", line, (unsigned)status);
}

static void test_ranks_of_gsel_run_have_a_device_each(void** state) {
  (void)state;
  run_over("nccl numbered");
  run_over("host numbered");
  run_over("nccl named");
  run_over("host named");
  run_over("nccl");
  run_over("host");
}

int main(int argc, char** argv) {
  if (argc > 1) return be_rank(argv[1], argc > 2 ? argv[2] : NULL);
  self = argv[0];
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_of_gsel_run_have_a_device_each)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
