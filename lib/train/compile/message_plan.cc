// train/compile/message_plan.cc: see message_plan.h.
#include "train/compile/message_plan.h"

#include <algorithm>

#include "comm/interface/backend.h"
#include "program/optimistic.h"

namespace gsel {

MessagePlan::MessagePlan(const Program& program)
    : messages_(program.step.size()),
      ahead_(std::max(program.transfers, 1)),
      settled_at_(std::max<int32_t>(static_cast<int32_t>(program.step.size()) - 1, 0)),
      post_validate_(post_validate_position(program)),
      on_device_(!program.launch_times.empty()) {
  for (size_t i = 0; i < program.step.size(); ++i) {
    const gsel_instr& instr = program.step[i];
    const auto position = static_cast<int32_t>(i);
    const InstrRow& row = instr_row(instr.kind);
    if (row.task == InstrTask::loss && instr.axis == GSEL_AXIS_DATA) settled_at_ = std::min(settled_at_, position);
    if (row.task != InstrTask::message) continue;
    const int64_t samples = program.microbatches[instr.microbatch].count;
    if (samples == 0) continue;
    const int32_t channel = channel_to(instr.peer, row.is_send());
    channels_[channel].most_bytes = std::max(channels_[channel].most_bytes, program.values[instr.value].bytes(samples));
    std::vector<int32_t>& positions = channels_[channel].positions;
    messages_[i] = {channel, static_cast<int32_t>(positions.size()), -1};
    positions.push_back(position);
    before_post_validate_[channel] += position < post_validate_ || post_validate_ < 0;
  }
  if (on_device_) order_launches(program);
}

void MessagePlan::order_launches(const Program& program) {
  const std::vector<int64_t>& times = program.launch_times;
  for (const MessageChannel& channel : channels_)
    if (!channel.sends)
      for (int32_t position : channel.positions) launches_.push_back({position, -1});
  std::ranges::sort(launches_, {}, [&](const Launch& l) { return times[l.receive]; });
  size_t next = 0;
  for (size_t i = 0; i < program.step.size(); ++i)
    for (; next < launches_.size(); ++next) {
      Launch& launch = launches_[next];
      const int64_t time = times[launch.receive];
      if (time > times[i] || (time == times[i] && launch.receive != static_cast<int32_t>(i))) break;
      launch.at = messages_[launch.receive].launched_at = static_cast<int32_t>(i);
    }
}

int32_t MessagePlan::channel_to(int32_t peer, bool sends) {
  const auto it =
      std::ranges::find_if(channels_, [&](const MessageChannel& l) { return l.peer == peer && l.sends == sends; });
  if (it != channels_.end()) return static_cast<int32_t>(it - channels_.begin());
  channels_.push_back({peer, sends, {}, 0});
  before_post_validate_.push_back(0);
  return static_cast<int32_t>(channels_.size()) - 1;
}

// With requests, a send starts once the send `ahead` before it has ended. That one ends once its receive is posted,
// which is when the receive `ahead` before it has been taken. So a send starts once the message 2 * `ahead` before it
// has been taken. Buffers for that many messages have the same effect.
bool MessagePlan::is_buffered(int32_t channel) const {
  return !on_device_ && channels_[channel].most_bytes <= static_cast<int64_t>(kBufferedBytes) &&
         2 * static_cast<uint64_t>(ahead_) <= kBufferedMessages;
}

// A receive is posted once the one `ahead` before it has been taken, and, if it comes after POST_VALIDATE, not before
// that.
int32_t MessagePlan::first(size_t position) const {
  const auto [channel, number, launched_at] = messages_[position];
  if (channel < 0 || channels_[channel].sends || is_buffered(channel)) return static_cast<int32_t>(position);
  if (on_device_) return launched_at;
  const int32_t begin = static_cast<int32_t>(position) > post_validate_ ? std::max(post_validate_, 0) : 0;
  return number < ahead_ ? begin : std::max(begin, channels_[channel].positions[number - ahead_]);
}

// A send has ended when the send `ahead` after it starts.
int32_t MessagePlan::last(size_t position) const {
  const auto [channel, number, launched_at] = messages_[position];
  if (channel < 0 || !channels_[channel].sends || is_buffered(channel)) return static_cast<int32_t>(position);
  const std::vector<int32_t>& positions = channels_[channel].positions;
  const size_t next = static_cast<size_t>(number) + static_cast<size_t>(ahead_);
  const int32_t settled = std::max(settled_at_, static_cast<int32_t>(position));
  return next < positions.size() ? std::min(positions[next], settled) : settled;
}

}  // namespace gsel
