// program/verify/walker_values.cc: rules of values: inputs, callbacks, and transfers between ranks. Nothing is read
// before it is written, and no gradient is used before all its contributions have arrived.
#include <algorithm>

#include "program/stages.h"
#include "program/verify/walker.h"

namespace gsel {

// ---- inputs and callbacks ------------------------------------------------------------------------------------------

void Walker::input(const gsel_instr& instr) {
  if (!program_.values[instr.value].is_input) refuse("the value is not an input");
  if (program_.mesh.size[GSEL_AXIS_PIPELINE] > 1 &&
      !std::ranges::count(chain(program_, instr.value), coordinate(GSEL_AXIS_PIPELINE)))
    refuse("no layer of this rank's stages reads the input");
  ValueFacts& v = value(instr.value, instr.microbatch);
  if (v.written) refuse("the value is already written");
  v.written = true;
}

void Walker::need_here(const gsel_instr& instr) const {
  if (is_here(program_, instr.layer)) return;
  refuse(fmt::format("the layer is of stage {}, which is on pipeline rank {}; this is pipeline rank {}",
                     program_.layers[instr.layer].stage, pipeline_rank_of_layer(program_, instr.layer),
                     coordinate(GSEL_AXIS_PIPELINE)));
}

void Walker::forward(const gsel_instr& instr) {
  need_here(instr);
  const ProgramLayer& l = program_.layers[instr.layer];
  const int32_t mb = instr.microbatch;
  LayerFacts& facts = layer(instr.layer, mb);
  if (facts.forward) refuse("this forward has run already");
  if (l.is_loss && std::ranges::count(loss_reduced_, true))
    refuse("the loss is already reduced; this contribution would be lost");
  facts.forward = true;
  for (int32_t v : l.inputs) {
    ValueFacts& in = value(v, mb);
    if (!in.written) refuse(fmt::format("it reads value \"{}\" before it is written", name(v)));
    if (in.gradient_used) refuse(fmt::format("it reads value \"{}\" after its gradient was used", name(v)));
    if (program_.values[v].needs_gradient && l.needs_backward_input) ++in.expected;
  }
  for (int32_t v : l.outputs) {
    ValueFacts& out = value(v, mb);
    if (out.written) refuse(fmt::format("it writes value \"{}\", which is already written", name(v)));
    out.written = true;
  }
  need_params(l, 0);
  for (int32_t p : l.params) {
    if (bucket_of_[p] < 0 || purpose_ == Purpose::evaluation) continue;
    if (buckets_[bucket_of_[p]].closed)
      refuse(
          fmt::format("it uses parameter \"{}\" after its gradient was reduced or stepped", program_.params[p].name));
    if (l.needs_backward_weight) ++pending_[p];
  }
}

// Its outputs were written before and may have been freed since. Another recomputation may have read the first copy
// already, if a value skips a layer that is not recomputed.
void Walker::recompute(const gsel_instr& instr) {
  const ProgramLayer& l = program_.layers[instr.layer];
  LayerFacts& facts = layer(instr.layer, instr.microbatch);
  if (l.is_loss) refuse("a loss is never recomputed; it would be counted twice");
  if (!facts.forward) refuse("its forward has not run");
  if (facts.recomputed) refuse("it is already recomputed");
  if (facts.backward_input || facts.backward_weight) refuse("its backward has run already");
  facts.recomputed = true;
  need_params(l, 0);
}

void Walker::need_output_gradients(const ProgramLayer& l, int32_t mb) {
  for (int32_t v : l.outputs) {
    if (!program_.values[v].needs_gradient) continue;
    ValueFacts& out = value(v, mb);
    if (out.expected == 0 || out.arrived < out.expected)
      refuse(
          fmt::format("the gradient of value \"{}\" has {} of {} contributions", name(v), out.arrived, out.expected));
    out.gradient_used = true;
  }
}

void Walker::backward(const gsel_instr& instr) {
  need_here(instr);
  const ProgramLayer& l = program_.layers[instr.layer];
  const int32_t mb = instr.microbatch;
  const InstrRow& row = instr_row(instr.kind);
  const bool input_half = row.input_half && l.needs_backward_input;
  const bool weight_half = row.weight_half && l.needs_backward_weight;
  LayerFacts& facts = layer(instr.layer, mb);
  if (!input_half && !weight_half) refuse("the layer has no such gradient to produce");
  if (!facts.forward) refuse("its forward has not run");
  need_output_gradients(l, mb);
  if (row.input_half || l.weight_reads_params) need_params(l, l.backward_unread_params);
  if (input_half) {
    if (facts.backward_input) refuse("the gradient of its inputs is already produced");
    facts.backward_input = true;
    for (int32_t v : l.inputs)
      if (program_.values[v].needs_gradient) ++value(v, mb).arrived;
  }
  if (weight_half) {
    if (facts.backward_weight) refuse("the gradient of its parameters is already produced");
    facts.backward_weight = true;
    produce_weights(instr);
  }
}

void Walker::produce_weights(const gsel_instr& instr) {
  for (int32_t p : program_.layers[instr.layer].params) {
    if (bucket_of_[p] < 0) continue;
    BucketFacts& bucket = buckets_[bucket_of_[p]];
    if (bucket.under_way && task_of(bucket.under_way) == InstrTask::gradients)
      refuse(fmt::format("it writes the gradient of parameter \"{}\", whose {} was not waited for",
                         program_.params[p].name, find_instr_row(bucket.under_way)->word));
    --pending_[p];
    ++bucket.unreduced;
  }
}

// ---- messages, and shards of a whole micro-batch -------------------------------------------------------------------

// Sends a value, or its complete gradient. owes: the value's gradient comes back.
void Walker::give(ValueFacts& v, bool gradient, bool owes) {
  if (!gradient) {
    if (!v.written) refuse("the value is not written");
    if (v.gradient_used) refuse("the gradient of the value was used before");
    if (owes) ++v.expected;
    return;
  }
  if (v.expected == 0 || v.arrived < v.expected)
    refuse(fmt::format("the gradient has {} of {} contributions", v.arrived, v.expected));
  if (v.gradient_used) refuse("the gradient was used before");
  v.gradient_used = true;
}

void Walker::take(ValueFacts& v, bool gradient) {
  if (gradient) {
    if (++v.arrived > v.expected) refuse("more gradient contributions than readers");
    return;
  }
  if (v.written) refuse("the value is already written");
  v.written = true;
}

// Whether the gradient of a sent value comes back; cached by value and receiver.
bool Walker::owes_gradient(const gsel_instr& instr) {
  const auto [found, is_new] = owes_gradient_.try_emplace(key(instr.value, instr.peer));
  if (is_new)
    found->second = gradient_returns(program_, instr.value, program_.mesh.coordinate(instr.peer, GSEL_AXIS_PIPELINE));
  return found->second;
}

void Walker::send(const gsel_instr& instr) {
  if (instr.peer == program_.rank) refuse("a rank cannot send to itself");
  give(value(instr.value, instr.microbatch), instr.flags & GSEL_INSTR_GRADIENT, owes_gradient(instr));
  const std::vector<int32_t> along = program_.mesh.group(program_.rank, GSEL_AXIS_PIPELINE);
  if (!std::ranges::count(along, instr.peer))
    refuse(fmt::format("messages go along the pipeline axis, and that of this rank has rank{} {}",
                       along.size() > 1 ? "s" : "", fmt::join(along, ", ")));
  if (program_.values[instr.value].is_input && along.size() > 1)
    refuse("an input is filled on the ranks that read it and goes to no other");
  Channel& channel = all_.channel(program_.rank, instr.peer);
  sent_to_[instr.peer] = &channel;
  channel.under_way.push_back(spot());
  ++channel.sent;
}

// A send ends once its receive is posted, which is when the message `transfers` before it has been taken.
int32_t Walker::full_channel() const {
  for (const auto& [rank, channel] : sent_to_)
    if (channel->taken + transfers_ < channel->sent) return rank;
  return -1;
}

bool Walker::has_room(const gsel_instr& instr) const {
  if (transfers_ == 0) return true;
  const InstrRow& row = instr_row(instr.kind);
  if (row.task == InstrTask::loss && instr.axis == GSEL_AXIS_DATA) return full_channel() < 0;
  if (!row.is_send()) return true;
  const Channel& channel = all_.channel(program_.rank, instr.peer);
  return channel.sent < channel.taken + 2 * int64_t{transfers_};
}

bool Walker::receive(const gsel_instr& instr) {
  Channel& channel = all_.channel(instr.peer, program_.rank);
  if (channel.under_way.empty()) return false;
  const Spot sent = channel.under_way.front();
  channel.under_way.pop_front();
  ++channel.taken;
  const gsel_instr& message = sent.instr();
  if (message.value != instr.value || message.microbatch != instr.microbatch || message.flags != instr.flags)
    refuse(fmt::format("what arrives next is from {}", sent.where()));
  const Microbatch &theirs = sent.program->microbatches[instr.microbatch],
                   &mine = program_.microbatches[instr.microbatch];
  if (theirs.first != mine.first || theirs.count != mine.count)
    refuse(fmt::format("the micro-batch has other samples where it was sent: {}", sent.where()));
  take(value(instr.value, instr.microbatch), instr.flags & GSEL_INSTR_GRADIENT);
  return true;
}

// SCATTER distributes the root's whole micro-batch in shards; GATHER is the reverse. The gradient of a gathered value
// is scattered.
void Walker::enter_scatter_gather(const gsel_instr& instr) {
  const int32_t whole = program_.microbatches[instr.microbatch].whole;
  const bool gradient = instr.flags & GSEL_INSTR_GRADIENT, owes = program_.values[instr.value].needs_gradient;
  if (whole < 0) refuse("the micro-batch is no shard of another one");
  if (instr.axis != GSEL_AXIS_DATA) refuse("the axis is not data; scatter and gather are over the data axis");
  if (program_.values[instr.value].is_scalar) refuse("the value is one number per micro-batch, which has no shards");
  if (!instr_row(instr.kind).is_scatter()) return give(value(instr.value, instr.microbatch), false, owes);
  if (owes && !gradient) refuse("the value needs a gradient, which no instruction would bring back to the root");
  if (coordinate(instr.axis) == instr.peer) give(value(instr.value, whole), gradient, false);
}

void Walker::leave_scatter_gather(const gsel_instr& instr) {
  if (instr_row(instr.kind).is_scatter())
    take(value(instr.value, instr.microbatch), instr.flags & GSEL_INSTR_GRADIENT);
  else if (coordinate(instr.axis) == instr.peer)
    take(value(instr.value, program_.microbatches[instr.microbatch].whole), false);
}

}  // namespace gsel
