// program/words/words.cc: see words.h.
#include "program/words/words.h"

#include <gsel/types.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"
#include "base/types.h"

namespace gsel {

bool TextLines::next() {
  while (!rest_.empty()) {
    const size_t end = rest_.find('\n');
    std::string_view line = rest_.substr(0, end);
    rest_ = end == std::string_view::npos ? std::string_view{} : rest_.substr(end + 1);
    ++line_;
    line = line.substr(0, line.find('#'));
    words_.clear();
    for (size_t i = 0; i < line.size();) {
      if (line[i] == ' ' || line[i] == '\t' || line[i] == '\r') {
        ++i;
        continue;
      }
      const size_t stop = std::min(line.find_first_of(" \t\r", i), line.size());
      words_.push_back({line.substr(i, stop - i), line_, static_cast<int32_t>(i) + 1});
      i = stop;
    }
    if (!words_.empty()) return true;
  }
  words_.clear();
  return false;
}

std::string TextLines::joined() const {
  std::string text;
  for (const Word& w : words_) text += (text.empty() ? "" : " ") + std::string(w.text);
  return text;
}

void TextLines::refuse_at(const Word& word, const std::string& why) const {
  throw Error(GSEL_ERR_PARSE, one_line(fmt::format("{}:{}: {}", file_, word.line, why)))
      .at({file_, word.line, word.column, std::string(word.text)});
}

void TextLines::refuse(size_t word, const std::string& why) const {
  refuse_at(word < words_.size() ? words_[word] : Word{{}, line_, 0}, why);
}

void TextLines::refuse_text(const std::string& why) const {
  refuse_at({{}, line_, 0}, why);
}

void TextLines::end_of_line(size_t n_words) const {
  if (words_.size() > n_words) refuse(n_words, fmt::format("\"{}\" is one word too many", words_[n_words].text));
}

int64_t TextLines::number(const Word& word, std::string_view digits, int64_t low, int64_t high) const {
  int64_t n = 0;
  const auto [stop, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), n);
  if (problem != std::errc{} || stop != digits.data() + digits.size() || n < low || n > high)
    refuse_at(word, fmt::format("\"{}\" is no number from {} to {}", word.text, low, high));
  return n;
}

int64_t TextLines::number(size_t word, int64_t low, int64_t high) const {
  if (word >= words_.size()) refuse(words_.size() - 1, "a number is missing after this word");
  return number(words_[word], words_[word].text, low, high);
}

int32_t TextLines::axis(const Word& word, std::string_view name) const {
  gsel_axis axis = 0;
  while (axis < kAxes && name != axis_name(axis)) ++axis;
  if (axis == kAxes) refuse_at(word, fmt::format("\"{}\" is none of {}", name, axis_names()));
  return axis;
}

int32_t TextLines::id(const Word& word, std::string_view name, const Ids& ids, const char* kind) const {
  const auto found = ids.find(name);
  if (found == ids.end()) refuse_at(word, fmt::format("{} \"{}\" is not declared above", kind, name));
  return found->second;
}

std::vector<int32_t> TextLines::ids(const Word& word, const Ids& ids, const char* kind) const {
  std::vector<int32_t> result;
  for (std::string_view name : items(word.after_equals())) result.push_back(id(word, name, ids, kind));
  return result;
}

std::string TextLines::declare(const char* kind, Ids& ids) const {
  if (words_.size() < 2) refuse(0, fmt::format("a {} has no name", kind));
  std::string name(words_[1].text);
  const bool is_word =
      std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c != ',' && c != '=' && c != 0x7f; });
  if (!is_word) refuse(1, fmt::format("\"{}\" is no name; expected letters, digits and ._:/-", name));
  if (!ids.emplace(name, static_cast<int32_t>(ids.size())).second)
    refuse(1, fmt::format("{} \"{}\" is declared twice", kind, name));
  return name;
}

std::vector<std::string_view> TextLines::items(std::string_view list) {
  std::vector<std::string_view> result;
  for (;;) {
    const size_t comma = list.find(',');
    result.push_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return result;
    list.remove_prefix(comma + 1);
  }
}

// ---- instructions --------------------------------------------------------------------------------------------------

std::string to_text(const Program& program, const gsel_instr& instr) {
  const InstrRow* row = find_instr_row(instr.kind);
  if (!row) return fmt::format("unknown kind={}", instr.kind);
  std::string text = row->word;
  if (row->layer) text += " layer=" + program.layers[instr.layer].name;
  if (row->value) text += " value=" + program.values[instr.value].name;
  if (row->microbatch) text += fmt::format(" mb={}", instr.microbatch);
  if (row->bucket) text += fmt::format(" bucket={}", instr.bucket);
  if (row->axis) text += fmt::format(" axis={}", axis_name(instr.axis));
  if (row->peer) text += fmt::format(" {}={}", row->peer, instr.peer);
  if (instr.flags & GSEL_INSTR_GRADIENT) text += " gradient";
  if (instr.flags & GSEL_INSTR_OPTIMISTIC) text += " optimistic";
  return text;
}

std::string where(const Program& program, bool in_setup, size_t position) {
  const gsel_instr& instr = (in_setup ? program.setup : program.step)[position];
  const size_t line = (in_setup ? 0 : program.setup.size()) + position;
  return fmt::format("rank {}, {} instruction {}{}: {}", program.rank, in_setup ? "setup" : "step", position,
                     line < program.lines.size() ? fmt::format(" (line {})", program.lines[line]) : "",
                     to_text(program, instr));
}

// ---- shards --------------------------------------------------------------------------------------------------------

namespace {

constexpr int64_t kMostElems = int64_t{1} << 50;  // over all blocks of a dimension

// Splits off the text before `mark`; false if there is no mark.
bool take(std::string_view& text, char mark, std::string_view& head) {
  const size_t at = text.find(mark);
  if (at == text.npos) return false;
  head = text.substr(0, at);
  text.remove_prefix(at + 1);
  return true;
}

}  // namespace

std::string text_of(const Shard& shard) {
  return fmt::format("{}:{}-{}/{}{}", shard.dim, shard.begin, shard.end, shard.whole,
                     shard.blocks == 1 ? "" : fmt::format("x{}", shard.blocks));
}

Shard read_shard(const TextLines& lines, const Word& word, int32_t first_dim) {
  std::string_view rest = word.after_equals(), dim, begin, end;
  if (!take(rest, ':', dim) || !take(rest, '-', begin) || !take(rest, '/', end))
    lines.refuse_at(
        word, fmt::format("\"{}\" is no shard; expected DIM:BEGIN-END/WHOLE or DIM:BEGIN-END/WHOLExBLOCKS", word.text));
  Shard shard;
  std::string_view whole = rest;
  const bool has_blocks = take(rest, 'x', whole);
  shard.dim = static_cast<int32_t>(lines.number(word, dim, first_dim, GSEL_MAX_DIMS - 1));
  shard.whole = lines.number(word, whole, 1, kMostElems);
  if (has_blocks)
    shard.blocks =
        static_cast<int32_t>(lines.number(word, rest, 1, std::min<int64_t>(INT32_MAX, kMostElems / shard.whole)));
  shard.begin = lines.number(word, begin, 0, shard.whole - 1);
  shard.end = lines.number(word, end, shard.begin + 1, shard.whole);
  return shard;
}

void check_shard(const TextLines& lines, const Word& word, const Shard& shard, int64_t amount, const char* noun,
                 const char* of) {
  if (const int64_t indices = shard.size() * shard.blocks; amount % indices)
    lines.refuse_at(word, fmt::format("{}{} are not divisible by {}, the number of indices that \"{}\" says are here",
                                      with_noun(amount, noun), of, indices, word.text));
}

}  // namespace gsel
