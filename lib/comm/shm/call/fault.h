// comm/shm/call/fault.h: faults on demand, so that recovery can be tested at every step of every protocol. The variable
// GSEL_FAULT says which; docs/faults.md describes its form. Does not know the protocols beyond the names of their
// steps.
//
//     GSEL_FAULT=kill@staged:rank=1:call=3
#pragma once

#include <cstdint>
#include <vector>

namespace gsel::shm {

// Where a rank can be hit:
//   enter        in the call, nothing posted yet
//   header       its header line posted, those of the others not yet looked at
//   staged       its part, or a chunk of it, where others read it
//   reduced      its slice, or a chunk of it, reduced
//   copied       what it gets, or a chunk of it, copied to where it belongs
//   direct       inside an exchange in memory every rank reaches
//   single_copy  inside a read across processes
//   sent, taken  behind a line of a channel that it wrote, that it read
//   leave        done, not yet returned
enum class Step : uint32_t { enter, header, staged, reduced, copied, direct, single_copy, sent, taken, leave };

enum class Fault : uint32_t { kill, stop, delay, corrupt };

// Those of one rank. Each strikes once.
class Faults {
 public:
  Faults() = default;
  // What GSEL_FAULT asks of this rank; GSEL_ERR_CONFIG for what it cannot mean, whichever rank it is about.
  static Faults of_environment(int32_t rank, int32_t world_size);

  bool armed() const { return !all_.empty(); }
  void strike(Step step, uint64_t call) noexcept;
  // What to change the fingerprint of this call's header by.
  uint64_t corruption(uint64_t call) noexcept;

 private:
  struct One {
    Fault fault;
    Step step;
    int32_t rank;   // -1: every one
    uint64_t call;  // 0: the first that passes the step
    uint32_t milliseconds;
    uint32_t struck;
  };
  friend struct FaultText;
  bool due(One& one, Step step, uint64_t call) noexcept;
  std::vector<One> all_;
};

}  // namespace gsel::shm
