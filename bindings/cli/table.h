// table.h: rows of text in columns, and numbers for people. Does not know: what they are of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel::cli {

using Row = std::vector<std::string>;

// A line for each row; columns stand below each other, two blanks apart.
std::string table(const std::vector<Row>& rows);

std::string formatted(const char* format, double value);
std::string duration(double us);      // "41.8 ms"
std::string megabytes(double bytes);  // "12.58 MB", of a million bytes each; bytes and kB where they are few

}  // namespace gsel::cli
