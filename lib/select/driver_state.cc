// select/driver_state.cc: see resolve.h.
#include <dlfcn.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "select/compat/compat.h"
#include "select/resolve.h"

namespace gsel {
namespace {

constexpr int kSuccess = 0;
constexpr size_t kUuidBytes = 16;
constexpr size_t kPrefix = 4;  // "GPU-" or "MIG-"

// Without a prefix, since the driver does not say whether it is a MIG instance's.
std::string digits_text(const unsigned char (&bytes)[kUuidBytes]) {
  std::string out;
  for (size_t i = 0; i < kUuidBytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", bytes[i]);
  }
  return out;
}

// The digits of the uuids of an initialised driver's devices, in its order; nothing when no driver is initialised.
std::optional<std::vector<std::string>> driver_uuids() {
  const std::unique_ptr<void, int (*)(void*)> driver(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD), dlclose);
  if (!driver) return {};
  const auto symbol = [&](const char* name) { return dlsym(driver.get(), name); };
  const auto count_devices = reinterpret_cast<int (*)(int*)>(symbol("cuDeviceGetCount"));
  const auto device_at = reinterpret_cast<int (*)(int*, int)>(symbol("cuDeviceGet"));
  void* uuid = symbol("cuDeviceGetUuid_v2");  // for a MIG instance, the instance's own uuid
  if (!uuid) uuid = symbol("cuDeviceGetUuid");
  const auto uuid_at = reinterpret_cast<int (*)(unsigned char*, int)>(uuid);
  int count = 0;
  if (!count_devices || !device_at || !uuid_at || count_devices(&count) != kSuccess) return {};
  std::vector<std::string> out;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    unsigned char bytes[kUuidBytes] = {};
    if (device_at(&device, i) != kSuccess || uuid_at(bytes, device) != kSuccess) return {};
    out.push_back(digits_text(bytes));
  }
  return out;
}

// With the prefix of the inventory's MIG instance, else of a card.
std::string with_prefix(const Inventory& inventory, const std::string& digits) {
  for (const Device& device : inventory.devices)
    for (const Partition& partition : device.partitions)
      if (partition.uuid == "MIG-" + digits) return partition.uuid;
  return "GPU-" + digits;
}

}  // namespace

void check_driver_state(const Inventory& inventory, const Environment& environment) {
  const auto seen = driver_uuids();
  if (!seen) return;
  const std::string* mask = find_variable(environment, "CUDA_VISIBLE_DEVICES");
  const Group group = group_of(inventory, 0, "nvidia");
  Trace trace;
  bool comparable = true;
  std::vector<std::string> named;
  for (const Unit& unit : cuda_driver(group, environment, trace).units) {
    const std::string& uuid = uuid_of(inventory, unit);
    comparable = comparable && uuid.size() > kPrefix;
    named.push_back(uuid.substr(std::min(kPrefix, uuid.size())));
  }
  std::vector<std::string> visible = *seen;
  // Which devices an index names is a guess if the devices differ, but their number is certain.
  bool guessed = false;
  cuda_order(group, environment, &guessed);
  if (!comparable || (guessed && mask && !is_uuid_form(*mask))) {
    if (named.size() == visible.size()) return;
  }
  std::sort(named.begin(), named.end());
  std::sort(visible.begin(), visible.end());
  if (named == visible) return;
  std::vector<std::string> shown;
  for (const std::string& digits : *seen) shown.push_back(with_prefix(inventory, digits));
  throw Error(GSEL_ERR_ALREADY_INITIALIZED,
              fmt::format("CUDA_VISIBLE_DEVICES{}: names {}, and the CUDA driver of this process is up already "
                          "with {} ({}); set the variable before the first CUDA call, or in a child process",
                          mask ? "=" + printable(*mask) : " is unset", with_noun(named.size(), "device"), shown.size(),
                          fmt::join(shown, ", ")))
      .at({"CUDA_VISIBLE_DEVICES", 0, mask ? 1 : 0, mask ? *mask : ""});
}

}  // namespace gsel
