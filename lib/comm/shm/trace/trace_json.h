// comm/shm/trace/trace_json.h: one communicator's part of a recording, for the files that make recordings.
#pragma once

#include <string>

#include "base/json.h"
#include "comm/shm/trace/trace.h"

namespace gsel::shm {

Json communicator_json(const Arena& arena, const TraceReader& reader);
std::string trace_text(Json communicators);

}  // namespace gsel::shm
