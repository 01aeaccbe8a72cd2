// comm/hosts/tree.cc: see tree.h.
#include "comm/hosts/tree.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace gsel::hosts {
namespace {

constexpr uint16_t kMostFanout = 1024;

}  // namespace

uint16_t host_fanout() {
  const char* given = secure_getenv("GSEL_HOST_FANOUT");
  if (!given || !*given) return kDefaultFanout;
  uint16_t fanout = 0;
  const char* end = given + std::strlen(given);
  const auto parsed = std::from_chars(given, end, fanout);
  if (parsed.ec != std::errc() || parsed.ptr != end || fanout < 1 || fanout > kMostFanout)
    throw Error(GSEL_ERR_CONFIG, fmt::format("GSEL_HOST_FANOUT is {}; expected a number from 1 to {}, of hosts with "
                                             "which one host has connections below it",
                                             in_quotes(given), kMostFanout))
        .at(Place{.file = "", .token = "GSEL_HOST_FANOUT"});
  return fanout;
}

}  // namespace gsel::hosts
