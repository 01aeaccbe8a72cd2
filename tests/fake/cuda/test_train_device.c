/* Which device a trainer has, with and without a communicator, and how much of the device's memory it may take. */
#include "fake/cuda/on_device.h"
#include "support/trainer_trial.h"

/* ---- [train] device ---- */

typedef struct wanted {
  const char* device;
  int without_comm;
  gsel_status code; /* of the last rank; others have the same, or GSEL_ERR_PEER */
  const char* why;
} wanted;

static void expect_refusal(rank_run* run) {
  const wanted* w = (const wanted*)run->user;
  char config[512];
  gsel_error* err = NULL;
  session s;
  snprintf(config, sizeof config, TRAIN("6", "device = \"%s\"\n"), w->device);
  trial t = plain(config, NULL);
  t.without_comm = w->without_comm;
  run->user = &t;
  const gsel_status status = open_session(run, &s, &err);
  const int is_told = status == GSEL_ERR_PEER && run->rank < run->world_size - 1;
  rank_fails(run, status, err, is_told ? GSEL_ERR_PEER : w->code, w->why, is_told ? run->world_size - 1 : -1);
  close_session(&s);
}

static void trains_alone(const char* device, int card) {
  const trial like = plain(NULL, NULL);
  outcome *expected = exact_reference(&like, TRAIN("9", "")), *out = shared_outcomes();
  char config[512];
  for (int pull = 0; pull < (card < 0 ? 2 : 1); ++pull) {
    snprintf(config, sizeof config, TRAIN("9", "microbatch = 2\ndevice = \"%s\"\n"), device);
    trial t = plain(config, out);
    t.expected = expected;
    t.without_comm = 1;
    t.pull = pull;
    on_card = card;
    as_threads(1, train, &t);
    on_card = -1;
  }
  free_outcomes(expected);
  free_outcomes(out);
}

static void a_trainer_without_a_communicator_is_one_rank_on_its_device(void** state) {
  (void)state;
  load_doubles("fake_libnccl.so");
  trains_alone("auto", -1);
  trains_alone("cpu", -1);
  trains_alone("cuda:2", 2);
  trains_alone("cuda", 0);
  trains_alone("cuda:1 | cpu", 1); /* the host stands in for no device that is there */
  no_violations();
}

/* Of a launcher's environment its own device counts alone. */
static void the_environment_makes_no_second_rank(void** state) {
  (void)state;
  static const char* const names[] = {"WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"};
  static const char* const values[] = {"2", "1", "1", "127.0.0.1", "29500"};
  for (int i = 0; i < 5; ++i) setenv(names[i], values[i], 1);
  trains_alone("cpu", -1);
  trains_alone("cuda", 1); /* its own device is that of its place on this host */
  for (int i = 0; i < 5; ++i) unsetenv(names[i]);
  no_violations();
}

static void a_device_that_is_not_there_is_named(void** state) {
  (void)state;
  static const wanted all[] = {
      {"cuda:9", 1, GSEL_ERR_ARG, "device 9 of cuda was asked for; the driver shows 4 to this process"},
      {"nonesuch", 1, GSEL_ERR_NOT_FOUND, "nonesuch"},
      {"nonesuch | cpu", 1, GSEL_ERR_NOT_FOUND, "no device plugin \"nonesuch\""},
      {"cuda | hip", 1, GSEL_ERR_CONFIG, "\"cuda | cpu\" for the host where there is none"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) as_threads(1, expect_refusal, (void*)(uintptr_t)&all[i]);
  no_violations();
}

static void a_communicators_device_is_its_trainers(void** state) {
  (void)state;
  static const wanted on_device[] = {
      {"cuda:3", 0, GSEL_ERR_CONFIG, "trial.toml:7: train.device = \"cuda:3\", and the communicator of rank "},
      {"cuda:0", 0, GSEL_ERR_CONFIG,
       "train.device = \"cuda:0\", and the communicator of rank 1 has cuda:1; join with "},
      {"cpu", 0, GSEL_ERR_CONFIG, "train.device = \"cpu\", and the communicator of rank "},
      {"cuda:3 | cpu", 0, GSEL_ERR_CONFIG, "train.device = \"cuda:3 | cpu\", and the communicator of rank "},
  };
  static const wanted on_host = {"cuda", 0, GSEL_ERR_CONFIG, "of rank 0 has cpu; join with that device, make the"};
  for (size_t i = 0; i < sizeof on_device / sizeof *on_device; ++i) {
    on_transport = "nccl";
    as_threads(2, expect_refusal, (void*)(uintptr_t)&on_device[i]);
    on_transport = NULL;
  }
  as_threads(1, expect_refusal, (void*)(uintptr_t)&on_host);
  no_violations();
}

static void train_on_one_that_it_names(rank_run* run) {
  char config[512];
  snprintf(config, sizeof config, TRAIN("6", "device = \"cuda%s%s\"\n"), run->rank ? ":" : "", run->rank ? "1" : "");
  trial t = plain(config, (outcome*)run->user);
  run->user = &t;
  train(run);
}

/* Each rank names its own. */
static void a_communicators_device_may_be_named(void** state) {
  (void)state;
  outcome* out = shared_outcomes();
  on_transport = "nccl";
  as_threads(2, train_on_one_that_it_names, out);
  on_transport = NULL;
  free_outcomes(out);
  no_violations();
}

/* ---- [train] memory_bytes ---- */

static const char* too_large; /* the configuration, and parts of its refusal */
static const char* parts[3];

static void finds_too_little(rank_run* run) {
  gsel_error* err = NULL;
  session s;
  trial t = plain(too_large, NULL);
  run->user = &t;
  const gsel_status status = open_session(run, &s, &err);
  char text[2048] = "";
  gsel_error_format(err, text, sizeof text);
  if (run->rank == 0) print_message("%s\n", text);
  for (int i = 0; i < 3; ++i)
    if (parts[i] && !strstr(text, parts[i])) snprintf(run->failure, sizeof run->failure, "no \"%s\"", parts[i]);
  rank_fails(run, status, err, GSEL_ERR_NOMEM, "", -1);
  close_session(&s);
}

static void expect_too_little(int ranks, const char* config, const char* a, const char* b, const char* c) {
  too_large = config;
  parts[0] = a, parts[1] = b, parts[2] = c;
  on_transport = "host";
  as_threads(ranks, finds_too_little, NULL);
  on_transport = NULL;
  no_violations();
}

static void auto_is_what_the_device_has_free(void** state) {
  (void)state;
  static const char config[] = TRAIN("40000000", "memory_bytes = \"auto\"\n");
  expect_too_little(1, config, "the accelerator of rank 0 has ", " free, which is not enough: rank 0 of 1 needs ",
                    "; in gsel.toml: [train] microbatch = ");
}

/* Each would fit alone: 2.5 GiB of 4. */
static void ranks_on_one_device_share_what_it_has_free(void** state) {
  (void)state;
  static const char config[] = TRAIN("13200000", "memory_bytes = \"auto\"\n");
  on_card = 1;
  expect_too_little(2, config, "the accelerator of rank 0 has ",
                    "not enough: rank 0 of 2, with rank 1 on the same device, needs 5.0 GiB",
                    "; in gsel.toml: [train] microbatch = ");
  on_card = -1;
}

/* The device has no more memory than that. */
static void zero_is_no_bound(void** state) {
  (void)state;
  expect_too_little(1, TRAIN("40000000", "memory_bytes = 0\n"),
                    " bytes of device memory on device 0: ", "CUDA_ERROR_OUT_OF_MEMORY", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_trainer_without_a_communicator_is_one_rank_on_its_device),
      cmocka_unit_test(the_environment_makes_no_second_rank),
      cmocka_unit_test(a_device_that_is_not_there_is_named),
      cmocka_unit_test(a_communicators_device_is_its_trainers),
      cmocka_unit_test(a_communicators_device_may_be_named),
      cmocka_unit_test(auto_is_what_the_device_has_free),
      cmocka_unit_test(ranks_on_one_device_share_what_it_has_free),
      cmocka_unit_test(zero_is_no_bound),
  };
  return cmocka_run_group_tests_name("train_device", tests, NULL, NULL);
}
