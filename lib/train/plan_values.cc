// train/plan_values.cc: offsets for values. A buffer lives from the first instruction that uses it to the last; going
// through the program once, a best-fit list of holes hands out offsets. The arena's size is the peak.
#include <algorithm>
#include <map>

#include "base/align.h"
#include "train/storage.h"

namespace gsel {
namespace {

// Offsets of an arena that grows when no hole fits.
class Holes {
 public:
  uint64_t take(uint64_t bytes) {
    auto best = holes_.end();
    for (auto it = holes_.begin(); it != holes_.end(); ++it)
      if (it->second >= bytes && (best == holes_.end() || it->second < best->second)) best = it;
    if (best == holes_.end()) return grow(bytes);
    const auto [offset, size] = *best;
    holes_.erase(best);
    if (size > bytes) holes_[offset + bytes] = size - bytes;
    return offset;
  }

  void give_back(uint64_t offset, uint64_t bytes) {
    auto it = holes_.emplace(offset, bytes).first;
    if (const auto next = std::next(it); next != holes_.end() && offset + bytes == next->first) {
      it->second += next->second;
      holes_.erase(next);
    }
    if (it == holes_.begin()) return;
    if (const auto previous = std::prev(it); previous->first + previous->second == offset) {
      previous->second += it->second;
      holes_.erase(it);
    }
  }

  uint64_t end() const { return end_; }

 private:
  // A hole at the end is used and extended.
  uint64_t grow(uint64_t bytes) {
    uint64_t offset = end_;
    if (!holes_.empty() && holes_.rbegin()->first + holes_.rbegin()->second == end_) {
      offset = holes_.rbegin()->first;
      holes_.erase(offset);
    }
    end_ = offset + bytes;
    return offset;
  }

  std::map<uint64_t, uint64_t> holes_;  // offset -> bytes
  uint64_t end_ = 0;
};

}  // namespace

// Collects the lifetimes of all buffers, then assigns offsets.
class Planner {
 public:
  Planner(const Model& model, const Program& program, ValuePlan& plan)
      : model_(model), program_(program), plan_(plan) {}

  void run() {
    for (size_t i = 0; i < program_.step.size(); ++i) collect(program_.step[i], static_cast<int32_t>(i));
    std::vector<std::vector<size_t>> begins(program_.step.size()), ends(program_.step.size());
    for (size_t b = 0; b < buffers_.size(); ++b) {
      begins[buffers_[b].first].push_back(b);
      ends[buffers_[b].last].push_back(b);
    }
    Holes holes;
    for (size_t i = 0; i < begins.size(); ++i) {
      for (size_t b : begins[i]) *buffers_[b].offset = holes.take(buffers_[b].bytes);
      for (size_t b : ends[i]) holes.give_back(*buffers_[b].offset, buffers_[b].bytes);
    }
    plan_.bytes_ = holes.end();
  }

 private:
  struct Buffer {
    uint64_t* offset;
    uint64_t bytes;
    int32_t first, last;
  };

  void use(uint64_t& offset, uint64_t bytes, int32_t at) {
    if (bytes == 0) return;
    const auto [it, is_new] = by_slot_.emplace(&offset, buffers_.size());
    if (is_new)
      buffers_.push_back({&offset, round_up(bytes, kTensorAlign), at, at});
    else
      buffers_[it->second].last = at;
  }

  int64_t samples(int32_t mb) const { return program_.microbatches[mb].count; }
  void use_value(std::vector<uint64_t>& slots, int32_t v, int32_t mb, int32_t at) {
    use(slots[plan_.index(v, mb)], value_bytes(model_.values()[v], samples(mb)), at);
  }

  void use_layer(const gsel_instr& instr, int32_t at) {
    const Layer& layer = model_.layers()[instr.layer];
    for (int32_t v : layer.inputs) use_value(plan_.values_, v, instr.microbatch, at);
    for (int32_t v : layer.outputs) use_value(plan_.values_, v, instr.microbatch, at);
    use(plan_.saved_[static_cast<size_t>(instr.microbatch) * plan_.n_layers_ + instr.layer],
        saved_bytes(layer, samples(instr.microbatch)), at);
  }

  // The first contribution to a gradient is written in place, a later one into scratch and added.
  void contribute(int32_t v, int32_t mb, int32_t at) {
    const bool is_first = !by_slot_.contains(&plan_.gradients_[plan_.index(v, mb)]);
    use_value(plan_.gradients_, v, mb, at);
    if (!is_first) use_scratch(v, mb, at);
  }

  // Scratch serves one instruction; a value with several later readers uses it again.
  void use_scratch(int32_t v, int32_t mb, int32_t at) { use_value(plan_.scratch_, v, mb, at); }

  void collect(const gsel_instr& instr, int32_t at) {
    const bool gradient = instr.flags & GSEL_INSTR_GRADIENT;
    switch (instr.kind) {
      case GSEL_INSTR_INPUT:
        use_value(plan_.values_, instr.value, instr.microbatch, at);
        break;
      case GSEL_INSTR_FORWARD:
        use_layer(instr, at);
        break;
      case GSEL_INSTR_BACKWARD:
      case GSEL_INSTR_BACKWARD_INPUT:
      case GSEL_INSTR_BACKWARD_WEIGHT:
        collect_backward(instr, at);
        break;
      case GSEL_INSTR_RECV:
        if (gradient)
          contribute(instr.value, instr.microbatch, at);
        else
          use_value(plan_.values_, instr.value, instr.microbatch, at);
        break;
      case GSEL_INSTR_SEND:
        use_value(gradient ? plan_.gradients_ : plan_.values_, instr.value, instr.microbatch, at);
        break;
      default:
        break;
    }
  }

  void collect_backward(const gsel_instr& instr, int32_t at) {
    use_layer(instr, at);
    const Layer& layer = model_.layers()[instr.layer];
    for (int32_t v : layer.outputs)
      if (model_.values()[v].needs_gradient) use_value(plan_.gradients_, v, instr.microbatch, at);
    if (instr.kind == GSEL_INSTR_BACKWARD_WEIGHT) return;
    for (int32_t v : layer.inputs)
      if (model_.values()[v].needs_gradient) contribute(v, instr.microbatch, at);
  }

  const Model& model_;
  const Program& program_;
  ValuePlan& plan_;
  std::vector<Buffer> buffers_;
  std::map<uint64_t*, size_t> by_slot_;
};

ValuePlan::ValuePlan(const Model& model, const Program& program)
    : n_values_(model.values().size()), n_layers_(model.layers().size()) {
  const size_t n = program.microbatches.size();
  values_.assign(n * n_values_, kNone);
  gradients_.assign(n * n_values_, kNone);
  scratch_.assign(n * n_values_, kNone);
  saved_.assign(n * n_layers_, kNone);
  Planner(model, program, *this).run();
}

}  // namespace gsel
