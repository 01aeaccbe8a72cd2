// comm/hosts/endpoint.cc: see address_store.h.
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <memory>

#include "base/error.h"
#include "comm/hosts/address_store.h"

namespace gsel::hosts {
namespace {

constexpr std::string_view kEndpointForm = "gsel1";
constexpr size_t kMostAddresses = 10;

constexpr size_t kMostReason = 280;  // so that the text fits a value of a process manager
constexpr uint8_t kRefuses[] = "rank 0 does not listen";

template <class Bytes>
std::string hex(const Bytes& bytes) {
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

template <class T>
bool read_number(std::string_view text, T& out, int base = 10) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

bool read_bytes(std::string_view text, std::vector<uint8_t>& out) {
  if (text.size() % 2 != 0) return false;
  for (; !text.empty(); text.remove_prefix(2)) {
    uint8_t byte = 0;
    if (!read_number(text.substr(0, 2), byte, 16)) return false;
    out.push_back(byte);
  }
  return true;
}

std::string_view take(std::string_view& text, char end) {
  const std::string_view word = text.substr(0, text.find(end));
  text.remove_prefix(std::min(text.size(), word.size() + 1));
  return word;
}

bool parse_failure(std::string_view text, Endpoint& out) {
  std::vector<uint8_t> reason, signature;
  if (!read_number(take(text, ';'), out.failure) || out.failure >= 0 || !read_bytes(take(text, ';'), reason) ||
      !read_bytes(take(text, ';'), signature) || signature.size() != out.signature.size() || !text.empty())
    return false;
  out.why.assign(reason.begin(), reason.end());
  std::ranges::copy(signature, out.signature.begin());
  return true;
}

// Networks inside one host. The same rule as in bindings/cli/own_address.cc.
bool is_inner(std::string_view interface) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"docker", "virbr", "veth", "br-", "cni", "flannel"},
      [&](std::string_view start) { return interface.starts_with(start); });
}

bool is_of_one_wire(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 16 == 0xa9fe;  // 169.254.0.0/16
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string numeric_text(const sockaddr* address) {
  char host[NI_MAXHOST] = "";
  const socklen_t length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  getnameinfo(address, length, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

}  // namespace

std::string endpoint_text(const Endpoint& endpoint) {
  std::string host = endpoint.host.substr(0, 64), addresses;
  std::ranges::replace_if(
      host, [](char c) { return c <= ' ' || c > '~' || c == ';'; }, '?');
  for (const std::string& address : endpoint.addresses) addresses += (addresses.empty() ? "" : ",") + address;
  std::string text = fmt::format("{};{};{};{};{};{};{}", kEndpointForm, host, endpoint.pid, endpoint.port,
                                 endpoint.until_s, hex(endpoint.token), addresses);
  if (endpoint.failure != GSEL_OK)
    text += fmt::format(";{};{};{}", endpoint.failure, hex(endpoint.why), hex(endpoint.signature));
  return text;
}

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  Endpoint out;
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (take(text, ';') != kEndpointForm) return {};
  out.host = take(text, ';');
  if (!read_number(take(text, ';'), out.pid) || !read_number(take(text, ';'), out.port) ||
      !read_number(take(text, ';'), out.until_s) || !read_bytes(take(text, ';'), out.token))
    return {};
  std::string_view addresses = take(text, ';');
  while (!addresses.empty()) out.addresses.emplace_back(take(addresses, ','));
  if (!text.empty()) return parse_failure(text, out) ? std::optional(out) : std::nullopt;
  if (out.port == 0 || out.addresses.empty()) return {};
  return out;
}

void Endpoint::refuse(gsel_status code, const std::string& reason, const Secret& secret) {
  failure = code, why = reason.substr(0, kMostReason);
  signature = secret.sign({kRefuses, bytes_of(failure), {reinterpret_cast<const uint8_t*>(why.data()), why.size()}});
}

bool Endpoint::is_refusal(const Secret& secret) const {
  return secret.is_signed({kRefuses, bytes_of(failure), {reinterpret_cast<const uint8_t*>(why.data()), why.size()}},
                          signature);
}

std::vector<std::string> own_addresses() {
  const char* chosen = secure_getenv("GSEL_INTERFACE");
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail(GSEL_ERR_IO, "the addresses of this host cannot be read: {}", errno_text(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<std::string> out, inner, names;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    if (std::ranges::find(names, one->ifa_name) == names.end()) names.emplace_back(one->ifa_name);
    if (!one->ifa_addr || (one->ifa_flags & IFF_UP) == 0) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    const bool is_chosen = chosen && *chosen;
    if (is_of_one_wire(one->ifa_addr) || (is_chosen && std::string_view(chosen) != one->ifa_name)) continue;
    if (!is_chosen && (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    auto& found = !is_chosen && is_inner(one->ifa_name) ? inner : out;
    if (found.size() < kMostAddresses) found.push_back(numeric_text(one->ifa_addr));
  }
  if (out.empty()) out = std::move(inner);
  if (chosen && *chosen && out.empty()) {
    std::string there;
    for (const std::string& name : names) there += (there.empty() ? "" : ", ") + name;
    throw Error(GSEL_ERR_CONFIG, fmt::format("GSEL_INTERFACE is \"{}\", and no interface of this host that is up has "
                                             "that name and an address; it has {}",
                                             chosen, there))
        .at(Place{.file = "", .token = "GSEL_INTERFACE"});
  }
  if (out.empty()) out.emplace_back("127.0.0.1");  // there is no network
  return out;
}

}  // namespace gsel::hosts
