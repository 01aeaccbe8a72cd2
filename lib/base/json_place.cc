// base/json_place.cc: see json_place.h. One pass over the text, which skips everything outside the path.
#include "base/json_place.h"

#include <algorithm>
#include <charconv>

namespace gsel {
namespace {

class PathWalk {
 public:
  PathWalk(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  size_t run() {
    skip_space();
    size_t found = at_;
    while (!path_.empty() && enter(found)) {
    }
    return found;
  }

 private:
  char now() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n,:").find(text_[at_]) != std::string_view::npos) ++at_;
  }

  std::string_view skip_text() {
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    const size_t end = std::min(at_, text_.size());
    at_ = std::min(end + 1, text_.size());
    return text_.substr(begin, end - begin);
  }

  void skip_value() {
    int32_t depth = 0;
    do {
      skip_space();
      const char c = now();
      if (c == '"') {
        skip_text();
        continue;
      }
      depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
      ++at_;
      if (depth == 0)  // a number or a word: skip to its end
        while (at_ < text_.size() && std::string_view(" \t\r\n,:{}[]\"").find(text_[at_]) == std::string_view::npos)
          ++at_;
    } while (depth > 0 && at_ < text_.size());
  }

  // Enters the value that the next step of the path names, and sets `found` to the step's position. Returns false when
  // there is no such value.
  bool enter(size_t& found) {
    const char kind = now();
    if (kind != '{' && kind != '[') return false;
    ++at_;
    for (size_t i = 0;; ++i) {
      skip_space();
      if (at_ >= text_.size() || now() == '}' || now() == ']') return false;
      const size_t place = at_;
      if (kind == '{' ? take_name(skip_text()) : take_index(i)) {
        skip_space();
        found = place;
        return true;
      }
      skip_space();
      skip_value();
    }
  }

  bool take_name(std::string_view name) {
    if (!path_.starts_with(name)) return false;
    const std::string_view rest = path_.substr(name.size());
    if (!rest.empty() && rest[0] != '.' && rest[0] != '[') return false;
    path_ = rest.starts_with('.') ? rest.substr(1) : rest;
    return true;
  }

  bool take_index(size_t i) {
    size_t index = 0;
    if (!path_.starts_with('[')) return false;
    const auto read = std::from_chars(path_.data() + 1, path_.data() + path_.size(), index);
    if (read.ec != std::errc() || index != i) return false;
    path_.remove_prefix(std::min(path_.find(']'), path_.size() - 1) + 1);
    if (path_.starts_with('.')) path_.remove_prefix(1);
    return true;
  }

  std::string_view text_, path_;
  size_t at_ = 0;
};

}  // namespace

JsonSpot json_spot_of(std::string_view text, std::string_view path) {
  const std::string_view before = text.substr(0, std::min(PathWalk(text, path).run(), text.size()));
  const size_t line = before.rfind('\n') + 1;  // 0 on the first line
  return {1 + static_cast<int32_t>(std::ranges::count(before, '\n')), 1 + static_cast<int32_t>(before.size() - line)};
}

}  // namespace gsel
