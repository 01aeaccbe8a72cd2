// comm/shm/trace/trace.h: reads the flight recorder: the last calls of every rank of one arena as JSON (docs/trace.md).
// Reading does not stop the ranks, so an entry counts only if its number is the same before and after it is read. The
// arena of another process is read through its descriptor and never mapped; whatever that process does, it can cause at
// most a wrong answer. Does not know how calls run.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/shm/memory/arena.h"

namespace gsel {
class Json;
}

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

// One communicator's part of a recording, for the files that make recordings.
Json communicator_json(const Arena& arena, const TraceReader& reader);
std::string trace_text(Json communicators);

}  // namespace gsel::shm
