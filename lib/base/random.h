// base/random.h: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A
// number is a function of (key, counter), so any rank can compute any number, in any order and repeatedly.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gsel {

std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter);
float random_uniform(uint64_t key, uint64_t counter);  // [0, 1), 24 bits
float random_normal(uint64_t key, uint64_t counter);   // mean 0, deviation 1

// Derives a key from a key and a number or a name.
uint64_t derive_key(uint64_t key, uint64_t number);
uint64_t derive_key(uint64_t key, std::string_view name);

}  // namespace gsel
