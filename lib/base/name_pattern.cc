// base/name_pattern.cc: see name_pattern.h.
#include "base/name_pattern.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace gsel {

bool NamePattern::Part::takes(char c) const {
  return kind == Kind::any || (kind == Kind::number ? is_digit(c) : c != '.');
}

NamePattern::NamePattern(std::string_view text) : text_(text) {
  const auto refuse = [&](size_t at, const char* why) {
    fail(GSEL_ERR_ARG,
         "{} has {} at character {}; expected a name with captures such as {{i}}, {{i:text}} or {{i:any}}",
         in_quotes(text_), why, at + 1);
  };
  if (text.empty()) fail(GSEL_ERR_ARG, "a name is empty");
  std::set<std::string, std::less<>> names;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find_first_of("{}", at);
    if (open > at) parts_.push_back({Kind::literal, std::string(text.substr(at, open - at))});
    if (open == text.npos) break;
    const size_t close = text.find_first_of("{}", open + 1);
    if (text[open] == '}' || close == text.npos || text[close] == '{') refuse(open, "a brace without its other half");
    std::string_view name = text.substr(open + 1, close - open - 1);
    Part part{Kind::number, {}};
    if (const size_t colon = name.find(':'); colon != name.npos) {
      const std::string_view kind = name.substr(colon + 1);
      if (kind != "text" && kind != "any") refuse(open, "a capture of an unknown kind");
      part.kind = kind == "text" ? Kind::text : Kind::any;
      name = name.substr(0, colon);
    }
    if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != name.npos)
      refuse(open, "a capture whose name is not of lower case letters, digits and '_'");
    if (!names.emplace(name).second) refuse(open, "a capture for the second time");
    if (!parts_.empty() && parts_.back().kind != Kind::literal) refuse(open, "two captures without text between them");
    part.text = name;
    parts_.push_back(std::move(part));
    at = close + 1;
  }
}

std::vector<std::string> NamePattern::captures() const {
  std::vector<std::string> names;
  for (const Part& part : parts_)
    if (part.kind != Kind::literal) names.push_back(part.text);
  std::ranges::sort(names);
  return names;
}

std::string NamePattern::fill(const Captures& captures) const {
  std::string name;
  for (const Part& part : parts_) name += part.kind == Kind::literal ? part.text : captures.find(part.text)->second;
  return name;
}

// Remembers from where no match is possible, so that a name takes at most the square of its length.
class NamePattern::Matching {
 public:
  Matching(const std::vector<Part>& parts, std::string_view name)
      : parts_(parts), name_(name), failed_(parts.size() * (name.size() + 1)) {}

  bool from(size_t part, size_t at) {
    if (part == parts_.size()) return at == name_.size();
    auto failed = failed_.begin() + static_cast<std::ptrdiff_t>(part * (name_.size() + 1) + at);
    if (*failed) return false;
    const Part& here = parts_[part];
    if (here.kind == Kind::literal) {
      if (name_.substr(at).starts_with(here.text) && from(part + 1, at + here.text.size())) return true;
    } else {
      for (size_t end = at; end < name_.size() && here.takes(name_[end]);)
        if (from(part + 1, ++end)) {
          captures.emplace(here.text, name_.substr(at, end - at));
          return true;
        }
    }
    *failed = true;
    return false;
  }

  Captures captures;

 private:
  const std::vector<Part>& parts_;
  const std::string_view name_;
  std::vector<bool> failed_;  // by part and place
};

std::optional<NamePattern::Captures> NamePattern::match(std::string_view name) const {
  Matching matching(parts_, name);
  if (!matching.from(0, 0)) return std::nullopt;
  return std::move(matching.captures);
}

}  // namespace gsel
