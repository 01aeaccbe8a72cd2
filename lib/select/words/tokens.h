// select/words/tokens.h: the words of a request or a mask, each with its column, and the trace of how each was read.
// Shared by requests and the rules of all vendors, so that all report errors in the same way. Does not know what
// selection means or how a trace is shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace gsel {

// A text from outside: a variable, or a field of the request.
struct Input {
  std::string name;  // "CUDA_VISIBLE_DEVICES", "devices"
  std::string value;

  // For messages: CUDA_VISIBLE_DEVICES=2,1 with unprintable characters escaped.
  std::string shown() const;
};

struct Token {
  std::string text;    // without blanks around it
  int32_t column = 1;  // of its first character in the input, from 1
  bool blank_before = false;
};

// Splits value[from..] at commas; an empty field is a token without text.
std::vector<Token> split_list(const Input& input, size_t from = 0);

// Only decimal digits; the number saturates.
bool is_number(std::string_view text);
int64_t number_of(std::string_view text);

// Begins with GPU- or MIG- in any case.
bool is_uuid_form(std::string_view text);

std::string lower_case(std::string_view text);

// Text for a message: unprintable bytes escaped, long text cut.
std::string printable(std::string_view text);

// Throws an error about a token: "devices=index:9: <what>", with the token and its column. The file of the place is the
// name of the input.
[[noreturn]] void refuse(gsel_status code, const Input& input, const Token& token, const std::string& what);

// ---- the trace: why a selection is as it is, recorded while it is made ----

// What one token of a variable or of the request became.
struct Step {
  std::string layer;  // "container", "cgroup", "ROCr", "HIP", "CUDA", "Level Zero", "request", or a framework
  std::string input;  // "CUDA_VISIBLE_DEVICES", "devices"
  std::string token;
  int32_t column = 1;  // of the token in the input, from 1
  std::string became;  // "device 2 (GPU-c4f8...)", "nothing", "the end of the list"
  std::string rule;    // the rule in one clause, with its source if there is one
};

struct Trace {
  std::vector<Step> steps;
  std::vector<std::string> warnings;

  void add(std::string layer, const Input& input, const Token& token, std::string became, std::string rule) {
    steps.push_back({std::move(layer), input.name, token.text, token.column, std::move(became), std::move(rule)});
  }
  void warn(std::string text) { warnings.push_back(std::move(text)); }
};

// ---- tables as text, with a heading and aligned columns -------------------------------------------------------------

class Table {
 public:
  explicit Table(std::vector<std::string> heading) { add(std::move(heading)); }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// "79.3 GiB"; "-" for 0, which means unknown.
std::string bytes_text(uint64_t bytes);

}  // namespace gsel
