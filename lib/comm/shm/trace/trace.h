// comm/shm/trace/trace.h: the flight recorder read back: the last calls of every rank of one arena as JSON
// (docs/trace.md). Does not know how calls run. Reading stops nobody, so a place is believed only where its number is
// the same before and after; another process's arena is read through its descriptor and never mapped, so that whatever
// it does, or pretends to be, costs a wrong answer at most.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/shm/memory/arena.h"

namespace gsel::shm {

// Who reads.
struct TraceReader {
  int32_t rank = -1;           // -1: no rank of the communicator
  gsel_status code = GSEL_OK;  // the failure that is the reason for reading
  std::string error;
  std::function<std::optional<bool>(int32_t rank)> alive;  // nullopt: cannot be known
};

std::string trace_of(const Arena& arena, const TraceReader& reader);

// Of the communicators of another process of this user, or of this one; GSEL_ERR_NOT_FOUND when it has none.
std::string trace_of_process(int32_t pid);

// Writes folder/gsel-PID-RANK.json; a failure is a line of the log.
void save_trace(const std::string& folder, int32_t rank, const std::string& json) noexcept;

}  // namespace gsel::shm
