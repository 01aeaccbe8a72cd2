// base/config_rows.h: the macros and helpers of the rows in config_keys*.cc. Included by these files only.
#pragma once

#include <limits>

#include "base/config_keys.h"

namespace gsel {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Bounds at_least(double minimum) {
  return {minimum, kInfinity, false, false};
}
constexpr Bounds above(double minimum) {
  return {minimum, kInfinity, true, false};
}
constexpr Bounds kFraction{0, 1, false, true};
constexpr Bounds kAny{-kInfinity, kInfinity, false, false};

// The keys of one or more sections, in the order of docs/config.md.
std::span<const ConfigKey> host_keys();
std::span<const ConfigKey> train_keys();

}  // namespace gsel
