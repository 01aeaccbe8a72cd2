// api/model.cc: gsel/model.h.
#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/random.h"

namespace {

void keep_user_data(const gsel_param_options& given, gsel::UserData& kept) {
  kept.take(given.init_user_data, given.init_free_user_data);
}
void keep_user_data(const gsel_value_options&, gsel::UserData&) {}
void keep_user_data(const gsel_layer_options& given, gsel::UserData& kept) {
  kept.take(given.user_data, given.free_user_data);
}

// Adds an element and returns its id.
template <class Options>
gsel_status add(gsel_model* model, const Options* options, const char* type,
                int32_t (gsel::Model::*adder)(const Options&), int32_t* out_id, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::Model& target = *gsel::required(model, "model").impl;
    const Options given = gsel::read_struct(options, type);
    target.user_data().emplace_back();
    int32_t id = -1;
    try {
      id = (target.*adder)(given);
    } catch (...) {
      target.user_data().pop_back();
      throw;
    }
    keep_user_data(given, target.user_data().back());
    if (out_id) *out_id = id;
  });
}

template <class Item>
int32_t count(const gsel_model* model, const std::vector<Item>& (gsel::Model::*pieces)() const) {
  return model ? static_cast<int32_t>(((*model->impl).*pieces)().size()) : 0;
}

}  // namespace

extern "C" {

void gsel_param_options_init(gsel_param_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_value_options_init(gsel_value_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_layer_options_init(gsel_layer_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}

void gsel_phase_init(gsel_phase* phase, size_t struct_size) {
  gsel::init_struct(phase, struct_size);
}

float gsel_random_uniform(uint64_t key, uint64_t counter) {
  return gsel::random_uniform(key, counter);
}
float gsel_random_normal(uint64_t key, uint64_t counter) {
  return gsel::random_normal(key, counter);
}

gsel_status gsel_model_create(gsel_model** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    *out = new gsel_model;
  });
}

gsel_status gsel_model_add_param(gsel_model* model, const gsel_param_options* options, int32_t* out_id,
                                 gsel_error** err) {
  return add(model, options, "gsel_param_options", &gsel::Model::add_param, out_id, err);
}
gsel_status gsel_model_add_value(gsel_model* model, const gsel_value_options* options, int32_t* out_id,
                                 gsel_error** err) {
  return add(model, options, "gsel_value_options", &gsel::Model::add_value, out_id, err);
}
gsel_status gsel_model_add_layer(gsel_model* model, const gsel_layer_options* options, int32_t* out_id,
                                 gsel_error** err) {
  return add(model, options, "gsel_layer_options", &gsel::Model::add_layer, out_id, err);
}

gsel_status gsel_model_finish(gsel_model* model, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::required(model, "model").impl->finish(); });
}

int32_t gsel_model_param_count(const gsel_model* model) {
  return count(model, &gsel::Model::params);
}
int32_t gsel_model_value_count(const gsel_model* model) {
  return count(model, &gsel::Model::values);
}
int32_t gsel_model_layer_count(const gsel_model* model) {
  return count(model, &gsel::Model::layers);
}
int64_t gsel_model_element_count(const gsel_model* model) {
  return model ? model->impl->element_count() : 0;
}

void gsel_model_free(gsel_model* model) {
  delete model;
}

}  // extern "C"
