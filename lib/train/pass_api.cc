// train/pass_api.cc: what a strategy plugin can ask and do while it compiles. Every call checks its arguments and
// answers with a code: a plugin's mistake must not become ours.
#include <algorithm>
#include <new>

#include "train/pass.h"

namespace gsel {
namespace {

const Model& model_of(const gsel_pass* pass) {
  return pass->compiler.model();
}

template <class List>
bool within(const List& list, int32_t i) {
  return i >= 0 && static_cast<size_t>(i) < list.size();
}

// Runs an edit of the program; failures become codes.
template <class Edit>
gsel_status attempt(Edit&& edit) noexcept {
  try {
    edit();
    return GSEL_OK;
  } catch (const std::bad_alloc&) {
    return GSEL_ERR_NOMEM;
  } catch (...) {
    return GSEL_ERR_ARG;
  }
}

int32_t axis_size(const gsel_pass* pass, gsel_axis axis) {
  return axis >= 0 && axis < GSEL_AXES ? pass->program.mesh.size[axis] : 0;
}
int32_t axis_rank(const gsel_pass* pass, gsel_axis axis) {
  return axis >= 0 && axis < GSEL_AXES ? pass->program.mesh.coordinate(pass->program.rank, axis) : 0;
}
int32_t param_count(const gsel_pass* pass) {
  return static_cast<int32_t>(model_of(pass).params().size());
}
int32_t layer_count(const gsel_pass* pass) {
  return static_cast<int32_t>(model_of(pass).layers().size());
}

gsel_status param(const gsel_pass* pass, int32_t id, gsel_param_info* out) {
  const auto& params = model_of(pass).params();
  if (!within(params, id) || !out) return GSEL_ERR_ARG;
  const Param& p = params[id];
  const uint32_t size = out->struct_size;
  const gsel_param_info info{size, p.flags, p.name.c_str(), p.n_elems, p.dtype, 0};
  std::memcpy(out, &info, std::min<size_t>(size, sizeof info));
  return GSEL_OK;
}

gsel_status layer(const gsel_pass* pass, int32_t id, gsel_layer_info* out) {
  const auto& layers = model_of(pass).layers();
  if (!within(layers, id) || !out) return GSEL_ERR_ARG;
  const Layer& l = layers[id];
  const uint32_t size = out->struct_size;
  const auto n = [](const std::vector<int32_t>& ids) { return static_cast<int32_t>(ids.size()); };
  const gsel_layer_info info{size,
                             l.flags,
                             l.name.c_str(),
                             l.inputs.data(),
                             l.outputs.data(),
                             l.params.data(),
                             n(l.inputs),
                             n(l.outputs),
                             n(l.params),
                             0};
  std::memcpy(out, &info, std::min<size_t>(size, sizeof info));
  return GSEL_OK;
}

const OptionValue* option(const gsel_pass* pass, const char* name) {
  const auto found = pass->chosen.options.find(std::string_view(name ? name : ""));
  return found == pass->chosen.options.end() ? nullptr : &found->second;
}
int64_t option_integer(const gsel_pass* pass, const char* name) {
  const OptionValue* value = option(pass, name);
  return value ? value->integer : 0;
}
double option_number(const gsel_pass* pass, const char* name) {
  const OptionValue* value = option(pass, name);
  return value ? value->number : 0;
}
const char* option_text(const gsel_pass* pass, const char* name) {
  const OptionValue* value = option(pass, name);
  return value ? value->text.c_str() : nullptr;
}

int32_t length(const gsel_pass* pass) {
  return static_cast<int32_t>(pass->program.step.size());
}

gsel_status get(const gsel_pass* pass, int32_t position, gsel_instr* out) {
  if (!within(pass->program.step, position) || !out) return GSEL_ERR_ARG;
  *out = pass->program.step[position];
  return GSEL_OK;
}

gsel_status insert(gsel_pass* pass, int32_t position, const gsel_instr* instr) {
  auto& step = pass->program.step;
  if (!instr || position < 0 || static_cast<size_t>(position) > step.size()) return GSEL_ERR_ARG;
  return attempt([&] {
    check_instr(pass->program, *instr);
    step.insert(step.begin() + position, *instr);
  });
}

gsel_status remove(gsel_pass* pass, int32_t position) {
  auto& step = pass->program.step;
  if (!within(step, position)) return GSEL_ERR_ARG;
  step.erase(step.begin() + position);
  return GSEL_OK;
}

gsel_status setup(gsel_pass* pass, const gsel_instr* instr) {
  if (!instr) return GSEL_ERR_ARG;
  return attempt([&] {
    check_instr(pass->program, *instr);
    pass->program.setup.push_back(*instr);
  });
}

void clear_buckets(gsel_pass* pass) {
  pass->program.buckets.clear();
}

int32_t add_bucket(gsel_pass* pass, const int32_t* params, int32_t n_params) {
  if (!params || n_params < 1) return GSEL_ERR_ARG;
  const auto& known = pass->program.params;
  const bool good =
      std::all_of(params, params + n_params, [&](int32_t p) { return within(known, p) && known[p].trainable; });
  if (!good) return GSEL_ERR_ARG;
  const gsel_status status = attempt([&] { pass->program.buckets.emplace_back(params, params + n_params); });
  return status ? status : static_cast<int32_t>(pass->program.buckets.size()) - 1;
}

}  // namespace

const gsel_pass_api_v1& pass_api() {
  static constexpr gsel_pass_api_v1 table = {sizeof(gsel_pass_api_v1),
                                             0,
                                             axis_size,
                                             axis_rank,
                                             param_count,
                                             layer_count,
                                             param,
                                             layer,
                                             option_integer,
                                             option_number,
                                             option_text,
                                             length,
                                             get,
                                             insert,
                                             remove,
                                             setup,
                                             clear_buckets,
                                             add_bucket};
  return table;
}

}  // namespace gsel
