// support/arena_check.cc: see arena_check.h.
#include "support/arena_check.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>

#include "base/align.h"
#include "base/text.h"
#include "model/views.h"
#include "program/words/words.h"
#include "support/check.h"
#include "train/compile/message_plan.h"

namespace made {
namespace {

using namespace gsel;

class ArenaCheck {
 public:
  ArenaCheck(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts,
             const ArenaPlan& plan)
      : model_(model),
        program_(program),
        layouts_(layouts),
        plan_(plan),
        messages_(program),
        units_(plan.bytes() / kTensorAlign) {
    for (size_t i = 0; i < program.step.size(); ++i)
      if (program.step[i].kind == GSEL_INSTR_RECV && messages_.channel_of(i) >= 0)
        posts_.emplace(messages_.first(i), i);
    for (size_t b = 0; b < program.buckets.size(); ++b)
      for (int32_t p : program.buckets[b].params) bucket_of_[p] = static_cast<int32_t>(b);
  }

  uint64_t run() {
    for (at_ = 0; at_ < program_.step.size(); ++at_) {
      reads_.clear();
      writes_.clear();
      visit_posts();
      visit(program_.step[at_]);
      visit_departures();
      settle();
    }
    for (const auto& [window, buffer] : windows_) lives_[buffer.paint].last = at_ - 1;
    return most_alive();
  }

 private:
  enum What { kValue, kGradient, kSaved, kParams, kWholeGradient, kReduced };
  using Name = std::tuple<int, int32_t, int32_t>;
  struct Buffer {
    uint64_t offset = 0, bytes = 0, paint = 0;
  };
  struct Life {
    size_t first = 0, last = 0;
    uint64_t bytes = 0;
  };

  static constexpr uint64_t kNone = ArenaOperands::kNone;
  const ArenaOperands& here() const { return plan_.operands(at_); }
  // A value, of a micro-batch or its whole, where an instruction finds it.
  const ArenaOperands::OfValue& operand(size_t position, int32_t v, int32_t mb) const {
    const gsel_instr& instr = program_.step[position];
    const ArenaOperands& operands = plan_.operands(position);
    if (instr.layer < 0) return mb == instr.microbatch ? operands.inputs[0] : operands.outputs[0];
    const Layer& layer = model_.layers()[instr.layer];
    const auto input = std::ranges::find(layer.inputs, v), output = std::ranges::find(layer.outputs, v);
    return input != layer.inputs.end() ? operands.inputs[input - layer.inputs.begin()]
                                       : operands.outputs[output - layer.outputs.begin()];
  }

  [[noreturn]] void wrong(const std::string& why) const {
    fail_msg("%s: %s", where(program_, false, at_).c_str(), why.c_str());
    throw 0;  // not reached
  }

  // ---- painting ----
  Buffer fresh(const std::string& name, uint64_t offset, uint64_t bytes) {
    if (offset == kNone) wrong(name + " has no place");
    if (offset % kTensorAlign || offset + bytes > plan_.bytes()) wrong(name + " is misplaced");
    const Buffer buffer{offset, bytes, ++last_paint_};
    lives_[buffer.paint] = {at_, at_, round_up(bytes, kTensorAlign)};
    return buffer;
  }
  void read(const std::string& name, const Buffer& buffer, uint64_t offset) {
    if (offset != buffer.offset) wrong(name + " is looked for at another place than it was written to");
    reads_.emplace_back(name, buffer);
    lives_[buffer.paint].last = at_;
  }
  void write(const std::string& name, const Buffer& buffer) { writes_.emplace_back(name, buffer); }
  void only_here(const std::string& name, uint64_t offset, uint64_t bytes) {
    if (bytes) write(name, fresh(name, offset, bytes));
  }
  bool touched(const Buffer& buffer) const {
    const auto is_it = [&](const auto& other) { return other.second.paint == buffer.paint; };
    return std::ranges::any_of(reads_, is_it) || std::ranges::any_of(writes_, is_it);
  }

  // The buffers of an instruction do not overlap. It reads what was written before, then it writes.
  void settle() {
    std::vector<std::pair<std::string, Buffer>> all = reads_;
    for (const auto& w : writes_)
      if (std::ranges::none_of(reads_, [&](const auto& r) { return r.second.paint == w.second.paint; }))
        all.push_back(w);
    for (size_t a = 0; a < all.size(); ++a)
      for (size_t b = a + 1; b < all.size(); ++b)
        if (all[a].second.paint != all[b].second.paint &&
            all[a].second.offset < all[b].second.offset + round_up(all[b].second.bytes, kTensorAlign) &&
            all[b].second.offset < all[a].second.offset + round_up(all[a].second.bytes, kTensorAlign))
          wrong(all[a].first + " overlaps " + all[b].first);
    for (const auto& [name, buffer] : reads_)
      for (uint64_t& unit : units_of(buffer))
        if (unit != buffer.paint) wrong(name + " was overwritten");
    for (const auto& [name, buffer] : writes_) std::ranges::fill(units_of(buffer), buffer.paint);
  }
  std::span<uint64_t> units_of(const Buffer& buffer) {
    return {&units_[buffer.offset / kTensorAlign], round_up(buffer.bytes, kTensorAlign) / kTensorAlign};
  }

  uint64_t most_alive() const {
    uint64_t most = 0;
    for (size_t i = 0; i < program_.step.size(); ++i) {
      uint64_t alive = 0;
      for (const auto& [paint, life] : lives_)
        if (life.first <= i && i <= life.last) alive += life.bytes;
      most = std::max(most, alive);
    }
    return most;
  }

  // ---- what instructions touch ----
  int64_t samples(int32_t mb) const { return program_.microbatches[mb].count; }
  uint64_t bytes_of(int32_t v, int32_t mb) const {
    return samples(mb) ? value_bytes(model_.values()[v], samples(mb)) : 0;
  }
  std::string name_of(const char* kind, int32_t v, int32_t mb) const {
    return fmt::format("{} {} of {}", kind, model_.values()[v].name, mb);
  }
  void write_value(int32_t v, int32_t mb) {
    if (!bytes_of(v, mb)) return;
    const std::string name = name_of("value", v, mb);
    buffers_[{kValue, v, mb}] = fresh(name, operand(at_, v, mb).value, bytes_of(v, mb));
    write(name, buffers_[{kValue, v, mb}]);
  }
  void read_value(int32_t v, int32_t mb) {
    if (bytes_of(v, mb)) read(name_of("value", v, mb), buffers_.at({kValue, v, mb}), operand(at_, v, mb).value);
  }
  void read_gradient(int32_t v, int32_t mb) {
    if (bytes_of(v, mb))
      read(name_of("gradient", v, mb), buffers_.at({kGradient, v, mb}), operand(at_, v, mb).gradient);
  }
  void contribute(int32_t v, int32_t mb) {
    if (!bytes_of(v, mb)) return;
    const std::string name = name_of("gradient", v, mb);
    if (buffers_.contains({kGradient, v, mb})) {
      read_gradient(v, mb);
      return only_here("scratch of " + name, operand(at_, v, mb).scratch, bytes_of(v, mb));
    }
    buffers_[{kGradient, v, mb}] = fresh(name, operand(at_, v, mb).gradient, bytes_of(v, mb));
    write(name, buffers_[{kGradient, v, mb}]);
    if (operand(at_, v, mb).scratch != kNone) wrong(name + " has scratch for its first contribution");
  }

  // ---- messages: their memory is lent while they are under way ----
  bool is_gradient(size_t position) const { return program_.step[position].flags & GSEL_INSTR_GRADIENT; }
  void visit_posts() {
    for (auto [it, end] = posts_.equal_range(static_cast<int32_t>(at_)); it != end; ++it) {
      const size_t position = it->second;
      const gsel_instr& instr = program_.step[position];
      const std::string name = name_of("message with", instr.value, instr.microbatch);
      const ArenaOperands::OfValue& posted = operand(position, instr.value, instr.microbatch);
      posted_[position] = fresh(name, is_gradient(position) ? posted.contribution() : posted.value,
                                bytes_of(instr.value, instr.microbatch));
      write(name, posted_[position]);
    }
  }
  void visit_receive(const gsel_instr& instr) {
    if (messages_.channel_of(at_) < 0) return;
    const int32_t v = instr.value, mb = instr.microbatch;
    const Buffer& buffer = posted_.at(at_);
    if (messages_.first(at_) != static_cast<int32_t>(at_)) read(name_of("message with", v, mb), buffer, buffer.offset);
    if (!is_gradient(at_)) {
      buffers_[{kValue, v, mb}] = buffer;
    } else if (!buffers_.contains({kGradient, v, mb})) {
      buffers_[{kGradient, v, mb}] = buffer;
      if (operand(at_, v, mb).scratch != kNone) wrong("a first contribution that is received has scratch");
    } else {
      read_gradient(v, mb);
    }
  }
  void visit_send(const gsel_instr& instr) {
    if (messages_.channel_of(at_) < 0) return;
    const int32_t v = instr.value, mb = instr.microbatch;
    is_gradient(at_) ? read_gradient(v, mb) : read_value(v, mb);
    lent_.emplace(messages_.last(at_), buffers_.at({is_gradient(at_) ? kGradient : kValue, v, mb}));
  }
  void visit_departures() {
    for (auto [it, end] = lent_.equal_range(static_cast<int32_t>(at_)); it != end; ++it)
      if (!touched(it->second)) read("what is sent", it->second, it->second.offset);
  }

  void visit_forward(const gsel_instr& instr) {
    const Layer& layer = model_.layers()[instr.layer];
    visit_phases(layer.forward_phases, instr.microbatch);
    if (!samples(instr.microbatch)) return;
    for (int32_t v : layer.inputs) read_value(v, instr.microbatch);
    for (int32_t v : layer.outputs) write_value(v, instr.microbatch);
    if (const uint64_t bytes = saved_bytes(layer, samples(instr.microbatch))) {
      Buffer& buffer = buffers_[{kSaved, instr.layer, instr.microbatch}];
      buffer = fresh("saved", here().saved, bytes);
      write("saved", buffer);
    }
    read_params(instr, layer);
  }

  void visit_backward(const gsel_instr& instr) {
    const Layer& layer = model_.layers()[instr.layer];
    const int32_t mb = instr.microbatch;
    if (instr.kind != GSEL_BACKWARD_WEIGHT) visit_phases(layer.backward_phases, mb);
    if (!samples(mb)) return;
    const uint64_t unread = layer.unread(instr.kind);
    auto read_unless = [&](bool is_unread, int32_t v) {
      if (!is_unread) return read_value(v, mb);
      if (operand(at_, v, mb).value != kNone) wrong(name_of("unread value", v, mb) + " has a place");
    };
    for (size_t i = 0; i < layer.inputs.size(); ++i) read_unless(unread & GSEL_UNREAD_INPUT(i), layer.inputs[i]);
    for (size_t i = 0; i < layer.outputs.size(); ++i) read_unless(unread & GSEL_UNREAD_OUTPUT(i), layer.outputs[i]);
    if (!(unread & GSEL_UNREAD_SAVED) && layer.saved_bytes_per_sample)
      read("saved", buffers_.at({kSaved, instr.layer, mb}), here().saved);
    for (int32_t v : layer.outputs)
      if (model_.values()[v].needs_gradient) read_gradient(v, mb);
    if (instr.kind != GSEL_BACKWARD_WEIGHT)
      for (int32_t v : layer.inputs)
        if (model_.values()[v].needs_gradient) contribute(v, mb);
    if (instr.kind != GSEL_BACKWARD_INPUT)
      for (size_t i = 0; i < layer.params.size(); ++i)
        if (const int32_t p = layer.params[i]; bucket_of_.contains(p))
          write_weights(bucket_of_.at(p), here().params[i].gradient_window);
    read_params(instr, layer);
  }

  void visit_phases(const std::vector<gsel_phase>& phases, int32_t mb) {
    for (size_t i = 0; i < phases.size(); ++i)
      only_here("phase", here().phases[i].buffer, phase_bytes(phases[i], samples(mb)));
  }

  void read_params(const gsel_instr& instr, const Layer& layer) {
    for (size_t i = 0; i < layer.params.size(); ++i) {
      const int32_t p = layer.params[i];
      if (!layer.reads_param(instr.kind, i)) continue;
      if (program_.params[p].dtype != model_.params()[p].dtype)
        only_here("cast", here().params[i].cast, 4 * static_cast<uint64_t>(model_.params()[p].n_elems));
      if (!bucket_of_.contains(p) || layouts_[bucket_of_.at(p)].whole_params) continue;
      read_window(kParams, bucket_of_.at(p));
    }
  }

  void open(What what, int32_t b, uint64_t offset, uint64_t bytes) {
    if (!bytes || windows_.contains({what, b, 0})) return;
    windows_[{what, b, 0}] = fresh("window", offset, bytes);
    write("window", windows_[{what, b, 0}]);
  }
  void read_window(What what, int32_t b) {
    const auto found = windows_.find({what, b, 0});
    if (found == windows_.end()) wrong("a window is closed");
    if (!touched(found->second)) read("window", found->second, found->second.offset);
  }
  void close(What what, int32_t b) {
    if (!windows_.contains({what, b, 0})) return;
    read_window(what, b);
    windows_.erase({what, b, 0});
  }
  void write_weights(int32_t b, uint64_t offset) {
    if (layouts_[b].whole_gradient) return;
    open(kWholeGradient, b, offset, layouts_[b].gradient_window_bytes);
    read_window(kWholeGradient, b);
  }

  void visit_collective(const gsel_instr& instr) {
    const int32_t b = instr.bucket;
    under_way_[b] = instr.kind;
    if (instr.kind == GSEL_INSTR_ALLGATHER || instr.kind == GSEL_INSTR_BROADCAST)
      return open(kParams, b, here().window, layouts_[b].param_window_bytes);
    if (!layouts_[b].whole_gradient) write_weights(b, here().window);
    if (instr.kind != GSEL_INSTR_REDUCE_SCATTER || layouts_[b].whole_gradient) return;
    if (has_gradients_[b])
      open(kReduced, b, here().reduced, layouts_[b].gradient_bytes);
    else if (here().reduced != kNone)
      wrong("a first reduction has memory of its own");
    has_gradients_[b] = true;
  }
  void visit_wait(int32_t b) {
    if (under_way_[b] == GSEL_INSTR_REDUCE_SCATTER || under_way_[b] == GSEL_INSTR_REDUCE) {
      close(kWholeGradient, b);
      close(kReduced, b);
    }
    under_way_[b] = 0;
  }

  void visit_parts(const gsel_instr& instr) {
    const bool gradient = instr.flags & GSEL_INSTR_GRADIENT, scatter = instr.kind == GSEL_INSTR_SCATTER;
    const int32_t part = instr.microbatch, whole = program_.microbatches[part].whole, v = instr.value;
    const bool root = program_.mesh.coordinate(program_.rank, instr.axis) == instr.peer;
    auto writes = [&](int32_t mb) { gradient ? contribute(v, mb) : write_value(v, mb); };
    auto reads = [&](int32_t mb) { gradient ? read_gradient(v, mb) : read_value(v, mb); };
    scatter ? writes(part) : reads(part);
    if (root) scatter ? reads(whole) : writes(whole);
    if (!root && operand(at_, v, whole).value != kNone) wrong("the whole has a place beside the root");
  }

  void visit(const gsel_instr& instr) {
    switch (instr.kind) {
      case GSEL_INPUT:
        return write_value(instr.value, instr.microbatch);
      case GSEL_FORWARD:
      case GSEL_INSTR_RECOMPUTE:
        return visit_forward(instr);
      case GSEL_BACKWARD:
      case GSEL_BACKWARD_INPUT:
      case GSEL_BACKWARD_WEIGHT:
        return visit_backward(instr);
      case GSEL_INSTR_SEND:
        return visit_send(instr);
      case GSEL_INSTR_RECV:
        return visit_receive(instr);
      case GSEL_INSTR_SCATTER:
      case GSEL_INSTR_GATHER:
        return visit_parts(instr);
      case GSEL_INSTR_RELEASE:
        return close(kParams, instr.bucket);
      case GSEL_INSTR_ALLGATHER:
      case GSEL_INSTR_BROADCAST:
      case GSEL_INSTR_REDUCE_SCATTER:
      case GSEL_INSTR_REDUCE:
        return visit_collective(instr);
      case GSEL_INSTR_WAIT:
        return visit_wait(instr.bucket);
    }
  }

  const Model& model_;
  const Program& program_;
  const std::vector<BucketLayout>& layouts_;
  const ArenaPlan& plan_;
  const MessagePlan messages_;
  std::map<int32_t, int32_t> bucket_of_;
  std::vector<uint64_t> units_;  // of the arena: what was painted last
  size_t at_ = 0;
  uint64_t last_paint_ = 0;
  std::map<uint64_t, Life> lives_;
  std::map<Name, Buffer> buffers_, windows_;
  std::multimap<int32_t, size_t> posts_;  // receives, by where they are posted
  std::map<size_t, Buffer> posted_;       // by position of the receive
  std::multimap<int32_t, Buffer> lent_;   // to sends, by where they have left
  std::map<int32_t, gsel_instr_kind> under_way_;
  std::map<int32_t, bool> has_gradients_;
  std::vector<std::pair<std::string, Buffer>> reads_, writes_;
};

}  // namespace

uint64_t check_arena(const Model& model, const Program& program, const std::vector<BucketLayout>& layouts,
                     const ArenaPlan& plan) {
  return ArenaCheck(model, program, layouts, plan).run();
}

}  // namespace made
