// usage.h: numbers of a command line, read with a text of our own where they cannot be used. Does not know any one
// command.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel::cli {

// Digits and nothing else, of any number.
bool is_count(std::string_view text);
// `text` as the value of `option`; a Failure naming both when it is none. Whole numbers too large to hold become the
// largest or least there is, for the caller's limits to refuse.
int64_t whole_number(const std::string& option, const std::string& text);
// From `least` to `most`.
int64_t number_from(const std::string& option, const std::string& text, int64_t least, int64_t most);
// With K, M or G behind it: 1024 times, and so on.
uint64_t byte_count(const std::string& option, const std::string& text);
double seconds(const std::string& option, const std::string& text, double least, double most);

}  // namespace gsel::cli
