// train/state/arena_plan.cc: see arena_plan.h. Goes through the step once, in order, and notes which buffers each
// instruction uses.
#include "train/state/arena_plan.h"

#include <algorithm>
#include <unordered_map>

#include "base/align.h"
#include "base/dtype.h"
#include "model/views.h"
#include "train/compile/message_plan.h"
#include "train/memory/arena_fit.h"
#include "train/state/packing.h"

namespace gsel {

class ArenaPlanner {
 public:
  ArenaPlanner(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts, ArenaPlan& plan)
      : model_(model),
        program_(program),
        layouts_(layouts),
        plan_(plan),
        messages_(program),
        bucket_of_(model.params().size(), -1),
        sums_in_place_(find_sums_in_place()),
        buckets_(program.buckets.size()) {
    for (size_t b = 0; b < program.buckets.size(); ++b)
      for (int32_t p : program.buckets[b].params) bucket_of_[p] = static_cast<int32_t>(b);
  }

  void run() {
    for (at_ = 0; at_ < static_cast<int32_t>(program_.step.size()); ++at_) {
      plan_.begin_.push_back(uses_.size());
      visit(program_.step[at_]);
    }
    plan_.begin_.push_back(uses_.size());
    for (const auto& [key, buffer] : open_windows_) buffers_[buffer].last = at_ - 1;
    plan_.bytes_ = fit(buffers_, program_.step.size());
    for (const auto& [key, buffer] : uses_) plan_.uses_.push_back({key, buffers_[buffer].offset});
    for (size_t i = 0; i + 1 < plan_.begin_.size(); ++i)
      std::sort(plan_.uses_.begin() + static_cast<ptrdiff_t>(plan_.begin_[i]),
                plan_.uses_.begin() + static_cast<ptrdiff_t>(plan_.begin_[i + 1]),
                [](const ArenaPlan::Use& a, const ArenaPlan::Use& b) { return a.key < b.key; });
    find_peak();
  }

 private:
  using Kind = ArenaPlan::Kind;
  struct BucketState {
    BucketWindow opened = BucketWindow::none;  // by the collective under way
    bool has_gradients = false;                // the shard, of this step
  };

  // ---- buffers ----

  // This instruction uses the buffer, which begins to live here when it does not yet.
  void touch(Kind kind, int32_t id, int32_t mb, uint64_t bytes) { touch_from(at_, kind, id, mb, bytes); }
  // The same; a new one is lent to the communicator from `first` on.
  void touch_from(int32_t first, Kind kind, int32_t id, int32_t mb, uint64_t bytes) {
    if (bytes == 0) return;
    const uint64_t key = ArenaPlan::key_of(kind, id, mb);
    const auto [it, is_new] = living_.emplace(key, buffers_.size());
    if (is_new) {
      buffers_.push_back({round_up(bytes, kTensorAlign), first, at_, 0});
      kinds_.push_back(kind);
    }
    buffers_[it->second].last = std::max(buffers_[it->second].last, at_);
    uses_.emplace_back(key, it->second);
  }
  // It lives on to here at least, without being looked up.
  void extend(Kind kind, int32_t id) {
    const auto it = living_.find(ArenaPlan::key_of(kind, id, 0));
    if (it != living_.end()) buffers_[it->second].last = std::max(buffers_[it->second].last, at_);
  }
  void forget(Kind kind, int32_t id, int32_t mb) { living_.erase(ArenaPlan::key_of(kind, id, mb)); }
  // A value gets the memory of another, which lives here.
  void share(Kind kind, int32_t from, int32_t to, int32_t mb) {
    living_[ArenaPlan::key_of(kind, to, mb)] = living_.at(ArenaPlan::key_of(kind, from, mb));
  }
  bool lives(Kind kind, int32_t id, int32_t mb) const { return living_.contains(ArenaPlan::key_of(kind, id, mb)); }

  void open_window(Kind kind, int32_t bucket, uint64_t bytes) {
    if (bytes == 0 || lives(kind, bucket, 0)) return;
    touch(kind, bucket, 0, bytes);
    open_windows_[ArenaPlan::key_of(kind, bucket, 0)] = buffers_.size() - 1;
  }
  void close_window(Kind kind, int32_t bucket) {
    extend(kind, bucket);
    forget(kind, bucket, 0);
    open_windows_.erase(ArenaPlan::key_of(kind, bucket, 0));
  }

  int64_t samples(int32_t mb) const { return program_.microbatches[mb].count; }
  void touch_value(Kind kind, int32_t v, int32_t mb) { touch_value_from(at_, kind, v, mb); }
  void touch_value_from(int32_t first, Kind kind, int32_t v, int32_t mb) {
    if (samples(mb) > 0) touch_from(first, kind, v, mb, value_bytes(model_.values()[v], samples(mb)));
  }
  void touch_saved(int32_t layer, int32_t mb) {
    touch(Kind::saved, layer, mb, saved_bytes(model_.layers()[layer], samples(mb)));
  }
  // The first contribution to a gradient is written in place, a later one into scratch and added.
  void contribute(int32_t v, int32_t mb) { contribute_from(at_, v, mb); }
  void contribute_from(int32_t first, int32_t v, int32_t mb) {
    const bool is_first = !lives(Kind::gradient, v, mb);
    touch_value_from(is_first ? first : at_, Kind::gradient, v, mb);
    if (is_first) return;
    touch_value_from(first, Kind::scratch, v, mb);
    forget(Kind::scratch, v, mb);
  }

  // ---- instructions ----

  void visit(const gsel_instr& instr) {
    const bool gradient = instr.flags & GSEL_INSTR_GRADIENT;
    const InstrForm& form = *form_of(instr.kind);
    switch (form.work) {
      case InstrWork::input:
        return touch_value(Kind::value, instr.value, instr.microbatch);
      case InstrWork::forward:
        return visit_forward(instr);
      case InstrWork::backward:
        return visit_backward(instr);
      case InstrWork::message:
        return instr.kind == GSEL_INSTR_RECV ? visit_receive(instr, gradient) : visit_send(instr, gradient);
      case InstrWork::parts:
        return visit_parts(instr, gradient);
      case InstrWork::params:
      case InstrWork::gradients:
        return visit_bucket(instr, form);
      case InstrWork::wait:
        return visit_wait(instr.bucket);
      case InstrWork::release:
        return close_window(Kind::param_window, instr.bucket);
      default:
        return;
    }
  }

  // Its memory is lent from where it is posted.
  void visit_receive(const gsel_instr& instr, bool gradient) {
    if (samples(instr.microbatch) == 0) return;
    const int32_t first = messages_.first(at_);
    if (gradient) return contribute_from(first, instr.value, instr.microbatch);
    touch_value_from(first, Kind::value, instr.value, instr.microbatch);
  }

  // Its memory is lent until it has left.
  void visit_send(const gsel_instr& instr, bool gradient) {
    if (samples(instr.microbatch) == 0) return;
    const Kind kind = gradient ? Kind::gradient : Kind::value;
    touch_value(kind, instr.value, instr.microbatch);
    Buffer& buffer = buffers_[living_.at(ArenaPlan::key_of(kind, instr.value, instr.microbatch))];
    buffer.last = std::max(buffer.last, messages_.last(at_));
  }

  void visit_forward(const gsel_instr& instr) {
    const Layer& layer = model_.layers()[instr.layer];
    const int32_t mb = instr.microbatch;
    if (layer.redistributes) return redistribute_value(instr, layer);
    visit_phases(layer.forward_buffers, layer.forward_phases, mb);
    if (samples(mb) == 0) return;
    if (instr.kind == GSEL_INSTR_RECOMPUTE) {
      for (int32_t v : layer.outputs) forget(Kind::value, v, mb);
      forget(Kind::saved, instr.layer, mb);
    }
    for (int32_t v : layer.inputs) touch_value(Kind::value, v, mb);
    for (int32_t v : layer.outputs) touch_value(Kind::value, v, mb);
    touch_saved(instr.layer, mb);
    visit_casts(instr, layer);
  }

  void visit_backward(const gsel_instr& instr) {
    const Layer& layer = model_.layers()[instr.layer];
    const int32_t mb = instr.microbatch;
    const bool input_half = instr.kind != GSEL_BACKWARD_WEIGHT;
    if (layer.redistributes) return redistribute_gradient(instr, layer);
    if (input_half) visit_phases(layer.backward_buffers, layer.backward_phases, mb);
    if (samples(mb) == 0) return;
    for (size_t i = 0; i < layer.inputs.size(); ++i)
      if (layer.reads_input(instr.kind, i)) touch_value(Kind::value, layer.inputs[i], mb);
    for (size_t i = 0; i < layer.outputs.size(); ++i)
      if (layer.reads_output(instr.kind, i)) touch_value(Kind::value, layer.outputs[i], mb);
    if (layer.reads_saved(instr.kind)) touch_saved(instr.layer, mb);
    for (int32_t v : layer.outputs)
      if (model_.values()[v].needs_gradient && !layer.is_loss()) touch_value(Kind::gradient, v, mb);
    if (input_half)
      for (int32_t v : layer.inputs)
        if (model_.values()[v].needs_gradient) contribute(v, mb);
    if (instr.kind != GSEL_BACKWARD_INPUT)
      for (int32_t p : layer.params)
        if (const int32_t b = bucket_of_[p]; b >= 0)
          open_window(Kind::gradient_window, b, layouts_[b].gradient_window_bytes);
    visit_casts(instr, layer);
  }

  // ---- redistributions ----

  int32_t sharing_ranks() const { return program_.mesh.sharing_size(); }

  // By layer: whether it may sum where its input lies: nobody else reads that, neither its producer in backward nor a
  // recomputation that finds the sum where its input was.
  std::vector<bool> find_sums_in_place() const {
    std::vector<bool> recomputed(model_.layers().size()), result(model_.layers().size());
    std::vector<std::array<bool, std::size(kBackwards)>> runs(model_.layers().size());
    for (const gsel_instr& instr : program_.step) {
      if (instr.kind == GSEL_INSTR_RECOMPUTE) recomputed[instr.layer] = true;
      if (const auto* kind = std::ranges::find(kBackwards, instr.kind); kind != std::end(kBackwards))
        runs[instr.layer][kind - kBackwards] = true;
    }
    for (size_t l = 0; l < result.size(); ++l) {
      if (!model_.layers()[l].redistributes) continue;
      const int32_t v = model_.layers()[l].inputs.front(), producer = model_.values()[v].producer;
      result[l] = producer >= 0 && model_.values()[v].readers.size() == 1 &&
                  !is_read_again(producer, v, runs[producer]) && (!recomputed[l] || recomputed[producer]);
    }
    return result;
  }

  static constexpr gsel_instr_kind kBackwards[] = {GSEL_BACKWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT};

  // runs: which of kBackwards the producer has in the step.
  bool is_read_again(int32_t producer, int32_t v, const std::array<bool, std::size(kBackwards)>& runs) const {
    const Layer& layer = model_.layers()[producer];
    const size_t i = std::ranges::find(layer.outputs, v) - layer.outputs.begin();
    bool read = layer.redistributes;
    for (size_t k = 0; k < runs.size(); ++k) read = read || (runs[k] && layer.reads_output(kBackwards[k], i));
    return read;
  }

  void touch_packing(Redistribution redistribution, int32_t from, int32_t to, int32_t mb) {
    const auto& values = model_.values();
    touch(Kind::packing, 0, 0,
          packing_of(redistribution, values[from], values[to], samples(mb), sharing_ranks()).bytes());
    forget(Kind::packing, 0, 0);
  }

  void redistribute_value(const gsel_instr& instr, const Layer& layer) {
    const int32_t from = layer.inputs.front(), to = layer.outputs.front(), mb = instr.microbatch;
    if (samples(mb) == 0) return;
    const Redistribution redistribution =
        forward_redistribution(model_.values()[from].placement, model_.values()[to].placement);
    if (instr.kind == GSEL_INSTR_RECOMPUTE) forget(Kind::value, to, mb);
    touch_value(Kind::value, from, mb);
    if (stays_in_place(redistribution, sharing_ranks()) &&
        (redistribution != Redistribution::allreduce || sums_in_place_[instr.layer]))
      share(Kind::value, from, to, mb);
    touch_value(Kind::value, to, mb);
    touch_packing(redistribution, from, to, mb);
  }

  // What comes first is the gradient as it stands, where it stays in place.
  void redistribute_gradient(const gsel_instr& instr, const Layer& layer) {
    const int32_t from = layer.outputs.front(), to = layer.inputs.front(), mb = instr.microbatch;
    if (samples(mb) == 0) return;
    const Redistribution redistribution =
        backward_redistribution(model_.values()[to].placement, model_.values()[from].placement);
    touch_value(Kind::gradient, from, mb);
    if (stays_in_place(redistribution, sharing_ranks())) {
      if (!lives(Kind::gradient, to, mb)) share(Kind::gradient, from, to, mb);
      return touch_value(Kind::gradient, to, mb);
    }
    contribute(to, mb);
    touch_packing(redistribution, from, to, mb);
  }

  // Lent as f32 and kept in 16 bits.
  void visit_casts(const gsel_instr& instr, const Layer& layer) {
    for (size_t i = 0; i < layer.params.size(); ++i) {
      const int32_t p = layer.params[i];
      const Param& param = model_.params()[p];
      if (program_.params[p].dtype == param.dtype || !layer.reads_param(instr.kind, i)) continue;
      touch(Kind::cast, p, 0, static_cast<uint64_t>(param.n_elems) * dtype_bytes(param.dtype));
      forget(Kind::cast, p, 0);
    }
  }

  // Other memory for what is shifted round the ring.
  void visit_phases(const std::vector<gsel_phase>& buffers, const std::vector<gsel_phase>& phases, int32_t mb) {
    const bool any = std::ranges::any_of(phases, ring_shift);
    for (size_t i = 0; i < buffers.size(); ++i)
      for (Kind kind : {Kind::phase, Kind::shifted}) {
        if (kind == Kind::shifted && !(any && ring_shift(buffers[i]))) continue;
        touch(kind, static_cast<int32_t>(i), 0, phase_bytes(buffers[i], samples(mb)));
        forget(kind, static_cast<int32_t>(i), 0);
      }
  }

  // The part here; the whole on the root.
  void visit_parts(const gsel_instr& instr, bool gradient) {
    const int32_t part = instr.microbatch, whole = program_.microbatches[part].whole;
    const bool scatter = instr.kind == GSEL_INSTR_SCATTER;
    const Kind kind = gradient ? Kind::gradient : Kind::value;
    auto write = [&](int32_t mb) {
      return gradient ? contribute(instr.value, mb) : touch_value(kind, instr.value, mb);
    };
    auto read = [&](int32_t mb) { touch_value(kind, instr.value, mb); };
    scatter ? write(part) : read(part);
    if (whole < 0 || program_.mesh.coordinate(program_.rank, instr.axis) != instr.peer) return;
    scatter ? read(whole) : write(whole);
  }

  void visit_bucket(const gsel_instr& instr, const InstrForm& form) {
    const int32_t b = instr.bucket;
    BucketState& state = buckets_[b];
    state.opened = form.opens;
    if (form.opens == BucketWindow::params) open_window(Kind::param_window, b, layouts_[b].param_window_bytes);
    if (form.opens == BucketWindow::gradient) open_window(Kind::gradient_window, b, layouts_[b].gradient_window_bytes);
    if (instr.kind != GSEL_INSTR_REDUCE_SCATTER || layouts_[b].whole_gradient) return;
    if (state.has_gradients) touch(Kind::reduced, b, 0, layouts_[b].gradient_bytes);
    state.has_gradients = true;
  }

  void visit_wait(int32_t b) {
    if (std::exchange(buckets_[b].opened, BucketWindow::none) == BucketWindow::gradient)
      close_window(Kind::gradient_window, b);
    if (!lives(Kind::reduced, b, 0)) return;
    touch(Kind::reduced, b, 0, layouts_[b].gradient_bytes);
    forget(Kind::reduced, b, 0);
  }

  // ---- the peak ----

  void find_peak() {
    std::vector<std::vector<size_t>> begins(program_.step.size()), ends(program_.step.size());
    for (size_t b = 0; b < buffers_.size(); ++b) {
      begins[buffers_[b].first].push_back(b);
      ends[buffers_[b].last].push_back(b);
    }
    ArenaPlan::Peak now;
    for (size_t i = 0; i < begins.size(); ++i) {
      for (size_t b : begins[i]) bytes_of(now, kinds_[b]) += buffers_[b].bytes;
      now.position = i;
      if (now.total() > plan_.peak_.total()) plan_.peak_ = now;
      for (size_t b : ends[i]) bytes_of(now, kinds_[b]) -= buffers_[b].bytes;
    }
  }

  static uint64_t& bytes_of(ArenaPlan::Peak& peak, Kind kind) {
    switch (kind) {
      case Kind::value:
        return peak.values;
      case Kind::gradient:
      case Kind::scratch:
        return peak.gradients;
      case Kind::saved:
        return peak.saved;
      case Kind::param_window:
        return peak.gathered;
      case Kind::gradient_window:
        return peak.whole_gradients;
      default:
        return peak.beside;
    }
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
  std::vector<Buffer> buffers_;
  std::vector<Kind> kinds_;                            // of the buffers
  std::unordered_map<uint64_t, size_t> living_;        // by key
  std::unordered_map<uint64_t, size_t> open_windows_;  // of them, those that only an instruction closes
  std::vector<std::pair<uint64_t, size_t>> uses_;
};

ArenaPlan::ArenaPlan(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts) {
  ArenaPlanner(model, program, layouts, *this).run();
}

uint64_t ArenaPlan::find(size_t position, Kind kind, int32_t id, int32_t mb) const {
  const uint64_t key = key_of(kind, id, mb);
  const auto begin = uses_.begin() + static_cast<ptrdiff_t>(begin_[position]);
  const auto end = uses_.begin() + static_cast<ptrdiff_t>(begin_[position + 1]);
  const auto it = std::lower_bound(begin, end, key, [](const Use& use, uint64_t wanted) { return use.key < wanted; });
  return it != end && it->key == key ? it->offset : kNone;
}

}  // namespace gsel
