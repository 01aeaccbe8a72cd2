// comm/shm/trace/trace.h: reads the flight recorder: the last calls of every rank of one arena as JSON (docs/trace.md).
// Reading does not stop the ranks, so an entry counts only if its number is the same before and after it is read. The
// arena of another process is read through its descriptor and never mapped, so that process can at most cause a wrong
// result. Does not know how calls run.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/shm/memory/arena.h"

namespace gsel {
class Json;
}

namespace gsel::shm {

// The reader of a recording.
struct TraceReader {
  int32_t rank = -1;           // -1: no rank of the communicator
  gsel_status code = GSEL_OK;  // the failure that is the reason for reading
  std::string error;
  std::function<std::optional<bool>(int32_t rank)> alive;  // nullopt: unknown
};

std::string trace_of(const Arena& arena, const TraceReader& reader);

// The communicators of this process, or of another process of this user; GSEL_ERR_NOT_FOUND if it has none.
std::string trace_of_process(int32_t pid);

// Writes folder/gsel-PID-RANK.json; logs a failure.
void save_trace(const std::string& folder, int32_t rank, const std::string& json) noexcept;

// One communicator's part of a recording, for trace_text().
Json communicator_json(const Arena& arena, const TraceReader& reader);
std::string trace_text(Json communicators);

}  // namespace gsel::shm
