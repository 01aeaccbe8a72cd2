// comm/shm/call/fault.h: fault injection, to test recovery at every step of every protocol. The variable GSEL_FAULT
// lists the faults; see docs/faults.md. Knows only the names of the protocols' steps.
//
//     GSEL_FAULT=kill@staged:rank=1:call=3
#pragma once

#include <cstdint>
#include <vector>

namespace gsel::shm {

// Where a fault can strike a rank:
//   enter        in the call, nothing posted yet
//   header       own header line posted, others' not yet read
//   staged       own part, or a chunk of it, copied to where others read it
//   reduced      own slice, or a chunk of it, reduced
//   copied       result, or a chunk of it, copied to recv
//   direct       inside an exchange in memory that every rank can access
//   single_copy  inside a read across processes
//   sent, taken  after writing, after reading a line of a channel
//   leave        call done, not yet returned
enum class Step : uint32_t { enter, header, staged, reduced, copied, direct, single_copy, sent, taken, leave };

enum class Fault : uint32_t { kill, stop, delay, corrupt };

// The faults of one rank. Each strikes once.
class Faults {
 public:
  Faults() = default;
  // The faults of this rank in GSEL_FAULT; GSEL_ERR_CONFIG if the value is invalid for any rank.
  static Faults of_environment(int32_t rank, int32_t world_size);

  bool armed() const { return !all_.empty(); }
  void strike(Step step, uint64_t call) noexcept;
  // A value to xor into the fingerprint of this call's header; 0: no fault.
  uint64_t corruption(uint64_t call) noexcept;

 private:
  struct One {
    Fault fault;
    Step step;
    int32_t rank;   // -1: every rank
    uint64_t call;  // 0: the first call that reaches the step
    uint32_t milliseconds;
    uint32_t struck;
  };
  friend struct FaultText;
  bool due(One& one, Step step, uint64_t call) noexcept;
  std::vector<One> all_;
};

}  // namespace gsel::shm
