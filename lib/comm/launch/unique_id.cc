// comm/launch/unique_id.cc: see unique_id.h. The bytes of such an id: a mark, the port, the pid, the number of
// addresses, each as 4 or 16 after its length, and a random rest of at least 32.
#include "comm/launch/unique_id.h"

#include <arpa/inet.h>

#include <cstring>

#include "base/os.h"

namespace gsel {
namespace {

constexpr uint8_t kMark[] = {0xc5, 'g', 's', 'e', 'l', 0x9d, 'i', 'd'};
constexpr size_t kRandomBytes = 32, kMostAddressBytes = sizeof gsel_unique_id{}.bytes - kRandomBytes;

struct Reader {
  const uint8_t* at;
  const uint8_t* end;
  bool take(void* out, size_t n) {
    if (static_cast<size_t>(end - at) < n) return false;
    std::memcpy(out, at, n);
    at += n;
    return true;
  }
};

}  // namespace

gsel_unique_id id_with(const AddressInId& address) {
  gsel_unique_id id;
  os::random_bytes(id.bytes, sizeof id.bytes);
  size_t n = 0;
  const auto put = [&](const void* bytes, size_t size) {
    std::memcpy(id.bytes + n, bytes, size);
    n += size;
  };
  const uint16_t port = htons(address.port);
  const uint32_t pid = htonl(static_cast<uint32_t>(address.pid));
  put(kMark, sizeof kMark);
  put(&port, sizeof port);
  put(&pid, sizeof pid);
  uint8_t& count = id.bytes[n++];
  count = 0;
  for (const std::string& text : address.addresses) {
    in6_addr binary = {};
    const bool is_four = text.find(':') == text.npos;
    const uint8_t size = is_four ? sizeof(in_addr) : sizeof(in6_addr);
    if (inet_pton(is_four ? AF_INET : AF_INET6, text.c_str(), &binary) != 1 || n + 1 + size > kMostAddressBytes)
      continue;
    put(&size, sizeof size);
    put(&binary, size);
    ++count;
  }
  return id;
}

std::optional<AddressInId> address_of(const gsel_unique_id& id) {
  Reader reader{id.bytes, id.bytes + kMostAddressBytes};
  uint8_t mark[sizeof kMark], count = 0;
  uint32_t pid = 0;
  AddressInId out;
  if (!reader.take(mark, sizeof mark) || std::memcmp(mark, kMark, sizeof mark) != 0 ||
      !reader.take(&out.port, sizeof out.port) || !reader.take(&pid, sizeof pid) || !reader.take(&count, sizeof count))
    return {};
  out.port = ntohs(out.port);
  out.pid = static_cast<int32_t>(ntohl(pid));
  for (; count > 0; --count) {
    uint8_t size = 0;
    in6_addr binary = {};
    char text[INET6_ADDRSTRLEN] = "";
    if (!reader.take(&size, sizeof size) || (size != sizeof(in_addr) && size != sizeof(in6_addr)) ||
        !reader.take(&binary, size))
      return {};
    inet_ntop(size == sizeof(in_addr) ? AF_INET : AF_INET6, &binary, text, sizeof text);
    out.addresses.emplace_back(text);
  }
  return out.port != 0 && !out.addresses.empty() ? std::optional(out) : std::nullopt;
}

}  // namespace gsel
