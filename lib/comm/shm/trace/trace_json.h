// comm/shm/trace/trace_json.h: one communicator's part of a recording, for the files that make recordings.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "comm/shm/trace/trace.h"

namespace gsel::shm {

nlohmann::ordered_json communicator_json(const Arena& arena, const TraceReader& reader);
std::string trace_text(nlohmann::ordered_json communicators);

}  // namespace gsel::shm
