// comm/hosts/endpoint.h: where rank 0 listens, as it posts it for the others. Does not know where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::hosts {

struct Endpoint {
  std::string host;  // its name, and
  int32_t pid = 0;   // who listens there,
  uint16_t port = 0;
  int64_t until_s = 0;                 // until this time of the clock
  std::vector<std::string> addresses;  // as others may reach it
  std::vector<uint8_t> token;          // of this meeting; empty: the ranks have one of their own
};

// One word of printable ASCII, at most 1,000 bytes.
std::string endpoint_text(const Endpoint& endpoint);
std::optional<Endpoint> parse_endpoint(std::string_view text);

// Of this host's interfaces that are up, without those that lead nowhere else: the loopback, links of one wire, bridges
// to containers. GSEL_INTERFACE names one; GSEL_ERR_CONFIG where there is none of that name.
std::vector<std::string> own_addresses();

}  // namespace gsel::hosts
