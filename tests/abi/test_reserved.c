/* test_reserved.c: fields without a meaning must be zero, and flags be known, in every struct that a caller passes; so
 * a field or a bit that gets a meaning some day does not wake what some program left there. The fields are those of the
 * headers, as fields.sh finds them: one of a new struct fails here until it is sorted. */
#include <gsel/device.h>
#include <gsel/gsel.h>
#include <gsel/plugin.h>
#include <gsel/transport.h>
#include <stddef.h>
#include <stdlib.h>

#include "support/check.h"

typedef gsel_status (*passes)(void* given, gsel_error** err);

static gsel_status to_comm_init(void* given, gsel_error** err) {
  gsel_comm_options* options = (gsel_comm_options*)given;
  gsel_comm* comm;
  options->world_size = 1;
  const gsel_status status = gsel_comm_init(options, &comm, err);
  gsel_comm_free(comm);
  return status;
}

static gsel_status to_mesh_split(void* given, gsel_error** err) {
  gsel_mesh* mesh = (gsel_mesh*)given;
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  gsel_comm *world, *part;
  options.world_size = 1;
  check_ok(gsel_comm_init(&options, &world, err), *err);
  mesh->world_size = 1;
  const gsel_status status = gsel_mesh_split(world, mesh, 1, &part, err);
  gsel_comm_free(part);
  gsel_comm_free(world);
  return status;
}

#define TO_MODEL(piece)                                                           \
  static gsel_status to_##piece(void* given, gsel_error** err) {                  \
    gsel_model* model;                                                            \
    gsel_##piece##_options* options = (gsel_##piece##_options*)given;             \
    check_ok(gsel_model_create(&model, err), *err);                               \
    options->name = gsel_str_from("piece");                                       \
    const gsel_status status = gsel_model_add_##piece(model, options, NULL, err); \
    gsel_model_free(model);                                                       \
    return status;                                                                \
  }
TO_MODEL(param)
TO_MODEL(value)
TO_MODEL(layer)

static gsel_status to_pipeline(void* given, gsel_error** err) {
  gsel_pipeline* pipeline;
  return gsel_pipeline_create(NULL, NULL, (gsel_pipeline_options*)given, &pipeline, err);
}

static gsel_status to_resolve(void* given, gsel_error** err) {
  gsel_selection* selection;
  const gsel_status status = gsel_resolve((gsel_resolve_options*)given, &selection, err);
  gsel_selection_free(selection);
  return status;
}

static gsel_status to_reserve(void* given, gsel_error** err) {
  gsel_reservation* held;
  gsel_resolve_options options = GSEL_RESOLVE_OPTIONS_INIT;
  const gsel_status status = gsel_reserve(&options, (gsel_reserve_options*)given, &held, err);
  gsel_reservation_free(held);
  return status;
}

static gsel_status to_simulate(void* given, gsel_error** err) {
  gsel_schedule* schedule;
  gsel_simulation* simulation;
  check_ok(gsel_schedule_create(gsel_str_from("1f1b"), 2, 4, 1, &schedule, err), *err);
  const gsel_status status = gsel_schedule_simulate(schedule, (gsel_schedule_times*)given, &simulation, err);
  gsel_simulation_free(simulation);
  gsel_schedule_free(schedule);
  return status;
}

static gsel_status to_plan(void* given, gsel_error** err) {
  gsel_plan* plan;
  gsel_plan_options* options = (gsel_plan_options*)given;
  options->cluster = gsel_str_from("H100");
  options->sequence = 8;
  options->model = gsel_str_from(
      "{\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"vocab_size\": 100, "
      "\"max_position_embeddings\": 8}");
  const gsel_status status = gsel_plan_create(options, &plan, err);
  gsel_plan_free(plan);
  return status;
}

static gsel_status to_trainer(void* given, gsel_error** err) {
  gsel_trainer* trainer;
  return gsel_trainer_create(NULL, NULL, (gsel_trainer_options*)given, &trainer, err);
}

static gsel_status to_optimizer(void* given, gsel_error** err) {
  gsel_trainer* trainer;
  gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
  options.optimizer = (gsel_optimizer_options*)given;
  return gsel_trainer_create(NULL, NULL, &options, &trainer, err);
}

static gsel_status to_save(void* given, gsel_error** err) {
  return gsel_trainer_save(NULL, gsel_str_from("x"), (gsel_checkpoint_options*)given, NULL, err);
}

static gsel_status to_verify(void* given, gsel_error** err) {
  return gsel_checkpoint_verify(NULL, (gsel_checkpoint_tool_options*)given, err);
}

typedef gsel_status (*with_trainer)(gsel_comm* comm, gsel_trainer* trainer, void* given, gsel_error** err);

/* A trainer of one rank, which makes no step. */
static gsel_status of_a_trainer(with_trainer use, void* given, gsel_error** err) {
  gsel_comm_options alone = GSEL_COMM_OPTIONS_INIT;
  gsel_param_options w = GSEL_PARAM_OPTIONS_INIT;
  gsel_value_options x = GSEL_VALUE_OPTIONS_INIT, sum = GSEL_VALUE_OPTIONS_INIT;
  gsel_layer_options layer = GSEL_LAYER_OPTIONS_INIT;
  gsel_comm* comm;
  gsel_model* model;
  gsel_trainer* trainer;
  const int64_t one = 1;
  const int32_t ids[] = {0, 1, 2};
  alone.world_size = 1;
  check_ok(gsel_comm_init(&alone, &comm, err), *err);
  check_ok(gsel_model_create(&model, err), *err);
  w.name = gsel_str_from("w"), w.dims = &one, w.n_dims = 1, w.dtype = GSEL_F32;
  check_ok(gsel_model_add_param(model, &w, NULL, err), *err);
  x.name = gsel_str_from("x"), x.dims = &one, x.n_dims = 1, x.dtype = GSEL_F32, x.flags = GSEL_VALUE_INPUT;
  check_ok(gsel_model_add_value(model, &x, NULL, err), *err);
  sum.dtype = GSEL_F64, sum.flags = GSEL_VALUE_SCALAR;
  sum.name = gsel_str_from("loss");
  check_ok(gsel_model_add_value(model, &sum, NULL, err), *err);
  sum.name = gsel_str_from("weight");
  check_ok(gsel_model_add_value(model, &sum, NULL, err), *err);
  layer.name = gsel_str_from("layer"), layer.flags = GSEL_LAYER_LOSS;
  layer.inputs = ids, layer.n_inputs = 1, layer.outputs = ids + 1, layer.n_outputs = 2;
  layer.params = ids, layer.n_params = 1;
  check_ok(gsel_model_add_layer(model, &layer, NULL, err), *err);
  check_ok(gsel_trainer_create(comm, model, NULL, &trainer, err), *err);
  const gsel_status status = use(comm, trainer, given, err);
  gsel_trainer_free(trainer);
  gsel_model_free(model);
  gsel_comm_free(comm);
  return status;
}

static gsel_status rebind(gsel_comm* comm, gsel_trainer* trainer, void* given, gsel_error** err) {
  return gsel_trainer_rebind(trainer, comm, (gsel_rebind_options*)given, NULL, err);
}
static gsel_status to_rebind(void* given, gsel_error** err) {
  return of_a_trainer(rebind, given, err);
}

static gsel_status set_numbers(gsel_comm* comm, gsel_trainer* trainer, void* given, gsel_error** err) {
  gsel_state* state;
  (void)comm;
  check_ok(gsel_state_open(trainer, &state, err), *err);
  const gsel_status status = gsel_state_set_numbers(state, (gsel_training_numbers*)given, err);
  gsel_state_free(state);
  return status;
}
static gsel_status to_set_numbers(void* given, gsel_error** err) {
  return of_a_trainer(set_numbers, given, err);
}

static const struct passed {
  const char* type;
  passes pass;
} passed[] = {
    {"gsel_comm_options", to_comm_init},      {"gsel_mesh", to_mesh_split},
    {"gsel_param_options", to_param},         {"gsel_value_options", to_value},
    {"gsel_layer_options", to_layer},         {"gsel_pipeline_options", to_pipeline},
    {"gsel_resolve_options", to_resolve},     {"gsel_reserve_options", to_reserve},
    {"gsel_schedule_times", to_simulate},     {"gsel_trainer_options", to_trainer},
    {"gsel_optimizer_options", to_optimizer}, {"gsel_plan_options", to_plan},
    {"gsel_checkpoint_options", to_save},     {"gsel_checkpoint_tool_options", to_verify},
    {"gsel_rebind_options", to_rebind},       {"gsel_training_numbers", to_set_numbers},
};

/* The library writes these, or lends them to callbacks and plugins. */
static const char* const given_out[] = {
    "gsel_comm_explanation",
    "gsel_comm_count",
    "gsel_plan_candidate",
    "gsel_call",
    "gsel_host_v1",
    "gsel_pass_api_v1",
    "gsel_join",
    "gsel_control_v1",
    "gsel_optimizer_step",
    "gsel_low_rank_step",
    "gsel_update_scale",
    "gsel_plugin_info",
    "gsel_simulation_report",
    "gsel_device_info",
    "gsel_partition_info",
    "gsel_interconnect_info",
    "gsel_candidate",
    "gsel_decision",
    "gsel_step_report",
    "gsel_checkpoint_report",
    "gsel_weights_report",
    "gsel_checkpoint_info",
    "gsel_checkpoint_entry",
    "gsel_checkpoint_piece",
    "gsel_checkpoint_file",
    "gsel_state_entry",
    "gsel_work",
    "gsel_data_request",
    "gsel_param_info",
    "gsel_layer_info",
    "gsel_value_info",
    "gsel_optimizer_call",
    "gsel_breach",
    "gsel_device_description",
    "gsel_transport_description",
    "gsel_memory_info",
};

/* Parts of other structs and tables of plugins, whose refusals test_model.c, test_program.c, test_plugin.c,
 * test_device.cc and test_advice.cc compare.
 */
static const char* const checked_elsewhere[] = {
    "gsel_phase",     "gsel_instr",        "gsel_device_options",   "gsel_bucket_options", "gsel_strategy_v1",
    "gsel_device_v1", "gsel_transport_v2", "struct gsel_plugin_v1", "gsel_suggestion",
};

static const struct field {
  const char *type, *name;
  size_t offset, bytes;
  uint32_t struct_bytes;
} fields[] = {
#define FIELD(type, name) {#type, #name, offsetof(type, name), sizeof(((type*)NULL)->name), sizeof(type)},
#include "fields.inc"
#undef FIELD
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static int is_in(const char* const* list, size_t n, const char* type) {
  for (size_t i = 0; i < n; ++i)
    if (strcmp(list[i], type) == 0) return 1;
  return 0;
}

/* A struct as its initialiser leaves it, with one bit set in one field. */
static void check_refused(const struct passed* to, const struct field* field) {
  const int is_flags = strcmp(field->name, "flags") == 0;
  const uint32_t bytes = field->struct_bytes, bit = is_flags ? 1u << 31 : 1u;
  unsigned char* given = (unsigned char*)calloc(1, bytes);
  gsel_error* err = NULL;
  char name[96];
  memcpy(given, &bytes, sizeof bytes);
  memcpy(given + field->offset, &bit, sizeof bit);
  const gsel_status status = to->pass(given, &err);
  snprintf(name, sizeof name, "%s.%s is 1; it must be 0", field->type, field->name);
  const char* message = gsel_error_message(err).data;
  if (status == GSEL_OK || !strstr(message, is_flags ? "flags" : name) || (is_flags && !strstr(message, "0x80000000")))
    fail_msg("%s with %s = %#x: expected a refusal of the field, got %s: %s", to->type, field->name, (unsigned)bit,
             gsel_status_name(status), message);
  gsel_error_free(err);
  free(given);
}

static void test_fields_without_meaning_and_unknown_flags_are_refused(void** state) {
  (void)state;
  size_t refused = 0;
  for (size_t i = 0; i < COUNT(fields); ++i) {
    const struct field* f = &fields[i];
    assert_int_equal(f->bytes, sizeof(uint32_t));
    const size_t before = refused;
    for (size_t k = 0; k < COUNT(passed); ++k)
      if (strcmp(passed[k].type, f->type) == 0) check_refused(&passed[k], f), ++refused;
    if (refused == before && !is_in(given_out, COUNT(given_out), f->type) &&
        !is_in(checked_elsewhere, COUNT(checked_elsewhere), f->type))
      fail_msg("%s.%s: say above who is passed a %s", f->type, f->name, f->type);
  }
  assert_true(refused >= COUNT(passed));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields_without_meaning_and_unknown_flags_are_refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
