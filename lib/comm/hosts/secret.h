// comm/hosts/secret.h: what the ranks of a job know and nobody else does, and how they show that they know it without
// saying it. Does not know to whom.
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
  // The content of a file that only this user can read, or that root gives to a group of this process, as Kubernetes
  // does: GSEL_ERR_PERMISSION, GSEL_ERR_IO.
  static Secret of_file(const std::string& path);

  const std::vector<uint8_t>& key() const { return key_; }

  // HMAC-SHA256 (RFC 2104) over the parts, one behind the other.
  Bytes32 sign(std::initializer_list<std::span<const uint8_t>> parts) const;
  // In a time that tells nothing of where they differ.
  bool is_signed(std::initializer_list<std::span<const uint8_t>> parts, const Bytes32& signature) const;

 private:
  std::vector<uint8_t> key_;
};

template <class T>
std::span<const uint8_t> bytes_of(const T& object) {
  return {reinterpret_cast<const uint8_t*>(&object), sizeof object};
}

}  // namespace gsel::hosts
