// select/words/tokens.h: the words of a request or of a mask, each with its column, and the trace of what became of
// them. Shared by requests and by the rules of every vendor, so that all refuse in the same way. Does not know what
// selecting means, and how a trace is shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
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

// ---- what became of them: why a selection is what it is, written down while it is made ----

// What became of one token of a variable or of the request.
struct Step {
  std::string layer;  // "container", "cgroup", "ROCr", "HIP", "CUDA", "Level Zero", "request", or a framework
  std::string input;  // "CUDA_VISIBLE_DEVICES", "devices"
  std::string token;
  int32_t column = 1;  // of the token in the input, from 1
  std::string became;  // "device 2 (GPU-c4f8...)", "nothing", "the end of the list"
  std::string rule;    // the rule in one clause, with its source where there is one
};

struct Trace {
  std::vector<Step> steps;
  std::vector<std::string> warnings;

  void add(std::string layer, const Input& input, const Token& token, std::string became, std::string rule) {
    steps.push_back({std::move(layer), input.name, token.text, token.column, std::move(became), std::move(rule)});
  }
  void warn(std::string text) { warnings.push_back(std::move(text)); }
};

}  // namespace gsel
