// comm/describe.h: calls as text, for errors that quote them: `allreduce(count 16, f32, sum)`.
#pragma once

#include <gsel/plugin.h>

#include <string>
#include <string_view>

namespace gsel {

const char* collective_name(gsel_collective_kind kind);  // "unknown" when unknown
bool is_reduction(gsel_collective_kind kind);
bool is_rooted(gsel_collective_kind kind);
bool takes_counts(gsel_collective_kind kind);       // the v kinds
bool is_point_to_point(gsel_collective_kind kind);  // send, recv, sendrecv
// `operation` is what to call it where its number is of no meaning here.
std::string describe(gsel_collective_kind kind, gsel_dtype dtype, gsel_op op, int32_t root, uint64_t count,
                     std::string_view operation = {});

}  // namespace gsel
