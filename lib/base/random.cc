// base/random.cc: see random.h.
#include "base/random.h"

#include <cmath>
#include <numbers>

namespace gsel {
namespace {

constexpr float k2Pow24Inverse = 1.0f / 16777216.0f;

float unit(uint32_t bits) {
  return static_cast<float>(bits >> 8) * k2Pow24Inverse;
}

}  // namespace

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> x{static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * x[0], p1 = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(p1 >> 32) ^ x[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ x[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return x;
}

float random_uniform(uint64_t key, uint64_t counter) {
  return unit(philox(key, counter)[0]);
}

float random_normal(uint64_t key, uint64_t counter) {
  const auto block = philox(key, counter);
  const float radius = std::sqrt(-2.0f * std::log(1.0f - unit(block[0])));  // 1 - u is in (0, 1]
  return radius * std::cos(2.0f * std::numbers::pi_v<float> * unit(block[1]));
}

uint64_t derive_key(uint64_t key, uint64_t number) {
  const auto block = philox(key, number);
  return uint64_t{block[1]} << 32 | block[0];
}

uint64_t derive_key(uint64_t key, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3;
  return derive_key(key, hash);
}

}  // namespace gsel
