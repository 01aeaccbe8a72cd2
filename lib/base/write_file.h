// base/write_file.h: writes a file so that it appears whole or not at all: written under another name, then renamed.
#pragma once

#include <string>
#include <string_view>

namespace gsel {

// Replaces an existing file. GSEL_ERR_IO, about the file.
void write_file(const std::string& path, std::string_view content);

}  // namespace gsel
