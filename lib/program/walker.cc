// program/walker.cc: the rules, one function per kind of instruction.
#include "program/walker.h"

namespace gsel {

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
    case GSEL_INSTR_INPUT:
      input(instr);
      return true;
    case GSEL_INSTR_FORWARD:
      forward(instr);
      return true;
    case GSEL_INSTR_BACKWARD_INPUT:
      backward(instr, true, false);
      return true;
    case GSEL_INSTR_BACKWARD_WEIGHT:
      backward(instr, false, true);
      return true;
    case GSEL_INSTR_BACKWARD:
      backward(instr, true, true);
      return true;
    case GSEL_INSTR_SEND:
      send(instr);
      return true;
    case GSEL_INSTR_RECV:
      return receive(instr);
    case GSEL_INSTR_BROADCAST:
    case GSEL_INSTR_REDUCE:
      begin_bucket(instr);
      return true;
    case GSEL_INSTR_WAIT:
      return wait(instr);
    case GSEL_INSTR_LOSS_REDUCE:
      return loss_reduce(instr);
    case GSEL_INSTR_NORM:
      norm();
      return true;
    case GSEL_INSTR_STEP:
      step(instr);
      return true;
    default:
      refuse("unknown kind of instruction");
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
    if (in.gradient_used)
      refuse(fmt::format("it reads value \"{}\" after its gradient was used", program_.values[v].name));
    if (program_.values[v].needs_gradient && l.needs_backward_input) ++in.expected;
  }
  for (int32_t v : l.outputs) {
    ValueFacts& out = value(v, instr.microbatch);
    if (out.written) refuse(fmt::format("it writes value \"{}\", which is already written", program_.values[v].name));
    out.written = true;
  }
  for (int32_t p : l.params) {
    if (params_[p].closed)
      refuse(
          fmt::format("it uses parameter \"{}\" after its gradient was reduced or stepped", program_.params[p].name));
    if (l.needs_backward_weight && program_.params[p].trainable) ++params_[p].pending;
  }
}

void Walker::need_output_gradients(const ProgramLayer& l, int32_t mb) {
  for (int32_t v : l.outputs) {
    if (!program_.values[v].needs_gradient) continue;
    ValueFacts& out = value(v, mb);
    if (out.expected == 0 || out.arrived < out.expected)
      refuse(fmt::format("the gradient of value \"{}\" has {} of {} contributions", program_.values[v].name,
                         out.arrived, out.expected));
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
    if (v.expected == 0 || v.arrived < v.expected)
      refuse(fmt::format("the gradient has {} of {} contributions", v.arrived, v.expected));
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
  if (message.instr.value != instr.value || message.instr.microbatch != instr.microbatch ||
      message.instr.flags != instr.flags)
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
        refuse(fmt::format("the gradient of parameter \"{}\" still lacks {} contributions", program_.params[p].name,
                           params_[p].pending));
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
    const bool complete =
        buckets_[b].waited && (program_.mesh.size[GSEL_AXIS_DATA] == 1 || buckets_[b].reduced[GSEL_AXIS_DATA]);
    if (!complete) refuse(fmt::format("the gradients of bucket {} are not reduced yet", b));
  }
}

void Walker::step(const gsel_instr& instr) {
  BucketFacts& bucket = buckets_[instr.bucket];
  if (bucket.stepped) refuse("the bucket is already stepped");
  if (!loss_reduced_) refuse("the loss weight is not reduced yet");
  if (!bucket.waited) refuse("the bucket's reduction was not waited for");
  if (program_.mesh.size[GSEL_AXIS_DATA] > 1 && !bucket.reduced[GSEL_AXIS_DATA])
    refuse("the bucket's gradients were not reduced");
  for (int32_t p : program_.buckets[instr.bucket]) {
    if (params_[p].pending)
      refuse(fmt::format("the gradient of parameter \"{}\" still lacks {} contributions", program_.params[p].name,
                         params_[p].pending));
    params_[p].closed = true;
  }
  bucket.stepped = true;
}

bool Walker::ran_forward(int32_t l, int32_t mb) const {
  const auto found = layers_.find(key(l, mb));
  return found != layers_.end() && found->second.forward;
}

void Walker::check_end() const {
  auto refuse_end = [&](const std::string& why) {
    throw Error(GSEL_ERR_PROGRAM, fmt::format("rank {}, end of step: {}", program_.rank, why))
        .about_rank(program_.rank);
  };
  for (const auto& [id, facts] : layers_) {
    const ProgramLayer& l = program_.layers[id >> 32];
    const bool whole =
        facts.backward_input >= l.needs_backward_input && facts.backward_weight >= l.needs_backward_weight;
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

}  // namespace gsel
