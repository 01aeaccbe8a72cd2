// select/compat/python_literal.cc: see python_literal.h.
// Source: Python language reference, section on literals; library reference, ast.literal_eval and int.
#include "select/compat/python_literal.h"

#include <algorithm>
#include <cctype>
#include <limits>

#include "base/text.h"

namespace gsel {
namespace {

constexpr std::string_view kPythonBlanks = " \t\n\r\f\v";
constexpr int kMaxDepth = 32;
constexpr size_t kMaxValues = 65536;
constexpr size_t kMaxListed = 16;

// The value of digits in `base` with single _ between them; saturates.
std::optional<int64_t> digits_value(std::string_view text, int base) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  int64_t value = 0;
  bool after_digit = false;
  for (char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const int digit = is_digit(c) ? c - '0' : std::isalpha(static_cast<unsigned char>(c)) ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    value = value > (kMax - digit) / base ? kMax : value * base + digit;
    after_digit = true;
  }
  return after_digit ? std::optional(value) : std::nullopt;
}

std::optional<int64_t> integer_literal(std::string_view text) {
  if (text.size() > 2 && text[0] == '0' && !is_digit(text[1]) && text[1] != '_') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    return base == 0 ? std::nullopt : digits_value(text.substr(text[2] == '_' ? 3 : 2), base);
  }
  const std::optional<int64_t> value = digits_value(text, 10);
  return text.starts_with('0') && value.value_or(0) != 0 ? std::nullopt : value;
}

// Digits with a point or an exponent.
bool is_real(std::string_view text) {
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view mantissa = text.substr(0, e);
  std::string_view exponent = text.substr(std::min(e + 1, text.size()));
  if (exponent.starts_with('+') || exponent.starts_with('-')) exponent.remove_prefix(1);
  if (e < text.size() && !digits_value(exponent, 10)) return false;
  const size_t point = mantissa.find('.');
  if (point == mantissa.npos) return e < text.size() && digits_value(mantissa, 10).has_value();
  const std::string_view whole = mantissa.substr(0, point), part = mantissa.substr(point + 1);
  return (!whole.empty() || !part.empty()) && (whole.empty() || digits_value(whole, 10)) &&
         (part.empty() || digits_value(part, 10));
}

class LiteralParser {
 public:
  LiteralParser(const Input& input, size_t from, size_t to)
      : input_(input), text_(std::string_view(input.value).substr(0, to)), at_(from) {}

  PythonValue whole() {
    skip_blanks();
    const size_t from = at_;
    PythonValue first = value(0);
    skip_blanks();
    if (at_ == text_.size()) return first;
    if (text_[at_] != ',') refuse_here("one value is needed");
    PythonValue tuple;
    tuple.kind = PythonValue::Kind::tuple;
    tuple.items.push_back(std::move(first));
    ++at_;
    read_items(tuple, '\0', 0);
    return finish(std::move(tuple), from);
  }

 private:
  // NOLINTNEXTLINE(misc-no-recursion): kMaxDepth bounds the nesting
  PythonValue value(int depth) {
    skip_blanks();
    if (depth > kMaxDepth) refuse_here("lists are nested too deeply");
    if (++values_ > kMaxValues) refuse_here("there are too many values");
    const size_t from = at_;
    if (at_ == text_.size()) refuse_here("a value is missing");
    const char c = text_[at_];
    if (c == '\'' || c == '"') return finish(quoted(), from);
    if (c == '[' || c == '(') return finish(bracketed(depth), from);
    return finish(word(), from);
  }

  // NOLINTNEXTLINE(misc-no-recursion): kMaxDepth bounds the nesting
  PythonValue bracketed(int depth) {
    const bool list = text_[at_++] == '[';
    PythonValue out;
    out.kind = list ? PythonValue::Kind::list : PythonValue::Kind::tuple;
    const bool comma = read_items(out, list ? ']' : ')', depth + 1);
    if (!list && out.items.size() == 1 && !comma) return PythonValue(std::move(out.items.front()));
    return out;
  }

  // Reads items up to `close`, or, for '\0', to the end. Returns whether a comma follows the last item.
  // NOLINTNEXTLINE(misc-no-recursion): kMaxDepth bounds the nesting
  bool read_items(PythonValue& out, char close, int depth) {
    for (bool comma = true;;) {
      skip_blanks();
      if (at_ == text_.size() && close != '\0') refuse_here(close == ']' ? "a ] is missing" : "a ) is missing");
      if (at_ == text_.size() || text_[at_] == close) {
        at_ += at_ < text_.size();
        return comma;
      }
      if (!comma) refuse_here("a comma is missing");
      out.items.push_back(value(depth));
      skip_blanks();
      comma = at_ < text_.size() && text_[at_] == ',';
      at_ += comma;
    }
  }

  PythonValue quoted() {
    const char quote = text_[at_++];
    PythonValue out;
    out.kind = PythonValue::Kind::text;
    for (; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (text_[at_] == '\\' && at_ + 1 < text_.size())
        escape(out.text);
      else
        out.text += text_[at_];
    }
    if (at_ == text_.size()) refuse_here("a closing quote is missing");
    ++at_;
    return out;
  }

  // An unknown escape is kept with its backslash.
  void escape(std::string& out) {
    constexpr std::string_view kLetters = "ntrfv\\'\"", kMeans = "\n\t\r\f\v\\'\"";
    const size_t which = kLetters.find(text_[++at_]);
    if (which == kLetters.npos) out += '\\';
    out += which == kLetters.npos ? text_[at_] : kMeans[which];
  }

  PythonValue word() {
    const size_t from = at_;
    const bool sign = text_[at_] == '-' || text_[at_] == '+';
    const bool minus = text_[at_] == '-';
    at_ += sign;
    if (sign) skip_blanks();
    const size_t digits = at_;
    while (at_ < text_.size() && (is_word(text_[at_]) || is_exponent_sign(digits))) ++at_;
    const std::string_view number = text_.substr(digits, at_ - digits);
    PythonValue out;
    out.text = (minus ? "-" : "") + std::string(number);
    if (!sign && constant(number, out)) return out;
    if (const std::optional<int64_t> integer = integer_literal(number)) {
      out.kind = PythonValue::Kind::integer;
      out.integer = minus ? -*integer : *integer;
    } else if (is_real(number)) {
      out.kind = PythonValue::Kind::real;
    } else {
      if (number.empty() && at_ < text_.size()) ++at_;
      at_ = std::max(at_, from + 1);
      const Token token{std::string(text_.substr(from, at_ - from)), static_cast<int32_t>(from) + 1, false};
      refuse(GSEL_ERR_SYNTAX, input_, token,
             "expected a Python literal such as 2, \"2\", \"0,2\", [0, 2] or None; put quotes around text");
    }
    return out;
  }

  static bool constant(std::string_view word, PythonValue& out) {
    if (word == "True" || word == "False") {
      out.kind = PythonValue::Kind::boolean;
      out.integer = word == "True";
    }
    return word == "None" || out.kind == PythonValue::Kind::boolean;
  }

  static bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

  // Whether this is the sign in a number such as 1e-3.
  bool is_exponent_sign(size_t digits) const {
    return (text_[at_] == '-' || text_[at_] == '+') && at_ > digits && (text_[at_ - 1] | 0x20) == 'e' &&
           (is_digit(text_[digits]) || text_[digits] == '.');
  }

  void skip_blanks() { at_ = std::min(text_.find_first_not_of(kPythonBlanks, at_), text_.size()); }

  PythonValue finish(PythonValue out, size_t from) const {
    out.token = {std::string(text_.substr(from, at_ - from)), static_cast<int32_t>(from) + 1, false};
    return out;
  }

  [[noreturn]] void refuse_here(const std::string& what) const {
    const Token token{std::string(text_.substr(at_, 1)), static_cast<int32_t>(at_) + 1, false};
    refuse(GSEL_ERR_SYNTAX, input_, token, what + "; a Python literal is needed, such as 2, \"0,2\" or [0, 2]");
  }

  const Input& input_;
  std::string_view text_;
  size_t at_;
  size_t values_ = 0;
};

std::string quoted(std::string_view text) {
  return '\'' + printable(text) + '\'';
}

}  // namespace

const char* PythonValue::type_name() const {
  switch (kind) {
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::call:
      return "call";
  }
  return "object";
}

// NOLINTNEXTLINE(misc-no-recursion): kMaxDepth bounds the nesting
std::string PythonValue::repr() const {
  if (kind == Kind::text) return quoted(text);
  if (!is_sequence()) return printable(text);
  std::string out = kind == Kind::list ? "[" : "(";
  for (size_t i = 0; i < items.size(); ++i) {
    out += i == 0 ? "" : ", ";
    if (i == kMaxListed) {
      out += "...";
      break;
    }
    out += items[i].repr();
  }
  if (kind == Kind::tuple && items.size() == 1) out += ',';
  return out + (kind == Kind::list ? ']' : ')');
}

PythonValue parse_python(const Input& input, size_t from, size_t to) {
  return LiteralParser(input, from, to).whole();
}

std::string_view python_strip(std::string_view text) {
  return trimmed(text, kPythonBlanks);
}

std::optional<int64_t> python_int(std::string_view text) {
  text = python_strip(text);
  const bool minus = text.starts_with('-');
  if (minus || text.starts_with('+')) text.remove_prefix(1);
  const std::optional<int64_t> value = digits_value(text, 10);
  return value && minus ? std::optional(-*value) : value;
}

std::string python_range(int64_t count) {
  std::string out = "[";
  for (int64_t i = 0; i < count; ++i) {
    out += i == 0 ? "" : ", ";
    if (i == static_cast<int64_t>(kMaxListed)) {
      out += "...";
      break;
    }
    out += std::to_string(i);
  }
  return out + ']';
}

void raise_python(gsel_status code, std::string_view exception, const std::string& text, const Input& input,
                  const Token& token) {
  throw Error(code, fmt::format("{}: {}", exception, text)).at({input.name, 0, token.column, token.text});
}

void raise_bad_int(const Input& input, const Token& token, std::string_view text) {
  raise_python(GSEL_ERR_SYNTAX, "ValueError", fmt::format("invalid literal for int() with base 10: {}", quoted(text)),
               input, token);
}

}  // namespace gsel
