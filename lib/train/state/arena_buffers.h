// train/state/arena_buffers.h: tracks the buffers of a step while the planner walks over its instructions: which buffer
// a name refers to at an instruction, and from which instruction to which it lives. Does not know what instructions do.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "train/memory/arena_fit.h"
#include "train/state/arena_plan.h"

namespace gsel {

class ArenaBuffers {
 public:
  static constexpr uint64_t kNone = ArenaOperands::kNone;
  enum class Kind : uint8_t {
    value,
    gradient,
    scratch,
    saved,
    cast,
    phase,
    shifted,
    param_window,
    gradient_window,
    reduced,
    packing,
  };
  // What a buffer is for. It has the name from its first use until forget.
  struct Name {
    Kind kind;
    int32_t id = 0, mb = 0;
    uint64_t number() const {
      return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(mb) << 32 | static_cast<uint32_t>(id);
    }
  };

  // Moves to an instruction.
  void go_to(int32_t position) { at_ = position; }

  // Uses a buffer in this instruction; creates it if it does not live yet. Returns its number; kNone: no bytes.
  uint64_t touch(Name name, uint64_t bytes) { return touch_from(at_, name, bytes); }
  // The same; a new buffer lives from `first` on, as the communicator uses it.
  uint64_t touch_from(int32_t first, Name name, uint64_t bytes);
  // The same, for this instruction only.
  uint64_t touch_here(Name name, uint64_t bytes);
  // Extends its life to this position at least; kNone: nothing.
  void keep_until(uint64_t buffer, int32_t position);
  void forget(Name name) { living_.erase(name.number()); }
  // Ends its life at this instruction, if it lives.
  void close(Name name);
  // Makes `to` another name of the buffer of `from`, which must live.
  void share(Name from, Name to) { living_[to.number()] = living_.at(from.number()); }
  bool lives(Name name) const { return living_.contains(name.number()); }

  // At the last instruction: extends open windows to it and places all buffers. Returns the arena's bytes.
  uint64_t place();
  uint64_t offset(uint64_t buffer) const { return buffer == kNone ? kNone : buffers_[buffer].offset; }
  ArenaPlan::Peak peak() const;

 private:
  int32_t at_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<Kind> kinds_;                        // of the buffers
  std::unordered_map<uint64_t, uint64_t> living_;  // buffers by name
};

}  // namespace gsel
