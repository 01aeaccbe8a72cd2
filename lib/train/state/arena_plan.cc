// train/state/arena_plan.cc: see arena_plan.h. Walks over the step once, notes which buffers each instruction uses, and
// then places the buffers.
#include "train/state/arena_plan.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/types.h"
#include "model/views.h"
#include "train/compile/message_plan.h"
#include "train/memory/arena_fit.h"
#include "train/state/packing.h"

namespace gsel {
// ---- the buffers of a step -----------------------------------------------------------------------------------------

// Tracks the buffers while the planner walks over the instructions: which buffer a name refers to at an instruction,
// and from which instruction to which it lives.

class ArenaBuffers {
 public:
  static constexpr uint64_t kNone = ArenaOperands::kNone;
  enum class Kind : uint8_t {
    value,
    gradient,
    scratch,
    saved,
    cast,
    phase,
    shifted,
    param_window,
    gradient_window,
    reduced,
    packing,
  };
  // What a buffer is for. It has the name from its first use until forget.
  struct Name {
    Kind kind;
    int32_t id = 0, mb = 0;
    uint64_t number() const {
      return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(mb) << 32 | static_cast<uint32_t>(id);
    }
  };

  // Moves to an instruction.
  void go_to(int32_t position) { at_ = position; }

  // Uses a buffer in this instruction; creates it if it does not live yet. Returns its number; kNone: no bytes.
  uint64_t touch(Name name, uint64_t bytes) { return touch_from(at_, name, bytes); }
  // The same; a new buffer lives from `first` on, as the communicator uses it.
  uint64_t touch_from(int32_t first, Name name, uint64_t bytes);
  // The same, for this instruction only.
  uint64_t touch_here(Name name, uint64_t bytes);
  // Extends its life to this position at least; kNone: nothing.
  void keep_until(uint64_t buffer, int32_t position);
  void forget(Name name) { living_.erase(name.number()); }
  // Ends its life at this instruction, if it lives.
  void close(Name name);
  // Makes `to` another name of the buffer of `from`, which must live.
  void share(Name from, Name to) { living_[to.number()] = living_.at(from.number()); }
  bool lives(Name name) const { return living_.contains(name.number()); }

  // At the last instruction: extends open windows to it and places all buffers. Returns the arena's bytes.
  uint64_t place();
  uint64_t offset(uint64_t buffer) const { return buffer == kNone ? kNone : buffers_[buffer].offset; }
  ArenaPlan::Peak peak() const;

 private:
  int32_t at_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<Kind> kinds_;                        // of the buffers
  std::unordered_map<uint64_t, uint64_t> living_;  // buffers by name
};

namespace {

uint64_t& bytes_of_kind(ArenaPlan::Peak& peak, ArenaBuffers::Kind kind) {
  using enum ArenaBuffers::Kind;
  switch (kind) {
    case value:
      return peak.values;
    case gradient:
    case scratch:
      return peak.gradients;
    case saved:
      return peak.saved;
    case param_window:
      return peak.gathered;
    case gradient_window:
      return peak.whole_gradients;
    default:
      return peak.beside;
  }
}

}  // namespace

uint64_t ArenaBuffers::touch_from(int32_t first, Name name, uint64_t bytes) {
  if (bytes == 0) return kNone;
  const auto [it, is_new] = living_.emplace(name.number(), buffers_.size());
  if (is_new) {
    buffers_.push_back({round_up(bytes, kTensorAlign), first, at_, 0});
    kinds_.push_back(name.kind);
  }
  keep_until(it->second, at_);
  return it->second;
}

uint64_t ArenaBuffers::touch_here(Name name, uint64_t bytes) {
  const uint64_t buffer = touch(name, bytes);
  forget(name);
  return buffer;
}

void ArenaBuffers::keep_until(uint64_t buffer, int32_t position) {
  if (buffer != kNone) buffers_[buffer].last = std::max(buffers_[buffer].last, position);
}

void ArenaBuffers::close(Name name) {
  if (const auto it = living_.find(name.number()); it != living_.end()) keep_until(it->second, at_);
  forget(name);
}

uint64_t ArenaBuffers::place() {
  for (const auto& [name, buffer] : living_)
    if (kinds_[buffer] == Kind::param_window || kinds_[buffer] == Kind::gradient_window) keep_until(buffer, at_);
  return fit(buffers_, static_cast<size_t>(at_) + 1);
}

ArenaPlan::Peak ArenaBuffers::peak() const {
  const size_t length = static_cast<size_t>(at_) + 1;
  std::vector<std::vector<size_t>> begins(length), ends(length);
  for (size_t b = 0; b < buffers_.size(); ++b) {
    begins[buffers_[b].first].push_back(b);
    ends[buffers_[b].last].push_back(b);
  }
  ArenaPlan::Peak now, most;
  for (size_t i = 0; i < length; ++i) {
    for (size_t b : begins[i]) bytes_of_kind(now, kinds_[b]) += buffers_[b].bytes;
    now.position = i;
    if (now.total() > most.total()) most = now;
    for (size_t b : ends[i]) bytes_of_kind(now, kinds_[b]) -= buffers_[b].bytes;
  }
  return most;
}

// ---- the plan ------------------------------------------------------------------------------------------------------

class ArenaPlanner {
 public:
  ArenaPlanner(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts, ArenaPlan& plan)
      : model_(model),
        program_(program),
        layouts_(layouts),
        plan_(plan),
        messages_(program),
        bucket_of_(model.params().size(), -1),
        sums_in_place_(sums_in_place(model, program)),
        buckets_(program.buckets.size()) {
    for (size_t b = 0; b < program.buckets.size(); ++b)
      for (int32_t p : program.buckets[b].params) bucket_of_[p] = static_cast<int32_t>(b);
  }

  void run() {
    plan_.operands_.resize(program_.step.size());
    plan_.left_.resize(model_.values().size(), ArenaOperands::kNone);
    for (size_t i = 0; i < program_.step.size(); ++i) {
      at_ = static_cast<int32_t>(i);
      here_ = &plan_.operands_[i];
      buffers_.go_to(at_);
      row_ = &instr_row(program_.step[i].kind);
      make_operands(program_.step[i]);
      visit(program_.step[i]);
    }
    plan_.bytes_ = buffers_.place();
    plan_.peak_ = buffers_.peak();
    place_operands();
  }

 private:
  using Kind = ArenaBuffers::Kind;
  using OfValue = ArenaOperands::OfValue;
  struct BucketState {
    BucketWindow opened = BucketWindow::none;  // by the current collective
    bool has_gradients = false;                // the shard has gradients of this step
  };

  // ---- operands: buffer numbers until place() ----

  void make_operands(const gsel_instr& instr) {
    if (!row_->layer) {
      here_->inputs.resize(row_->value);
      here_->outputs.resize(row_->task == InstrTask::scatter_gather);
      return;
    }
    const Layer& layer = model_.layers()[instr.layer];
    here_->inputs.resize(layer.inputs.size());
    here_->outputs.resize(layer.outputs.size());
    here_->params.resize(layer.params.size());
    here_->phases.resize((row_->task == InstrTask::forward ? layer.forward_buffers : layer.backward_buffers).size());
  }

  void place_operands() {
    auto place = [&](auto&... operands) { ((operands = buffers_.offset(operands)), ...); };
    for (ArenaOperands& each : plan_.operands_) {
      for (std::vector<OfValue>* values : {&each.inputs, &each.outputs})
        for (auto& [value, gradient, scratch] : *values) place(value, gradient, scratch);
      for (auto& [cast, gradient_window] : each.params) place(cast, gradient_window);
      for (auto& [buffer, shifted] : each.phases) place(buffer, shifted);
      place(each.saved, each.packing, each.window, each.reduced);
    }
    for (uint64_t& left : plan_.left_) place(left);
  }

  int64_t samples(int32_t mb) const { return program_.microbatches[mb].count; }
  uint64_t bytes_of(int32_t v, int32_t mb) const {
    return samples(mb) > 0 ? value_bytes(model_.values()[v], samples(mb)) : 0;
  }

  // A message's buffer is used from the position at which its receive is posted.
  void touch_value(OfValue& operand, int32_t v, int32_t mb) {
    operand.value = buffers_.touch_from(messages_.first(at_), {Kind::value, v, mb}, bytes_of(v, mb));
    if (mb == 0) plan_.left_[v] = operand.value;
  }
  void touch_gradient(OfValue& operand, int32_t v, int32_t mb) {
    operand.gradient = buffers_.touch({Kind::gradient, v, mb}, bytes_of(v, mb));
  }
  void touch_saved(int32_t layer, int32_t mb) {
    here_->saved = buffers_.touch({Kind::saved, layer, mb}, saved_bytes(model_.layers()[layer], samples(mb)));
  }
  // The first contribution to a gradient is written in place, later ones go to scratch and are added.
  void contribute(OfValue& operand, int32_t v, int32_t mb) {
    const bool is_first = !buffers_.lives({Kind::gradient, v, mb});
    operand.gradient = buffers_.touch_from(messages_.first(at_), {Kind::gradient, v, mb}, bytes_of(v, mb));
    if (is_first) return;
    operand.scratch = buffers_.touch_from(messages_.first(at_), {Kind::scratch, v, mb}, bytes_of(v, mb));
    buffers_.forget({Kind::scratch, v, mb});
  }
  uint64_t open_params(int32_t b) { return buffers_.touch({Kind::param_window, b}, layouts_[b].param_window_bytes); }
  uint64_t open_gradient(int32_t b) {
    return buffers_.touch({Kind::gradient_window, b}, layouts_[b].gradient_window_bytes);
  }

  // ---- instructions ----

  void visit(const gsel_instr& instr) {
    switch (row_->task) {
      case InstrTask::input:
      case InstrTask::message:
      case InstrTask::scatter_gather:
        return visit_value(instr);
      case InstrTask::forward:
        return visit_forward(instr);
      case InstrTask::backward:
        return visit_backward(instr);
      case InstrTask::params:
      case InstrTask::gradients:
        return visit_bucket(instr);
      case InstrTask::wait:
        return visit_wait(instr.bucket);
      case InstrTask::release:
        return buffers_.close({Kind::param_window, instr.bucket});
      default:
        return;
    }
  }

  // The instruction's value, or its gradient; for shards also the whole value on the root. The communicator uses a
  // message's buffer until the send has ended.
  void visit_value(const gsel_instr& instr) {
    const bool gradient = instr.flags & GSEL_INSTR_GRADIENT;
    auto use = [&](OfValue& operand, int32_t mb, bool writes) {
      if (!gradient)
        touch_value(operand, instr.value, mb);
      else
        writes ? contribute(operand, instr.value, mb) : touch_gradient(operand, instr.value, mb);
      if (!writes) buffers_.keep_until(gradient ? operand.gradient : operand.value, messages_.last(at_));
    };
    use(here_->inputs[0], instr.microbatch, row_->writes_value);
    const int32_t whole = program_.microbatches[instr.microbatch].whole;
    if (row_->task == InstrTask::scatter_gather && whole >= 0 &&
        program_.mesh.coordinate(program_.rank, instr.axis) == instr.peer)
      use(here_->outputs[0], whole, !row_->writes_value);
  }

  void visit_forward(const gsel_instr& instr) {
    const Layer& layer = model_.layers()[instr.layer];
    const int32_t mb = instr.microbatch;
    if (layer.redistributes) return redistribute_value(instr, layer);
    visit_phases(layer.forward_buffers, layer.forward_phases, mb);
    if (samples(mb) == 0) return;
    if (row_->recomputes) {
      for (int32_t v : layer.outputs) buffers_.forget({Kind::value, v, mb});
      buffers_.forget({Kind::saved, instr.layer, mb});
    }
    for (size_t i = 0; i < layer.inputs.size(); ++i) touch_value(here_->inputs[i], layer.inputs[i], mb);
    for (size_t i = 0; i < layer.outputs.size(); ++i) touch_value(here_->outputs[i], layer.outputs[i], mb);
    touch_saved(instr.layer, mb);
    visit_casts(instr, layer);
  }

  void visit_backward(const gsel_instr& instr) {
    const Layer& layer = model_.layers()[instr.layer];
    const int32_t mb = instr.microbatch;
    if (layer.redistributes) return redistribute_gradient(instr, layer);
    if (row_->input_half) visit_phases(layer.backward_buffers, layer.backward_phases, mb);
    if (samples(mb) == 0) return;
    for (size_t i = 0; i < layer.inputs.size(); ++i)
      if (layer.reads_input(instr.kind, i)) touch_value(here_->inputs[i], layer.inputs[i], mb);
    for (size_t i = 0; i < layer.outputs.size(); ++i)
      if (layer.reads_output(instr.kind, i)) touch_value(here_->outputs[i], layer.outputs[i], mb);
    if (layer.reads_saved(instr.kind)) touch_saved(instr.layer, mb);
    for (size_t i = 0; !layer.is_loss() && i < layer.outputs.size(); ++i)
      if (const int32_t v = layer.outputs[i]; model_.values()[v].needs_gradient)
        touch_gradient(here_->outputs[i], v, mb);
    for (size_t i = 0; row_->input_half && i < layer.inputs.size(); ++i)
      if (const int32_t v = layer.inputs[i]; model_.values()[v].needs_gradient) contribute(here_->inputs[i], v, mb);
    for (size_t i = 0; row_->weight_half && i < layer.params.size(); ++i)
      if (const int32_t b = bucket_of_[layer.params[i]]; b >= 0) here_->params[i].gradient_window = open_gradient(b);
    visit_casts(instr, layer);
  }

  // ---- redistributions ----

  int32_t sharing_ranks() const { return program_.mesh.sharing_size(); }

  void touch_packing(Redistribution redistribution, int32_t from, int32_t to, int32_t mb) {
    const auto& values = model_.values();
    here_->packing = buffers_.touch_here(
        {Kind::packing}, packing_of(redistribution, values[from], values[to], samples(mb), sharing_ranks()).bytes());
  }

  void redistribute_value(const gsel_instr& instr, const Layer& layer) {
    const int32_t from = layer.inputs.front(), to = layer.outputs.front(), mb = instr.microbatch;
    if (samples(mb) == 0) return;
    const Redistribution redistribution =
        forward_redistribution(model_.values()[from].placement, model_.values()[to].placement);
    if (row_->recomputes) buffers_.forget({Kind::value, to, mb});
    touch_value(here_->inputs[0], from, mb);
    if (stays_in_place(redistribution, sharing_ranks()) &&
        (redistribution != Redistribution::allreduce || sums_in_place_[instr.layer]))
      buffers_.share({Kind::value, from, mb}, {Kind::value, to, mb});
    touch_value(here_->outputs[0], to, mb);
    touch_packing(redistribution, from, to, mb);
  }

  // The gradient that stays in place is the first contribution.
  void redistribute_gradient(const gsel_instr& instr, const Layer& layer) {
    const int32_t from = layer.outputs.front(), to = layer.inputs.front(), mb = instr.microbatch;
    if (samples(mb) == 0) return;
    const Redistribution redistribution =
        backward_redistribution(model_.values()[to].placement, model_.values()[from].placement);
    touch_gradient(here_->outputs[0], from, mb);
    if (stays_in_place(redistribution, sharing_ranks())) {
      if (!buffers_.lives({Kind::gradient, to, mb}))
        buffers_.share({Kind::gradient, from, mb}, {Kind::gradient, to, mb});
      return touch_gradient(here_->inputs[0], to, mb);
    }
    contribute(here_->inputs[0], to, mb);
    touch_packing(redistribution, from, to, mb);
  }

  // Parameters that are kept in 16 bits and lent as f32.
  void visit_casts(const gsel_instr& instr, const Layer& layer) {
    for (size_t i = 0; i < layer.params.size(); ++i) {
      const int32_t p = layer.params[i];
      const Param& param = model_.params()[p];
      if (program_.params[p].dtype == param.dtype || !layer.reads_param(instr.kind, i)) continue;
      here_->params[i].cast =
          buffers_.touch_here({Kind::cast, p}, static_cast<uint64_t>(param.n_elems) * dtype_bytes(param.dtype));
    }
  }

  // Second memory for buffers that are ring-shifted.
  void visit_phases(const std::vector<gsel_phase>& buffers, const std::vector<gsel_phase>& phases, int32_t mb) {
    const bool any = std::ranges::any_of(phases, ring_shift);
    for (size_t i = 0; i < buffers.size(); ++i) {
      const uint64_t bytes = phase_bytes(buffers[i], samples(mb));
      here_->phases[i].buffer = buffers_.touch_here({Kind::phase, static_cast<int32_t>(i)}, bytes);
      if (any && ring_shift(buffers[i]))
        here_->phases[i].shifted = buffers_.touch_here({Kind::shifted, static_cast<int32_t>(i)}, bytes);
    }
  }

  void visit_bucket(const gsel_instr& instr) {
    const int32_t b = instr.bucket;
    BucketState& state = buckets_[b];
    state.opened = row_->opens;
    if (state.opened == BucketWindow::params) here_->window = open_params(b);
    if (state.opened == BucketWindow::gradient) here_->window = open_gradient(b);
    if (state.opened != BucketWindow::gradient || layouts_[b].whole_gradient) return;
    if (state.has_gradients) here_->reduced = buffers_.touch({Kind::reduced, b}, layouts_[b].gradient_bytes);
    state.has_gradients = true;
  }

  void visit_wait(int32_t b) {
    if (std::exchange(buckets_[b].opened, BucketWindow::none) == BucketWindow::gradient)
      buffers_.close({Kind::gradient_window, b});
    buffers_.close({Kind::reduced, b});
  }

  const Model& model_;
  const Program& program_;
  const std::vector<BucketLayout>& layouts_;
  ArenaPlan& plan_;
  const MessagePlan messages_;
  std::vector<int32_t> bucket_of_;         // by parameter; -1: frozen
  const std::vector<bool> sums_in_place_;  // by layer
  std::vector<BucketState> buckets_;

  int32_t at_ = 0;
  const InstrRow* row_ = nullptr;  // of the instruction at at_
  ArenaOperands* here_ = nullptr;
  ArenaBuffers buffers_;
};

ArenaPlan::ArenaPlan(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts) {
  ArenaPlanner(model, program, layouts, *this).run();
}

}  // namespace gsel
