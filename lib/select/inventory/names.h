// select/inventory/names.h: how the text forms of an inventory spell its values, in one place for reader and writer.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "select/inventory/inventory.h"

namespace gsel {

// "default", "exclusive_process", "prohibited".
const char* compute_mode_name(ComputeMode mode);
std::optional<ComputeMode> compute_mode_of(std::string_view name);

}  // namespace gsel
