/* failures.c: makes failures one after the other, for docs/errors.md, and prints code and message of each as a program
 * would. blocks.py compiles it against the installed gsel and compares what it prints with the page.
 *   failures NAME...
 * Ranks are two threads, of which rank 0 prints. A failure that does not come ends the program. */
#include <gsel/gsel.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static gsel_str text(const char* from) {
  return gsel_str_from(from);
}

static void need(gsel_status status, gsel_error** err) {
  if (!status) return;
  fprintf(stderr, "preparing a failure failed: %s\n", gsel_error_message(*err).data);
  exit(1);
}

static void show(gsel_status status, gsel_error* err) {
  char message[4096];
  gsel_error_format(err, message, sizeof message);
  printf("%s: %s\n", status ? gsel_status_name(status) : "nothing failed", message);
  fflush(stdout);
  gsel_error_free(err);
  if (!status) exit(1);
}

/* ---- two ranks ---- */

typedef gsel_status (*body)(gsel_comm* comm, gsel_error** err);

typedef struct pair {
  gsel_unique_id id;
  body run;
  const char* device;
  double timeout_s;
  pthread_barrier_t over;
} pair;

static void one_rank(pair* p, int32_t rank) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = rank;
  options.world_size = 2;
  options.id = &p->id;
  options.timeout_s = p->timeout_s;
  options.device = text(p->device ? p->device : "");
  options.name = text("world");
  gsel_status status = gsel_comm_init(&options, &comm, &err);
  if (!status) status = p->run(comm, &err);
  if (rank == 0) show(status, err);
  if (rank != 0) gsel_error_free(err);
  pthread_barrier_wait(&p->over); /* a rank that did nothing is there until the other one has seen it */
  gsel_comm_free(comm);
}

static void* second_rank(void* user_data) {
  one_rank(user_data, 1);
  return NULL;
}

static void on_two_ranks(body run, double timeout_s, const char* device) {
  gsel_error* err;
  pthread_t thread;
  pair p = {.run = run, .timeout_s = timeout_s, .device = device};
  need(gsel_unique_id_create(&p.id, &err), &err);
  pthread_barrier_init(&p.over, NULL, 2);
  if (pthread_create(&thread, NULL, second_rank, &p)) exit(1);
  one_rank(&p, 0);
  pthread_join(thread, NULL);
  pthread_barrier_destroy(&p.over);
}

static gsel_status sum(gsel_comm* comm, size_t count, gsel_error** err) {
  float x[2] = {0};
  return gsel_allreduce(comm, x, x, count, GSEL_F32, GSEL_SUM, err);
}

static gsel_status comes_late(gsel_comm* comm, gsel_error** err) {
  return gsel_comm_rank(comm) == 0 ? sum(comm, 1, err) : GSEL_OK;
}

static gsel_status calls_otherwise(gsel_comm* comm, gsel_error** err) {
  return sum(comm, gsel_comm_rank(comm) == 0 ? 1 : 2, err);
}

static gsel_status aborts(gsel_comm* comm, gsel_error** err) {
  if (gsel_comm_rank(comm) == 0) return sum(comm, 1, err);
  gsel_comm_abort(comm, text("the input file is empty"));
  return GSEL_OK;
}

static gsel_status nothing(gsel_comm* comm, gsel_error** err) {
  (void)comm, (void)err;
  return GSEL_OK;
}

static void timeout(void) {
  on_two_ranks(comes_late, 0.25, NULL);
}
static void mismatch(void) {
  on_two_ranks(calls_otherwise, 30, NULL);
}
static void aborted(void) {
  on_two_ranks(aborts, 30, NULL);
}
static void duplicate(void) {
  on_two_ranks(nothing, 30, "GPU-4fb4b5c7-2a4e-4e43-9a0c-6b1c0f3f5a10");
}

/* Rank 1 is a process that ends. */
static void peer(void) {
  gsel_error* err = NULL;
  gsel_comm* comm = NULL;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_unique_id id;
  need(gsel_unique_id_create(&id, &err), &err);
  options.world_size = 2;
  options.id = &id;
  options.name = text("world");
  const pid_t child = fork();
  options.rank = child == 0;
  need(gsel_comm_init(&options, &comm, &err), &err);
  if (child == 0) _exit(7);
  waitpid(child, NULL, 0);
  gsel_status status = GSEL_OK; /* until it is noticed: in a call, the message would depend on how far the call is */
  for (int i = 0; i < 30000 && !status; ++i) {
    usleep(1000);
    status = gsel_comm_get_async_error(comm, &err);
  }
  show(status, err);
  gsel_comm_free(comm);
}

/* ---- a trainer on one rank: the line of docs/start-c.md through two points ---- */

static int slope_is_wrong, forward_fails, has_nan;

static gsel_status fill(const gsel_data_request* request, void* user_data) {
  float* to = request->dst.data;
  (void)user_data;
  for (int64_t s = 0; s < request->n_samples; ++s) to[s] = (float)(request->sample_ids[s] % 2);
  if (has_nan) to[0] = (float)(0 * strtod("inf", NULL));
  return GSEL_OK;
}

static gsel_status forward(const gsel_call* call, void* user_data) {
  const float *line = call->params[0].data, *x = call->inputs[0].data;
  double loss = 0;
  (void)user_data;
  if (forward_fails) {
    snprintf(call->message, call->message_capacity, "the table has no column 3");
    return 42;
  }
  for (int64_t s = 0; s < call->n_samples; ++s) {
    const double e = line[0] * x[s] + line[1] - 3 * x[s];
    loss += e * e;
  }
  *(double*)call->outputs[0].data = loss;
  *(double*)call->outputs[1].data = (double)call->n_samples;
  return GSEL_OK;
}

static gsel_status backward(const gsel_call* call, void* user_data) {
  const float *line = call->params[0].data, *x = call->inputs[0].data;
  float* d_line = call->d_params[0].data;
  (void)user_data;
  if (!call->accumulate) d_line[0] = d_line[1] = 0;
  for (int64_t s = 0; s < call->n_samples; ++s) {
    const float d = (slope_is_wrong ? -2.0F : 2.0F) * (line[0] * x[s] + line[1] - 3 * x[s]);
    d_line[0] += d * x[s];
    d_line[1] += d;
  }
  return GSEL_OK;
}

static gsel_model* described(void) {
  static const char* const names[] = {"x", "loss", "samples"};
  const int64_t one = 1, two = 2;
  const int32_t param = 0, input = 0, outputs[] = {1, 2};
  gsel_error* err;
  gsel_model* model;
  gsel_param_options line = GSEL_PARAM_OPTIONS_INIT;
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  need(gsel_model_create(&model, &err), &err);
  line.name = text("line");
  line.dims = &two;
  line.n_dims = 1;
  need(gsel_model_add_param(model, &line, NULL, &err), &err);
  for (int i = 0; i < 3; ++i) {
    gsel_value_options value = GSEL_VALUE_OPTIONS_INIT;
    value.name = text(names[i]);
    value.dims = &one;
    value.n_dims = i == 0;
    value.dtype = i == 0 ? GSEL_F32 : GSEL_F64;
    value.flags = i == 0 ? GSEL_VALUE_INPUT : GSEL_VALUE_SCALAR;
    need(gsel_model_add_value(model, &value, NULL, &err), &err);
  }
  layer.name = text("line");
  layer.inputs = &input;
  layer.outputs = outputs;
  layer.params = &param;
  layer.n_inputs = layer.n_params = 1;
  layer.n_outputs = 2;
  layer.flags = GSEL_LAYER_LOSS;
  layer.forward = forward;
  layer.backward = backward;
  need(gsel_model_add_layer(model, &layer, NULL, &err), &err);
  return model;
}

/* Trains a step under these settings; shows what failed, of a step that succeeds what its report cannot say yet. */
static void train(const char* toml, int reports_early) {
  gsel_error* err;
  gsel_config* config;
  gsel_comm* comm;
  gsel_trainer* trainer = NULL;
  gsel_model* model = described();
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_step_report report = GSEL_STEP_REPORT_INIT;
  need(gsel_config_parse(text(toml), text("gsel.toml"), &config, &err), &err);
  need(gsel_comm_init(NULL, &comm, &err), &err);
  options.config = config;
  options.data = fill;
  gsel_status status = gsel_trainer_create(comm, model, &options, &trainer, &err);
  if (!status && reports_early) status = gsel_trainer_report(trainer, &report, &err);
  if (!status) status = gsel_trainer_step(trainer, &report, &err);
  show(status, err);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_comm_free(comm);
  gsel_config_free(config);
}

static void nomem(void) {
  train("[train]\nbatch = 4096\nmemory_bytes = 12_000\n", 0);
}
static void not_found(void) {
  train("[strategy.data]\nplugin = \"dpp\"\n", 0);
}
static void plugin(void) {
  train("[strategy.data]\nplugin = \"mine\"\n", 0);
}
static void state(void) {
  train("", 1);
}
static void callback(void) {
  forward_fails = 1;
  train("", 0);
  forward_fails = 0;
}
static void nan_in_data(void) {
  has_nan = 1;
  train("[train]\nnon_finite = \"error\"\n", 0);
  has_nan = 0;
}
static void model_kernel(void) {
  slope_is_wrong = 1;
  train("[train]\ncheck = \"kernels\"\n", 0);
  slope_is_wrong = 0;
}

/* ---- one call each ---- */

static void arg(void) {
  gsel_error* err;
  gsel_comm* comm;
  float x = 0;
  need(gsel_comm_init(NULL, &comm, &err), &err);
  const gsel_status status = gsel_allreduce(comm, NULL, &x, 1, GSEL_F32, GSEL_SUM, &err);
  show(status, err);
  gsel_comm_free(comm);
}

static void unsupported(void) {
  gsel_error* err;
  gsel_comm* comm;
  gsel_unique_id id = {{0}};
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.world_size = 1000;
  options.id = &id;
  const gsel_status status = gsel_comm_init(&options, &comm, &err);
  show(status, err);
}

static void version(void) {
  gsel_error* err;
  gsel_selection* selection;
  gsel_resolve_options options;
  memset(&options, 0, sizeof options); /* in place of GSEL_RESOLVE_OPTIONS_INIT */
  const gsel_status status = gsel_resolve(&options, &selection, &err);
  show(status, err);
}

static void io(void) {
  gsel_error* err;
  gsel_inventory* inventory;
  const gsel_status status = gsel_inventory_load(text("/no/such/machine.json"), &inventory, &err);
  show(status, err);
}

static void parse(void) {
  gsel_error* err;
  gsel_config* config;
  const gsel_status status = gsel_config_parse(text("[train]\nbatch = \n"), text("gsel.toml"), &config, &err);
  show(status, err);
}

static void config(void) {
  gsel_error* err;
  gsel_config* config;
  const gsel_status status = gsel_config_parse(text("[train]\nlearningrate = 0.1\n"), text("gsel.toml"), &config, &err);
  show(status, err);
}

static void model(void) {
  gsel_error* err;
  const int32_t unknown = 9;
  gsel_model* model = described();
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  layer.name = text("second");
  layer.inputs = &unknown;
  layer.n_inputs = 1;
  layer.forward = forward;
  const gsel_status status = gsel_model_add_layer(model, &layer, NULL, &err);
  show(status, err);
  gsel_model_free(model);
}

static void program(void) {
  static const char kProgram[] =
      "gsel-program 1\nrank 0\nmesh tensor=1 data=1 pipeline=1\nparam line 2\nvalue x bytes=4 input\n"
      "value loss bytes=8 scalar\nvalue samples bytes=8 scalar\n"
      "layer line reads=x writes=loss,samples params=line loss backward_weight\nmicrobatch 0 4\nbucket params=line\n"
      "setup\nstep\nforward layer=line mb=0\nend\n";
  gsel_error* err;
  gsel_program* made;
  need(gsel_program_parse(text(kProgram), text("rank0.txt"), &made, &err), &err);
  const gsel_program* programs[] = {made};
  const gsel_status status = gsel_program_verify(programs, 1, &err);
  show(status, err);
  gsel_program_free(made);
}

/* The message of the child: it has the parent's communicator, and no use of it. */
static void forked(void) {
  gsel_error* err;
  gsel_comm* comm;
  need(gsel_comm_init(NULL, &comm, &err), &err);
  const pid_t child = fork();
  if (child == 0) {
    const gsel_status status = gsel_barrier(comm, &err);
    show(status, err);
    _exit(0);
  }
  int ended = 1;
  if (waitpid(child, &ended, 0) != child || ended != 0) exit(1);
  gsel_comm_free(comm);
}

static const struct {
  const char* name;
  void (*make)(void);
} kFailures[] = {{"arg", arg},
                 {"nomem", nomem},
                 {"unsupported", unsupported},
                 {"version", version},
                 {"io", io},
                 {"parse", parse},
                 {"config", config},
                 {"not_found", not_found},
                 {"plugin", plugin},
                 {"peer", peer},
                 {"timeout", timeout},
                 {"mismatch", mismatch},
                 {"aborted", aborted},
                 {"forked", forked},
                 {"callback", callback},
                 {"model", model},
                 {"program", program},
                 {"state", state},
                 {"duplicate", duplicate},
                 {"nan", nan_in_data},
                 {"kernel", model_kernel}};

int main(int argc, char** argv) {
  for (int a = 1; a < argc; ++a) {
    size_t i = 0;
    while (i < sizeof kFailures / sizeof *kFailures && strcmp(kFailures[i].name, argv[a]) != 0) ++i;
    if (i == sizeof kFailures / sizeof *kFailures) {
      fprintf(stderr, "no failure is named %s\n", argv[a]);
      return 1;
    }
    kFailures[i].make();
  }
}
