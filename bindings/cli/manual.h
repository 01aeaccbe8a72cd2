// manual.h: manual pages in man(7) format, and the options as JSON, from the table of spec.h.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "spec.h"

namespace gsel::cli {

using Commands = std::vector<std::unique_ptr<CommandSpec>>;

// gsel-NAME(1); for `gsel` itself gsel(1), with the list of `commands`.
std::string manual_page(const CommandSpec& command, const Commands& commands);

nlohmann::ordered_json table_json(const CommandSpec& whole, const Commands& commands);

}  // namespace gsel::cli
