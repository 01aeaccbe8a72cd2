/* [train] check = "kernels" on devices: right kernels pass and train, and every fault of a kernel, of the data or of an
 * optimizer is found with the text that the host gives. */
#include "fake/cuda/on_device.h"
#include "support/checked_faults.h"
#include "support/trainer_trial.h"

typedef struct checked {
  const char* why; /* it cannot be tried by a mirror of host memory; NULL: it can */
  checked_model m;
  gsel_data_fn data;
  const gsel_optimizer_options* optimizer;
  gsel_status status;
  char text[1024]; /* of rank 0 */
} checked;

static gsel_status samples(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t i = 0; i < r->n_samples; ++i) ((int32_t*)r->dst.data)[i] = (int32_t)(r->sample_ids[i] * 3 % CK_VOCAB);
  return GSEL_OK;
}

static void create(rank_run* run) {
  checked* c = (checked*)run->user;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_comm* comm = NULL;
  gsel_config* config = NULL;
  gsel_model* model = NULL;
  gsel_trainer* trainer = NULL;
  gsel_error* err = NULL;
  rank_ok(run, rank_join(run, &comm, &err), err);
  rank_ok(run,
          gsel_config_parse(gsel_str_from("[train]\ncheck = \"kernels\"\nbatch = 4\n"), gsel_str_from("check.toml"),
                            &config, &err),
          err);
  rank_ok(run, gsel_model_create(&model, &err), err);
  rank_ok(run, ck_describe(model, &c->m, &err), err);
  options.config = config;
  options.data = c->data ? c->data : samples;
  options.optimizer = c->optimizer;
  const gsel_status status = gsel_trainer_create(comm, model, &options, &trainer, &err);
  if (run->rank == 0) {
    c->status = status;
    gsel_error_format(err, c->text, sizeof c->text);
  }
  mirror_margin = 0; /* no rank checks any more */
  if (status == GSEL_OK) rank_ok(run, gsel_trainer_step(trainer, NULL, &err), err);
  gsel_error_free(err);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_config_free(config);
  gsel_comm_free(comm);
}

/* On the host, then on devices. */
static void as_on_the_host(const char* name, checked* c, int ranks) {
  checked on_host = *c;
  as_threads(ranks, create, &on_host);
  on_transport = "nccl";
  mirror_margin = 256;
  as_threads(ranks, create, c);
  mirror_margin = 0;
  on_transport = NULL;
  no_violations();
  print_message("  %s: %s\n", name, c->status ? c->text : "trains");
  assert_int_equal(c->status, on_host.status);
  assert_string_equal(c->text, on_host.text);
}

static void right_kernels_pass_and_train(void** state) {
  (void)state;
  for (int ranks = 1; ranks <= 2; ++ranks) {
    checked c = {0};
    as_on_the_host("right kernels", &c, ranks);
    assert_int_equal(c.status, GSEL_OK);
    checked centred = {.m.is_centred = 1};
    as_on_the_host("batch statistics in phases", &centred, ranks);
    assert_int_equal(centred.status, GSEL_OK);
  }
}

/* A mirror is gone when a kernel looks at it again, and another one may be in its place. */
static int keeps_a_pointer(const fault* f) {
  return f->kind == GSEL_BREACH_KEPT_POINTER || f->kind == GSEL_BREACH_NOT_REPEATABLE;
}

static void each_fault_is_found_as_on_the_host(void** state) {
  (void)state;
  int n = 0;
  for (int i = 0; i < N_FAULTS; ++i) {
    checked c = {0};
    c.m.callbacks[kFaults[i].layer][kFaults[i].callback] = kFaults[i].kernel;
    if (keeps_a_pointer(&kFaults[i])) continue;
    as_on_the_host(kFaults[i].name, &c, 1);
    assert_int_equal(c.status, GSEL_ERR_MODEL);
    ++n;
  }
  assert_true(n >= N_FAULTS - 2);
}

/* ---- kernels of the device itself ---- */

static void enqueue_copy(const gsel_call* c, void* to, const void* from, size_t bytes) {
  const mirrors m = {.stream = c->stream};
  mirror_copy(&m, to, from, bytes);
}

static gsel_status right_line(const gsel_call* c, void* user) {
  return run_mirrored(ck_line, c, user, NO_GRADIENTS);
}
static gsel_status keeps_its_params(const gsel_call* c, void* user) {
  static const void* kept;
  if (!kept) kept = c->params[1].data;
  const gsel_status status = right_line(c, user);
  enqueue_copy(c, c->outputs[0].data, kept, sizeof(float));
  return status;
}
static gsel_status writes_to_a_kept_output(const gsel_call* c, void* user) {
  static void* kept;
  if (!kept) kept = c->outputs[0].data;
  const gsel_status status = right_line(c, user);
  enqueue_copy(c, kept, c->outputs[0].data, sizeof(float));
  return status;
}
static gsel_status enqueues_nothing(const gsel_call* c, void* user) {
  (void)c, (void)user;
  return GSEL_OK;
}

static void kept_pointers_and_missing_work_are_found(void** state) {
  (void)state;
  static const struct {
    gsel_layer_fn kernel;
    const char* text;
  } rows[] = {
      {keeps_its_params, "NaN once the buffers have moved"},
      {writes_to_a_kept_output, "memory of an earlier call was written; pointers are lent for one call"},
      {enqueues_nothing, "layer \"line\" forward: outputs[0] \"y\" element 0 [0][0]: was left unwritten"},
  };
  on_transport = "nccl";
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    checked c = {0};
    c.m.callbacks[CK_LINE][GSEL_FORWARD] = rows[i].kernel;
    of_device = rows[i].kernel;
    as_threads(1, create, &c); /* what is kept is of one rank */
    of_device = NULL;
    print_message("  %s\n", c.text);
    assert_int_equal(c.status, GSEL_ERR_MODEL);
    assert_non_null(strstr(c.text, rows[i].text));
  }
  on_transport = NULL;
  no_violations();
}

/* ---- data, optimizers ---- */

static gsel_status leaves_the_last_sample(const gsel_data_request* r, void* user) {
  gsel_data_request fewer = *r;
  fewer.n_samples = r->n_samples - 1;
  return samples(&fewer, user);
}
static gsel_status adds_to_dst(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t i = 0; i < r->n_samples; ++i) ((int32_t*)r->dst.data)[i] &= 0x70;
  return GSEL_OK;
}
static gsel_status one_sample_too_many(const gsel_data_request* r, void* user) {
  samples(r, user);
  ((volatile int32_t*)r->dst.data)[r->n_samples] = 1;
  return GSEL_OK;
}

static gsel_status sgd(const gsel_optimizer_call* c, void* user) {
  (void)user;
  for (int64_t i = 0; i < c->count; ++i) c->values[i] -= 0.01f * c->gradient[i] + 0 * c->states[0][i];
  return GSEL_OK;
}
static gsel_status steps_one_too_many(const gsel_optimizer_call* c, void* user) {
  sgd(c, user);
  ((volatile float*)c->states[0])[c->count] = 1;
  return GSEL_OK;
}
static gsel_status rounds_the_remainder_otherwise(const gsel_optimizer_call* c, void* user) {
  sgd(c, user);
  for (int64_t i = c->count / 4 * 4; i < c->count; ++i) c->values[i] *= 1.0000002f;
  return GSEL_OK;
}

static void faults_of_data_and_optimizers_are_found_as_on_the_host(void** state) {
  (void)state;
  static const struct {
    const char* name;
    gsel_data_fn data;
    gsel_optimizer_fn step;
    gsel_status status;
  } rows[] = {
      {"leaves the last sample", leaves_the_last_sample, NULL, GSEL_ERR_MODEL},
      {"adds to dst", adds_to_dst, NULL, GSEL_ERR_MODEL},
      {"one sample too many", one_sample_too_many, NULL, GSEL_ERR_MODEL},
      {"a right optimizer", NULL, sgd, GSEL_OK},
      {"steps one too many", NULL, steps_one_too_many, GSEL_ERR_MODEL},
      {"rounds the remainder otherwise", NULL, rounds_the_remainder_otherwise, GSEL_ERR_MODEL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    gsel_optimizer_options optimizer = GSEL_OPTIMIZER_OPTIONS_INIT;
    optimizer.step = rows[i].step;
    optimizer.n_states = 1;
    checked c = {.data = rows[i].data, .optimizer = rows[i].step ? &optimizer : NULL};
    as_on_the_host(rows[i].name, &c, 1);
    assert_int_equal(c.status, rows[i].status);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(right_kernels_pass_and_train),
      cmocka_unit_test(each_fault_is_found_as_on_the_host),
      cmocka_unit_test(kept_pointers_and_missing_work_are_found),
      cmocka_unit_test(faults_of_data_and_optimizers_are_found_as_on_the_host),
  };
  return cmocka_run_group_tests_name("train_check", tests, NULL, NULL);
}
