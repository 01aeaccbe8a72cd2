// select/compat/python_literal.h: Python literals, because frameworks distinguish 2, "2" and [2], and Python's int() of
// a text. Does not know how a framework uses them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "select/words/tokens.h"

namespace gsel {

struct PythonValue {
  enum class Kind { none, boolean, integer, real, text, list, tuple, call };
  Kind kind = Kind::none;
  int64_t integer = 0;             // of an integer (saturates) or a boolean
  std::string text;                // of a text: its characters; of a number: the source text
  std::vector<PythonValue> items;  // of a list or tuple, arguments of a call
  Token token;                     // the value as written

  bool is_sequence() const { return kind == Kind::list || kind == Kind::tuple; }
  const char* type_name() const;  // "int", "NoneType"
  std::string repr() const;       // as Python prints it, cut when long
};

// Parses input.value[from..to): None, True, False, numbers, texts in ' or ", lists and tuples, but no calls; `1, 3` is
// a tuple, as in Python. GSEL_ERR_SYNTAX names the token that is none of these.
PythonValue parse_python(const Input& input, size_t from, size_t to);
inline PythonValue parse_python(const Input& input) {
  return parse_python(input, 0, input.value.size());
}

// int(text): surrounding blanks, a sign, digits with single _ between them; saturates. nullopt: int() raises
// ValueError.
std::optional<int64_t> python_int(std::string_view text);

// text.strip()
std::string_view python_strip(std::string_view text);

// "[0, 1, 2, ...]", abbreviated when long.
std::string python_range(int64_t count);

// Throws an exception of the system: a message "ValueError: <text>" about a token of the input.
[[noreturn]] void raise_python(gsel_status code, std::string_view exception, const std::string& text,
                               const Input& input, const Token& token);
// What int(text) raises.
[[noreturn]] void raise_bad_int(const Input& input, const Token& token, std::string_view text);

}  // namespace gsel
