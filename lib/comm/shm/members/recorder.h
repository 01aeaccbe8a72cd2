// comm/shm/members/recorder.h: the flight recorder of one rank: an entry for each call, texts of calls, counts, and a
// file when a call fails. Does not know how calls run.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "base/error.h"
#include "comm/shm/call/call.h"
#include "comm/shm/members/membership.h"

namespace gsel::shm {

class FlightRecorder {
 public:
  explicit FlightRecorder(const Membership& members) : at_(members) {}

  uint64_t enter(const Call& call);  // its number
  void leave(uint64_t number, bool failed = false);
  void count_call(gsel_collective_kind kind, uint64_t bytes);
  gsel_comm_count counts(gsel_collective_kind kind) const;
  // Marks calls as failed: all calls under way if the communicator is broken, else the collective of that number.
  // Writes the recording to a file if configured.
  void note_failure(const Error& error, uint64_t collective) noexcept;
  // JSON of docs/trace.md; `code` and `error`: the failure that is the reason for the trace, if any.
  std::string trace(gsel_status code = GSEL_OK, const std::string& error = {}) const;

  static std::string text_of(const Arena& arena, int32_t rank, uint64_t number);
  static std::string text_of(const Arena& arena, const Call& call);
  std::string text_of(int32_t rank, uint64_t number) const { return text_of(at_.arena(), rank, number); }
  std::string text_of(const Call& call) const { return text_of(at_.arena(), call); }
  std::string activity_of(int32_t rank) const;
  // A suffix for the texts of two calls that differ although their texts are equal; else "".
  const char* difference(int32_t rank, uint64_t number, int32_t other, uint64_t other_number) const;

 private:
  struct Progress {  // for counts(); one writer, any reader
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> bytes{0};
  };

  const Membership& at_;
  uint64_t entered_ = 0;                // calls of any kind
  std::shared_ptr<const void> traced_;  // the broken arena whose recording has been written to a file
  std::array<Progress, GSEL_COLLECTIVE_KINDS> progress_;
};

}  // namespace gsel::shm
