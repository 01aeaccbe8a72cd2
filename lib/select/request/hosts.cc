// select/request/hosts.cc: see hosts.h.
#include "select/request/hosts.h"

#include <algorithm>
#include <set>

#include "base/text.h"

namespace gsel {
namespace {

constexpr std::string_view kHostBlanks = " \t\r";

// One line of a hostfile, for its messages.
struct Line {
  const std::string& file;
  std::string_view text;
  int32_t number;

  [[noreturn]] void refuse(gsel_status code, size_t from, std::string_view token, const std::string& what) const {
    const Place place{file, number, static_cast<int32_t>(from) + 1, std::string(token)};
    throw Error(code, fmt::format("{}: {}", printable(trimmed(text, kHostBlanks)), what)).at(place);
  }
};

// The word that begins at or after `from`; sets `from` to its end.
std::string_view next_word(std::string_view text, size_t& from) {
  from = std::min(text.find_first_not_of(kHostBlanks, from), text.size());
  const size_t first = from;
  from = std::min(text.find_first_of(kHostBlanks, first), text.size());
  return text.substr(first, from - first);
}

HostSlots parse_line(const Line& line, std::string_view text) {
  size_t end = 0;
  const std::string_view name = next_word(text, end);
  const auto column = static_cast<int32_t>(end - name.size()) + 1;
  const std::string_view slots = next_word(text, end);
  const size_t slots_at = end - slots.size();
  constexpr std::string_view kSlots = "slots=";
  if (!slots.starts_with(kSlots))
    line.refuse(GSEL_ERR_SYNTAX, slots_at, slots, "a line is a host's name and slots=N, such as worker-0 slots=4");
  const std::string_view number = slots.substr(kSlots.size());
  if (!is_number(number))
    line.refuse(GSEL_ERR_SYNTAX, slots_at, slots, "slots= needs a number in decimal digits, such as slots=4");
  const std::string_view rest = next_word(text, end);
  if (!rest.empty())
    line.refuse(GSEL_ERR_SYNTAX, end - rest.size(), rest, "only a comment may follow the number of slots");
  if (number_of(number) == 0)
    line.refuse(GSEL_ERR_OUT_OF_RANGE, slots_at, slots, "a host needs a slot; leave the line out instead");
  return {std::string(name), number_of(number), line.number, column};
}

Token token_at(const Input& input, size_t from, size_t to) {
  const std::string_view part = std::string_view(input.value).substr(from, to - from);
  const std::string_view word = trimmed(part, kHostBlanks);
  const size_t before = word.empty() ? 0 : static_cast<size_t>(word.data() - part.data());
  return {std::string(word), static_cast<int32_t>(from + before) + 1, before > 0};
}

HostTerm parse_term(const Input& input, size_t from, size_t to, Trace& trace) {
  const std::string_view until = std::string_view(input.value).substr(0, to);
  const size_t colon = std::min(until.find(':', from), to);
  HostTerm term{token_at(input, from, colon), {}};
  if (term.host.text.empty())
    refuse(GSEL_ERR_SYNTAX, input, term.host, "a host's name is missing; a filter is NAME[:SLOT[,SLOT]] joined by @");
  if (term.host.text.size() != colon - from)
    trace.warn(fmt::format("{}: \"{}\" at column {}: launchers take a blank beside a host's name as a part of it",
                           input.shown(), printable(term.host.text), term.host.column));
  if (colon == to) return term;
  for (size_t start = colon + 1; start <= to;) {
    const size_t comma = std::min(until.find(',', start), to);
    const Token slot = token_at(input, start, comma);
    if (slot.text.empty()) refuse(GSEL_ERR_SYNTAX, input, slot, "a slot is missing; name it or leave the : out");
    if (!is_number(slot.text))
      refuse(GSEL_ERR_SYNTAX, input, slot, "a slot is a number in decimal digits; there are no ranges, write 1,2,3");
    term.slots.push_back(slot);
    start = comma + 1;
  }
  return term;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& file) {
  std::vector<HostSlots> hosts;
  std::set<std::string, std::less<>> seen;
  int32_t number = 0;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const Line line{file, text.substr(from, end - from), ++number};
    from = end + 1;
    const std::string_view code = line.text.substr(0, line.text.find('#'));
    if (trimmed(code, kHostBlanks).empty()) continue;
    HostSlots host = parse_line(line, code);
    if (!seen.insert(host.name).second)
      line.refuse(GSEL_ERR_DUPLICATE, code.find(host.name), host.name, "this host is in an earlier line already");
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw Error(GSEL_ERR_SYNTAX, "the hostfile names no host").at({file, 0, 0, ""});
  return hosts;
}

std::vector<HostTerm> parse_filter(const Input& input, Trace& trace) {
  std::vector<HostTerm> terms;
  for (size_t from = 0; from <= input.value.size();) {
    const size_t at = std::min(input.value.find('@', from), input.value.size());
    terms.push_back(parse_term(input, from, at, trace));
    from = at + 1;
  }
  return terms;
}

HostNames::HostNames(const Inventory& inventory, int32_t here) {
  hosts_.reserve(inventory.hosts.size() + 2);
  for (size_t i = 0; i < inventory.hosts.size(); ++i) hosts_.emplace(inventory.hosts[i].name, static_cast<int32_t>(i));
  hosts_.emplace("localhost", here);
  hosts_.emplace("127.0.0.1", here);
}

int32_t HostNames::find(std::string_view name) const {
  const auto it = hosts_.find(name);
  return it == hosts_.end() ? -1 : it->second;
}

}  // namespace gsel
