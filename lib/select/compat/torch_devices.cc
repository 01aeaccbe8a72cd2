// select/compat/torch_devices.cc: see torch_devices.h.
#include "select/compat/torch_devices.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gsel {

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
