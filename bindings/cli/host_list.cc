// host_list.cc: see host_list.h.
#include "host_list.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "client.h"
#include "usage.h"

namespace gsel::cli {
namespace {

constexpr const char* kForm = "a list of hosts is NAME[:SLOTS],..., such as a:2,b:2, or HOSTSxSLOTS, such as 2x4";

// The value of digits; INT64_MAX if too large, which exceeds any limit.
int64_t number_of(std::string_view digits) {
  int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return result.ec == std::errc() ? value : INT64_MAX;
}

// Letters, digits, . - and _, or an IPv6 address in brackets.
bool is_host_name(std::string_view name) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (name.starts_with("[") && name.ends_with("]"))
    return name.size() > 2 && name.find_first_not_of("0123456789abcdefABCDEF:.", 1) == name.size() - 1;
  return !name.empty() && name[0] != '-' && name.find_first_not_of(letters) == name.npos;
}

class HostReader {
 public:
  explicit HostReader(HostList& list, const std::string& text) : list_(list), text_(text) {}

  void read() {
    if (is_grid(text_)) return read_grid();
    for (size_t from = 0; from <= text_.size();) {
      const size_t comma = std::min(text_.find(',', from), text_.size());
      read_host(from, text_.substr(from, comma - from));
      from = comma + 1;
    }
  }

 private:
  void read_grid() {
    const HostGrid grid = parse_grid(list_.input, text_, 1, kMostSlots);
    if (grid.hosts * grid.each > kMostSlots) refuse_slots(text_, 1);
    for (int64_t i = 0; i < grid.hosts; ++i)
      add({"host" + std::to_string(i), static_cast<int32_t>(grid.each), text_, 1});
  }

  void read_host(size_t from, const std::string& token) {
    const auto column = static_cast<int32_t>(from) + 1;
    const size_t bracket = token.starts_with("[") ? token.find(']') : std::string::npos;
    const size_t colon = std::min(token.find(':', bracket == std::string::npos ? 0 : bracket), token.size());
    const std::string name = token.substr(0, colon);
    if (name.empty())
      refuse_at(GSEL_ERR_SYNTAX, list_.input, token, column, std::string("a host's name is missing; ") + kForm);
    if (!is_host_name(name))
      refuse_at(GSEL_ERR_SYNTAX, list_.input, name, column,
                "a host's name has letters, digits, dots, - and _; put an IPv6 address in brackets");
    if (!names_.insert(name).second)
      refuse_at(GSEL_ERR_DUPLICATE, list_.input, name, column,
                "this host is named before; give it all its slots there");
    add({name, colon == token.size() ? 1 : slots_of(token, colon + 1, column), token, column});
  }

  int32_t slots_of(const std::string& token, size_t from, int32_t column) const {
    const std::string digits = token.substr(from);
    const auto at = column + static_cast<int32_t>(from);
    if (!is_count(digits))
      refuse_at(GSEL_ERR_SYNTAX, list_.input, digits, at, "a number of slots in decimal digits is needed, such as a:2");
    const int64_t slots = number_of(digits);
    if (slots == 0)
      refuse_at(GSEL_ERR_OUT_OF_RANGE, list_.input, digits, at, "a host needs a slot; leave the host out instead");
    if (slots > kMostSlots) refuse_slots(digits, at);
    return static_cast<int32_t>(slots);
  }

  void add(HostSlots host) {
    if (list_.slots() + host.slots > kMostSlots) refuse_slots(host.token, host.column);
    list_.host_of_rank.insert(list_.host_of_rank.end(), static_cast<size_t>(host.slots),
                              static_cast<int32_t>(list_.hosts.size()));
    list_.hosts.push_back(std::move(host));
  }

  [[noreturn]] void refuse_slots(const std::string& token, int32_t column) const {
    refuse_at(GSEL_ERR_OUT_OF_RANGE, list_.input, token, column,
              "more than " + std::to_string(kMostSlots) + " slots in all");
  }

  HostList& list_;
  const std::string& text_;
  std::set<std::string> names_;
};

}  // namespace

bool is_grid(std::string_view text) {
  const size_t x = text.find('x');
  return x != text.npos && is_count(text.substr(0, x)) && is_count(text.substr(x + 1));
}

const std::string& HostList::name_of(int32_t rank) const {
  return hosts[static_cast<size_t>(host_of_rank[static_cast<size_t>(rank)])].name;
}

HostGrid parse_grid(const std::string& input, const std::string& text, int32_t column, int64_t most) {
  if (!is_grid(text))
    refuse_at(GSEL_ERR_SYNTAX, input, text, column, "a number of hosts and of ranks on each is needed, such as 2x4");
  const size_t x = text.find('x');
  const auto number = [&](size_t from, size_t n, const char* what) {
    const std::string digits = text.substr(from, n);
    const int64_t value = number_of(digits);
    if (value < 1 || value > most)
      refuse_at(GSEL_ERR_OUT_OF_RANGE, input, digits, column + static_cast<int32_t>(from),
                std::string("from 1 to ") + std::to_string(most) + " " + what + " are allowed");
    return value;
  };
  return {number(0, x, "hosts"), number(x + 1, text.npos, "on each host")};
}

HostList parse_hosts(const std::string& option, const std::string& text) {
  HostList list{option + " " + text, {}, {}};
  HostReader(list, text).read();
  return list;
}

void check_slots(const HostList& list, int32_t ranks) {
  const std::string needed = with_noun(ranks, "rank");
  if (list.slots() < ranks) {
    const HostSlots& last = list.hosts.back();
    refuse_at(GSEL_ERR_OUT_OF_RANGE, list.input, last.token, last.column,
              needed + " need a slot each, and up to here there are " + std::to_string(list.slots()) +
                  "; add a host, or slots");
  }
  int32_t before = 0;
  for (const HostSlots& host : list.hosts) {
    if (before + host.slots > ranks)
      refuse_at(GSEL_ERR_OUT_OF_RANGE, list.input, host.token, host.column,
                needed + " leave " + std::to_string(before + host.slots - std::max(before, ranks)) +
                    " of the slots of " + host.name + " without a rank; give as many slots as there are ranks");
    before += host.slots;
  }
}

}  // namespace gsel::cli
