/* nets/scene.c: see scene.h. */
#include "nets/scene.h"

#include <gsel/plugin.h>

#include "support/pipe_model.h"
#include "support/step_model.h"

static const char scene_config[] = STEP_SGD("0.5", "4", "microbatch = 1\n") STEP_DDP;
static const char scene_inventory[] =
    "{\"gsel_inventory\": 1, \"hosts\": [{\"name\": \"here\", \"devices\": [{\"vendor\": \"cpu\", \"name\": "
    "\"cpu\"}]}]}";

struct scene_rest {
  step_model model;
  pipe_model pipe;
  uint64_t ones[RANKS_MAX];
  float send[256], recv[256];
  int64_t dims[GSEL_MAX_DIMS];
  int32_t ids[4];
};

typedef struct maker {
  const char* type;
  int needs_comm;
  gsel_status (*make)(scene* s, void** out, gsel_error** err);
  void (*release)(void* object);
} maker;

static gsel_status make_comm(scene* s, void** out, gsel_error** err) {
  return rank_join(&s->run, (gsel_comm**)out, err);
}
static gsel_status make_config(scene* s, void** out, gsel_error** err) {
  (void)s;
  return gsel_config_parse(gsel_str_from(scene_config), gsel_str_from("scene.toml"), (gsel_config**)out, err);
}
static gsel_status make_error(scene* s, void** out, gsel_error** err) {
  gsel_config* none;
  (void)s, (void)err;
  return gsel_config_parse(gsel_str_from("mesh = 3"), gsel_str_from("bad.toml"), &none, (gsel_error**)out)
             ? GSEL_OK
             : GSEL_ERR_INTERNAL;
}
static gsel_status make_inventory(scene* s, void** out, gsel_error** err) {
  (void)s;
  return gsel_inventory_parse(gsel_str_from(scene_inventory), gsel_str_from("scene.json"), (gsel_inventory**)out, err);
}
static gsel_status make_selection(scene* s, void** out, gsel_error** err) {
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  scene_fill(s, "gsel_resolve_options", &options);
  return gsel_resolve(&options, (gsel_selection**)out, err);
}
static gsel_status make_reservation(scene* s, void** out, gsel_error** err) {
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  scene_fill(s, "gsel_resolve_options", &options);
  return gsel_reserve(&options, NULL, (gsel_reservation**)out, err);
}
/* Complete, and open for more. */
static gsel_status make_model(scene* s, void** out, gsel_error** err) {
  gsel_status status = gsel_model_create((gsel_model**)out, err);
  s->rest->pipe.layers = 4;
  if (status) return status;
  return strstr(s->function, "pipeline") ? pipe_describe((gsel_model*)*out, &s->rest->pipe, err)
                                         : step_describe((gsel_model*)*out, &s->rest->model, err);
}
static gsel_status make_model_check_report(scene* s, void** out, gsel_error** err) {
  return gsel_model_check((gsel_model*)scene_object(s, "gsel_model"), NULL, (gsel_model_check_report**)out, err);
}
static gsel_status make_trainer(scene* s, void** out, gsel_error** err) {
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  scene_fill(s, "gsel_trainer_options", &options);
  return gsel_trainer_create((gsel_comm*)scene_object(s, "gsel_comm"), (gsel_model*)scene_object(s, "gsel_model"),
                             &options, (gsel_trainer**)out, err);
}
static gsel_status make_state(scene* s, void** out, gsel_error** err) {
  return gsel_state_open((gsel_trainer*)scene_object(s, "gsel_trainer"), (gsel_state**)out, err);
}
/* Of a trainer of one rank. Its files are read once and stay open, so that the folder can go. */
static gsel_status make_checkpoint(scene* s, void** out, gsel_error** err) {
  static const char* const names[] = {"step-000000000000/rank-00000.safetensors", "step-000000000000/index.json",
                                      "step-000000000000/manifest.json", "step-000000000000", "latest", ""};
  char folder[] = "/tmp/gsel-net-XXXXXX", path[128]; /* mkdtemp fills in the X */
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  gsel_trainer* trainer = NULL;
  gsel_checkpoint_differences* none = NULL;
  if (!mkdtemp(folder)) return GSEL_ERR_IO;
  scene_fill(s, "gsel_trainer_options", &options);
  gsel_status status = gsel_trainer_create(NULL, (gsel_model*)scene_object(s, "gsel_model"), &options, &trainer, err);
  if (!status) status = gsel_trainer_save(trainer, gsel_str_from(folder), NULL, NULL, err);
  if (!status) status = gsel_checkpoint_open(gsel_str_from(folder), (gsel_checkpoint**)out, err);
  if (!status) status = gsel_checkpoint_diff((gsel_checkpoint*)*out, (gsel_checkpoint*)*out, NULL, &none, err);
  gsel_checkpoint_differences_free(none);
  gsel_trainer_free(trainer);
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    remove(path);
  }
  return status;
}
static gsel_status make_checkpoint_differences(scene* s, void** out, gsel_error** err) {
  gsel_checkpoint* checkpoint = (gsel_checkpoint*)scene_object(s, "gsel_checkpoint");
  return gsel_checkpoint_diff(checkpoint, checkpoint, NULL, (gsel_checkpoint_differences**)out, err);
}
static gsel_status make_pipeline(scene* s, void** out, gsel_error** err) {
  gsel_pipeline_options options = GSEL_PIPELINE_OPTIONS_INIT;
  scene_fill(s, "gsel_pipeline_options", &options);
  return gsel_pipeline_create((gsel_comm*)scene_object(s, "gsel_comm"), (gsel_model*)scene_object(s, "gsel_model"),
                              &options, (gsel_pipeline**)out, err);
}
static gsel_status make_program(scene* s, void** out, gsel_error** err) {
  const gsel_program* borrowed = gsel_trainer_program((gsel_trainer*)scene_object(s, "gsel_trainer"));
  return gsel_program_parse(gsel_program_text(borrowed), gsel_str_from("program"), (gsel_program**)out, err);
}
static gsel_status make_plugin_list(scene* s, void** out, gsel_error** err) {
  (void)s;
  return gsel_plugin_list_create((gsel_plugin_list**)out, err);
}
static gsel_status make_request(scene* s, void** out, gsel_error** err) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  scene_fill(s, "gsel_collective", &call);
  call.kind = GSEL_COLLECTIVE_ALLREDUCE;
  return gsel_request_create((gsel_comm*)scene_object(s, "gsel_comm"), &call, (gsel_request**)out, err);
}
/* With a request that ends: a wait without a bound is no finding. */
static gsel_status make_queue(scene* s, void** out, gsel_error** err) {
  gsel_request* request = (gsel_request*)scene_object(s, "gsel_request");
  gsel_status status = gsel_queue_create((gsel_queue**)out, err);
  if (status == GSEL_OK) status = gsel_request_notify(request, (gsel_queue*)*out, NULL, err);
  return status == GSEL_OK ? gsel_request_start(request, err) : status;
}
static gsel_status make_schedule(scene* s, void** out, gsel_error** err) {
  (void)s;
  return gsel_schedule_create(gsel_str_from("1f1b"), 2, 4, 0, (gsel_schedule**)out, err);
}
static gsel_status make_simulation(scene* s, void** out, gsel_error** err) {
  return gsel_schedule_simulate((gsel_schedule*)scene_object(s, "gsel_schedule"), NULL, (gsel_simulation**)out, err);
}
static gsel_status make_timeline(scene* s, void** out, gsel_error** err) {
  (void)s;
  return gsel_timeline_create((gsel_timeline**)out, err);
}
static void fill_plan(gsel_plan_options* options) {
  options->model = gsel_str_from(
      "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
      "\"intermediate_size\": 256, \"vocab_size\": 100, \"max_position_embeddings\": 8}");
  options->cluster = gsel_str_from("2xH100");
  options->fixed = gsel_str_from("pipeline=2");
}
static gsel_status make_plan(scene* s, void** out, gsel_error** err) {
  gsel_plan_options options = GSEL_PLAN_OPTIONS_INIT;
  (void)s;
  fill_plan(&options);
  return gsel_plan_create(&options, (gsel_plan**)out, err);
}
static gsel_status make_trace(scene* s, void** out, gsel_error** err) {
  return gsel_comm_trace((gsel_comm*)scene_object(s, "gsel_comm"), (gsel_trace**)out, err);
}

/* A plugin of the program: a strategy that changes nothing, which nobody asks for. */
static gsel_status change_nothing(const gsel_host_v1* host, const gsel_pass_api_v1* api, gsel_pass* pass,
                                  gsel_axis axis, gsel_error** err) {
  (void)host, (void)api, (void)pass, (void)axis, (void)err;
  return GSEL_OK;
}
static gsel_status make_plugin_v1(scene* s, void** out, gsel_error** err) {
  static gsel_strategy_v1 strategy = {
      .struct_size = sizeof strategy, .axes = 1u << GSEL_AXIS_DATA, .compile = change_nothing};
  static struct gsel_plugin_v1 plugin = {.struct_size = sizeof plugin,
                                         .abi_major = GSEL_PLUGIN_ABI_MAJOR,
                                         .abi_minor = GSEL_PLUGIN_ABI_MINOR,
                                         .kind = GSEL_PLUGIN_STRATEGY,
                                         .name = "of_the_scene",
                                         .table = &strategy};
  (void)s, (void)err;
  *out = &plugin;
  return GSEL_OK;
}
static void release_plugin_v1(void* object) {
  (void)object; /* kept by the library */
}

/* As dlpack.h has them, as far as they are needed here. */
struct DLManagedTensor {
  void* data;
  int32_t device[2], n_dims;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void *context, *deleter;
};
struct DLManagedTensorVersioned {
  uint32_t version[2];
  void* context;
  void (*deleter)(struct DLManagedTensorVersioned* self);
};

static gsel_status make_dlpack_tensor(scene* s, void** out, gsel_error** err) {
  struct DLManagedTensor* made = (struct DLManagedTensor*)calloc(1, sizeof *made);
  (void)err;
  made->data = s->rest->send;
  made->n_dims = 2;
  made->code = 2, made->bits = 32, made->lanes = 1;
  made->shape = s->rest->dims;
  *out = made;
  return GSEL_OK;
}
static gsel_status make_dlpack_versioned(scene* s, void** out, gsel_error** err) {
  const gsel_dlpack_device host = {1, 0};
  gsel_tensor tensor = {s->rest->send, 9, {3, 3}, 2, GSEL_F32};
  return gsel_tensor_to_dlpack(&tensor, &host, NULL, NULL, (gsel_dlpack_versioned**)out, err);
}
static void release_dlpack_tensor(void* object) {
  free(object);
}
static void release_dlpack_versioned(void* object) {
  struct DLManagedTensorVersioned* tensor = (struct DLManagedTensorVersioned*)object;
  if (tensor) tensor->deleter(tensor);
}

#define RELEASE(type, function)              \
  static void release_##type(void* object) { \
    function((gsel_##type*)object);          \
  }
RELEASE(comm, gsel_comm_free)
RELEASE(config, gsel_config_free)
RELEASE(error, gsel_error_free)
RELEASE(inventory, gsel_inventory_free)
RELEASE(selection, gsel_selection_free)
RELEASE(reservation, gsel_reservation_free)
RELEASE(model, gsel_model_free)
RELEASE(model_check_report, gsel_model_check_free)
RELEASE(trainer, gsel_trainer_free)
RELEASE(state, gsel_state_free)
RELEASE(checkpoint, gsel_checkpoint_free)
RELEASE(checkpoint_differences, gsel_checkpoint_differences_free)
RELEASE(pipeline, gsel_pipeline_free)
RELEASE(program, gsel_program_free)
RELEASE(plugin_list, gsel_plugin_list_free)
RELEASE(request, gsel_request_free)
RELEASE(queue, gsel_queue_free)
RELEASE(schedule, gsel_schedule_free)
RELEASE(simulation, gsel_simulation_free)
RELEASE(timeline, gsel_timeline_free)
RELEASE(plan, gsel_plan_free)
RELEASE(trace, gsel_trace_free)

/* In an order in which what comes first is released last. */
#define MAKER(type, needs_comm) \
  { "gsel_" #type, needs_comm, make_##type, release_##type }
static const maker makers[] = {
    MAKER(config, 0),
    MAKER(error, 0),
    MAKER(inventory, 0),
    MAKER(selection, 0),
    MAKER(reservation, 0),
    MAKER(comm, 1),
    MAKER(trace, 1),
    MAKER(request, 1),
    MAKER(queue, 1),
    MAKER(model, 0),
    MAKER(trainer, 1),
    MAKER(state, 1),
    MAKER(checkpoint, 0),
    MAKER(checkpoint_differences, 0),
    MAKER(pipeline, 1),
    MAKER(program, 1),
    MAKER(plugin_v1, 0),
    MAKER(plugin_list, 0),
    MAKER(schedule, 0),
    MAKER(simulation, 0),
    MAKER(timeline, 0),
    MAKER(plan, 0),
    MAKER(model_check_report, 0),
    MAKER(dlpack_tensor, 0),
    MAKER(dlpack_versioned, 0),
};
enum { N_MAKERS = sizeof makers / sizeof *makers };

static int maker_of(const char* type) {
  for (int i = 0; i < N_MAKERS; ++i)
    if (!strcmp(makers[i].type, type)) return i;
  return -1;
}

int scene_makes(const char* type) { return maker_of(type) >= 0; }

void scene_open(scene* s, const char* function, int32_t rank, int32_t world_size, const gsel_unique_id* id,
                int variant) {
  memset(s, 0, sizeof *s);
  s->function = function;
  s->variant = variant;
  s->run.rank = rank;
  s->run.world_size = world_size;
  s->run.id = *id;
  s->run.timeout_s = 0.3;
  s->run.join_timeout_s = 5;
  s->rest = (struct scene_rest*)calloc(1, sizeof *s->rest);
  for (int i = 0; i < RANKS_MAX; ++i) s->rest->ones[i] = 1;
  for (int i = 0; i < GSEL_MAX_DIMS; ++i) s->rest->dims[i] = 3;
}

void* scene_object(scene* s, const char* type) {
  const int i = maker_of(type);
  gsel_error* err = NULL;
  if (i < 0) {
    snprintf(s->failure, sizeof s->failure, "nets/scene.c has no maker for %s", type);
    return NULL;
  }
  if (s->objects[i] || s->failure[0]) return s->objects[i];
  if (makers[i].make(s, &s->objects[i], &err) && !s->failure[0]) {
    char text[400];
    gsel_error_format(err, text, sizeof text);
    snprintf(s->failure, sizeof s->failure, "no %s: %s", type, text);
  }
  gsel_error_free(err);
  return s->objects[i];
}

void scene_forget(scene* s, const char* type) {
  const int i = maker_of(type);
  if (i >= 0) s->objects[i] = NULL;
}

void scene_release(const char* type, void* object) {
  const int i = maker_of(type);
  if (i >= 0) makers[i].release(object);
}

void scene_close(scene* s) {
  for (int i = N_MAKERS; i-- > 0;) makers[i].release(s->objects[i]);
  free(s->rest);
}

int scene_needs_comm(const char* type) {
  const int i = maker_of(type);
  return i >= 0 && makers[i].needs_comm;
}

/* ---- structs ---- */

static int fill_comm_config(scene* s, void* at) {
  gsel_comm_options* c = (gsel_comm_options*)at;
  c->rank = s->run.rank;
  c->world_size = s->run.world_size;
  c->id = &s->run.id;
  c->timeout_s = s->run.timeout_s;
  c->join_timeout_s = 0.3;
  return s->variant == 0;
}

/* A variant for every kind of call; rank 0 makes those of messages, and the other the end that they need. */
static int fill_collective(scene* s, void* at) {
  gsel_collective* c = (gsel_collective*)at;
  const int alone =
      s->variant == GSEL_COLLECTIVE_SEND || s->variant == GSEL_COLLECTIVE_RECV || s->variant > GSEL_COLLECTIVE_SENDRECV;
  c->kind = s->variant;
  if (alone && s->run.rank > 0)
    c->kind = s->variant == GSEL_COLLECTIVE_SEND ? GSEL_COLLECTIVE_RECV : GSEL_COLLECTIVE_SEND;
  c->dtype = GSEL_F32;
  c->op = GSEL_SUM;
  c->source = s->run.world_size - 1 - s->run.rank;
  c->root = alone || s->variant == GSEL_COLLECTIVE_SENDRECV ? c->source : 0;
  c->send = s->rest->send;
  c->recv = s->rest->recv;
  c->count = c->recv_count = 4;
  c->send_counts = c->recv_counts = s->rest->ones;
  return s->variant < GSEL_COLLECTIVE_KINDS;
}

static int fill_trainer_options(scene* s, void* at) {
  gsel_trainer_options* o = (gsel_trainer_options*)at;
  o->config = (gsel_config*)scene_object(s, "gsel_config");
  o->data = step_data;
  return s->variant == 0;
}

static int fill_pipeline_config(scene* s, void* at) {
  gsel_pipeline_options* c = (gsel_pipeline_options*)at;
  c->microbatches = 2;
  c->microbatch_samples = 1;
  c->data = pipe_data;
  c->data_user_data = &s->rest->pipe;
  return s->variant == 0;
}

static int fill_param_desc(scene* s, void* at) {
  gsel_param_options* d = (gsel_param_options*)at;
  d->name = gsel_str_from("one more");
  d->dims = s->rest->dims;
  d->n_dims = 2;
  return s->variant == 0;
}

static int fill_value_desc(scene* s, void* at) {
  gsel_value_options* d = (gsel_value_options*)at;
  d->name = gsel_str_from("one more");
  d->dims = s->rest->dims;
  d->n_dims = 2;
  d->flags = GSEL_VALUE_INPUT;
  return s->variant == 0;
}

static int fill_layer_desc(scene* s, void* at) {
  gsel_layer_options* d = (gsel_layer_options*)at;
  d->name = gsel_str_from("one more");
  d->inputs = d->outputs = d->params = s->rest->ids;
  d->n_inputs = d->n_outputs = d->n_params = 1;
  d->forward = step_forward;
  d->backward = step_backward;
  return s->variant == 0;
}

static int fill_resolve_request(scene* s, void* at) {
  gsel_resolve_options* r = (gsel_resolve_options*)at;
  r->inventory = (gsel_inventory*)scene_object(s, "gsel_inventory");
  r->flags = GSEL_RESOLVE_NO_ENV;
  r->devices = gsel_str_from("cpu");
  return s->variant == 0;
}

static int fill_plan_options(scene* s, void* at) {
  fill_plan((gsel_plan_options*)at);
  return s->variant == 0;
}
static int fill_mesh(scene* s, void* at) {
  gsel_mesh* m = (gsel_mesh*)at;
  m->world_size = s->run.world_size;
  for (int i = 0; i < GSEL_MAX_AXES; ++i) m->size[i] = i == GSEL_AXIS_DATA ? s->run.world_size : 1;
  return s->variant == 0;
}

int scene_fill(scene* s, const char* record, void* at) {
  static const struct {
    const char* record;
    int (*fill)(scene* s, void* at);
  } fillers[] = {
      {"gsel_comm_options", fill_comm_config},
      {"gsel_collective", fill_collective},
      {"gsel_trainer_options", fill_trainer_options},
      {"gsel_pipeline_options", fill_pipeline_config},
      {"gsel_param_options", fill_param_desc},
      {"gsel_value_options", fill_value_desc},
      {"gsel_layer_options", fill_layer_desc},
      {"gsel_resolve_options", fill_resolve_request},
      {"gsel_mesh", fill_mesh},
      {"gsel_plan_options", fill_plan_options},
  };
  for (size_t i = 0; i < sizeof fillers / sizeof *fillers; ++i)
    if (!strcmp(fillers[i].record, record)) return fillers[i].fill(s, at);
  return s->variant == 0;
}

/* ---- texts and numbers ---- */

const char* scene_text(const char* function, const char* name) {
  static const struct {
    const char *function, *name, *text;
  } texts[] = {
      {"gsel_config_parse", "text", scene_config},     {"gsel_inventory_parse", "text", scene_inventory},
      {"gsel_schedule_create", "name", "1f1b"},        {"gsel_schedule_parse", "text", "0F0,0B0\n"},
      {"gsel_config_get", "key", "train.batch"},       {"gsel_selection_host_env", "host", "here"},
      {"gsel_config_load", "path", "/nonexistent"},    {"gsel_inventory_load", "path", "/nonexistent"},
      {"gsel_program_parse", "text", "rank 0 of 1\n"},
  };
  for (size_t i = 0; i < sizeof texts / sizeof *texts; ++i)
    if (!strcmp(texts[i].function, function) && !strcmp(texts[i].name, name)) return texts[i].text;
  return "text";
}

int scene_number(const scene* s, const char* function, const char* name, int64_t* value) {
  const int32_t other = s->run.world_size - 1 - s->run.rank;
  const struct {
    const char *function, *name;
    int64_t value;
  } numbers[] = {
      {NULL, "count", 4},      {NULL, "send_count", 4}, {NULL, "recv_count", 4},   {NULL, "dtype", GSEL_F32},
      {NULL, "op", GSEL_SUM},  {NULL, "peer", other},   {NULL, "to", other},       {NULL, "from", other},
      {NULL, "source", other}, {NULL, "source", other}, {NULL, "bytes", 4096},     {NULL, "capacity", 100},
      {NULL, "n", 1},          {NULL, "ranks", 2},      {NULL, "microbatches", 4}, {NULL, "world_size", 2},
      {NULL, "what", 2},       {NULL, "format", 1},     {NULL, "axes", 2},         {NULL, "n_samples", 1},
      {NULL, "dst_bytes", 12}, {NULL, "timeout_s", 1},  {NULL, "parts", 2},        {NULL, "pid", getpid()},
      {NULL, "value", 1},
  };
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; ++i)
    if ((!numbers[i].function || !strcmp(numbers[i].function, function)) && !strcmp(numbers[i].name, name)) {
      *value = numbers[i].value;
      return 1;
    }
  *value = 0;
  return 0;
}
