// plan/rows_device.h: devices and links as tables of measurements write them, from words to numbers. Does not know
// runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/cluster.h"

namespace gsel::plan {

// "8x400 Gb/s", "1600 Gbps": bytes per second of a node, in lower case; the slowest of several. "400 Gb/s per GPU"
// counts for each of its devices.
std::optional<double> network_rate(const std::string& text, double devices);

// What stands behind a device's name is told apart: memory of another make, a cap of its power.
struct NamedDevice {
  std::string name;
  bool slow_memory = false;  // HBM2e where HBM3 is usual
  double watts = 0;
};
NamedDevice named_device(std::string_view text);
// GSEL_ERR_ARG names the nearest known ones.
DeviceKind device_of(std::string_view text);

// "A + B": the names between.
std::vector<std::string_view> joined(std::string_view text);
// "[[A, B], [A, A]]" in a note: names of devices, or numbers of the names that the column gpu joins.
std::vector<std::vector<std::string>> list_of_lists(std::string_view note);
// By its number, from 0 or from 1, or by a name that contains the word or is contained in it. -1: none.
int32_t named_kind(const std::string& word, const std::vector<std::string_view>& names, bool from_one);

}  // namespace gsel::plan
