// usage.h: parses numbers of a command line, with our own error messages. Does not know any one command.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel::cli {

// Only digits, at least one.
bool is_count(std::string_view text);
// The number in `text`, the value of `option`; a Failure naming both if it is none. Whole numbers that are too large
// become the largest or least possible one, which the caller's limits then refuse.
int64_t whole_number(const std::string& option, const std::string& text);
// Checks the limits `least` and `most`.
int64_t number_from(const std::string& option, const std::string& text, int64_t least, int64_t most);
// Accepts a suffix K, M or G: factors of 1024.
uint64_t byte_count(const std::string& option, const std::string& text);
double seconds(const std::string& option, const std::string& text, double least, double most);

}  // namespace gsel::cli
