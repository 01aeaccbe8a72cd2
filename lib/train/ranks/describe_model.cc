// train/ranks/describe_model.cc: see agree.h.
#include <span>

#include "base/axis.h"
#include "base/dtype.h"
#include "base/text.h"
#include "train/ranks/agree.h"

namespace gsel {
namespace {

struct Name {
  uint32_t value;
  const char* name;
};
#define GSEL_NAMED(constant) \
  { static_cast<uint32_t>(constant), #constant }
constexpr Name kParamFlags[] = {GSEL_NAMED(GSEL_PARAM_NO_DECAY), GSEL_NAMED(GSEL_PARAM_FROZEN),
                                GSEL_NAMED(GSEL_PARAM_NO_CLIP), GSEL_NAMED(GSEL_PARAM_REPLICATE_IF_FEW)};
constexpr Name kValueFlags[] = {GSEL_NAMED(GSEL_VALUE_INPUT), GSEL_NAMED(GSEL_VALUE_NOT_DIFFERENTIABLE),
                                GSEL_NAMED(GSEL_VALUE_SCALAR), GSEL_NAMED(GSEL_VALUE_REPLICATE_IF_FEW)};
constexpr Name kLayerFlags[] = {GSEL_NAMED(GSEL_LAYER_LOSS),
                                GSEL_NAMED(GSEL_LAYER_NO_CUT_AFTER),
                                GSEL_NAMED(GSEL_LAYER_RECOMPUTABLE),
                                GSEL_NAMED(GSEL_LAYER_OWN_PARAMS),
                                GSEL_NAMED(GSEL_LAYER_POSITIONWISE),
                                GSEL_NAMED(GSEL_LAYER_SAVES_WHOLE),
                                GSEL_NAMED(GSEL_LAYER_ALWAYS_ACCUMULATES),
                                GSEL_NAMED(GSEL_LAYER_WEIGHT_READS_PARAMS)};
constexpr Name kPhaseFlags[] = {GSEL_NAMED(GSEL_PHASE_RING_SHIFT), GSEL_NAMED(GSEL_PHASE_HOME)};
constexpr Name kShards[] = {GSEL_NAMED(GSEL_SHARD_NONE), GSEL_NAMED(GSEL_SHARD_DIM)};
constexpr Name kPlacements[] = {GSEL_NAMED(GSEL_PLACEMENT_REPLICATE), GSEL_NAMED(GSEL_PLACEMENT_SHARD),
                                GSEL_NAMED(GSEL_PLACEMENT_PARTIAL)};
constexpr Name kNeeds[] = {GSEL_NAMED(GSEL_NEEDS_ELEMENTS), GSEL_NAMED(GSEL_NEEDS_PARAM_NORM),
                           GSEL_NAMED(GSEL_NEEDS_WHOLE_PARAM)};
#undef GSEL_NAMED

std::string kind(int32_t value, std::span<const Name> names) {
  for (const Name& n : names)
    if (n.value == static_cast<uint32_t>(value)) return n.name;
  return std::to_string(value);
}

std::string flags(uint32_t value, std::span<const Name> names) {
  std::string text;
  for (const Name& n : names) {
    if (!(value & n.value)) continue;
    text += (text.empty() ? "" : " | ") + std::string(n.name);
    value &= ~n.value;
  }
  if (value) text += fmt::format("{}{:#x}", text.empty() ? "" : " | ", value);
  return text.empty() ? "none" : text;
}

template <class Items>
std::string list(const Items& items) {
  return fmt::format("[{}]", fmt::join(items, ", "));
}

template <class Named>
std::string names(const std::vector<int32_t>& ids, const std::vector<Named>& all) {
  std::vector<std::string> found;
  for (int32_t id : ids) found.push_back("\"" + all[static_cast<size_t>(id)].name + "\"");
  return list(found);
}

std::string phases(const std::vector<gsel_phase>& all) {
  std::vector<std::string> texts;
  for (const gsel_phase& p : all)
    texts.push_back(fmt::format("{}, op {}, {}, {} and {} per sample, flags {}", axis_name(p.axis), p.op,
                                dtype_name(p.dtype), with_noun(p.elems, "element"), p.elems_per_sample,
                                flags(p.flags, kPhaseFlags)));
  return fmt::format("[{}]", fmt::join(texts, "; "));
}

std::string callbacks(const Layer& l) {
  std::vector<const char*> there;
  if (l.forward) there.push_back("forward");
  if (l.backward_input) there.push_back("backward_input");
  if (l.backward_weight) there.push_back("backward_weight");
  if (l.backward) there.push_back("backward");
  return there.empty() ? "none" : fmt::format("{}", fmt::join(there, " and "));
}

std::string unread(uint64_t bits) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < 31; ++i)
    if (bits & GSEL_UNREAD_INPUT(i)) parts.push_back(fmt::format("GSEL_UNREAD_INPUT({})", i));
  for (size_t i = 0; i < 31; ++i)
    if (bits & GSEL_UNREAD_OUTPUT(i)) parts.push_back(fmt::format("GSEL_UNREAD_OUTPUT({})", i));
  if (bits & GSEL_UNREAD_SAVED) parts.emplace_back("GSEL_UNREAD_SAVED");
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, " | "));
}

}  // namespace

std::vector<Particular::Field> fields_of(const Param& p) {
  return {{"dims", list(p.dims)},
          {"dtype", dtype_name(p.dtype)},
          {"flags", flags(p.flags, kParamFlags)},
          {"lr_factor", fmt::format("{}", p.lr_factor)},
          {"shard", kind(p.shard_kind, kShards)},
          {"shard_dim", std::to_string(p.shard_dim)},
          {"shard_blocks", std::to_string(p.shard_blocks)},
          {"shard_granularity", std::to_string(p.shard_granularity)}};
}

std::vector<Particular::Field> fields_of(const Value& v) {
  return {{"dims", list(v.dims)},
          {"dtype", dtype_name(v.dtype)},
          {"flags", flags(v.flags, kValueFlags)},
          {"placement", kind(v.declared, kPlacements)},
          {"shard_dim", std::to_string(v.shard_dim)},
          {"shard_granularity", std::to_string(v.shard_granularity)},
          {"shard_blocks", std::to_string(v.shard_blocks)},
          {"sequence_dim", std::to_string(v.sequence_dim)}};
}

std::vector<Particular::Field> fields_of(const Model& model, const Layer& l) {
  return {{"inputs", names(l.inputs, model.values())},
          {"outputs", names(l.outputs, model.values())},
          {"params", names(l.params, model.params())},
          {"flags", flags(l.flags, kLayerFlags)},
          {"callbacks", callbacks(l)},
          {"saved_bytes_per_sample", std::to_string(l.saved_bytes_per_sample)},
          {"backward_input_unread", unread(l.backward_input_unread)},
          {"backward_weight_unread", unread(l.backward_weight_unread)},
          {"backward_unread_params", fmt::format("{:#x}", l.backward_unread_params)},
          {"forward_phases", phases(l.forward_phases)},
          {"backward_phases", phases(l.backward_phases)}};
}

std::string needs_text(int32_t needs) {
  return kind(needs, kNeeds);
}

}  // namespace gsel
