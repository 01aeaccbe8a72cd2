// comm/hosts/place.cc: see place.h.
#include "comm/hosts/place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/printable.h"

namespace gsel::hosts {
namespace {

constexpr std::string_view kScheme = "tcp://";

[[noreturn]] void refuse(std::string_view text, size_t column, const char* source, const char* expected) {
  throw Error(GSEL_ERR_CONFIG,
              fmt::format("{} is {}; column {}: expected {}, as in tcp://10.0.0.1:29500 or tcp://[fd00::1]:29500",
                          source, in_quotes(text), column + 1, expected))
      .at(Place{.file = "", .column = static_cast<int32_t>(column + 1), .token = source});
}

}  // namespace

MeetingPlace parse_meeting_place(std::string_view text, const char* source) {
  if (!text.starts_with(kScheme)) refuse(text, 0, source, "\"tcp://\"");
  MeetingPlace place{std::string(text), {}, {}};
  size_t begin = kScheme.size(), end = 0;
  if (begin < text.size() && text[begin] == '[') {
    end = text.find(']', ++begin);
    if (end == text.npos) refuse(text, begin - 1, source, "\"]\" behind the address");
    place.host = text.substr(begin, end - begin);
    ++end;
  } else {
    end = text.find(':', begin);
    if (end == text.npos) refuse(text, text.size(), source, "\":\" and a port");
    place.host = text.substr(begin, end - begin);
  }
  if (place.host.empty()) refuse(text, begin, source, "a host");
  if (end >= text.size() || text[end] != ':') refuse(text, end, source, "\":\" and a port");
  const std::string_view port = text.substr(end + 1);
  uint16_t number = 0;
  const auto parsed = std::from_chars(port.data(), port.data() + port.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != port.data() + port.size() || number == 0)
    refuse(text, end + 1, source, "a port from 1 to 65535");
  place.port = port;
  return place;
}

std::string host_identity() {
  if (const char* given = secure_getenv("GSEL_HOST_ID"); given && *given) return given;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network = {};
  stat("/proc/self/ns/net", &network);  // names of the kernel's are those of one network namespace
  return fmt::format("{}-{}", boot, network.st_ino);
}

std::string host_name() {
  char name[65] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace gsel::hosts
