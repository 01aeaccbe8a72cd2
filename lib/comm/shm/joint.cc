// comm/shm/joint.cc: joint calls: what all ranks do together on a higher level than collectives, such as a step of a
// trainer. Each rank notes its joint call before it begins and compares it with the other ranks' of the same number. No
// rank waits: if two joint calls differ, the later rank notices before one of its collectives can match a similar one
// of the other joint call.
#include "comm/shm/announcements.h"

namespace gsel::shm {
namespace {

constexpr int kKindBits = 8;

}  // namespace

// Stores and loads are sequentially consistent: of two ranks that note at the same time at least one sees the other's
// entry. A rank that is far ahead has overwritten its entry, but has since made collectives with this rank.
std::optional<OtherJointCall> Announcements::begin_joint_call(int32_t kind, uint64_t argument) noexcept {
  RankBlock& me = at_.mine();
  const uint64_t number = me.joint_calls.load(std::memory_order_relaxed) + 1;
  const uint64_t key = number << kKindBits | static_cast<uint64_t>(kind);
  me.joint_calls.store(number, std::memory_order_relaxed);
  JointCall& own = me.joint_call[number % kJointCalls];
  own.key.store(0, std::memory_order_release);
  own.argument.store(argument, std::memory_order_release);
  own.key.store(key, std::memory_order_seq_cst);
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const JointCall& other = at_.block(q).joint_call[number % kJointCalls];
    const uint64_t its_key = other.key.load(std::memory_order_seq_cst);
    const uint64_t its_argument = other.argument.load(std::memory_order_acquire);
    if (its_key >> kKindBits != number || (its_key == key && its_argument == argument)) continue;
    if (other.key.load(std::memory_order_relaxed) != its_key) continue;
    return OtherJointCall{q, static_cast<int32_t>(its_key & ((1u << kKindBits) - 1)), its_argument};
  }
  return std::nullopt;
}

}  // namespace gsel::shm
