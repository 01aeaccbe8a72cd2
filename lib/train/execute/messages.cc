// train/execute/messages.cc: transfers of values and gradients between ranks. SEND and RECV are messages between
// pipeline ranks (messages.h); a received gradient is a contribution, like a backward's. SCATTER and GATHER move a
// whole micro-batch on one rank to or from its shards on all ranks of the data axis. Shards are consecutive in order of
// coordinate, and as even as possible.
#include "train/execute/messages.h"

#include <utility>

#include "base/os.h"
#include "base/shard.h"
#include "comm/call/collective.h"
#include "model/views.h"
#include "train/execute/instructions.h"

namespace gsel {

void PostedMessages::begin(const MessagePlan& plan, CallOf call_of) {
  behind_post_validate_ = false;
  plan_ = &plan;
  call_of_ = std::move(call_of);
  make_slots();
  for (size_t channel = 0; channel < plan.channels().size(); ++channel) {
    if (plan.channels()[channel].sends || plan.is_buffered(static_cast<int32_t>(channel))) continue;
    for (int32_t i = 0; i < plan.ahead() && may_start(static_cast<int32_t>(channel), static_cast<size_t>(i)); ++i)
      start(static_cast<int32_t>(channel), i);
  }
}

bool PostedMessages::may_start(int32_t channel, size_t number) const {
  return number <
         (behind_post_validate_ ? plan_->channels()[channel].positions.size() : plan_->before_post_validate(channel));
}

// All receives posted so far have been taken.
void PostedMessages::passed_post_validate() {
  if (std::exchange(behind_post_validate_, true)) return;
  for (int32_t channel = 0; channel < static_cast<int32_t>(requests_.size()); ++channel) {
    if (plan_->channels()[channel].sends || plan_->is_buffered(channel)) continue;
    const auto taken = static_cast<int32_t>(plan_->before_post_validate(channel));
    for (int32_t i = taken; i < taken + plan_->ahead() && may_start(channel, static_cast<size_t>(i)); ++i)
      start(channel, i);
  }
}

// Empties the slots; allocates only if the plan's size has changed.
void PostedMessages::make_slots() {
  const auto ahead = static_cast<size_t>(plan_->ahead());
  if (requests_.size() != plan_->channels().size() || (!requests_.empty() && requests_.front().size() != ahead)) {
    requests_.clear();
    for (size_t channel = 0; channel < plan_->channels().size(); ++channel) requests_.emplace_back(ahead);
  }
  for (std::vector<Request>& channel : requests_)
    for (Request& request : channel) request.reset();
}

void PostedMessages::start(int32_t channel, int32_t number) {
  Request& request = slot(channel, number);
  request.emplace(comm_, call_of_(static_cast<size_t>(plan_->channels()[channel].positions[number])));
  request->start();
}

void PostedMessages::finish(Request& request) {
  if (!request) return;
  request->wait();
  request.reset();
}

void PostedMessages::send(size_t position) {
  const int32_t channel = plan_->channel_of(position), number = plan_->number_of(position);
  if (plan_->is_buffered(channel)) return comm_.collective(call_of_(position));
  finish(slot(channel, number));  // the earlier message in this slot
  start(channel, number);
}

void PostedMessages::wait_for(size_t position) {
  const int32_t channel = plan_->channel_of(position);
  if (plan_->is_buffered(channel)) return comm_.collective(call_of_(position));
  finish(slot(channel, plan_->number_of(position)));
}

void PostedMessages::taken(size_t position) {
  const int32_t channel = plan_->channel_of(position), next = plan_->number_of(position) + plan_->ahead();
  if (plan_->is_buffered(channel)) return;
  if (may_start(channel, static_cast<size_t>(next))) start(channel, next);
}

void PostedMessages::settle() {
  for (size_t channel = 0; channel < requests_.size(); ++channel)
    if (plan_->channels()[channel].sends)
      for (Request& request : requests_[channel]) finish(request);
}

// ---- on a device ------------------------------------------------------------------------------------------------

void StreamMessages::begin(const MessagePlan& plan, CallOf call_of) {
  plan_ = &plan;
  call_of_ = std::move(call_of);
  next_ = sent_ = 0;
  last_.reset();
  first_of_channel_.clear();
  size_t n = 0;
  for (const MessageChannel& channel : plan.channels()) {
    first_of_channel_.push_back(n);
    n += channel.positions.size();
  }
  while (ended_.size() < n) ended_.emplace_back(device_);
}

void StreamMessages::add_receives(size_t position) {
  for (; has_launches(position); ++next_) group_.push_back(static_cast<size_t>(plan_->launches()[next_].receive));
}

// Those before a send are launched with it.
void StreamMessages::launch_receives(size_t position) {
  if (sends_at(position)) return;
  group_.clear();
  add_receives(position);
  launch(group_);
}

// After the computation enqueued so far, which wrote the data to send or last used the receive buffers.
void StreamMessages::launch(std::span<const size_t> positions) {
  computed_.record_compute();
  device_->run(&gsel_device_v1::stream_wait_event, stream_.get(), computed_.get());
  calls_.clear();
  for (const size_t position : positions) calls_.push_back(call_of_(position));
  comm_.collectives(calls_, stream_.get());
  for (const size_t position : positions) {
    last_ = index_of(position);
    ended_[*last_].record(stream_.get());
  }
}

// Sends that follow one another without a receive to be launched between them are launched by the first. What is
// computed next may write to the memory of the send `ahead` before this one.
void StreamMessages::send(size_t position) {
  if (position >= sent_) {
    group_.clear();
    add_receives(position);
    group_.push_back(position);
    for (sent_ = position + 1; sends_at(sent_) && !has_launches(sent_); ++sent_) group_.push_back(sent_);
    launch(group_);
  }
  const int32_t earlier = plan_->number_of(position) - plan_->ahead();
  if (earlier >= 0)
    ended_[first_of_channel_[plan_->channel_of(position)] + static_cast<size_t>(earlier)].hold_compute();
}

// The stream has an order, so the last message is enough.
void StreamMessages::settle() {
  if (last_) ended_[*last_].hold_compute();
}

}  // namespace gsel

namespace gsel::execute {
namespace {

gsel_collective call_of_message(const State& s, size_t position) {
  const gsel_instr& instr = s.program().step[position];
  const int32_t v = instr.value, mb = instr.microbatch;
  const bool sends = instr_row(instr.kind).is_send();
  const ArenaOperands::OfValue& operand = s.run->plan.operands(position).inputs[0];
  void* memory = s.at(instr.flags & GSEL_INSTR_GRADIENT ? operand.contribution() : operand.value);
  if (!memory)
    fail(GSEL_ERR_INTERNAL, "value \"{}\" has no memory at step instruction {}", s.model.values()[v].name, position);
  const auto elems = static_cast<uint64_t>(value_elems(s.model.values()[v], s.program().microbatches[mb].count));
  gsel_collective call =
      collective_of(instr, sends ? memory : nullptr, sends ? nullptr : memory, elems, s.model.values()[v].dtype);
  call.label = {s.model.values()[v].name.data(), s.model.values()[v].name.size()};
  return call;
}

// Counts the waiting time as exposed communication.
template <class Wait>
void waiting_for_messages(State& s, Wait&& wait) {
  const double began = os::now_seconds();
  wait();
  note_exposed(s, GSEL_AXIS_PIPELINE, os::now_seconds() - began);
}

}  // namespace

void begin_messages(State& s) {
  s.messages->begin(s.run->message_plan, [&s](size_t position) { return call_of_message(s, position); });
}

void launch_receives(State& s) {
  if (s.messages->has_launches(s.run->position))
    waiting_for_messages(s, [&] { s.messages->launch_receives(s.run->position); });
}

void send(State& s, const gsel_instr&) {
  if (s.run->message_plan.channel_of(s.run->position) < 0) return;
  waiting_for_messages(s, [&] { s.messages->send(s.run->position); });
}

void receive(State& s, const gsel_instr& instr) {
  if (s.run->message_plan.channel_of(s.run->position) < 0) return;
  waiting_for_messages(s, [&] { s.messages->wait_for(s.run->position); });
  if (instr.flags & GSEL_INSTR_GRADIENT) finish_contribution(s, s.operands().inputs[0], instr.value, instr.microbatch);
  s.messages->taken(s.run->position);
}

void settle_messages(State& s) {
  waiting_for_messages(s, [&] { s.messages->settle(); });
}

// ---- SCATTER and GATHER -------------------------------------------------------------------------------------------

namespace {

// Elements of each rank's shard of the whole micro-batch.
const std::vector<uint64_t>& count_shards(State& s, const gsel_instr& instr) {
  const auto& microbatches = s.program().microbatches;
  const int64_t samples = microbatches[microbatches[instr.microbatch].whole].count;
  const int32_t ranks = s.axis_size(instr.axis);
  std::vector<uint64_t>& counts = s.lent.shard_counts;
  counts.clear();
  for (int32_t coordinate = 0; coordinate < ranks; ++coordinate) {
    const gsel_range range = shard_range(samples, ranks, coordinate);
    counts.push_back(static_cast<uint64_t>((range.end - range.begin) * s.model.values()[instr.value].sample_elems));
  }
  return counts;
}

}  // namespace

void scatter_or_gather(State& s, const gsel_instr& instr) {
  const int32_t v = instr.value, mb = instr.microbatch;
  const bool gradient = instr.flags & GSEL_INSTR_GRADIENT, scatters = instr_row(instr.kind).writes_value;
  const std::vector<uint64_t>& counts = count_shards(s, instr);
  const ArenaOperands::OfValue &of_own = s.operands().inputs[0], &of_whole = s.operands().outputs[0];
  void* whole = s.at(gradient ? of_whole.gradient : of_whole.value);
  void* own = s.at(gradient ? of_own.contribution() : of_own.value);
  void *src = scatters ? whole : own, *dst = scatters ? own : whole;

  const Value& value = s.model.values()[v];
  if (s.axis_size(instr.axis) == 1) {
    s.copy(dst, src, value_bytes(value, s.program().microbatches[mb].count), GSEL_COPY_ON_DEVICE);
  } else {
    gsel_collective call = collective_of(instr, src, dst, 0, value.dtype);
    call.kind = row_of(call.kind).with_counts;
    (scatters ? call.send_counts : call.recv_counts) = counts.data();
    call_now(s, instr.kind, instr.axis, call);
  }
  if (gradient && !s.is_empty(mb)) finish_contribution(s, of_own, v, mb);
}

}  // namespace gsel::execute
