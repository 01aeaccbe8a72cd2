// table.h: tables with aligned columns, and numbers as text. Does not know what the numbers mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel::cli {

using Row = std::vector<std::string>;

// A line for each row; columns are aligned and two blanks apart.
std::string table(const std::vector<Row>& rows);

std::string formatted(const char* format, double value);
std::string duration(double us);      // "41.8 ms"
std::string megabytes(double bytes);  // "12.58 MB", of a million bytes each; bytes and kB if small

}  // namespace gsel::cli
