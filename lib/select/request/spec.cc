// select/request/spec.cc: see spec.h.
#include "select/request/spec.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "base/text.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

using Kind = Clause::Kind;

constexpr const char* kForms =
    "count:N, index:a,b, pci:a,b, cuda:a,b, visible:a,b, uuid:GPU-..., mig:MIG-..., name:GLOB, all, none, auto and "
    "accelerators such as cuda or cpu work";

// Single words, words before a colon, and words before ">=".
struct Word {
  std::string_view text;
  Kind kind;
};
constexpr Word kBare[] = {{"all", Kind::all},
                          {"auto", Kind::automatic},
                          {"none", Kind::none},
                          {"integrated", Kind::integrated},
                          {"busy", Kind::busy}};
constexpr Word kListed[] = {{"count", Kind::count}, {"index", Kind::index},     {"pci", Kind::pci},
                            {"cuda", Kind::cuda},   {"visible", Kind::visible}, {"uuid", Kind::uuid},
                            {"mig", Kind::mig},     {"name", Kind::name},       {"host", Kind::host},
                            {"arch", Kind::arch},   {"numa", Kind::numa}};
constexpr Word kLeast[] = {{"free", Kind::least_free}, {"memory", Kind::least_memory}, {"arch", Kind::least_arch}};

template <size_t n>
const Word* find_word(const Word (&words)[n], std::string_view text) {
  for (const Word& word : words)
    if (word.text == text) return &word;
  return nullptr;
}

bool is_accelerator(std::string_view text) {
  return text == "cpu" || rules_named(text);
}

std::string nearest_word(std::string_view text) {
  std::vector<std::string_view> known{"cpu"};
  for (const Word& word : kBare) known.push_back(word.text);
  for (const Word& word : kListed) known.push_back(word.text);
  for (const Rules& row : rules()) known.push_back(row.accelerator);
  return nearest(text, known);
}

// Splits input[from, to) at a character and trims the parts.
std::vector<Token> split(const Input& input, size_t from, size_t to, char at) {
  std::vector<Token> out;
  const std::string_view text = input.value;
  for (;;) {
    const size_t end = std::min(text.substr(0, to).find(at, from), to);
    const std::string_view part = text.substr(from, end - from);
    const std::string_view word = trimmed(part);
    const size_t offset = word.empty() ? 0 : static_cast<size_t>(word.data() - part.data());
    out.push_back({std::string(word), static_cast<int32_t>(from + offset) + 1, offset > 0});
    if (end == to) return out;
    from = end + 1;
  }
}

// "8.0" as 8000, "12" as 12000.
std::optional<uint64_t> capability_of(std::string_view text) {
  const size_t dot = std::min(text.find('.'), text.size());
  const std::string_view major = text.substr(0, dot), minor = dot < text.size() ? text.substr(dot + 1) : "0";
  if (!is_number(major) || !is_number(minor) || major.size() > 6 || minor.size() > 3) return {};
  return static_cast<uint64_t>(number_of(major) * 1000 + number_of(minor));
}

// "20GiB", "512 MiB"; without a unit: bytes. "1e9" is not accepted.
std::optional<uint64_t> bytes_of(std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"b", 1},       {"kb", 1e3},       {"mb", 1e6},          {"gb", 1e9},
      {"tb", 1e12}, {"kib", 1024.}, {"mib", 1048576.}, {"gib", 1073741824.}, {"tib", 1099511627776.}};
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + digits, number);
  if (digits == 0 || read.ec != std::errc() || read.ptr != text.data() + digits) return {};
  const std::string unit = lower_case(trimmed(text.substr(digits)));
  for (const auto& [name, factor] : kUnits)
    if (unit == name && number * factor < 1.8e19) return static_cast<uint64_t>(number * factor);
  return {};
}

// Reads one clause; `whole` is the clause in the input.
class ClauseReader {
 public:
  ClauseReader(const Input& input, Token whole) : input_(input) { clause_.whole = std::move(whole); }

  Clause read() {
    std::string_view text = clause_.whole.text;
    size_t start = static_cast<size_t>(clause_.whole.column) - 1;
    if (text.starts_with('!')) {
      clause_.excluded = true;
      const std::string_view rest = trimmed(text.substr(1));
      start += rest.empty() ? 1 : static_cast<size_t>(rest.data() - text.data());
      text = rest;
    }
    const size_t end = static_cast<size_t>(clause_.whole.column) - 1 + clause_.whole.text.size();
    const size_t word_end = std::min(text.find_first_of(":<>="), text.size());
    head_ = {std::string(trimmed(text.substr(0, word_end))), static_cast<int32_t>(start) + 1, false};
    const std::string_view sign = text.substr(word_end, text.substr(word_end).starts_with(':') ? 1 : 2);
    if (sign.empty()) return read_bare();
    values_ = split(input_, start + word_end + sign.size(), end, ',');
    if (sign == ":") return read_listed();
    return read_least(sign);
  }

 private:
  [[noreturn]] void refuse_head(const std::string& what) const { refuse(GSEL_ERR_SYNTAX, input_, head_, what); }

  [[noreturn]] void refuse_unknown() const {
    if (head_.text.empty()) refuse_head(fmt::format("a request is empty here; {}", kForms));
    if (lower_case(head_.text) == "gpu") refuse_head("is of no one vendor; name the accelerator: cuda, hip or ze");
    const std::string meant = nearest_word(head_.text);
    refuse_head(
        fmt::format("is no form of request{}; {}", meant.empty() ? "" : fmt::format(", {} was meant?", meant), kForms));
  }

  Clause read_bare() {
    clause_.tokens = {head_};
    if (is_number(head_.text))
      refuse_head("a bare number is a count to some programs and an index to others; write count:N or index:N");
    if (is_uuid_form(head_.text)) refuse_head(fmt::format("a uuid is written uuid:{}", printable(head_.text)));
    if (const Word* word = find_word(kBare, head_.text)) {
      clause_.kind = word->kind;
      if (clause_.excluded && clause_.kind <= Kind::none) refuse_head("only a filter or a list can be excluded by !");
      return std::move(clause_);
    }
    if (!is_accelerator(head_.text)) {
      if (find_word(kListed, head_.text)) refuse_head(fmt::format("a colon is needed, such as {0}:...", head_.text));
      refuse_unknown();
    }
    clause_.kind = Kind::accelerator;
    clause_.name = head_.text;
    return std::move(clause_);
  }

  Clause read_listed() {
    const Word* word = find_word(kListed, head_.text);
    if (!word) refuse_unknown();
    clause_.kind = word->kind;
    clause_.tokens = std::move(values_);
    if (clause_.kind == Kind::count)
      check_count();
    else
      check_list();
    return std::move(clause_);
  }

  Clause read_least(std::string_view sign) {
    const Word* word = find_word(kLeast, head_.text);
    if (!word) {
      if (find_word(kListed, head_.text)) refuse_head(fmt::format("a colon is needed, such as {0}:...", head_.text));
      refuse_unknown();
    }
    if (sign != ">=") refuse_head(fmt::format("only \"at least\" is read, such as {}>=...", head_.text));
    clause_.kind = word->kind;
    if (values_.size() != 1) refuse(GSEL_ERR_SYNTAX, input_, values_[1], "one value is needed here");
    const Token& value = values_.front();
    const auto number = clause_.kind == Kind::least_arch ? capability_of(value.text) : bytes_of(value.text);
    if (!number)
      refuse(GSEL_ERR_SYNTAX, input_, value,
             clause_.kind == Kind::least_arch ? "a compute capability such as 8.0 is needed"
                                              : "a size such as 20GiB, 500MB or a number of bytes is needed");
    clause_.number = *number;
    clause_.tokens = {value};
    return std::move(clause_);
  }

  void check_count() {
    const Token& token = clause_.tokens.front();
    if (clause_.excluded) refuse_head("only a filter or a list can be excluded by !");
    if (clause_.tokens.size() > 1) refuse(GSEL_ERR_SYNTAX, input_, clause_.tokens[1], "count takes one number");
    if (!is_number(token.text)) refuse(GSEL_ERR_SYNTAX, input_, token, "a count is decimal digits, such as count:2");
    clause_.number = static_cast<uint64_t>(number_of(token.text));
    if (clause_.number == 0)
      refuse(GSEL_ERR_OUT_OF_RANGE, input_, token, "a count is at least 1; none selects no device");
  }

  void check_list() {
    std::set<std::pair<Kind, std::string>> seen;
    Kind space = clause_.kind;
    for (Token& token : clause_.tokens) {
      if (clause_.is_list()) space = take_space(token, space);
      if (token.text.empty()) refuse(GSEL_ERR_SYNTAX, input_, token, "an entry of the list is empty");
      check_entry(token, space);
      const std::string key = is_number(token.text) ? std::to_string(number_of(token.text)) : lower_case(token.text);
      if (!seen.emplace(space, key).second)
        refuse(GSEL_ERR_DUPLICATE, input_, token, "this entry is already in the list");
      clause_.spaces.push_back(space);
    }
  }

  // "uuid:GPU-1" in a list: the entry is GPU-1 in the space uuid. An entry without a space has the previous entry's.
  Kind take_space(Token& token, Kind space) const {
    const size_t colon = token.text.find(':');
    const Word* word = colon == token.text.npos ? nullptr : find_word(kListed, trimmed(token.text.substr(0, colon)));
    if (!word || word->kind < Kind::index || word->kind > Kind::mig) return space;
    const std::string_view rest = std::string_view(token.text).substr(colon + 1);
    const std::string_view value = trimmed(rest);
    token.column += static_cast<int32_t>(colon + 1 + (value.empty() ? 0 : value.data() - rest.data()));
    token.text = std::string(value);
    return word->kind;
  }

  void check_entry(const Token& token, Kind space) const {
    switch (space) {
      case Kind::index:
      case Kind::cuda:
      case Kind::visible:
      case Kind::numa:
        return check_index(token);
      case Kind::pci:
        if (token.text.find(':') == token.text.npos) check_index(token);
        return;
      case Kind::uuid:
        return check_uuid(token);
      default:
        return;
    }
  }

  void check_index(const Token& token) const {
    if (is_uuid_form(token.text))
      refuse(GSEL_ERR_TYPE, input_, token, "an index is needed here; a uuid is written uuid:GPU-...");
    if (!is_number(token.text))
      refuse(GSEL_ERR_SYNTAX, input_, token,
             "an index is decimal digits; ranges and signs are not read, write index:0,1,2");
  }

  void check_uuid(const Token& token) const {
    if (is_number(token.text) && token.text.size() < 4)
      refuse(GSEL_ERR_TYPE, input_, token, "a uuid such as GPU-... is needed here; an index is written index:N");
  }

  const Input& input_;
  Clause clause_;
  Token head_;
  std::vector<Token> values_;
};

void check_choice(const Input& input, const Choice& choice) {
  const Clause *picker = nullptr, *accelerator = nullptr;
  for (const Clause& clause : choice.clauses) {
    if (clause.kind == Kind::accelerator && !clause.excluded) {
      if (accelerator && accelerator->name != clause.name)
        refuse(GSEL_ERR_CONFLICT, input, clause.whole,
               fmt::format("no device is of {} as well; alternatives are joined by |", accelerator->name));
      accelerator = &clause;
    }
    if (!clause.is_picker()) continue;
    if (picker)
      refuse(GSEL_ERR_CONFLICT, input, clause.whole,
             fmt::format("{} says already which devices; one of the two is enough", printable(picker->whole.text)));
    picker = &clause;
  }
  if (picker && picker->kind == Kind::none && choice.clauses.size() > 1)
    refuse(GSEL_ERR_CONFLICT, input, picker->whole, "none cannot be combined; use none alone");
}

}  // namespace

std::string Choice::accelerator() const {
  for (const Clause& clause : clauses)
    if (clause.kind == Kind::accelerator && !clause.excluded) return clause.name;
  return {};
}

const Clause* Choice::picker() const {
  const auto it = std::find_if(clauses.begin(), clauses.end(), [](const Clause& clause) { return clause.is_picker(); });
  return it == clauses.end() ? nullptr : &*it;
}

Spec parse_spec(const std::optional<std::string>& text) {
  Spec spec;
  spec.input = {"devices", text.value_or("auto")};
  const Input& input = spec.input;
  for (const Token& part : split(input, 0, input.value.size(), '|')) {
    Choice choice;
    choice.whole = part;
    const size_t from = static_cast<size_t>(part.column) - 1;
    for (Token& word : split(input, from, from + part.text.size(), '&'))
      choice.clauses.push_back(ClauseReader(input, std::move(word)).read());
    check_choice(input, choice);
    spec.choices.push_back(std::move(choice));
  }
  return spec;
}

}  // namespace gsel
