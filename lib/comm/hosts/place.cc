// comm/hosts/place.cc: see place.h.
#include "comm/hosts/place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/text.h"

namespace gsel::hosts {
namespace {

using Kind = MeetingPlace::Kind;
constexpr struct {
  std::string_view text;
  Kind kind;
  bool is_users;
} kSchemes[] = {{"tcp://", Kind::address, true},
                {"file://", Kind::file, true},
                {"torchrun://", Kind::torchrun, false},
                {"pmi://", Kind::pmi, false},
                {"pmix://", Kind::pmix, false}};

[[noreturn]] void refuse(std::string_view text, size_t column, const char* source, const char* expected) {
  throw Error(GSEL_ERR_CONFIG,
              fmt::format("{} is {}; column {}: expected {}, as in tcp://10.0.0.1:29500, tcp://[fd00::1]:29500, "
                          "file:///shared/run7 or env://",
                          source, in_quotes(text), column + 1, expected))
      .at(Place{.file = "", .column = static_cast<int32_t>(column + 1), .token = source});
}

void read_address(MeetingPlace& place, std::string_view text, size_t begin, const char* source) {
  size_t end = 0;
  if (begin < text.size() && text[begin] == '[') {
    end = text.find(']', ++begin);
    if (end == text.npos) refuse(text, begin - 1, source, "\"]\" after the address");
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
}

}  // namespace

MeetingPlace parse_meeting_place(std::string_view text, const char* source, bool by_launcher) {
  const auto* scheme = std::ranges::find_if(
      kSchemes, [&](const auto& s) { return text.starts_with(s.text) && (s.is_users || by_launcher); });
  if (scheme == std::end(kSchemes)) refuse(text, 0, source, "\"tcp://\", \"file://\" or \"env://\"");
  MeetingPlace place{.text = std::string(text), .host = {}, .port = {}, .kind = scheme->kind};
  const size_t begin = scheme->text.size();
  const std::string_view rest = text.substr(begin);
  if (place.kind == Kind::file) {
    if (!rest.starts_with('/')) refuse(text, begin, source, "an absolute path");
    if (rest.ends_with('/')) refuse(text, text.size(), source, "a file name after the folder");
    place.path = rest;
  } else if (place.kind == Kind::pmi) {
    std::from_chars(rest.data(), rest.data() + rest.size(), place.fd);
    place.text = fmt::format("the process manager at {}={}", source, rest);
  } else if (place.kind == Kind::pmix) {
    place.text = fmt::format("the process manager of {}={}", source, rest);
  } else {
    read_address(place, text, begin, source);
  }
  if (place.kind == Kind::torchrun) place.text = fmt::format("the store of torchrun's agent at {}", rest);
  return place;
}

std::string host_identity() {
  if (const char* given = secure_getenv("GSEL_HOST_ID"); given && *given) return given;
  return name_space();
}

std::string name_space() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network = {};
  stat("/proc/self/ns/net", &network);  // abstract socket names belong to a network namespace
  return fmt::format("{}-{}", boot, network.st_ino);
}

std::string host_name() {
  char name[65] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace gsel::hosts
