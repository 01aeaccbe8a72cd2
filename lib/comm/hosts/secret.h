// comm/hosts/secret.h: the secret of a job, and signatures that prove knowledge of it. Does not know what is signed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace gsel::hosts {

using Bytes32 = std::array<uint8_t, 32>;

Bytes32 sha256(std::span<const uint8_t> bytes);

class Secret {
 public:
  explicit Secret(std::vector<uint8_t> key) : key_(std::move(key)) {}
  // The content of a file that only this user can read, or that root owns and a group of this process can read, as in
  // Kubernetes; else GSEL_ERR_PERMISSION, GSEL_ERR_IO.
  static Secret of_file(const std::string& path);

  const std::vector<uint8_t>& key() const { return key_; }

  // HMAC-SHA256 (RFC 2104) over the concatenated parts.
  Bytes32 sign(std::initializer_list<std::span<const uint8_t>> parts) const;
  // Compares in constant time.
  bool is_signed(std::initializer_list<std::span<const uint8_t>> parts, const Bytes32& signature) const;

 private:
  std::vector<uint8_t> key_;
};

template <class T>
std::span<const uint8_t> bytes_of(const T& object) {
  return {reinterpret_cast<const uint8_t*>(&object), sizeof object};
}

}  // namespace gsel::hosts
