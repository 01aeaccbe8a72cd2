// train/ranks/agree.cc: see agree.h. Ranks compare one hash of everything. Only if the hashes differ, they exchange all
// properties, so that every rank finds the same difference and can report the values on both sides.
#include "train/ranks/agree.h"

#include <algorithm>
#include <span>

#include "base/random.h"
#include "base/text.h"
#include "base/types.h"

namespace gsel {
namespace {

// The first rank whose number differs, or -1.
int32_t first_different(const std::vector<uint64_t>& all, uint64_t number) {
  const auto found = std::ranges::find_if(all, [&](uint64_t n) { return n != number; });
  return found == all.end() ? -1 : static_cast<int32_t>(found - all.begin());
}

// ---- properties as bytes ------------------------------------------------------------------------------------------

void put(std::string& bytes, std::string_view text) {
  bytes += fmt::format("{}:{}", text.size(), text);
}

std::string packed(const Particulars& particulars) {
  std::string bytes;
  for (const Particular& p : particulars) {
    put(bytes, p.name);
    put(bytes, std::to_string(p.fields.size()));
    for (const Particular::Field& field : p.fields) {
      put(bytes, field.name);
      put(bytes, field.value);
    }
  }
  return bytes;
}

std::string take(std::string_view& bytes) {
  const size_t colon = bytes.find(':');
  const auto size = static_cast<size_t>(std::stoull(std::string(bytes.substr(0, colon))));
  std::string text(bytes.substr(colon + 1, size));
  bytes.remove_prefix(colon + 1 + size);
  return text;
}

Particulars unpacked(std::string_view bytes) {
  Particulars result;
  while (!bytes.empty()) {
    Particular& p = result.emplace_back();
    p.name = take(bytes);
    p.fields.resize(static_cast<size_t>(std::stoull(take(bytes))));
    for (Particular::Field& field : p.fields) {
      field.name = take(bytes);
      field.value = take(bytes);
    }
  }
  return result;
}

std::vector<Particulars> gather_particulars(Communicator& comm, const std::string& mine) {
  const std::vector<uint64_t> sizes = gather_numbers(comm, {mine.size()});
  uint64_t total = 0;
  for (uint64_t size : sizes) total += size;
  std::string all(total, '\0');
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHERV, mine.data(), all.data(), 0, GSEL_U8);
  call.recv_counts = sizes.data();
  comm.collective_on_host(call);
  std::vector<Particulars> result;
  uint64_t at = 0;
  for (uint64_t size : sizes) {
    result.push_back(unpacked(std::string_view(all).substr(at, size)));
    at += size;
  }
  return result;
}

// ---- the first difference -----------------------------------------------------------------------------------------

const Particular* find(const Particulars& in, const std::string& name) {
  const auto found = std::ranges::find(in, name, &Particular::name);
  return found == in.end() ? nullptr : &*found;
}

const std::string* find(const Particular& in, const std::string& name) {
  const auto found = std::ranges::find(in.fields, name, &Particular::Field::name);
  return found == in.fields.end() ? nullptr : &found->value;
}

// Between rank 0 and another rank; the text is empty if there is none.
class Difference {
 public:
  Difference(const Particulars& zero, const Particulars& other, int32_t rank)
      : zero_(zero), other_(other), rank_(rank) {}

  // Missing properties come first, since they cause differences in the properties after them.
  std::string text() const {
    std::string found = missing_property(zero_, other_, 0, rank_);
    if (found.empty()) found = missing_property(other_, zero_, rank_, 0);
    if (found.empty()) found = other_value();
    if (found.empty()) found = missing_value(other_, zero_, rank_, 0);
    return found.empty() ? other_order() : found;
  }

 private:
  static bool is_value(const Particular& p) { return p.fields.size() == 1 && p.fields[0].name.empty(); }

  std::string between(const Particular& p) const {
    return fmt::format("{} differs between rank 0 and rank {}: ", p.name, rank_);
  }

  std::string missing_property(const Particulars& has, const Particulars& lacks, int32_t has_it,
                               int32_t lacks_it) const {
    for (const Particular& p : has)
      if (!is_value(p) && !find(lacks, p.name))
        return between(p) + fmt::format("rank {} described it, rank {} did not", has_it, lacks_it);
    return {};
  }

  std::string missing_value(const Particulars& has, const Particulars& lacks, int32_t has_it, int32_t lacks_it) const {
    for (const Particular& p : has)
      if (is_value(p) && !find(lacks, p.name))
        return between(p) + fmt::format("{} on rank {}, not set on rank {}", p.fields[0].value, has_it, lacks_it);
    return {};
  }

  std::string other_value() const {
    for (const Particular& p : zero_) {
      const Particular* q = find(other_, p.name);
      if (!q) return missing_value({p}, other_, 0, rank_);
      for (const Particular::Field& field : p.fields) {
        const std::string* value = find(*q, field.name);
        if (value && *value == field.value) continue;
        return between(p) + fmt::format("{}{} on rank 0, {} on rank {}", field.name.empty() ? "" : field.name + " ",
                                        field.value, value ? *value : "not there", rank_);
      }
    }
    return {};
  }

  std::string other_order() const {
    for (size_t i = 0; i < zero_.size(); ++i)
      if (zero_[i].name != other_[i].name)
        return between(zero_[i]) +
               fmt::format("it comes before {} on rank 0, after it on rank {}", other_[i].name, rank_);
    return {};
  }

  const Particulars& zero_;
  const Particulars& other_;
  const int32_t rank_;
};

}  // namespace

Particulars particulars_of(const Model& model) {
  Particulars result;
  for (const Param& p : model.params()) result.emplace_back("parameter \"" + p.name + "\"", fields_of(p));
  for (const Value& v : model.values()) result.emplace_back("value \"" + v.name + "\"", fields_of(v));
  for (const Layer& l : model.layers()) result.emplace_back("layer \"" + l.name + "\"", fields_of(model, l));
  return result;
}

Particulars particulars_of(const gsel_optimizer_options* optimizer) {
  std::vector<Particular::Field> fields{{"kind", optimizer ? "the embedder's" : "train.optimizer"}};
  if (optimizer) {
    fields.push_back({"n_states", std::to_string(optimizer->n_states)});
    fields.push_back({"needs", needs_text(optimizer->needs)});
  }
  return {Particular("the optimizer", std::move(fields))};
}

std::vector<uint64_t> gather_numbers(Communicator& comm, const std::vector<uint64_t>& mine) {
  std::vector<uint64_t> all(mine.size() * comm.world_size());
  comm.collective_on_host(make_collective(GSEL_COLLECTIVE_ALLGATHER, mine.data(), all.data(), mine.size(), GSEL_U64));
  return all;
}

bool all_succeed(Communicator& comm, bool mine) {
  return first_different(gather_numbers(comm, {mine ? uint64_t{0} : uint64_t{1}}), 0) < 0;
}

void check_all_succeeded(Communicator& comm, const std::optional<Error>& failure, std::string_view made) {
  constexpr size_t kWords = 128;  // the failed flag, and the reason
  std::vector<uint64_t> mine(kWords);
  if (failure) {
    std::string why = failure->message();
    for (auto cause = failure->cause(); cause; cause = cause->cause()) why += ": caused by: " + cause->message();
    mine[0] = 1;
    why.copy(reinterpret_cast<char*>(&mine[1]), (kWords - 1) * sizeof(uint64_t) - 1);
  }
  const std::vector<uint64_t> all = gather_numbers(comm, mine);
  if (failure) throw *failure;
  for (int32_t rank = 0; rank < comm.world_size(); ++rank) {
    const uint64_t* theirs = &all[static_cast<size_t>(rank) * kWords];
    if (theirs[0] != 0)
      throw Error(GSEL_ERR_PEER, fmt::format("rank {} could not make its {}: {}", rank, made,
                                             reinterpret_cast<const char*>(theirs + 1)))
          .about_rank(rank);
  }
}

void check_agreement(Communicator& comm, const Particulars& particulars) {
  const std::string mine = packed(particulars);
  const uint64_t key = derive_key(0, mine);
  if (first_different(gather_numbers(comm, {key}), key) < 0) return;
  const std::vector<Particulars> all = gather_particulars(comm, mine);
  for (int32_t other = 1; other < comm.world_size(); ++other) {
    const std::string text = Difference(all.front(), all[static_cast<size_t>(other)], other).text();
    if (text.empty()) continue;
    throw Error(GSEL_ERR_MISMATCH, text + "; make it alike on every rank").about_rank(comm.rank() == other ? 0 : other);
  }
  fail(GSEL_ERR_INTERNAL, "ranks describe the same model and settings, and the keys of what they describe differ");
}

// ---- the description of a model ------------------------------------------------------------------------------------

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
