// select/compat/torch.cc: the result of torch.cuda.device_count() before CUDA is initialised: PyTorch itself reads the
// masks and uses the identities of NVML or AMD SMI. Warns when the result differs from what the runtime later sees.
// Source: torch/cuda/__init__.py (_parse_visible_devices, _transform_uuid_to_ordinals, _device_count_nvml,
// _device_count_amdsmi) and test/test_cuda_nvml_based_avail.py of PyTorch.
#include <algorithm>
#include <array>
#include <optional>
#include <unordered_set>

#include "base/text.h"
#include "select/compat/compat.h"
#include "select/compat/numbers.h"
#include "select/inventory/identity.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

constexpr const char* kTorchLayer = "torch";
constexpr size_t kCandidates = 64;  // most devices without a mask

size_t field_count(const std::string& list) {
  return static_cast<size_t>(std::count(list.begin(), list.end(), ',')) + 1;
}

// One mask, read as by _parse_visible_devices and the two counting functions.
class TorchMask {
 public:
  // `uuids` are those of NVML or AMD SMI, by index.
  TorchMask(std::vector<std::string> uuids, Input input, bool rocm, Trace& trace)
      : uuids_(std::move(uuids)), input_(std::move(input)), rocm_(rocm), trace_(trace) {}

  enum class Form : int8_t { ordinals, gpu, mig };
  Form form() const {
    if (input_.value.starts_with("GPU-")) return Form::gpu;
    return input_.value.starts_with("MIG-") ? Form::mig : Form::ordinals;
  }

  // Positions in the list of devices.
  std::vector<size_t> ordinals() {
    std::vector<Leading> numbers;
    read_fields(kTorchLayer, input_, split_fields(input_.value, ','), trace_, [&](const Token& field) {
      Fate fate = ordinal(field, numbers);
      if (fate.what == Fate::What::voids) numbers.clear();
      return fate;
    });
    std::vector<size_t> places;
    for (const Leading& number : numbers) {
      if (number.value >= static_cast<int64_t>(uuids_.size())) {
        trace_.add(kTorchLayer, input_, {number.digits, 1, false}, "the end of the list",
                   "an ordinal past the last device cuts the list there, once it has been read as a whole");
        break;
      }
      places.push_back(static_cast<size_t>(number.value));
    }
    return places;
  }

  // The entries of a list of uuids, before lookup. Empty: the list is void.
  std::vector<Token> identities(std::string_view prefix) {
    std::vector<Token> entries;
    std::unordered_set<std::string> seen;
    for (Token& field : split_fields(input_.value, ',')) {
      if (seen.contains(field.text)) {
        trace_.add(kTorchLayer, input_, field, "no device at all", "a repeated uuid makes the list empty");
        return {};
      }
      if (!field.text.starts_with(prefix)) {
        trace_.add(kTorchLayer, input_, field, "the end of the list",
                   fmt::format("does not begin with {}, with no blank before it", prefix));
        break;
      }
      seen.insert(field.text);
      entries.push_back(std::move(field));
    }
    return entries;
  }

  std::vector<size_t> places_of(const std::vector<Token>& entries) {
    std::vector<size_t> places;
    const bool valid =
        read_fields(kTorchLayer, input_, entries, trace_, [&](const Token& entry) { return place(entry, places); });
    if (!valid) places.clear();
    return places;
  }

 private:
  Fate ordinal(const Token& field, std::vector<Leading>& numbers) {
    const Leading number = leading_number(stripped(field.text));
    if (number.kind == Leading::Kind::sign_alone)
      refuse(
          GSEL_ERR_SYNTAX, input_, field,
          fmt::format("ValueError: invalid literal for int() with base 10: '{}'", stripped(field.text).substr(0, 1)));
    if (number.kind == Leading::Kind::none) return ends("does not begin with a number, which reads as -1");
    if (number.negative) return ends("a negative ordinal aborts the list");
    if (!seen_.insert(number.digits).second) return voids("a repeated ordinal makes the list empty");
    numbers.push_back(number);
    return kept("ordinal " + number.digits, "the leading digits are an ordinal in NVML or AMD SMI order");
  }

  Fate place(const Token& entry, std::vector<size_t>& places) {
    const std::string_view digits =
        std::string_view(entry.text).substr(rocm_ && entry.text.starts_with("GPU-") ? 4 : 0);
    const auto [first, last] = index().find(digits);
    if (first == last) return ends("no device has a uuid that begins so (case matters), which aborts the list");
    if (last - first > 1) return ends("several devices have a uuid that begins so, which aborts the list");
    const size_t found = first->second;
    if (!taken_.insert(found).second) return voids("names a device again, which makes the list empty");
    places.push_back(found);
    return kept("ordinal " + std::to_string(found), "the one device whose uuid begins so");
  }

  const PrefixIndex<size_t>& index() {
    if (index_) return *index_;
    PrefixIndex<size_t>::Entries entries;
    for (size_t i = 0; i < uuids_.size(); ++i) entries.emplace_back(uuids_[i], i);
    return index_.emplace(std::move(entries));
  }

  std::vector<std::string> uuids_;
  Input input_;
  bool rocm_;
  Trace& trace_;
  std::unordered_set<std::string> seen_;
  std::unordered_set<size_t> taken_;
  std::optional<PrefixIndex<size_t>> index_;
};

Reading reading_of(const Group& group, const std::vector<size_t>& places, std::string hidden_by, Trace& trace) {
  Reading out;
  for (const size_t place : places) out.units.push_back({group.devices[place], -1, -1});
  out.hidden_by = std::move(hidden_by);
  if (out.units.empty()) trace.warn("torch.cuda.device_count() returns 0");
  return out;
}

std::vector<size_t> first_places(size_t count, const Group& group) {
  std::vector<size_t> places(std::min(count, group.size()));
  for (size_t i = 0; i < places.size(); ++i) places[i] = i;
  return places;
}

// No mask is set.
Reading all_of(const Group& group, Trace& trace) {
  return reading_of(group, first_places(kCandidates, group), "beyond the 64 devices that torch looks for", trace);
}

Reading defer(const Case& asked, const Group& group, const Input& input, const char* why, Trace& trace) {
  trace.add(kTorchLayer, input, {input.value, 1, false}, "what the CUDA runtime says", why);
  return reading_of(cuda_driver(group, asked.environment, trace), "torch.cuda.device_count() returns 0", trace);
}

// NVML counts divided devices as one, and also devices that this user may not open.
void warn_of_identities(const Case& asked, const Group& group, Trace& trace) {
  Trace unheard;
  const std::vector<Unit> runtime = cuda_driver(group, asked.environment, unheard).units;
  const bool order = find_variable(asked.environment, "CUDA_DEVICE_ORDER") != nullptr;
  for (size_t i = 0; i < group.size(); ++i)
    if (group.at(i).divided || !group.at(i).accessible) {
      trace.warn(fmt::format(
          "torch counts {} through NVML, which knows neither MIG nor permissions; the CUDA runtime shows {}",
          unit_text(group.inventory, {group.devices[i], -1, -1}), with_noun(runtime.size(), "device")));
      return;
    }
  bool guessed = false;
  const std::vector<int32_t> numbered = cuda_order(group, asked.environment, &guessed);
  if (guessed || numbered != group.devices)
    trace.warn(
        fmt::format("torch counts in NVML order and ignores CUDA_DEVICE_ORDER{}: the count is right, but the "
                    "runtime may number other devices",
                    order ? "" : " (here unset, FASTEST_FIRST)"));
}

Reading read_nvml(const Case& asked, const Group& group, Trace& trace) {
  const std::string* value = find_variable(asked.environment, kCudaMask);
  if (!value) {
    warn_of_identities(asked, group, trace);
    return all_of(group, trace);
  }
  std::vector<std::string> uuids;
  for (size_t i = 0; i < group.size(); ++i) uuids.push_back(group.at(i).uuid);
  const Input input{kCudaMask, *value};
  TorchMask parser(std::move(uuids), input, false, trace);
  const std::string hidden = fmt::format("hidden by {}", input.shown());
  if (parser.form() == TorchMask::Form::ordinals) {
    warn_of_identities(asked, group, trace);
    return reading_of(group, parser.ordinals(), hidden, trace);
  }
  const bool mig = parser.form() == TorchMask::Form::mig;
  const std::vector<Token> entries = parser.identities(mig ? "MIG-" : "GPU-");
  if (entries.empty()) return reading_of(group, {}, hidden, trace);
  if (mig) return defer(asked, group, input, "MIG- is not looked up in NVML, the count falls to the runtime", trace);
  for (size_t i = 0; i < group.size(); ++i)
    if (!group.at(i).accessible)
      return defer(asked, group, input, "NVML refuses the uuid of a device that may not be opened", trace);
  return reading_of(group, parser.places_of(entries), hidden, trace);
}

// The mask that a ROCm build reads; nullptr: none. *count: PyTorch only counts the entries of ROCR_VISIBLE_DEVICES.
const char* rocm_mask(const Environment& environment, size_t* count) {
  const std::string *rocr = find_variable(environment, kRocrMask), *hip = find_variable(environment, kHipMask);
  if (rocr && hip && field_count(*hip) > field_count(*rocr))
    refuse(GSEL_ERR_CONFLICT, {kHipMask, *hip}, {*hip, 1, false},
           fmt::format("RuntimeError: HIP_VISIBLE_DEVICES contains more devices than ROCR_VISIBLE_DEVICES: {} against "
                       "{} of {}={}",
                       field_count(*hip), field_count(*rocr), kRocrMask, printable(*rocr)));
  if (hip) return kHipMask;
  if (rocr) {
    *count = field_count(*rocr);
    return nullptr;
  }
  return find_variable(environment, kCudaMask) ? kCudaMask : nullptr;
}

// The serials that AMD SMI returns: the uuid without GPU-, in lower case.
std::vector<std::string> serials(const Group& group) {
  std::vector<std::string> out;
  for (size_t i = 0; i < group.size(); ++i) {
    const std::string uuid = lower_case(group.at(i).uuid);
    out.push_back(uuid.starts_with("gpu-") ? uuid.substr(4) : uuid);
  }
  return out;
}

Reading read_amdsmi(const Case& asked, const Group& group, Trace& trace) {
  size_t count = 0;
  const char* name = rocm_mask(asked.environment, &count);
  if (!name && count > 0) {
    const Input input{kRocrMask, *find_variable(asked.environment, kRocrMask)};
    trace.add(kTorchLayer, input, {input.value, 1, false}, fmt::format("the first {}", with_noun(count, "device")),
              "ROCR_VISIBLE_DEVICES alone is counted by its commas, its values are not looked at");
    trace.warn(
        fmt::format("{}: torch answers with as many devices as there are fields, whichever they are; the ROCm "
                    "runtime reads the values",
                    input.shown()));
    return reading_of(group, first_places(count, group), fmt::format("hidden by {}", input.shown()), trace);
  }
  if (!name) return all_of(group, trace);
  const Input input{name, *find_variable(asked.environment, name)};
  if (find_variable(asked.environment, kRocrMask))
    trace.warn(
        fmt::format("{} is read as if {} were not set, though it indexes what that leaves", input.shown(), kRocrMask));
  TorchMask parser(serials(group), input, true, trace);
  const std::string hidden = fmt::format("hidden by {}", input.shown());
  if (parser.form() == TorchMask::Form::ordinals) return reading_of(group, parser.ordinals(), hidden, trace);
  const std::vector<Token> entries = parser.identities(parser.form() == TorchMask::Form::mig ? "MIG-" : "GPU-");
  return reading_of(group, parser.places_of(entries), hidden, trace);
}

}  // namespace

Reading read_torch(const Case& asked, Trace& trace) {
  const Group nvidia = group_of(asked.inventory, asked.host, "nvidia");
  const Group amd = group_of(asked.inventory, asked.host, "amd");
  const auto& wanted = asked.request.accelerator;
  const bool rocm = wanted && *wanted != "auto" ? *wanted == "hip" || *wanted == "rocm"
                                                : nvidia.devices.empty() && !amd.devices.empty();
  return rocm ? read_amdsmi(asked, amd, trace) : read_nvml(asked, nvidia, trace);
}

// ---- devices that PyTorch counts on a host --------------------------------------------------------------------------

const TorchBackend* torch_backend(const Inventory& inventory, int32_t host) {
  // The ROCm build uses torch.cuda too, and its launchers set CUDA_VISIBLE_DEVICES.
  static constexpr std::array<TorchBackend, 3> kBackends = {{
      {"nvidia", "CUDA", "CUDA_VISIBLE_DEVICES", cuda_driver},
      {"amd", "HIP", "CUDA_VISIBLE_DEVICES", hip_runtime},
      {"intel", "XPU", "ZE_AFFINITY_MASK", ze_driver},
  }};
  for (const TorchBackend& backend : kBackends)
    if (group_of(inventory, host, backend.vendor).size() > 0) return &backend;
  return nullptr;
}

Visible torch_devices(const Inventory& inventory, int32_t host, const Environment& environment, Trace& trace) {
  const TorchBackend* backend = torch_backend(inventory, host);
  return backend ? backend->visible(group_of(inventory, host, backend->vendor), environment, trace) : Visible{};
}

std::optional<Unit> cpu_of(const Inventory& inventory, int32_t host) {
  const Host& entry = inventory.hosts[static_cast<size_t>(host)];
  for (int32_t i = entry.first; i < entry.first + entry.count; ++i)
    if (inventory.devices[static_cast<size_t>(i)].is_cpu()) return Unit{i, -1, -1};
  return std::nullopt;
}

std::vector<Unit> units_of_ranks(const std::vector<Unit>& visible, int64_t processes, std::string_view whose,
                                 Trace& trace) {
  const int64_t there = static_cast<int64_t>(visible.size());
  if (processes > there)
    trace.warn(fmt::format(
        "RANK_OVERFLOW: {} starts {} and they see {}: local rank{} {} fail{} "
        "with \"CUDA error: invalid device ordinal\"",
        whose, with_noun(processes, "process"), with_noun(there, "device"), processes - there == 1 ? "" : "s",
        processes - there == 1 ? fmt::format("{}", there) : fmt::format("{} to {}", there, processes - 1),
        processes - there == 1 ? "s" : ""));
  return {visible.begin(), visible.begin() + static_cast<ptrdiff_t>(std::clamp<int64_t>(processes, 0, there))};
}

std::string why_left(const Inventory& inventory, const Visible& visible, const std::string& untaken) {
  if (visible.units.empty()) return visible.hidden_by.empty() ? untaken : visible.hidden_by;
  const Device& first = inventory.devices[static_cast<size_t>(visible.units.front().device)];
  const bool all = units_of(group_of(inventory, first.host, first.vendor)).size() <= visible.units.size();
  return all || visible.hidden_by.empty() ? untaken : fmt::format("{}, or {}", visible.hidden_by, untaken);
}

}  // namespace gsel
