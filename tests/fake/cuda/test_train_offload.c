/* Offloaded state on its way through buffers of a device: buckets are stepped in pieces, from blocks of 256 elements
 * to all of a bucket at once, with the bits of a trainer on the host. The first pieces of a step are on their way while
 * it computes, and a step does not wait for what is written back. */
#include "fake/cuda/on_device.h"
#include "support/scratch.h"

enum { LONG = 5000, SHORT = 700, ELEMS = LONG + SHORT, BATCH = 8, BEFORE = 2, AFTER = 2 };

/* ---- a model with parameters of several pieces ---- */

static gsel_status loss(const gsel_call* call, void* user) {
  (void)user;
  *(double*)call->outputs[0].data = 0;
  *(double*)call->outputs[1].data = (double)call->n_samples;
  return GSEL_OK;
}

/* Integers, and what shows a parameter that is not the last one. */
static gsel_status backward(const gsel_call* call, void* user) {
  (void)user;
  for (int p = 0; p < 2; ++p) {
    const float* value = (const float*)call->params[p].data;
    float* to = (float*)call->d_params[p].data;
    for (int64_t i = 0; i < call->d_params[p].n_elems; ++i) {
      float sum = 0;
      for (int64_t n = 0; n < call->n_samples; ++n)
        sum += (float)((((const uint8_t*)call->inputs[0].data)[n] * 31 + i * 7 + p) % 17 - 8);
      if (call->params[p].dtype == GSEL_F32) sum += value[i] / 8;
      to[i] = call->accumulate ? to[i] + sum : sum;
    }
  }
  return GSEL_OK;
}

static gsel_status ids(const gsel_data_request* r, void* user) {
  (void)user;
  for (int64_t n = 0; n < r->n_samples; ++n) ((uint8_t*)r->dst.data)[n] = (uint8_t)r->sample_ids[n];
  return GSEL_OK;
}

static gsel_status describe(gsel_model* model, gsel_error** err) {
  static const int64_t sizes[] = {LONG, SHORT}, one[] = {1};
  gsel_status status = GSEL_OK;
  for (int p = 0; p < 2 && !status; ++p) {
    gsel_param_options param = GSEL_PARAM_OPTIONS_INIT;
    param.name = gsel_str_from(p == 0 ? "long" : "short");
    param.dims = &sizes[p];
    param.n_dims = 1;
    param.init = GSEL_INIT_NORMAL;
    param.init_scale = 0.5;
    param.flags = p == 0 ? 0 : GSEL_PARAM_NO_DECAY; /* so that they are two calls */
    status = gsel_model_add_param(model, &param, NULL, err);
  }
  for (int v = 0; v < 3 && !status; ++v) {
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    value.name = gsel_str_from(v == 0 ? "in" : v == 1 ? "loss" : "weight");
    value.dims = one;
    value.n_dims = v == 0;
    value.dtype = v == 0 ? GSEL_U8 : GSEL_F64;
    value.flags = v == 0 ? GSEL_VALUE_INPUT : GSEL_VALUE_SCALAR;
    status = gsel_model_add_value(model, &value, NULL, err);
  }
  static const int32_t in[] = {0}, out[] = {1, 2}, params[] = {0, 1};
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = gsel_str_from("loss");
  layer.inputs = in, layer.n_inputs = 1;
  layer.outputs = out, layer.n_outputs = 2;
  layer.params = params, layer.n_params = 2;
  layer.flags = GSEL_LAYER_LOSS | GSEL_LAYER_WEIGHT_READS_PARAMS;
  layer.forward = loss;
  layer.backward_weight = backward;
  return status ? status : gsel_model_add_layer(model, &layer, NULL, err);
}

/* ---- a trial ---- */

struct job {
  char config[1024];
  char folder[300];    /* of the checkpoint after BEFORE steps */
  float* params;       /* [ELEMS] at the end, in memory that ranks share */
  int32_t* unfinished; /* copies that have not ended when the last step has */
};

typedef struct training {
  gsel_comm* comm;
  gsel_config* config;
  gsel_model* model;
  gsel_trainer* trainer;
} training;

static void open_training(rank_run* run, const struct job* job, training* t) {
  gsel_error* err = NULL;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  rank_ok(run, rank_join(run, &t->comm, &err), err);
  rank_ok(run, gsel_config_parse(gsel_str_from(job->config), gsel_str_from("offload.toml"), &t->config, &err), err);
  rank_ok(run, gsel_model_create(&t->model, &err), err);
  rank_ok(run, describe(t->model, &err), err);
  options.config = t->config;
  options.data = ids;
  rank_ok(run, gsel_trainer_create(t->comm, t->model, &options, &t->trainer, &err), err);
}

static void close_training(const training* t) {
  gsel_trainer_free(t->trainer);
  gsel_model_free(t->model);
  gsel_config_free(t->config);
  gsel_comm_free(t->comm);
}

static void take_steps(rank_run* run, const training* t, int n) {
  gsel_error* err = NULL;
  for (int i = 0; i < n; ++i) rank_ok(run, gsel_trainer_step(t->trainer, NULL, &err), err);
}

/* Between the steps everything is read, and after them everything is replaced and two steps are taken again. */
static void train_and_repeat(rank_run* run) {
  const struct job* job = (const struct job*)run->user;
  gsel_error* err = NULL;
  training t;
  float params[ELEMS], again[ELEMS];
  memset(&t, 0, sizeof t);
  open_training(run, job, &t);
  take_steps(run, &t, BEFORE);
  rank_ok(run, gsel_trainer_save(t.trainer, gsel_str_from(job->folder), NULL, NULL, &err), err);
  for (int turn = 0; turn < 2; ++turn) {
    float* to = turn == 0 ? params : again;
    take_steps(run, &t, AFTER);
    if (on_transport && !is_on_card() && run->rank == 0)
      *job->unfinished = CUDA("fake_cuda_unfinished", const char*)("a copy of");
    rank_ok(run, gsel_trainer_read_param(t.trainer, 0, to, sizeof(float) * LONG, &err), err);
    rank_ok(run, gsel_trainer_read_param(t.trainer, 1, to + LONG, sizeof(float) * SHORT, &err), err);
    if (turn == 0) rank_ok(run, gsel_trainer_load(t.trainer, gsel_str_from(job->folder), NULL, &err), err);
  }
  rank_check(run, memcmp(params, again, sizeof params) == 0);
  if (run->rank == 0) memcpy(job->params, params, sizeof params);
  close_training(&t);
}

static char folder[256];

static struct job job_of(const char* strategy, const char* train_section, const char* more) {
  struct job job;
  memset(&job, 0, sizeof job);
  snprintf(job.config, sizeof job.config, "%s[train]\nbatch = 8\nseed = 5\nlearning_rate = 0.01\n%s%s", strategy,
           train_section, more);
  job.params = (float*)shared_memory(sizeof(float) * ELEMS);
  job.unfinished = (int32_t*)shared_memory(sizeof *job.unfinished);
  return job;
}
static void free_job(struct job* job) {
  munmap(job->params, sizeof(float) * ELEMS);
  munmap(job->unfinished, sizeof *job->unfinished);
}

static gsel_checkpoint* opened(const char* path) {
  gsel_checkpoint* checkpoint = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_checkpoint_open(gsel_str_from(path), &checkpoint, &err), err);
  return checkpoint;
}

/* Both checkpoints have the same state, and both end in the same parameters. */
static void has_the_state_of_the_host(const struct job* host, const struct job* device) {
  gsel_checkpoint *a = opened(host->folder), *b = opened(device->folder);
  gsel_checkpoint_differences* differences = NULL;
  gsel_error* err = NULL;
  check_ok(gsel_checkpoint_diff(a, b, NULL, &differences, &err), err);
  assert_int_equal(gsel_checkpoint_difference_count(differences), 0);
  gsel_checkpoint_differences_free(differences);
  gsel_checkpoint_free(a);
  gsel_checkpoint_free(b);
  assert_memory_equal(host->params, device->params, sizeof(float) * ELEMS);
}

/* How many bytes of buffers there may be: of one block in each, of several, of all. */
static const char* const kBuffers[] = {"offload_buffer_bytes = 1\n", "offload_buffer_bytes = 30000\n", ""};
static const char kNone[] = "offload_buffer_bytes = 0\n";

static void compare(const char* strategy, const char* train_section, int ranks) {
  struct job host = job_of(strategy, train_section, "");
  snprintf(host.folder, sizeof host.folder, "%s/host", folder);
  as_threads(ranks, train_and_repeat, &host);
  for (size_t i = 0; i < sizeof kBuffers / sizeof *kBuffers; ++i) {
    struct job device = job_of(strategy, train_section, kBuffers[i]);
    snprintf(device.folder, sizeof device.folder, "%s/device", folder);
    print_message("  on %d: %s", ranks, device.config);
    on_transport = "nccl";
    as_threads(ranks, train_and_repeat, &device);
    on_transport = NULL;
    no_violations();
    has_the_state_of_the_host(&host, &device);
    free_job(&device);
    assert_int_equal(remove_scratch(device.folder), 0);
  }
  assert_int_equal(remove_scratch(host.folder), 0);
  free_job(&host);
}

#define ZERO_OF(stage, more) "[strategy.data]\nplugin = \"zero\"\nstage = " stage "\n" more
#define OF_STATE "offload = \"state\"\n"
static const char* const kRules[] = {
    "optimizer = \"adamw\"\n",
    "optimizer = \"adamw\"\nclip_norm = 0.5\nprecision = \"bf16\"\n",
    "optimizer = \"adamw_8bit\"\n",
    "optimizer = \"adamw_8bit\"\nprecision = \"bf16\"\n",
    "optimizer = \"lion\"\nelastic = \"on\"\n",
    "optimizer = \"sgd\"\nmomentum = 0.5\n",
    "optimizer = \"sign_sgd\"\nprecision = \"bf16\"\n",
};

static void pieces_have_the_bits_of_the_host(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof kRules / sizeof *kRules; ++i) {
    compare(ZERO_OF("1", OF_STATE), kRules[i], 1);
    compare(ZERO_OF("2", OF_STATE "bucket_bytes = 1\n"), kRules[i], 2);
    compare(ZERO_OF("3", "offload = \"all\"\npersist_elems = 0\n"), kRules[i], 2);
  }
}

/* Nothing but what is written back is left when a step has ended; in place nothing is. */
static void a_step_does_not_wait_for_what_is_written_back(void** state) {
  (void)state;
  if (is_on_card()) skip(); /* only the double counts what has not run */
  for (int in_place = 0; in_place < 2; ++in_place) {
    struct job job = job_of(ZERO_OF("1", OF_STATE), kRules[0], in_place ? kNone : kBuffers[1]);
    snprintf(job.folder, sizeof job.folder, "%s/written", folder);
    on_transport = "nccl";
    as_threads(1, train_and_repeat, &job);
    on_transport = NULL;
    no_violations();
    print_message("  %d copies are under way when a step has ended\n", *job.unfinished);
    assert_true(in_place ? *job.unfinished == 0 : *job.unfinished > 0);
    assert_int_equal(remove_scratch(job.folder), 0);
    free_job(&job);
  }
}

static int begin(void** state) {
  (void)state;
  return make_scratch(folder, sizeof folder, "offload") ? 0 : -1;
}
static int end(void** state) {
  (void)state;
  return remove_scratch(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_have_the_bits_of_the_host),
      cmocka_unit_test(a_step_does_not_wait_for_what_is_written_back),
  };
  return cmocka_run_group_tests_name("train_offload", tests, begin, end);
}
