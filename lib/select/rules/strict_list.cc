// select/rules/strict_list.cc: see strict_list.h.
#include "select/rules/strict_list.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "select/inventory/identity.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr std::string_view kUuidDigits = "0123456789abcdef-";

class Reader {
 public:
  Reader(const StrictList& list, const Input& input, Trace& trace)
      : list_(list),
        inventory_(list.group.inventory),
        input_(input),
        trace_(trace),
        places_(list.group, list.devices) {}

  std::vector<int32_t> read() {
    std::vector<int32_t> out;
    std::vector<bool> seen(inventory_.devices.size());
    for (const Token& token : split_list(input_)) {
      const int32_t device = read(token);
      if (seen[static_cast<size_t>(device)])
        refuse(GSEL_ERR_DUPLICATE, input_, token, fmt::format("{} is already in the list", text_of(device)));
      seen[static_cast<size_t>(device)] = true;
      trace_.add(list_.layer, input_, token, text_of(device),
                 is_number(token.text) ? list_.number_is : "the one device whose uuid begins so");
      out.push_back(device);
    }
    return out;
  }

 private:
  int32_t read(const Token& token) {
    if (token.text.empty()) refuse(GSEL_ERR_SYNTAX, input_, token, "an entry of the list is empty");
    if (list_.at_blank && has_blank(token))
      trace_.warn(fmt::format("{}: a blank at \"{}\", column {}: {}", input_.shown(), printable(token.text),
                              token.column, list_.at_blank));
    if (is_number(token.text)) return by_number(token);
    if (list_.uuids && lower_case(token.text).starts_with("gpu-")) return by_uuid(token);
    refuse(GSEL_ERR_SYNTAX, input_, token,
           fmt::format("{} in decimal digits{} is needed", list_.number_is,
                       list_.uuids ? " or GPU- and a uuid" : "; uuids are not read here,"));
  }

  bool has_blank(const Token& token) const {
    const size_t end = static_cast<size_t>(token.column) - 1 + token.text.size();
    return token.blank_before || (end < input_.value.size() && input_.value[end] != ',');
  }

  int32_t by_number(const Token& token) const {
    const int64_t number = number_of(token.text);
    if (list_.numbers.empty()) {
      if (number < static_cast<int64_t>(list_.devices.size())) return list_.devices[static_cast<size_t>(number)];
    } else {
      const auto it = std::find(list_.numbers.begin(), list_.numbers.end(), number);
      if (it != list_.numbers.end()) return list_.devices[static_cast<size_t>(it - list_.numbers.begin())];
    }
    if (list_.below)
      refuse(GSEL_ERR_CONFLICT, input_, token,
             fmt::format("counts from 0 among what {} left, which is {}", list_.below->shown(), count_text()));
    refuse(GSEL_ERR_OUT_OF_RANGE, input_, token, fmt::format("this machine has {}", count_text()));
  }

  // "2 AMD devices, 0 to 1".
  std::string count_text() const {
    const size_t count = list_.devices.size();
    if (count == 0) return fmt::format("no {} device", list_.label);
    const std::string named = list_.numbers.empty() ? (count == 1 ? "0 alone" : fmt::format("0 to {}", count - 1))
                                                    : fmt::format("{}", fmt::join(list_.numbers, ","));
    return fmt::format("{}, {}", with_noun(count, fmt::format("{} device", list_.label)), named);
  }

  int32_t by_uuid(const Token& token) {
    const std::string prefix = lower_case(token.text);
    if (prefix.size() < 5 || prefix.find_first_not_of(kUuidDigits, 4) != prefix.npos)
      refuse(GSEL_ERR_SYNTAX, input_, token, "a uuid is GPU- and at least one hexadecimal digit");
    if (!uuids_) uuids_ = index();
    const auto [first, last] = uuids_->find(prefix);
    if (first == last)
      refuse(GSEL_ERR_UNKNOWN_DEVICE, input_, token,
             fmt::format("no {} device of this machine has such a uuid", list_.label));
    if (last - first > 1)
      refuse(GSEL_ERR_AMBIGUOUS, input_, token,
             fmt::format("{} have such a uuid, {} and {} among them; give more digits",
                         with_noun(last - first, "device"), uuid(first->second), uuid((first + 1)->second)));
    const int32_t device = first->second;
    check_reachable(device, token);
    if (!list_.any_case && !uuid(device).starts_with(token.text))
      trace_.warn(fmt::format("{}: \"{}\" at column {}: {} reads a uuid in its own case only, {}", input_.shown(),
                              printable(token.text), token.column, list_.layer, uuid(device)));
    return device;
  }

  PrefixIndex<int32_t> index() const {
    PrefixIndex<int32_t>::Entries entries;
    for (const int32_t device : list_.group.devices) entries.emplace_back(lower_case(uuid(device)), device);
    return PrefixIndex<int32_t>(std::move(entries));
  }

  void check_reachable(int32_t device, const Token& token) const {
    if (places_.of(device) >= 0) return;
    if (!inventory_.devices[static_cast<size_t>(device)].accessible)
      refuse(GSEL_ERR_PERMISSION, input_, token, fmt::format("{} may not be opened by this user", text_of(device)));
    refuse(GSEL_ERR_CONFLICT, input_, token,
           fmt::format("{} is not among what {} left", text_of(device),
                       list_.below ? list_.below->shown() : "the mask below"));
  }

  const std::string& uuid(int32_t device) const { return inventory_.devices[static_cast<size_t>(device)].uuid; }
  std::string text_of(int32_t device) const { return unit_text(inventory_, {device, -1, -1}); }

  const StrictList& list_;
  const Inventory& inventory_;
  const Input& input_;
  Trace& trace_;
  Places places_;
  std::optional<PrefixIndex<int32_t>> uuids_;
};

}  // namespace

std::vector<int32_t> read_strictly(const StrictList& list, const Input& input, Trace& trace) {
  return Reader(list, input, trace).read();
}

}  // namespace gsel
