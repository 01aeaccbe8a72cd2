// base/name_pattern.h: names with captures, such as "h.{i}.attn.{part:text}.weight": matches a name, and makes another
// name from what was captured. A name is matched by literal text and captures; there are no other special characters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

class NamePattern {
 public:
  using Captures = std::map<std::string, std::string, std::less<>>;

  // {i} takes digits, {i:text} characters other than a dot, {i:any} all characters; each at least one. GSEL_ERR_ARG
  // with the character's number, from 1.
  explicit NamePattern(std::string_view text);

  const std::string& text() const { return text_; }
  std::vector<std::string> captures() const;  // sorted

  // The shortest first capture that leads to a match, then the shortest second one, and so on.
  std::optional<Captures> match(std::string_view name) const;
  // `captures` has those of the pattern.
  std::string fill(const Captures& captures) const;

 private:
  enum class Kind { literal, number, text, any };
  struct Part {
    Kind kind = Kind::literal;
    std::string text;  // literal, or the capture's name
    bool takes(char c) const;
  };
  class Matching;

  std::string text_;
  std::vector<Part> parts_;
};

}  // namespace gsel
