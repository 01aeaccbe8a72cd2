// select/rules/strict_list.h: a mask that lists numbers and, if the vendor accepts them, uuids, read strictly: every
// entry names one device, once. Shared by the vendors. Does not know which variable and which vendor it is.
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
  std::vector<int32_t> devices;       // what numbers count, in order, in Inventory::devices
  std::vector<int64_t> numbers = {};  // of each of them; empty: its place
  const char* number_is = "an index";
  bool uuids = false;              // GPU- and hexadecimal digits are read
  bool any_case = true;            // of uuids; else a warning where it differs
  const char* at_blank = nullptr;  // what the vendor does at a blank; nullptr: it reads on
  const Input* below = nullptr;    // the mask of the layer below, which left `devices` of the group
};

// In Inventory::devices. GSEL_ERR_SYNTAX, OUT_OF_RANGE, DUPLICATE, UNKNOWN_DEVICE, AMBIGUOUS, PERMISSION; CONFLICT
// where the layer below hides what an entry means.
std::vector<int32_t> read_strictly(const StrictList& list, const Input& input, Trace& trace);

}  // namespace gsel
