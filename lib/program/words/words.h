// program/words/words.h: the elements of the text form of programs that printing, parsing and messages share: lines of
// words, which are read with line and column for errors, and the words of flags, placements and shards. What is printed
// can be read back.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/shard.h"
#include "program/program.h"

namespace gsel {

// ---- lines ---------------------------------------------------------------------------------------------------------

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

// ---- words ---------------------------------------------------------------------------------------------------------

// One instruction: "forward layer=embed mb=0".
std::string to_text(const Program& program, const gsel_instr& instr);
// "rank 1, step instruction 12 (line 40): forward layer=embed mb=0".
std::string where(const Program& program, bool in_setup, size_t position);

// ---- words for attributes ----

inline constexpr std::string_view kProgramMagic = "gsel-program 1";

struct FlagWord {
  std::string_view word;
  uint32_t flag;
};
inline constexpr std::array kShardWords{FlagWord{"state", GSEL_BUCKET_SHARD_STATE},
                                        FlagWord{"gradient", GSEL_BUCKET_SHARD_GRADIENT},
                                        FlagWord{"param", GSEL_BUCKET_SHARD_PARAM}};
inline constexpr std::array kOffloadWords{FlagWord{"state", GSEL_BUCKET_OFFLOAD_STATE},
                                          FlagWord{"param", GSEL_BUCKET_OFFLOAD_PARAM}};
// By GSEL_COMPRESS_*.
inline constexpr std::array<std::string_view, 4> kCompressWords{"none", "f16", "bf16", "low_rank"};
// By Placement.
inline constexpr std::array<std::string_view, 4> kPlacementWords{"replicate", "copy", "shard", "partial"};

// ---- a tensor's shard: DIM:BEGIN-END/WHOLE, followed by xBLOCKS if the dimension has several blocks ----

std::string text_of(const Shard& shard);
// word: shard=...; first_dim: the first dim that can be split.
Shard read_shard(const TextLines& lines, const Word& word, int32_t first_dim);
// Refuses the word unless `amount` elements or bytes divide evenly into the shard's positions.
void check_shard(const TextLines& lines, const Word& word, const Shard& shard, int64_t amount, const char* noun,
                 const char* of = "");

}  // namespace gsel
