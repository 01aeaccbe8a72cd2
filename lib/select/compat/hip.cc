// select/compat/hip.cc: which AMD devices a HIP program sees. Three layers, each of which renumbers for the next: the
// device nodes that a cgroup grants; ROCR_VISIBLE_DEVICES in ROCr (in KFD order); then HIP_VISIBLE_DEVICES, or else
// CUDA_VISIBLE_DEVICES, in the HIP runtime.
// Sources: ROCR-Runtime, core/runtime/amd_filter_device.cpp; ROCm clr, rocclr/device/rocm/rocdevice.cpp.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "base/text.h"
#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/inventory/identity.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr size_t kShortestUuid = 5, kLongestUuid = 20;  // "GPU-" and 1 to 16 hexadecimal digits

std::string upper_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// Applies ROCR_VISIBLE_DEVICES to the devices in KFD order.
class Rocr {
 public:
  Rocr(const Inventory& inventory, const std::vector<int32_t>& devices, Input input, Trace& trace)
      : inventory_(inventory), devices_(devices), input_(std::move(input)), trace_(trace), seen_(devices.size()) {}

  std::vector<int32_t> read() {
    size_t count = 0;
    read_fields("ROCr", input_, split_lines(input_.value, ','), trace_, [&](const Token& field) {
      return count++ < devices_.size() ? read(field) : ends("ROCr reads no more entries than there are devices");
    });
    return order_;
  }

 private:
  Fate read(const Token& field) {
    const std::string text = upper_case(stripped(field.text));
    if (text.empty())
      refuse(GSEL_ERR_SYNTAX, input_, field,
             "std::out_of_range: ROCr takes the first character of an empty entry, and the process dies");
    return text[0] == 'G' ? identity(text) : position(text);
  }

  Fate identity(const std::string& text) {
    if (text.size() < kShortestUuid || text.size() > kLongestUuid)
      return ends("a uuid is GPU- and 1 to 16 hexadecimal digits; anything else ends the list");
    const auto [first, last] = uuids().find(text);
    if (first == last) return ends("no device has a uuid that begins so, which ends the list");
    if (last - first > 1) return ends("several devices have a uuid that begins so, which ends the list");
    return take(first->second, "the one device whose uuid begins so, in any case");
  }

  Fate position(const std::string& text) {
    char* end = nullptr;
    const auto place = static_cast<int32_t>(std::strtol(text.c_str(), &end, 0));
    if (*end != '\0') return ends("not wholly a number (decimal, 0x or octal), which ends the list");
    if (place < 0 || place >= static_cast<int32_t>(devices_.size())) return ends("an index out of range ends the list");
    return take(place, "an index in KFD order, read by strtol with base 0");
  }

  Fate take(int32_t place, const char* rule) {
    if (seen_[static_cast<size_t>(place)]) return ends("a repeated device ends the list");
    seen_[static_cast<size_t>(place)] = true;
    order_.push_back(devices_[static_cast<size_t>(place)]);
    return kept(unit_text(inventory_, {order_.back(), -1, -1}), rule);
  }

  const PrefixIndex<int32_t>& uuids() {
    if (uuids_) return *uuids_;
    PrefixIndex<int32_t>::Entries entries;
    for (size_t i = 0; i < devices_.size(); ++i)
      entries.emplace_back(upper_case(inventory_.devices[static_cast<size_t>(devices_[i])].uuid),
                           static_cast<int32_t>(i));
    return uuids_.emplace(std::move(entries));
  }

  const Inventory& inventory_;
  const std::vector<int32_t>& devices_;
  Input input_;
  Trace& trace_;
  std::vector<bool> seen_;
  std::vector<int32_t> order_;
  std::optional<PrefixIndex<int32_t>> uuids_;
};

// Applies HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES to the devices that ROCr left.
class Hip {
 public:
  Hip(const Inventory& inventory, const std::vector<int32_t>& devices, Input input, Trace& trace)
      : inventory_(inventory), devices_(devices), input_(std::move(input)), trace_(trace), seen_(devices.size()) {}

  std::vector<int32_t> read() {
    read_fields("HIP", input_, split_lines(input_.value, ','), trace_, [&](const Token& field) {
      const size_t place = field.text.starts_with("GPU-") ? identity(field.text) : position(field.text);
      if (place == devices_.size())
        return ends("neither a uuid nor an index in plain decimal, in range and without blanks, which ends the list");
      if (seen_[place]) return skipped("a repeated device is skipped");
      seen_[place] = true;
      order_.push_back(devices_[place]);
      return kept(unit_text(inventory_, {order_.back(), -1, -1}),
                  field.text.starts_with("GPU-") ? "the first device whose uuid begins so, in this case"
                                                 : "an index into what ROCr left");
    });
    return order_;
  }

 private:
  // Returns devices_.size() when there is none.
  size_t identity(const std::string& text) const {
    size_t place = 0;
    while (place < devices_.size() && !inventory_.devices[static_cast<size_t>(devices_[place])].uuid.starts_with(text))
      ++place;
    return place;
  }

  // A number must be in canonical form: no sign, no leading zero, no blank.
  size_t position(const std::string& text) const {
    size_t place = 0;
    const char* end = text.data() + text.size();
    const auto [last, failure] = std::from_chars(text.data(), end, place);
    const bool plain = failure == std::errc() && last == end && text == std::to_string(place);
    return plain ? std::min(place, devices_.size()) : devices_.size();
  }

  const Inventory& inventory_;
  const std::vector<int32_t>& devices_;
  Input input_;
  Trace& trace_;
  std::vector<bool> seen_;
  std::vector<int32_t> order_;
};

// The mask of the HIP layer; an empty variable counts as unset.
const char* hip_mask(const Environment& environment, Trace& trace) {
  for (const char* name : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
    const std::string* value = find_variable(environment, name);
    if (value && !value->empty()) return name;
    if (value)
      trace.add("HIP", {name, ""}, {"", 1, false}, "as if unset", "an empty value is no mask to the HIP runtime");
  }
  return nullptr;
}

void note_opencl(const Environment& environment, Trace& trace) {
  const std::string* value = find_variable(environment, "GPU_DEVICE_ORDINAL");
  if (value)
    trace.add("HIP", {"GPU_DEVICE_ORDINAL", *value}, {*value, 1, false}, "nothing",
              "read for OpenCL alone, though ROCm's documentation says OpenCL and HIP");
}

}  // namespace

Visible hip_runtime(const Group& group, const Environment& environment, Trace& trace) {
  std::vector<int32_t> devices = driver_order(accessible_part(group, trace));
  std::vector<std::string> hiding;
  const std::string* rocr = find_variable(environment, kRocrMask);
  if (rocr) {
    const Input input{kRocrMask, *rocr};
    if (rocr->empty()) trace.add("ROCr", input, {"", 1, false}, "no device", "an empty value surfaces no device");
    devices = Rocr(group.inventory, devices, input, trace).read();
    hiding.push_back(input.shown());
  }
  const size_t surfaced = devices.size();
  const char* mask = hip_mask(environment, trace);
  if (mask) {
    const Input input{mask, *find_variable(environment, mask)};
    devices = Hip(group.inventory, devices, input, trace).read();
    hiding.push_back(input.shown());
    if (rocr && surfaced > 0 && devices.empty())
      trace.warn(fmt::format("{} leaves nothing of the {} that {} left: its indexes count from 0 among those",
                             input.shown(), with_noun(surfaced, "device"), kRocrMask));
  }
  note_opencl(environment, trace);

  Visible out;
  for (const int32_t device : devices) out.units.push_back({device, -1, -1});
  if (!hiding.empty())
    out.hidden_by = "hidden by " + hiding.front() + (hiding.size() > 1 ? " and " + hiding.back() : "");
  return out;
}

Reading read_hip(const Case& asked, Trace& trace) {
  return reading_of(hip_runtime(group_of(asked.inventory, asked.host, "amd"), asked.environment, trace),
                    "hipGetDeviceCount returns hipErrorNoDevice (100): no device is visible", trace);
}

}  // namespace gsel
