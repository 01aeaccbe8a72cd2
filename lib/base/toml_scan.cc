// base/toml_scan.cc: see toml_scan.h. Scans a text like the parser, so that both agree in a valid text on what is a
// string and what a comment. After the first mistake they need not agree, since the parser stops there. The exception
// is bare values, whose end the parser searches before it reads them.
#include "base/toml_scan.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace gsel {
namespace {

constexpr size_t kMostBrackets = 16;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool beyond_ascii(char c) {
  return static_cast<unsigned char>(c) >= 0x80;
}

// Whether the character ends a bare value.
bool ends_word(char c) {
  return std::string_view("\t\n\v\f\r ]},#").find(c) != std::string_view::npos;
}

class Scan {
 public:
  Scan(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  void run() {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
    while (at_ < text_.size()) step();
  }

 private:
  char now() const { return text_[at_]; }
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  void step() {
    const char c = now();
    if (beyond_ascii(c)) refuse("is outside of text and comments; put quotes around it");
    if (in_word_ && !ends_word(c)) {
      // The parser searches the end of a number across everything that follows, also across quotes and their contents.
      if (c == '"' || c == '\'') refuse("is in an unquoted value; use a number or a quoted text");
      ++at_;
      return;
    }
    if (in_word_ && c == ' ' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))
      refuse("is in an unquoted value; write T between date and time");
    in_word_ = false;
    if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
      return;
    }
    if (c == '"' || c == '\'') return string(c);
    if (ends_word(c) || c == '=' || c == '[' || c == '{')
      follow(c);
    else if (in_value_)
      in_word_ = true;
    if (c == '.' && !in_value_ && ++dots_ >= kMostKeyParts)
      refuse(fmt::format("makes a key of more than {} parts; use fewer", kMostKeyParts));
    ++at_;
  }

  // A character between keys and values. A bracket in a wrong place is left to the parser.
  void follow(char c) {
    if (c == '\t' || c == ' ') return;
    dots_ = 0;
    if (c == '=') in_value_ = true;
    if (c == ',' && !open_.empty()) in_value_ = open_.back() == '[';
    if (c == '\n' && open_.empty()) in_value_ = false;
    if (c == '{' || (c == '[' && in_value_)) {  // not the name of a table
      if (open_.size() == kMostBrackets)
        refuse(fmt::format("opens a value in more than {} others; use fewer", kMostBrackets));
      open_ += c;
      in_value_ = c == '[';
    }
    if ((c == ']' || c == '}') && !open_.empty()) {
      open_.pop_back();
      in_value_ = true;
    }
  }

  void string(char quote) {
    const std::string three(3, quote);
    if (sees(three)) {
      at_ += 3;
      return multi_line_string(quote);
    }
    for (++at_; at_ < text_.size() && now() != '\n'; ++at_) {
      if (quote == '"' && now() == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] != '\n') {
        ++at_;
      } else if (now() == quote) {
        ++at_;
        return;
      }
    }
    at_ = text_.size();  // an unterminated string: the parser stops here too
  }

  // The string ends with three to five quotes, of which the last three are the delimiter. After a backslash at the end
  // of a line, white space is skipped.
  void multi_line_string(char quote) {
    bool skipping = false;
    while (at_ < text_.size()) {
      const char c = now();
      if (c == quote) {
        size_t quotes = 0;
        while (quotes < 5 && at_ < text_.size() && now() == quote) ++at_, ++quotes;
        if (quotes >= 3) return;
        skipping = false;
      } else if (c == '\\' && quote == '"') {
        ++at_;
        skipping = false;
        if (at_ == text_.size()) return;
        if (beyond_ascii(now())) refuse("cannot follow a backslash");
        if (now() == ' ' || now() == '\t' || now() == '\n' || now() == '\r')
          skipping = true;
        else
          ++at_;
      } else {
        if (skipping && beyond_ascii(c))
          refuse("is first after a backslash that joins lines; put an ASCII character before it");
        skipping = skipping && (c == ' ' || c == '\t' || c == '\n' || c == '\r');
        ++at_;
      }
    }
  }

  // The character at the current position: a whole UTF-8 sequence if valid, else one byte by its number.
  std::string token() const {
    const auto lead = static_cast<unsigned char>(now());
    const size_t length = lead < 0x80 ? 1 : lead >= 0xF0 && lead < 0xF8 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
    const std::string_view whole = text_.substr(at_, length);
    const bool valid =
        length > 0 && whole.size() == length && lead < 0xF8 && std::ranges::all_of(whole.substr(1), continues);
    return valid ? std::string(whole) : fmt::format("\\x{:02x}", lead);
  }

  static bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

  [[noreturn]] void refuse(std::string_view why) const {
    const std::string_view before = text_.substr(0, at_);
    const auto line = static_cast<int32_t>(1 + std::ranges::count(before, '\n'));
    size_t begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
    if (begin == 0 && before.starts_with(kByteOrderMark)) begin = kByteOrderMark.size();
    const std::string_view beside = before.substr(begin);
    const auto column = static_cast<int32_t>(1 + std::ranges::count_if(beside, [](char c) { return !continues(c); }));
    throw Error(GSEL_ERR_PARSE, fmt::format("{}:{}: column {}: \"{}\" {}", file_, line, column, token(), why))
        .at({file_, line, column, token()});
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int dots_ = 0;           // in the current key
  std::string open_;       // brackets of values
  bool in_value_ = false;  // after a "="; false again where a key can follow
  bool in_word_ = false;   // in a bare value: a number, a date, a boolean
};

}  // namespace

void check_toml_text(std::string_view text, const std::string& file) {
  Scan(text, file).run();
}

}  // namespace gsel
