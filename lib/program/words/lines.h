// program/words/lines.h: splits a text into lines and words, each with its place, and parses values of single words.
// '#' begins a comment. Does not know what a program is.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gsel {

struct Word {
  std::string_view text;
  int32_t line = 0;
  int32_t column = 0;

  bool has_key() const { return text.find('=') != std::string_view::npos; }
  std::string_view key() const { return text.substr(0, text.find('=')); }
  std::string_view after_equals() const { return has_key() ? text.substr(text.find('=') + 1) : std::string_view{}; }
};

// Ids by name, in order of declaration.
using Ids = std::map<std::string, int32_t, std::less<>>;

class TextLines {
 public:
  TextLines(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  // Moves to the next line that has words; false at the end of the text.
  bool next();
  const std::vector<Word>& words() const { return words_; }
  int32_t line() const { return line_; }
  std::string joined() const;

  // GSEL_ERR_PARSE with file, line, column and token.
  [[noreturn]] void refuse_at(const Word& word, const std::string& why) const;
  [[noreturn]] void refuse(size_t word, const std::string& why) const;
  [[noreturn]] void refuse_text(const std::string& why) const;  // without a place
  // Refuses further words after the first n_words.
  void end_of_line(size_t n_words) const;

  // digits: the word, or a part of it.
  int64_t number(const Word& word, std::string_view digits, int64_t low, int64_t high) const;
  int64_t number(size_t word, int64_t low, int64_t high) const;
  int32_t axis(const Word& word, std::string_view name) const;
  int32_t id(const Word& word, std::string_view name, const Ids& ids, const char* kind) const;
  std::vector<int32_t> ids(const Word& word, const Ids& ids, const char* kind) const;
  // Adds the name that the line declares to ids.
  std::string declare(const char* kind, Ids& ids) const;
  // Splits a text at commas.
  static std::vector<std::string_view> items(std::string_view list);

 private:
  std::string_view rest_;
  const std::string& file_;
  int32_t line_ = 0;
  std::vector<Word> words_;
};

}  // namespace gsel
