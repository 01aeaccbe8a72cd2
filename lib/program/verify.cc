// program/verify.cc: runs the programs of all ranks on facts instead of data: which value is written, which gradient
// complete, which message under way. A rank stops where the executor would block; when no rank can go on, that is a
// deadlock. Refuses to know strategies: the rules hold for any program.
#include "program/verify.h"

#include <deque>
#include <map>
#include <unordered_map>

#include "base/dtype.h"

namespace gsel {
namespace {

struct ValueFacts {
  bool written = false;
  bool gradient_used = false;
  int32_t expected = 0;  // gradient contributions owed: forward readers and sends
  int32_t arrived = 0;
};

struct LayerFacts {
  bool forward = false, backward_input = false, backward_weight = false;
};

struct ParamFacts {
  int32_t pending = 0;  // forwards whose weight gradient is not produced yet
  bool closed = false;  // reduced or stepped: no further use in this step
};

struct BucketFacts {
  std::array<bool, GSEL_AXES> reduced{};
  bool waited = true;
  bool stepped = false;
  gsel_axis last_axis = -1;  // group and place of its collective under way
  size_t last_index = 0;
};

// What one group of ranks has agreed on so far, in order.
struct Group {
  struct Call {
    gsel_instr instr;
    std::vector<int32_t> params;  // of the bucket, in order; empty for the loss
    std::string where;
  };
  std::vector<Call> calls;
  std::map<int32_t, size_t> posted;  // by rank
};

struct Message {
  gsel_instr instr;
  std::string where;
};

class Verifier;

// One rank going through its program.
class Walker {
 public:
  Walker(const Program& program, Verifier& all) : program_(program), all_(all), buckets_(program.buckets.size()), params_(program.params.size()) {}

  const Program& program() const { return program_; }
  bool finished() const { return !in_setup_ && position_ == program_.step.size(); }
  // Goes on until it blocks or ends; true when it moved.
  bool advance();
  std::string where_now() const { return where(program_, in_setup_, position_); }
  const std::string& waits_for() const { return waits_for_; }
  void check_end() const;

 private:
  const std::vector<gsel_instr>& list() const { return in_setup_ ? program_.setup : program_.step; }
  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: {}", where_now(), why)).about_rank(program_.rank);
  }
  ValueFacts& value(int32_t v, int32_t mb) { return values_[key(v, mb)]; }
  LayerFacts& layer(int32_t l, int32_t mb) { return layers_[key(l, mb)]; }
  static uint64_t key(int32_t id, int32_t mb) { return uint64_t(uint32_t(id)) << 32 | uint32_t(mb); }

  bool execute(const gsel_instr& instr);  // false: blocked
  void input(const gsel_instr& instr);
  void forward(const gsel_instr& instr);
  void backward(const gsel_instr& instr, bool input_half, bool weight_half);
  void need_output_gradients(const ProgramLayer& layer, int32_t mb);
  void send(const gsel_instr& instr);
  bool receive(const gsel_instr& instr);
  void begin_bucket(const gsel_instr& instr);
  bool wait(const gsel_instr& instr);
  bool loss_reduce(const gsel_instr& instr);
  void norm();
  void step(const gsel_instr& instr);

  const Program& program_;
  Verifier& all_;
  bool in_setup_ = true;
  size_t position_ = 0;
  bool posted_here_ = false;  // the collective at position_ is posted and waits
  size_t posted_index_ = 0;
  bool loss_reduced_ = false;
  std::string waits_for_;
  std::unordered_map<uint64_t, ValueFacts> values_;
  std::unordered_map<uint64_t, LayerFacts> layers_;
  std::vector<BucketFacts> buckets_;
  std::vector<ParamFacts> params_;
};

class Verifier {
 public:
  explicit Verifier(std::span<const Program* const> programs) {
    for (const Program* p : programs) walkers_.emplace_back(*p, *this);
  }

  void run() {
    check_outlines();
    for (bool moved = true; moved;) {
      moved = false;
      for (Walker& w : walkers_) moved |= w.advance();
    }
    check_finished();
    for (const Walker& w : walkers_) w.check_end();
    for (const auto& [pair, queue] : messages_)
      if (!queue.empty()) fail(GSEL_ERR_PROGRAM, "{}: rank {} never receives it", queue.front().where, pair.second);
  }

  std::deque<Message>& messages(int32_t from, int32_t to) { return messages_[{from, to}]; }

  // Adds a rank's next collective to its group's order; returns its place in that order.
  size_t post(const Program& program, const gsel_instr& instr, const std::string& where) {
    const std::vector<int32_t> params = instr.bucket < 0 ? std::vector<int32_t>{} : program.buckets[instr.bucket];
    Group& group = group_of(program, instr.axis);
    const size_t index = group.posted[program.rank]++;
    if (index == group.calls.size()) {
      group.calls.push_back({instr, params, where});
      return index;
    }
    const Group::Call& first = group.calls[index];
    if (first.instr.kind != instr.kind || first.instr.bucket != instr.bucket || first.instr.peer != instr.peer)
      throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: the {} group's collective {} is {}; all ranks of a group make the same "
                                                "collectives in the same order",
                                                where, axis_name(instr.axis), index, first.where))
          .about_rank(program.rank);
    if (first.params != params)
      throw Error(GSEL_ERR_PROGRAM, fmt::format("{}: the bucket holds other parameters, or in another order, than in {}", where, first.where))
          .about_rank(program.rank);
    return index;
  }

  // The rank of the group that has not posted its collective `index` yet, or -1.
  int32_t missing(const Program& program, gsel_axis axis, size_t index) {
    const Group& group = group_of(program, axis);
    for (int32_t rank : program.mesh.group(program.rank, axis)) {
      const auto found = group.posted.find(rank);
      if (found == group.posted.end() || found->second <= index) return rank;
    }
    return -1;
  }

 private:
  Group& group_of(const Program& program, gsel_axis axis) {
    return groups_[{axis, program.mesh.group(program.rank, axis).front()}];
  }

  // Every rank that waits for ever is told, up to a few: the cause is often not with the first.
  void check_finished() const {
    constexpr int kTold = 4;
    int stuck = 0;
    int32_t first = -1;
    std::string text;
    for (const Walker& w : walkers_) {
      if (w.finished()) continue;
      if (first < 0) first = w.program().rank;
      if (stuck++ < kTold) text += fmt::format("{}{}: waits for ever for {}", text.empty() ? "" : "; ", w.where_now(), w.waits_for());
    }
    if (stuck > kTold) text += fmt::format("; and {} more ranks", stuck - kTold);
    if (stuck) throw Error(GSEL_ERR_PROGRAM, text).about_rank(first);
  }

  void check_outlines() const {
    const Program& first = walkers_.front().program();
    if (static_cast<size_t>(first.mesh.world_size()) != walkers_.size())
      fail(GSEL_ERR_PROGRAM, "the mesh has {} ranks and {} programs were given; give one per rank", first.mesh.world_size(), walkers_.size());
    for (size_t rank = 0; rank < walkers_.size(); ++rank) {
      const Program& p = walkers_[rank].program();
      if (static_cast<size_t>(p.rank) != rank)
        fail(GSEL_ERR_PROGRAM, "program {} in the list is of rank {}; give them in rank order", rank, p.rank);
      if (p.mesh != first.mesh || p.params != first.params || p.values != first.values || p.layers != first.layers)
        fail(GSEL_ERR_PROGRAM, "the programs of ranks 0 and {} are of different models or meshes", rank);
    }
  }

  std::deque<Walker> walkers_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Message>> messages_;
  std::map<std::pair<gsel_axis, int32_t>, Group> groups_;
};

bool Walker::advance() {
  bool moved = false;
  for (;;) {
    if (in_setup_ && position_ == program_.setup.size()) {
      in_setup_ = false;
      position_ = 0;
      moved = true;
    }
    if (position_ == list().size()) return moved;
    if (!execute(list()[position_])) return moved;
    posted_here_ = false;
    ++position_;
    moved = true;
  }
}

bool Walker::execute(const gsel_instr& instr) {
  if (in_setup_ && instr.kind != GSEL_INSTR_BROADCAST && instr.kind != GSEL_INSTR_WAIT)
    refuse("setup has broadcast and wait alone");
  switch (instr.kind) {
    case GSEL_INSTR_INPUT: input(instr); return true;
    case GSEL_INSTR_FORWARD: forward(instr); return true;
    case GSEL_INSTR_BACKWARD_INPUT: backward(instr, true, false); return true;
    case GSEL_INSTR_BACKWARD_WEIGHT: backward(instr, false, true); return true;
    case GSEL_INSTR_BACKWARD: backward(instr, true, true); return true;
    case GSEL_INSTR_SEND: send(instr); return true;
    case GSEL_INSTR_RECV: return receive(instr);
    case GSEL_INSTR_BROADCAST:
    case GSEL_INSTR_REDUCE: begin_bucket(instr); return true;
    case GSEL_INSTR_WAIT: return wait(instr);
    case GSEL_INSTR_LOSS_REDUCE: return loss_reduce(instr);
    case GSEL_INSTR_NORM: norm(); return true;
    case GSEL_INSTR_STEP: step(instr); return true;
    default: refuse("unknown kind of instruction");
  }
}

void Walker::input(const gsel_instr& instr) {
  if (!program_.values[instr.value].is_input) refuse("the value is not an input");
  ValueFacts& v = value(instr.value, instr.microbatch);
  if (v.written) refuse("the value is already written");
  v.written = true;
}

void Walker::forward(const gsel_instr& instr) {
  const ProgramLayer& l = program_.layers[instr.layer];
  LayerFacts& facts = layer(instr.layer, instr.microbatch);
  if (facts.forward) refuse("this forward has run already");
  facts.forward = true;
  for (int32_t v : l.inputs) {
    ValueFacts& in = value(v, instr.microbatch);
    if (!in.written) refuse(fmt::format("it reads value \"{}\" before it is written", program_.values[v].name));
    if (in.gradient_used) refuse(fmt::format("it reads value \"{}\" after its gradient was used", program_.values[v].name));
    if (program_.values[v].needs_gradient && l.needs_backward_input) ++in.expected;
  }
  for (int32_t v : l.outputs) {
    ValueFacts& out = value(v, instr.microbatch);
    if (out.written) refuse(fmt::format("it writes value \"{}\", which is already written", program_.values[v].name));
    out.written = true;
  }
  for (int32_t p : l.params) {
    if (params_[p].closed) refuse(fmt::format("it uses parameter \"{}\" after its gradient was reduced or stepped", program_.params[p].name));
    if (l.needs_backward_weight && program_.params[p].trainable) ++params_[p].pending;
  }
}

void Walker::need_output_gradients(const ProgramLayer& l, int32_t mb) {
  for (int32_t v : l.outputs) {
    if (!program_.values[v].needs_gradient) continue;
    ValueFacts& out = value(v, mb);
    if (out.expected == 0 || out.arrived < out.expected)
      refuse(fmt::format("the gradient of value \"{}\" has {} of {} contributions", program_.values[v].name, out.arrived, out.expected));
    out.gradient_used = true;
  }
}

void Walker::backward(const gsel_instr& instr, bool input_half, bool weight_half) {
  const ProgramLayer& l = program_.layers[instr.layer];
  LayerFacts& facts = layer(instr.layer, instr.microbatch);
  if (!facts.forward) refuse("its forward has not run");
  need_output_gradients(l, instr.microbatch);
  if (input_half && l.needs_backward_input) {
    if (facts.backward_input) refuse("the gradient of its inputs is already produced");
    facts.backward_input = true;
    for (int32_t v : l.inputs)
      if (program_.values[v].needs_gradient) ++value(v, instr.microbatch).arrived;
  }
  if (weight_half && l.needs_backward_weight) {
    if (facts.backward_weight) refuse("the gradient of its parameters is already produced");
    facts.backward_weight = true;
    for (int32_t p : l.params)
      if (program_.params[p].trainable) --params_[p].pending;
  }
}

void Walker::send(const gsel_instr& instr) {
  if (instr.peer == program_.rank) refuse("a rank cannot send to itself");
  ValueFacts& v = value(instr.value, instr.microbatch);
  if (instr.flags & GSEL_INSTR_GRADIENT) {
    if (v.expected == 0 || v.arrived < v.expected) refuse(fmt::format("the gradient has {} of {} contributions", v.arrived, v.expected));
    v.gradient_used = true;
  } else {
    if (!v.written) refuse("the value is not written");
    if (program_.values[instr.value].needs_gradient) ++v.expected;
  }
  all_.messages(program_.rank, instr.peer).push_back({instr, where_now()});
}

bool Walker::receive(const gsel_instr& instr) {
  if (instr.peer == program_.rank) refuse("a rank cannot receive from itself");
  auto& queue = all_.messages(instr.peer, program_.rank);
  if (queue.empty()) {
    waits_for_ = fmt::format("a send of rank {}", instr.peer);
    return false;
  }
  const Message message = queue.front();
  queue.pop_front();
  if (message.instr.value != instr.value || message.instr.microbatch != instr.microbatch || message.instr.flags != instr.flags)
    refuse(fmt::format("what arrives next is from {}", message.where));
  ValueFacts& v = value(instr.value, instr.microbatch);
  if (instr.flags & GSEL_INSTR_GRADIENT) {
    if (++v.arrived > v.expected) refuse("more gradient contributions than readers");
  } else {
    if (v.written) refuse("the value is already written");
    v.written = true;
  }
  return true;
}

void Walker::begin_bucket(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (!bucket.waited) refuse("the bucket's last collective was not waited for");
  if (instr.kind == GSEL_INSTR_REDUCE) {
    if (bucket.reduced[instr.axis]) refuse("the bucket's gradients are already reduced on this axis");
    for (int32_t p : program_.buckets[instr.bucket]) {
      if (params_[p].pending)
        refuse(fmt::format("the gradient of parameter \"{}\" still lacks {} contributions", program_.params[p].name, params_[p].pending));
      params_[p].closed = true;
    }
    bucket.reduced[instr.axis] = true;
  }
  bucket.last_axis = instr.axis;
  bucket.last_index = all_.post(program_, instr, where_now());
  bucket.waited = false;
}

bool Walker::wait(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (bucket.waited) refuse("no collective of this bucket is under way");
  const int32_t rank = all_.missing(program_, bucket.last_axis, bucket.last_index);
  if (rank >= 0) {
    waits_for_ = fmt::format("rank {} to join the collective", rank);
    return false;
  }
  bucket.waited = true;
  return true;
}

bool Walker::loss_reduce(const gsel_instr& instr) {
  if (!posted_here_) {
    if (loss_reduced_) refuse("the loss is already reduced");
    posted_index_ = all_.post(program_, instr, where_now());
    posted_here_ = true;
  }
  const int32_t rank = all_.missing(program_, instr.axis, posted_index_);
  if (rank >= 0) {
    waits_for_ = fmt::format("rank {} to join the collective", rank);
    return false;
  }
  loss_reduced_ = true;
  return true;
}

void Walker::norm() {
  if (!loss_reduced_) refuse("the loss weight is not reduced yet");
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const bool complete = buckets_[b].waited &&
                          (program_.mesh.size[GSEL_AXIS_DATA] == 1 || buckets_[b].reduced[GSEL_AXIS_DATA]);
    if (!complete) refuse(fmt::format("the gradients of bucket {} are not reduced yet", b));
  }
}

void Walker::step(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (bucket.stepped) refuse("the bucket is already stepped");
  if (!loss_reduced_) refuse("the loss weight is not reduced yet");
  if (!bucket.waited) refuse("the bucket's reduction was not waited for");
  if (program_.mesh.size[GSEL_AXIS_DATA] > 1 && !bucket.reduced[GSEL_AXIS_DATA]) refuse("the bucket's gradients were not reduced");
  for (int32_t p : program_.buckets[instr.bucket]) {
    if (params_[p].pending)
      refuse(fmt::format("the gradient of parameter \"{}\" still lacks {} contributions", program_.params[p].name, params_[p].pending));
    params_[p].closed = true;
  }
  bucket.stepped = true;
}

void Walker::check_end() const {
  auto refuse_end = [&](const std::string& why) {
    throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}, end of step: {}", program_.rank, why)).about_rank(program_.rank);
  };
  for (const auto& [id, facts] : layers_) {
    const ProgramLayer& l = program_.layers[id >> 32];
    const bool whole = facts.backward_input >= l.needs_backward_input && facts.backward_weight >= l.needs_backward_weight;
    if (facts.forward && !whole)
      refuse_end(fmt::format("the backward of layer \"{}\", micro-batch {}, is missing", l.name, uint32_t(id)));
  }
  std::vector<int32_t> homes(program_.params.size());
  for (const auto& bucket : program_.buckets)
    for (int32_t p : bucket) ++homes[p];
  for (size_t p = 0; p < homes.size(); ++p)
    if (homes[p] != (program_.params[p].trainable ? 1 : 0))
      refuse_end(fmt::format("parameter \"{}\" stands in {} buckets", program_.params[p].name, homes[p]));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    if (!buckets_[b].stepped) refuse_end(fmt::format("bucket {} is never stepped", b));
    if (!buckets_[b].waited) refuse_end(fmt::format("the last collective of bucket {} is never waited for", b));
  }
}

}  // namespace

void verify(std::span<const Program* const> programs) {
  if (programs.empty()) fail(GSEL_ERR_ARG, "no programs were given");
  Verifier(programs).run();
}

}  // namespace gsel
