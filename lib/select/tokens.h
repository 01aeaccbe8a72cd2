// select/tokens.h: the words of a request or of a mask, each with its column. Shared by requests and by the rules of
// every vendor, so that all refuse in the same way. Does not know what selecting means.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gsel {

// A text that was given to us: a variable, or a field of the request.
struct Input {
  std::string name;  // "CUDA_VISIBLE_DEVICES", "devices"
  std::string value;

  // How messages call it: CUDA_VISIBLE_DEVICES=2,1 with everything unprintable escaped.
  std::string shown() const;
};

struct Token {
  std::string text;    // without blanks around it
  int32_t column = 1;  // of its first character in the input, from 1
  bool blank_before = false;
};

// Splits value[from..] at commas; an empty part is a token of no text.
std::vector<Token> split_list(const Input& input, size_t from = 0);

// Decimal digits and nothing else; the number saturates.
bool is_number(std::string_view text);
int64_t number_of(std::string_view text);

// Begins with GPU- or MIG- in any case.
bool is_uuid_form(std::string_view text);

std::string lower_case(std::string_view text);

// Text for a message: unprintable bytes escaped, cut when long.
std::string printable(std::string_view text);

// Throws about a token: "devices=index:9: <what>", with the token and its column. The file of the place is the name
// of the input.
[[noreturn]] void refuse(gsel_status code, const Input& input, const Token& token, const std::string& what);

}  // namespace gsel
