// select/compat/deepspeed_text.cc: see deepspeed_text.h.
// Source: deepspeedai/DeepSpeed deepspeed/launcher/runner.py (_parse_hostfile, parse_node_config_list).
#include "select/compat/deepspeed_text.h"

#include <algorithm>
#include <limits>
#include <set>

#include "select/compat/python_literal.h"

namespace gsel {
namespace {

// Reads lines that match "^(\S+)\s+slots=(\d+)".
class Hostfile {
 public:
  Hostfile(const std::string& text, const std::string& file) : text_(text), file_(file.empty() ? "hostfile" : file) {}

  std::vector<HostSlots> read() {
    for (size_t from = 0; from < text_.size();) {
      const size_t end = std::min(text_.find('\n', from), text_.size());
      ++line_;
      read_line(python_strip(std::string_view(text_).substr(from, end - from)));
      from = end + 1;
    }
    if (hosts_.empty()) {
      line_ = 0;
      raise(GSEL_ERR_SYNTAX, "Hostfile is empty or not formatted correctly, unable to proceed with launching.", "");
    }
    return std::move(hosts_);
  }

 private:
  void read_line(std::string_view line) {
    if (line.empty() || line.starts_with('#')) return;
    constexpr std::string_view kBlanks = " \t\n\r\f\v", kSlots = "slots=", kDigits = "0123456789";
    const size_t name_end = std::min(line.find_first_of(kBlanks), line.size());
    const std::string_view rest = python_strip(line.substr(name_end));
    const std::string_view number =
        rest.starts_with(kSlots)
            ? rest.substr(kSlots.size()).substr(0, rest.substr(kSlots.size()).find_first_not_of(kDigits))
            : std::string_view();
    const std::string name(line.substr(0, name_end));
    if (number.empty())
      raise(GSEL_ERR_SYNTAX,
            fmt::format("Hostfile contains a bad entry: {}, unable to proceed with launching", printable(line)), line);
    if (!seen_.insert(name).second)
      raise(GSEL_ERR_DUPLICATE,
            fmt::format("Hostfile contains multiple entries for {}, unable to proceed with launching", printable(name)),
            name);
    hosts_.push_back({name, number_of(number), line_});
  }

  [[noreturn]] void raise(gsel_status code, const std::string& text, std::string_view token) const {
    throw Error(code, "ValueError: " + text).at({file_, line_, 0, std::string(token)});
  }

  const std::string& text_;
  std::string file_;
  int32_t line_ = 0;
  std::set<std::string> seen_;
  std::vector<HostSlots> hosts_;
};

class FilterReader {
 public:
  FilterReader(DeepspeedFilter& filter, Trace& trace) : filter_(filter), trace_(trace) {}

  void read() {
    const std::string& text = filter_.input.value;
    for (size_t from = 0; from <= text.size();) {
      const size_t at = std::min(text.find('@', from), text.size());
      read_node(from, at);
      from = at + 1;
    }
  }

 private:
  void read_node(size_t from, size_t to) {
    const std::string_view text = std::string_view(filter_.input.value).substr(0, to);
    const size_t colon = std::min(text.find(':', from), to);
    const Token host = token(from, colon);
    DeepspeedFilter::Node& node = node_of(host);
    if (colon == to) return;
    if (text.find(':', colon + 1) != text.npos)
      raise_python(GSEL_ERR_SYNTAX, "ValueError", "too many values to unpack (expected 2)", filter_.input,
                   token(from, to));
    int64_t last = std::numeric_limits<int64_t>::min();
    bool sorted = true;
    for (size_t start = colon + 1; start <= to;) {
      const size_t comma = std::min(text.find(',', start), to);
      const Token slot = token(start, comma);
      const std::optional<int64_t> number = python_int(slot.text);
      if (!number) raise_bad_int(filter_.input, slot, slot.text);
      sorted = sorted && *number > last;
      last = *number;
      node.slots.emplace(*number, slot);
      start = comma + 1;
    }
    if (!sorted)
      trace_.warn(fmt::format("{}: deepspeed sorts and merges the slots of {}: the order given is lost",
                              filter_.input.shown(), printable(host.text)));
  }

  DeepspeedFilter::Node& node_of(const Token& host) {
    const auto [place, fresh] = places_.emplace(host.text, filter_.nodes.size());
    if (fresh) filter_.nodes.push_back({host, {}});
    return filter_.nodes[place->second];
  }

  Token token(size_t from, size_t to) const {
    return {filter_.input.value.substr(from, to - from), static_cast<int32_t>(from) + 1, false};
  }

  DeepspeedFilter& filter_;
  Trace& trace_;
  std::map<std::string, size_t> places_;
};

}  // namespace

std::vector<HostSlots> read_deepspeed_hostfile(const std::string& text, const std::string& file) {
  return Hostfile(text, file).read();
}

DeepspeedFilter read_deepspeed_filter(const Input& input, Trace& trace) {
  DeepspeedFilter filter{input, {}};
  FilterReader(filter, trace).read();
  return filter;
}

}  // namespace gsel
