// select/rules/oneapi_selector.h: ONEAPI_DEVICE_SELECTOR, with which a SYCL program filters the devices of Level Zero:
// terms "backend:devices" joined by semicolons, with "!" before terms that discard. It only filters and keeps the
// order. Source: intel/llvm, sycl/doc/EnvironmentVariables.md and sycl/source/detail/device_filter.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "select/rules/ze_devices.h"
#include "select/words/tokens.h"

namespace gsel {

struct SelectorTarget {
  Token token;  // "gpu", "0.1", "*"
  bool discards = false;
  bool level_zero = false;              // the backend is level_zero or *
  std::string type;                     // "gpu", "cpu", ...; "*": any device; empty: by number
  std::optional<int32_t> number;        // of a device
  bool of_parts = false;                // a sub-device is meant, not the device
  std::optional<int32_t> part;          // number of the sub-device; absent with of_parts: all
  std::vector<std::string> as_written;  // the text of each number
};

// Reads the terms as SYCL does. GSEL_ERR_SYNTAX when SYCL would throw.
std::vector<SelectorTarget> parse_selector(const Input& input);

// The devices that the targets leave, in their order.
std::vector<Unit> select_by(const std::vector<SelectorTarget>& targets, const std::vector<ZeRoot>& roots,
                            const Input& input, const Inventory& inventory, Trace& trace);

}  // namespace gsel
