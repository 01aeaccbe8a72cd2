// comm/shm/announcements.h: what a rank announces to the others before it begins, so that ranks that disagree notice
// without waiting: calls that a backend enqueues on the stream of a device, and joint calls, such as a
// step of a trainer. Does not know what the calls do.
#pragma once

#include <gsel/comm.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/interface/control.h"
#include "comm/shm/wait/signals.h"

namespace gsel::shm {

class Announcements {
 public:
  Announcements(const Membership& members, FlightRecorder& recorder, const Breaking& breaking, Signals& signals)
      : at_(members), recorder_(recorder), breaking_(breaking), signals_(signals), has_channels_(members.ranks()) {}

  // See Control.
  void announce(const gsel_collective& given, RegisteredPlace in);
  void check_announced() const;
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) noexcept;

 private:
  void announce_collective(const Call& call, uint64_t number);
  void announce_message(const Call& call, uint64_t number);
  void announce_parts(const Call& call, uint64_t number);
  void announce_part(int32_t peer, bool sends, gsel_dtype dtype, uint64_t count, uint64_t number);
  void reserve_channels(int32_t rank);
  const DeviceMessages::Entry* unmet(int32_t rank) const;
  void wait_until_near(uint64_t n, const Call& call, uint64_t number);
  void compare_announced(uint64_t n, uint64_t print) const;
  std::string late_text(int32_t rank, uint64_t number) const;

  const Membership& at_;
  FlightRecorder& recorder_;
  const Breaking& breaking_;
  Signals& signals_;
  Call announcing_{};
  std::vector<std::atomic<bool>> has_channels_;                       // by rank: pages of the channels are reserved
  std::array<std::atomic<int64_t>, kDeviceCalls> announced_until_{};  // deadlines of announced calls
};

}  // namespace gsel::shm
