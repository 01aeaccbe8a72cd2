// comm/device/open.cc: opens the plugins of the device and transport that a caller names; see accelerator.h.
#include <dlfcn.h>

#include <algorithm>
#include <charconv>

#include "base/options.h"
#include "base/text.h"
#include "comm/device/accelerator.h"
#include "comm/launch/join_options.h"
#include "comm/launch/launcher.h"
#include "comm/launch/pmi.h"
#include "plugin/loader.h"
#include "plugin/registry.h"

namespace gsel {
namespace {

constexpr int32_t kOwnOrdinal = -1;  // the device of this rank
constexpr int32_t kDlCpu = 1;

struct NamedDevice {
  std::string plugin;
  int32_t ordinal = kOwnOrdinal;
};

// "cuda" or "cuda:1", with " | cpu" behind it where the host may stand in.
NamedDevice parse_device(std::string_view given) {
  const std::string_view text = device_wish(given).device;
  const size_t colon = text.find(':');
  NamedDevice named{.plugin = std::string(text.substr(0, colon))};
  if (colon == std::string_view::npos) return named;
  const std::string_view digits = text.substr(colon + 1);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), named.ordinal);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || named.ordinal < 0)
    fail(GSEL_ERR_ARG,
         "gsel_comm_options.accelerator is {}; expected a device such as \"cuda\" or \"cuda:1\", or \"cuda | cpu\" for "
         "the host where no rank has one",
         in_quotes(given));
  return named;
}

// A launcher that makes only one device visible to each rank leaves a single device, whatever the rank's number.
std::shared_ptr<DeviceContext> open_numbered(const gsel_device_v1& table, int32_t number) {
  const auto open = [&](int32_t ordinal) { return std::make_shared<DeviceContext>(table, ordinal); };
  const auto sees = [&](int32_t ordinal) {
    try {
      return open(ordinal) != nullptr;
    } catch (const Error& e) {
      if (e.code() == GSEL_ERR_ARG) return false;
      throw;
    }
  };
  return open(number == 0 || sees(number) || sees(1) ? number : 0);
}

// CUDA shows a process one MIG instance, the first that the mask names, whatever its rank. Where the mask names
// several, a rank that is not the first of its host asks for its own by uuid, so that it never gets another one's.
// Empty: the mask does not name several instances.
std::string own_instance(int32_t local_rank) {
  const char* mask = variable("CUDA_VISIBLE_DEVICES");
  if (!mask || local_rank < 1) return {};
  std::vector<std::string> instances;
  for (std::string_view rest = mask; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view name = trimmed(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    if (!name.starts_with("MIG-")) break;
    instances.emplace_back(name);
  }
  if (instances.size() < 2) return {};
  if (static_cast<size_t>(local_rank) >= instances.size())
    fail(GSEL_ERR_RANK_OVERFLOW,
         "local rank {} has no MIG instance: CUDA_VISIBLE_DEVICES={} names {}, for local ranks 0 to {}", local_rank,
         one_line(mask), instances.size(), instances.size() - 1);
  return instances[static_cast<size_t>(local_rank)];
}

// Opens the device with the given index; else this rank's named device, the device with its number on this host, or the
// first.
std::shared_ptr<DeviceContext> open_device(const gsel_device_v1& table, const NamedDevice& named,
                                           const gsel_comm_options& given) {
  if (named.ordinal != kOwnOrdinal) return std::make_shared<DeviceContext>(table, named.ordinal, view(given.device));
  const OwnDevice own = own_device(given);
  if (!own.uuid.empty()) return std::make_shared<DeviceContext>(table, GSEL_DEVICE_BY_UUID, own.uuid);
  const std::string instance = named.plugin == "cuda" ? own_instance(own.local_rank) : std::string();
  if (!instance.empty()) return std::make_shared<DeviceContext>(table, GSEL_DEVICE_BY_UUID, instance);
  return open_numbered(table, std::max(own.local_rank, 0));
}

gsel_transport_description description_of(const gsel_transport_v2& table, void* ctx) {
  gsel_transport_description description{};
  description.struct_size = sizeof description;
  gsel_error* err = nullptr;
  const gsel_status status = table.describe(ctx, &description, &err);
  throw_if_failed(status, err);
  return description;
}

// A device cannot use such a transport, so it is not opened for one.
bool moves_host_memory(const gsel_plugin_v1& plugin) {
  return static_cast<const gsel_transport_v2*>(plugin.table)->post != nullptr;
}

void add_plugin(Accelerator& accelerator, const gsel_plugin_v1& plugin, int32_t dlpack_type) {
  const auto& table = *static_cast<const gsel_transport_v2*>(plugin.table);
  if (moves_host_memory(plugin) && dlpack_type != kDlCpu) fail(GSEL_ERR_UNSUPPORTED, "it takes memory of the host");
  auto transport = std::make_shared<Transport>(table);
  const gsel_transport_description can = description_of(table, transport->ctx());
  if (dlpack_type < 0 || dlpack_type >= 64 || (can.dlpack_types >> dlpack_type & 1) == 0)
    fail(GSEL_ERR_UNSUPPORTED, "it takes memory of other devices");
  Offered& offered = accelerator.offers.emplace_back(std::move(transport), plugin.name, can);
  if (dlpack_type != kDlCpu && (can.flags & GSEL_TRANSPORT_LAUNCH_ORDER) == 0)
    offered.order = std::make_unique<LaunchOrder>(accelerator.device);
}

// Without an MPI launcher each process is a world of one rank.
bool needs_launcher(const Candidate& candidate) {
  return candidate.name.starts_with("mpi_");
}

bool is_for_shared_devices(const Offered& offered) {
  return (offered.can.flags & GSEL_TRANSPORT_SHARED_DEVICE) != 0;
}

// Takes all transports that accept this device's memory, of the host's the first; collects the refusals of others.
void take_any(Accelerator& accelerator, int32_t dlpack_type) {
  for (const Candidate& candidate : find_plugins(GSEL_PLUGIN_TRANSPORT)) {
    if (candidate.kind != plugin_kind_name(GSEL_PLUGIN_TRANSPORT)) continue;
    if (dlpack_type == kDlCpu && !accelerator.offers.empty()) continue;
    if (candidate.plugin && moves_host_memory(*candidate.plugin) && dlpack_type != kDlCpu) continue;
    std::string why = candidate.refusal;
    if (candidate.plugin && needs_launcher(candidate))
      why = "no launcher of its MPI has started this process; start the ranks by mpirun, or name this transport";
    else if (candidate.plugin)
      try {
        add_plugin(accelerator, *candidate.plugin, dlpack_type);
      } catch (const Error& e) {
        why = e.message();
      }
    if (why.empty()) continue;
    accelerator.others += fmt::format("{}{}: {}", accelerator.others.empty() ? "" : "; ", candidate.name, why);
  }
  std::ranges::stable_partition(accelerator.offers, std::not_fn(is_for_shared_devices));
}

// A plugin that finds no driver is refused. A name that no plugin has is a mistake, and no missing device.
std::shared_ptr<DeviceContext> open_own(const NamedDevice& named, const gsel_comm_options& given) {
  try {
    return open_device(*static_cast<const gsel_device_v1*>(load_plugin(GSEL_PLUGIN_DEVICE, named.plugin).table), named,
                       given);
  } catch (const Error& error) {
    if (error.code() == GSEL_ERR_NO_DEVICES || error.code() == GSEL_ERR_PLUGIN) throw WithoutDevice(error);
    throw;
  }
}

std::string_view transport_of(const gsel_comm_options& given, const Config& settings) {
  const std::string_view named = view(given.transport);
  return named.empty() ? std::string_view(settings.comm.transport) : named;
}

// A launcher may speak the protocol of an MPI that is not installed, as srun --mpi=pmix does.
void require_library(const gsel_transport_description& can) {
  const std::string file = text(can.library);
  if (!file.empty() && !dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL)) fail(GSEL_ERR_NOT_FOUND, "{}", dlerror());
}

void try_plugin(Accelerator& accelerator, const char* name, int32_t dlpack_type) {
  try {
    add_plugin(accelerator, load_plugin(GSEL_PLUGIN_TRANSPORT, name), dlpack_type);
    require_library(accelerator.offers.back().can);
  } catch (const Error& e) {
    accelerator.offers.clear();
    accelerator.others = fmt::format("{}: {}", name, e.message());
  }
}

}  // namespace

bool has_accelerator(const gsel_comm_options& given) {
  const std::string_view name = device_wish(view(given.accelerator)).device;
  return !name.empty() && name != "cpu";
}

std::shared_ptr<const Accelerator> open_accelerator(const gsel_comm_options& given, const Config& settings) {
  const std::string_view transport = transport_of(given, settings);
  const NamedDevice named = parse_device(view(given.accelerator));
  auto accelerator = std::make_shared<Accelerator>();
  accelerator->device = open_own(named, given);
  const gsel_device_description device = accelerator->device->describe();
  accelerator->name = fmt::format("{}:{}", named.plugin, device.ordinal);
  accelerator->ordinal = device.ordinal;
  accelerator->uuid = text(device.uuid);
  accelerator->memory = std::make_unique<DeviceMemory>(accelerator->device);
  accelerator->is_named = transport != "auto";
  if (transport == "auto")
    take_any(*accelerator, device.dlpack_type);
  else if (transport != "host")
    add_plugin(*accelerator, load_plugin(GSEL_PLUGIN_TRANSPORT, transport), device.dlpack_type);
  return accelerator;
}

std::shared_ptr<const Accelerator> open_between_hosts(const gsel_comm_options& given, const Config& settings) {
  const std::string_view transport = has_accelerator(given) ? "auto" : transport_of(given, settings);
  auto host = std::make_shared<Accelerator>();
  host->device = DeviceContext::open_host();
  const gsel_device_description device = host->device->describe();
  host->name = "host";
  host->is_named = transport != "auto";
  const char* mpi = mpi_of_launcher(transport == "mpi");
  if (pmi::is_taken_from_mpi() && (transport == "mpi" || transport == "mpi_mpich"))
    fail(GSEL_ERR_CONFIG,
         "transport {}: the ranks have met by the process manager at PMI_FD, and Slurm answers no second client in a "
         "process, such as MPICH; set GSEL_RENDEZVOUS to another place",
         in_quotes(transport));
  if (transport == "mpi" && !mpi)
    fail(GSEL_ERR_CONFIG,
         "transport \"mpi\" is that of the MPI whose launcher starts the ranks, and none did; start them by mpirun, by "
         "srun --mpi=pmix (Open MPI) or srun --mpi=pmi2 (MPICH), or name mpi_openmpi or mpi_mpich");
  if (transport == "mpi")
    add_plugin(*host, load_plugin(GSEL_PLUGIN_TRANSPORT, mpi), device.dlpack_type);
  else if (transport != "auto" && transport != "host")
    add_plugin(*host, load_plugin(GSEL_PLUGIN_TRANSPORT, transport), device.dlpack_type);
  else if (transport == "auto" && mpi)
    try_plugin(*host, mpi, device.dlpack_type);
  if (transport == "auto" && host->offers.empty()) take_any(*host, device.dlpack_type);
  if (host->offers.empty())
    fail(GSEL_ERR_UNSUPPORTED,
         "no plugin moves memory of the host between hosts{}{}; the plugin gloo needs no launcher (it is built where "
         "libgloo-dev is), and mpirun brings an MPI",
         host->others.empty() ? "" : ": ", host->others);
  const Offered& only = host->offers.front();
  if (const gsel_transport_v2& table = only.transport->table(); !table.post || !table.test || !table.release)
    fail(GSEL_ERR_UNSUPPORTED, "{} does not move bytes between hosts", only.name);
  return host;
}

}  // namespace gsel
