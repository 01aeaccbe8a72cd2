// program/verify/walker_messages.cc: rules of transfers between ranks: messages, and parts of a whole micro-batch.
#include <algorithm>

#include "program/stages.h"
#include "program/verify/walker.h"

namespace gsel {

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
bool Walker::comes_back(const gsel_instr& instr) {
  const auto [found, is_new] = comes_back_.try_emplace(key(instr.value, instr.peer));
  if (is_new)
    found->second = gradient_returns(program_, instr.value, program_.mesh.coordinate(instr.peer, GSEL_AXIS_PIPELINE));
  return found->second;
}

void Walker::send(const gsel_instr& instr) {
  if (instr.peer == program_.rank) refuse("a rank cannot send to itself");
  give(value(instr.value, instr.microbatch), instr.flags & GSEL_INSTR_GRADIENT, comes_back(instr));
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
  if (work_of(instr.kind) == InstrWork::loss && instr.axis == GSEL_AXIS_DATA) return full_channel() < 0;
  if (instr.kind != GSEL_INSTR_SEND) return true;
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

// SCATTER distributes the root's whole micro-batch as parts; GATHER is the reverse. The gradient of a gathered value is
// scattered.
void Walker::enter_parts(const gsel_instr& instr) {
  const int32_t whole = program_.microbatches[instr.microbatch].whole;
  const bool gradient = instr.flags & GSEL_INSTR_GRADIENT, owes = program_.values[instr.value].needs_gradient;
  if (whole < 0) refuse("the micro-batch is no part of another one");
  if (instr.axis != GSEL_AXIS_DATA) refuse("parts are those of the data axis");
  if (program_.values[instr.value].is_scalar)
    refuse("the value is one number per micro-batch, of which there are no parts");
  if (instr.kind == GSEL_INSTR_GATHER) return give(value(instr.value, instr.microbatch), false, owes);
  if (owes && !gradient) refuse("the value needs a gradient, which no instruction would bring back to the root");
  if (coordinate(instr.axis) == instr.peer) give(value(instr.value, whole), gradient, false);
}

void Walker::leave_parts(const gsel_instr& instr) {
  if (instr.kind == GSEL_INSTR_SCATTER)
    take(value(instr.value, instr.microbatch), instr.flags & GSEL_INSTR_GRADIENT);
  else if (coordinate(instr.axis) == instr.peer)
    take(value(instr.value, program_.microbatches[instr.microbatch].whole), false);
}

}  // namespace gsel
