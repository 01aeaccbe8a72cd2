// train/compile/pass_api.cc: the functions that a strategy plugin calls during its pass; those about pipelines are in
// pass_pipeline.cc. Every function checks its arguments and returns a code, so that a plugin's mistake cannot corrupt
// the library.
#include <algorithm>

#include "train/compile/pass_calls.h"
#include "train/compile/settings.h"

namespace gsel {
namespace {

const Model& model_of(const gsel_pass* pass) {
  return pass->model;
}

// Writes the fields of info that the plugin's struct has room for.
template <class Info>
gsel_status fill(Info* out, const Info& info) {
  if (!states_its_size(out)) return GSEL_ERR_ARG;
  std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof info));
  return GSEL_OK;
}

int32_t axis_size(const gsel_pass* pass, gsel_axis axis) {
  return axis >= 0 && axis < kAxes ? pass->program.mesh.size[axis] : 0;
}
int32_t axis_coordinate(const gsel_pass* pass, gsel_axis axis) {
  return axis >= 0 && axis < kAxes ? pass->program.mesh.coordinate(pass->program.rank, axis) : 0;
}
int32_t rank_along(const gsel_pass* pass, gsel_axis axis, int32_t coordinate) {
  if (!is_axis(axis) || coordinate < 0 || coordinate >= pass->program.mesh.size[axis]) return -1;
  const Mesh& mesh = pass->program.mesh;
  return pass->program.rank + (coordinate - mesh.coordinate(pass->program.rank, axis)) * mesh.stride(axis);
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
  bool absent = false;
  int32_t tie = -1;
  const gsel_status status = attempt([&] {
    const ParamHolders& holders = param_holders(pass);
    absent = !holders.here[id];
    tie = holders.tie[id];
  });
  if (status) return status;
  return fill(
      out, gsel_param_info{out->struct_size, p.flags, p.name.c_str(), p.n_elems, kept_dtype(p, pass->compiler.config()),
                           absent, tie, p.shard_kind, p.shard_dim, p.shard_blocks, p.shard_granularity,
                           static_cast<int32_t>(p.whole_dims.size()), p.whole_dims.data()});
}

// A layer without inputs or parameters to differentiate may lack that half.
uint32_t backward_of(const Layer& l) {
  uint32_t result = 0;
  if (l.needs_backward_input) result |= GSEL_BACKWARD_PRODUCES_INPUT;
  if (l.needs_backward_weight) result |= GSEL_BACKWARD_PRODUCES_WEIGHT;
  if (l.backward_in_one()) result |= GSEL_BACKWARD_IN_ONE;
  const bool has_halves =
      (l.backward_input || !l.needs_backward_input) && (l.backward_weight || !l.needs_backward_weight);
  if (has_halves && !l.pull_only()) result |= GSEL_BACKWARD_IN_HALVES;
  return result;
}

int32_t tensor_phases(const Layer& l) {
  int32_t n = 0;
  for (const auto* phases : {&l.forward_phases, &l.backward_phases})
    n += static_cast<int32_t>(std::ranges::count_if(*phases, shares_layers, &gsel_phase::axis));
  return n;
}

int32_t ring_shifts(const Layer& l) {
  auto ring_shift = [](const gsel_phase& phase) { return (phase.flags & GSEL_PHASE_RING_SHIFT) != 0; };
  return std::ranges::any_of(l.forward_phases, ring_shift) || std::ranges::any_of(l.backward_phases, ring_shift);
}

gsel_status layer(const gsel_pass* pass, int32_t id, gsel_layer_info* out) {
  const auto& layers = model_of(pass).layers();
  if (!within(layers, id) || !out) return GSEL_ERR_ARG;
  const Layer& l = layers[id];
  const auto n = [](const std::vector<int32_t>& ids) { return static_cast<int32_t>(ids.size()); };
  return fill(out, gsel_layer_info{out->struct_size, l.flags, l.name.c_str(), l.inputs.data(), l.outputs.data(),
                                   l.params.data(), n(l.inputs), n(l.outputs), n(l.params), l.redistributes,
                                   l.backward_unread_params, backward_of(l), pass->program.layers[id].stage,
                                   static_cast<int64_t>(l.saved_bytes_per_sample), l.flop_per_sample, tensor_phases(l),
                                   ring_shifts(l)});
}

int32_t value_count(const gsel_pass* pass) {
  return static_cast<int32_t>(model_of(pass).values().size());
}

gsel_status value(const gsel_pass* pass, int32_t id, gsel_value_info* out) {
  const auto& values = model_of(pass).values();
  if (!within(values, id) || !out) return GSEL_ERR_ARG;
  const Value& v = values[id];
  return fill(
      out, gsel_value_info{out->struct_size, v.flags, v.name.c_str(), pass->program.values[id].sample_bytes, v.producer,
                           v.needs_gradient, v.declared, v.shard_dim, v.shard_granularity, v.shard_blocks,
                           v.sequence_dim, static_cast<int32_t>(v.whole_dims.size()), v.whole_dims.data()});
}

int32_t microbatch_count(const gsel_pass* pass) {
  return static_cast<int32_t>(pass->program.microbatches.size());
}

gsel_status microbatch(const gsel_pass* pass, int32_t id, gsel_microbatch_info* out) {
  const auto& all = pass->program.microbatches;
  if (!within(all, id) || !out) return GSEL_ERR_ARG;
  return fill(out, gsel_microbatch_info{out->struct_size, all[id].whole, all[id].first, all[id].count});
}

gsel_status set_microbatch(gsel_pass* pass, int32_t id, const gsel_microbatch_info* info) {
  auto& all = pass->program.microbatches;
  gsel_microbatch_info given{0, -1, 0, 0};
  if (!take(info, given) || given.first < 0 || given.count < 0 || given.whole < -1 || given.whole == id)
    return GSEL_ERR_ARG;
  const Microbatch mb{given.first, given.count, given.whole};
  if (id == static_cast<int32_t>(all.size())) return attempt([&] { all.push_back(mb); });
  if (!within(all, id)) return GSEL_ERR_ARG;
  all[id] = mb;
  return GSEL_OK;
}

int64_t batch(const gsel_pass* pass) {
  return pass->compiler.config().train.batch;
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
  if (const gsel_status status = attempt([&] { param_holders(pass); })) return status;
  const ParamHolders& holders = *pass->param_holders;
  const bool good = std::all_of(params, params + n_params, [&](int32_t p) {
    return within(known, p) && known[p].trainable && known[p].dtype == known[params[0]].dtype && holders.here[p] &&
           holders.tie[p] == holders.tie[params[0]];
  });
  if (!good) return GSEL_ERR_ARG;
  const gsel_status status = attempt([&] { pass->program.buckets.push_back({{params, params + n_params}}); });
  return status ? status : static_cast<int32_t>(pass->program.buckets.size()) - 1;
}

gsel_status describe_bucket(gsel_pass* pass, int32_t id, const gsel_bucket_options* options) {
  auto& buckets = pass->program.buckets;
  gsel_bucket_options d{0, 0, -1, -1, GSEL_COMPRESS_NONE, 0, 0};
  if (!within(buckets, id) || !take(options, d)) return GSEL_ERR_ARG;
  constexpr uint32_t kState = GSEL_BUCKET_SHARD_STATE, kGradient = GSEL_BUCKET_SHARD_GRADIENT,
                     kParam = GSEL_BUCKET_SHARD_PARAM,
                     kOffloads = GSEL_BUCKET_OFFLOAD_STATE | GSEL_BUCKET_OFFLOAD_PARAM;
  const uint32_t shards = d.flags & (kState | kGradient | kParam);
  const bool shards_fit =
      shards == 0 || shards == kState || shards == (kState | kGradient) || shards == (kState | kGradient | kParam);
  const bool on_axis = d.axis >= 0 && d.axis < kAxes;
  const bool good = shards_fit && !(d.flags & ~(shards | kOffloads)) &&
                    (!(d.flags & GSEL_BUCKET_OFFLOAD_PARAM) || (shards & kParam)) &&
                    (on_axis || (shards == 0 && d.owner < 0)) && d.owner >= -1 &&
                    (d.owner < 0 || (shards == 0 && d.owner < pass->program.mesh.size[d.axis])) &&
                    d.compression >= GSEL_COMPRESS_NONE && d.compression <= GSEL_COMPRESS_LOW_RANK &&
                    (d.compression == GSEL_COMPRESS_NONE || shards == 0) &&
                    (d.compression != GSEL_COMPRESS_LOW_RANK || d.compression_rank > 0) && d.compression_start >= 0;
  if (!good) return GSEL_ERR_ARG;
  ProgramBucket& b = buckets[id];
  b.flags = d.flags;
  b.axis = d.axis;
  b.owner = d.owner;
  b.compression = d.compression;
  b.compression_rank = d.compression_rank;
  b.compression_start = d.compression_start;
  return GSEL_OK;
}

// ---- the sharing axis ----------------------------------------------------------------------------------------------

double axis_weight(const gsel_pass* pass, gsel_axis axis, int32_t coordinate) {
  if (axis < 0 || axis >= kAxes) return 0;
  double weight = 0;
  attempt([&] {
    const std::vector<double> weights = pass->compiler.weights_of(axis);
    if (within(weights, coordinate)) weight = weights[coordinate];
  });
  return weight;
}

gsel_status split_param(gsel_pass* pass, int32_t param) {
  if (!pass->division) return GSEL_ERR_STATE;
  const auto& params = pass->model.params();
  if (!within(params, param) || params[param].shard_kind != GSEL_SHARD_DIM) return GSEL_ERR_ARG;
  pass->division->split[param] = true;
  return GSEL_OK;
}

gsel_status set_layer_placements(gsel_pass* pass, int32_t id, const gsel_placement* inputs,
                                 const gsel_placement* outputs) {
  if (!pass->division) return GSEL_ERR_STATE;
  const auto& layers = pass->model.layers();
  if (!within(layers, id) || !inputs || !outputs) return GSEL_ERR_ARG;
  Division::OfLayer placements;
  for (size_t i = 0; i < layers[id].inputs.size(); ++i) placements.inputs.push_back({inputs[i].kind, inputs[i].dim});
  for (size_t i = 0; i < layers[id].outputs.size(); ++i)
    placements.outputs.push_back({outputs[i].kind, outputs[i].dim});
  auto known = [](const PlacementInLayer& p) {
    return p.kind >= GSEL_PLACEMENT_REPLICATE && p.kind <= GSEL_PLACEMENT_PARTIAL;
  };
  auto readable = [&](const PlacementInLayer& p) { return known(p) && p.kind != GSEL_PLACEMENT_PARTIAL; };
  if (!std::ranges::all_of(placements.inputs, readable) || !std::ranges::all_of(placements.outputs, known))
    return GSEL_ERR_ARG;
  pass->division->layers[id] = std::move(placements);
  return GSEL_OK;
}

}  // namespace

const gsel_pass_api_v1& pass_api() {
  static constexpr gsel_pass_api_v1 table = {sizeof(gsel_pass_api_v1),
                                             0,
                                             axis_size,
                                             axis_coordinate,
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
                                             add_bucket,
                                             describe_bucket,
                                             value_count,
                                             value,
                                             microbatch_count,
                                             microbatch,
                                             set_microbatch,
                                             batch,
                                             set_stages,
                                             bucket_count,
                                             schedule,
                                             schedule_file,
                                             schedule_stages,
                                             schedule_rank_of,
                                             schedule_length,
                                             schedule_action,
                                             measured,
                                             note,
                                             axis_weight,
                                             split_param,
                                             set_layer_placements,
                                             rank_along,
                                             suggest};
  return table;
}

}  // namespace gsel
