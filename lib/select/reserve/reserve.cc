// select/reserve/reserve.cc: see reserve.h.
#include "select/reserve/reserve.h"

#include <algorithm>
#include <ctime>

#include "base/error.h"

namespace gsel {
namespace {

constexpr double kPatience_s = 10;
constexpr timespec kPause{0, 10'000'000};

// The name by which all processes of the machine know a device or instance.
std::string lock_name(const Inventory& inventory, const Unit& unit) {
  const Device& device = inventory.devices[static_cast<size_t>(unit.device)];
  const std::string& uuid = uuid_of(inventory, unit);
  if (!uuid.empty()) return uuid;
  if (!device.pci.empty()) return device.vendor + "-" + device.pci;
  return fmt::format("{}-{}", device.vendor, device.index);
}

}  // namespace

void mark_reserved(Inventory& inventory, const LockFolder& folder) {
  for (size_t i = 0; i < inventory.devices.size(); ++i) {
    Device& device = inventory.devices[i];
    if (device.is_cpu()) continue;
    const auto index = static_cast<int32_t>(i);
    device.reserved_by = folder.holder(lock_name(inventory, {index, -1, -1}));
    for (size_t p = 0; p < device.partitions.size(); ++p)
      device.partitions[p].reserved_by = folder.holder(lock_name(inventory, {index, static_cast<int32_t>(p), -1}));
  }
}

Inventory detect_with_reservations() {
  Inventory inventory = detect_inventory();
  if (const auto folder = LockFolder::open_existing(LockFolder::default_path())) mark_reserved(inventory, *folder);
  return inventory;
}

Reservation::Reservation(const std::shared_ptr<const Inventory>& inventory, const Environment& environment,
                         Request request, const Options& options)
    : folder_(options.folder.empty() ? LockFolder::default_path() : options.folder),
      generation_(os::fork_generation()) {
  request.free_only = true;
  const double deadline = os::now_seconds() + options.wait_s;
  while (!try_to_hold(*inventory, environment, request, os::now_seconds() >= deadline)) nanosleep(&kPause, nullptr);
}

// False when too few devices are free and this is not the last attempt.
bool Reservation::try_to_hold(const Inventory& inventory, const Environment& environment, const Request& request,
                              bool last) {
  const os::Fd all = folder_.hold_all(kPatience_s);
  auto marked = std::make_shared<Inventory>(inventory);
  mark_reserved(*marked, folder_);
  try {
    selection_ = resolve(marked, environment, request);
  } catch (const Error& error) {
    if (last || error.code() != GSEL_ERR_BUSY) throw;
    return false;
  }
  for (const Unit& unit : selection_.units) {
    if (marked->devices[static_cast<size_t>(unit.device)].is_cpu()) continue;
    const std::string name = lock_name(*marked, unit);
    if (std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.name == name; })) continue;
    auto lock = folder_.take(name);
    if (!lock) fail(GSEL_ERR_BUSY, "{} was taken by a process that does not ask first", unit_text(*marked, unit));
    held_.push_back({name, std::move(*lock)});
  }
  return true;
}

Reservation::~Reservation() {
  if (held_.empty() || os::fork_generation() != generation_) return;  // in a forked child the parent keeps it
  os::Fd all;
  try {
    all = folder_.hold_all(kPatience_s);
  } catch (...) {  // the files stay; without a lock they have no meaning
  }
  for (Held& held : held_) folder_.give_back(held.name, std::move(held.lock), static_cast<bool>(all));
}

}  // namespace gsel
