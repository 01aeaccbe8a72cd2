// select/rules/strict_list.h: strict reading of a mask that lists numbers and, if the vendor accepts them, uuids: every
// entry names one device, once. Shared by the vendors. Does not know which variable or vendor it is.
#pragma once

#include <cstdint>
#include <vector>

#include "select/inventory/unit.h"
#include "select/words/tokens.h"

namespace gsel {

struct StrictList {
  const char* layer;  // "ROCr"
  const char* label;  // "AMD"
  const Group& group;
  std::vector<int32_t> devices;       // the devices that numbers refer to, in order; in Inventory::devices
  std::vector<int64_t> numbers = {};  // the number of each device; empty: its position
  const char* number_is = "an index";
  bool uuids = false;              // accepts GPU- and hexadecimal digits
  bool any_case = true;            // case of uuids does not matter; else a different case is warned of
  const char* at_blank = nullptr;  // what the vendor does at a blank; nullptr: it continues
  const Input* below = nullptr;    // mask of the layer below, which left `devices` of the group
};

// Indexes in Inventory::devices. GSEL_ERR_SYNTAX, OUT_OF_RANGE, DUPLICATE, UNKNOWN_DEVICE, AMBIGUOUS, PERMISSION;
// CONFLICT when the layer below hides the device of an entry.
std::vector<int32_t> read_strictly(const StrictList& list, const Input& input, Trace& trace);

}  // namespace gsel
