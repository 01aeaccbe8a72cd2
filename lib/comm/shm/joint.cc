// comm/shm/joint.cc: joint calls: what the programs of all ranks do together on a higher level than collectives, such
// as a step of a trainer. Each rank notes its own before it begins and compares it with what the others have noted
// under the same number. Nobody waits: of two ranks whose joint calls differ, the later one sees it, before any of its
// collectives meets one of the other's that happens to look the same.
#include "comm/shm/announcements.h"

namespace gsel::shm {
namespace {

constexpr int kKindBits = 8;

}  // namespace

// The stores and loads are one order for all ranks: of two that note at the same time one at least sees the other's. A
// rank that is far ahead has overwritten its entry; it has gone through collectives since, which this rank took part
// in.
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
