// plan/rows_device.h: parses devices and links as tables of measurements write them. Does not know runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster.h"

namespace gsel::plan {

// Bytes per second of a node from "8x400 Gb/s", "1600 Gbps" (text in lower case); the slowest if there are several.
// "400 Gb/s per GPU" is multiplied by the number of devices.
std::optional<double> network_rate(const std::string& text, double devices);

// A device's name, separated from its suffixes: slower memory, a power cap.
struct NamedDevice {
  std::string name;
  bool slow_memory = false;  // HBM2e where HBM3 is usual
  double watts = 0;
};
NamedDevice named_device(std::string_view text);
// Throws GSEL_ERR_ARG with the nearest known names.
DeviceKind device_of(std::string_view text);

// Splits "A + B" into names.
std::vector<std::string_view> joined(std::string_view text);
// "[[A, B], [A, A]]" in a note: names of devices, or indexes into the names of column gpu.
std::vector<std::vector<std::string>> list_of_lists(std::string_view note);
// By index, from 0 or from 1, or by a name that contains the word or is contained in it. -1: none.
int32_t named_kind(const std::string& word, const std::vector<std::string_view>& names, bool from_one);

}  // namespace gsel::plan
