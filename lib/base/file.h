// base/file.h: reads and writes a whole file as text. Reads regular files only: a pipe could block the caller without
// end, and a device never ends. A written file appears whole or not at all. Does not know what is in the file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace gsel {

// `path` made absolute, for errors that stay true when the working directory changes. `what`, such as "config file", is
// the name of the file in messages. GSEL_ERR_ARG for an empty path or one with a NUL byte.
std::string absolute_path(std::string_view what, const std::string& path);

// GSEL_ERR_IO, about the file, when it cannot be read or has more than `max_bytes` bytes.
std::string read_file(std::string_view what, const std::string& path, size_t max_bytes);

// Replaces an existing file. GSEL_ERR_IO, about the file.
void write_file(const std::string& path, std::string_view content);

}  // namespace gsel
