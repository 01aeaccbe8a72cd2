// train/state/arena_buffers.h: the buffers of a step while its instructions are gone through in order: which buffer a
// name stands for at an instruction, and from which instruction to which each lives. Does not know what instructions do.
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
  // What a buffer is for; it has the name from its first use until it is forgotten.
  struct Name {
    Kind kind;
    int32_t id = 0, mb = 0;
    uint64_t number() const {
      return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(mb) << 32 | static_cast<uint32_t>(id);
    }
  };

  // The instruction from here on.
  void go_to(int32_t position) { at_ = position; }

  // This instruction uses the buffer, which begins to live here when it does not yet. Its number; kNone: no bytes.
  uint64_t touch(Name name, uint64_t bytes) { return touch_from(at_, name, bytes); }
  // The same; a new one is lent to the communicator from `first` on.
  uint64_t touch_from(int32_t first, Name name, uint64_t bytes);
  // The same for this instruction alone.
  uint64_t touch_here(Name name, uint64_t bytes);
  // It lives until a position at least.
  void keep_until(uint64_t buffer, int32_t position);
  void forget(Name name) { living_.erase(name.number()); }
  // Forgets it; until here it lives, if it does.
  void close(Name name);
  // A name stands for the buffer of another, which lives here.
  void share(Name from, Name to) { living_[to.number()] = living_.at(from.number()); }
  bool lives(Name name) const { return living_.contains(name.number()); }

  // At the last instruction, until which windows live that are not closed: places all; returns the arena's bytes.
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
