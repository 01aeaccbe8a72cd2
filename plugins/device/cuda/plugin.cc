// plugins/device/cuda/plugin.cc: the device "cuda" of gsel/device.h on NVIDIA's driver, or "rocm"
// on AMD's, found at run time.
#include <gsel/plugin.h>

#include <cctype>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "context.h"

// The compiled kernels, for the GPUs of the toolkit and as PTX for later ones; a single 0 without a toolkit.
// kernels_version: the toolkit's, as in cuda.h.
extern "C" const unsigned char gsel_cuda_kernels[];
extern "C" const int gsel_cuda_kernels_version;

namespace gsel_cuda {
namespace {

std::string digits_of(std::string_view uuid) {
  const size_t at = uuid.find('-');
  std::string digits(uuid.substr(at == std::string_view::npos ? 0 : at + 1));
  for (char& c : digits) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
  return digits;
}

// wanted: a uuid or the beginning of one, in any case. That of a card does not name its instances.
bool is_named(std::string_view wanted, const Context& c) {
  if (wanted.starts_with("GPU-") && !c.card.empty()) return false;
  const std::string digits = digits_of(wanted);
  return digits_of(c.uuid).starts_with(digits);
}

std::string seen_text(const Context& c) {
  return c.card.empty() ? c.uuid : c.uuid + " of " + c.card;
}

// What to do about a device that this process does not see. c: a device that it sees.
std::string advice(std::string_view wanted, const Context& c) {
  if (kHasInstances && wanted.starts_with("MIG-GPU-"))
    return ": the driver tells MIG instances by uuid alone; gsel resolve --devices mig:" + std::string(wanted) +
           " prints that of this one";
  if (wanted.starts_with("GPU-") && digits_of(c.card).starts_with(digits_of(wanted)))
    return ": that card is divided by MIG; name one of its instances";
  if (!c.card.empty())
    return ": CUDA shows a process one MIG instance, the first that CUDA_VISIBLE_DEVICES names; start this process "
           "with CUDA_VISIBLE_DEVICES=" +
           std::string(wanted) + ", as gsel run --devices does for each rank";
  return ": compare " GSEL_VENDOR_MASK " with what gsel resolve chose";
}

std::string_view view(gsel_str text) {
  if (!text.data) return {};
  return text.len == GSEL_NUL ? std::string_view(text.data) : std::string_view(text.data, text.len);
}

// Kernels of a device, shared by its open contexts: loaded by the first one, before work of other ranks can block it,
// and unloaded by the last.
struct Kernels {
  CUmodule module = nullptr;
  int users = 0;
};
struct AllKernels {
  std::mutex mutex;
  std::map<CUcontext, Kernels> of;
};
AllKernels& all_kernels() {
  static auto* the_kernels = new AllKernels;  // a thread that ends a communicator may outlive main
  return *the_kernels;
}

// Without kernels the device still has memory, streams, and calls of other libraries.
void load_kernels(Context& c) {
  if (gsel_cuda_kernels[0] == 0) {
    c.no_kernels = "gsel was built without " GSEL_VENDOR_COMPILER "; build it with " GSEL_VENDOR_COMPILER_OLDEST;
    return;
  }
  AllKernels& all = all_kernels();
  const std::lock_guard lock(all.mutex);
  Kernels& kernels = all.of[c.context];
  if (!kernels.module) {
    try {
      check(c, c.driver->cuModuleLoadData(&kernels.module, gsel_cuda_kernels), "loading kernels");
    } catch (const Failure& failure) {
      int version = 0;
      c.driver->cuDriverGetVersion(&version);
      kernels.module = nullptr;
      c.no_kernels = failure.text + "; the driver is one for " GSEL_VENDOR " " + version_text(version) +
                     ", the kernels were built with " GSEL_VENDOR " " + version_text(gsel_cuda_kernels_version);
      if (!c.poison.empty()) throw;
      return;
    }
  }
  ++kernels.users;
  c.module = kernels.module;
}

void unload_kernels(Context& c) {
  AllKernels& all = all_kernels();
  const std::lock_guard lock(all.mutex);
  const auto found = all.of.find(c.context);
  if (!c.module || found == all.of.end() || --found->second.users > 0) return;
  c.driver->cuModuleUnload(found->second.module);
  all.of.erase(found);
}

// Of a MIG instance, version 2 of cuDeviceGetUuid gives the instance's uuid and version 1 the card's; its name has the
// profile: "NVIDIA A100-SXM4-40GB MIG 3g.20gb".
void take_device(Context& c, int32_t ordinal) {
  c.ordinal = ordinal;
  check(c, c.driver->cuDeviceGet(&c.device, ordinal), "the device");
  char name[256] = "";
  check(c, c.driver->cuDeviceGetName(name, sizeof name, c.device), "its name");
  c.name = name;
  CUuuid uuid, card;
  check(c, c.driver->cuDeviceGetUuid(&uuid, c.device), "its uuid");
  const bool tells_card = c.driver->card_uuid && c.driver->card_uuid(&card, c.device) == CUDA_SUCCESS;
  const bool is_instance =
      kHasInstances && (tells_card ? memcmp(&card, &uuid, sizeof uuid) != 0 : c.name.find(" MIG ") != c.name.npos);
  c.uuid = uuid_text(is_instance ? "MIG-" : "GPU-", uuid);
  c.card = !is_instance ? "" : tells_card ? uuid_text("GPU-", card) : "a card that the driver does not name";
}

void find_device(Context& c, int n, std::string_view uuid) {
  std::string seen;
  int32_t found = -1;
  for (int32_t ordinal = 0; ordinal < n; ++ordinal) {
    take_device(c, ordinal);
    seen += (seen.empty() ? "" : ", ") + seen_text(c);
    if (!is_named(uuid, c)) continue;
    if (found >= 0)
      fail(GSEL_ERR_AMBIGUOUS, "device " + std::string(uuid) + " was asked for, with which the uuids of devices " +
                                   std::to_string(found) + " and " + std::to_string(ordinal) + " begin: " + seen +
                                   "; give more digits");
    found = ordinal;
  }
  if (found < 0)
    fail(GSEL_ERR_NO_DEVICES,
         "device " + std::string(uuid) + " was asked for; this process sees " + seen + advice(uuid, c));
  take_device(c, found);
}

void open_context(const gsel_host_v1* host, const gsel_device_options& options, std::unique_ptr<Context>& c) {
  std::string why;
  const Driver* found = started_driver(&why);
  if (!found) fail(GSEL_ERR_NO_DEVICES, why);
  c.reset(new Context{});
  c->host = host;
  c->driver = found;
  int n = 0;
  check(*c, found->cuDeviceGetCount(&n), "the number of devices");
  if (n == 0) fail(GSEL_ERR_NO_DEVICES, "the " GSEL_VENDOR " driver shows no device to this process");
  const std::string_view uuid = view(options.uuid);
  if (options.ordinal == GSEL_DEVICE_BY_UUID && !uuid.empty())
    find_device(*c, n, uuid);
  else if (options.ordinal < 0 || options.ordinal >= n)
    fail(GSEL_ERR_ARG, "device " + std::to_string(options.ordinal) +
                           " of " GSEL_VENDOR_DEVICE " was asked for; the driver shows " + std::to_string(n) +
                           " to this process");
  else
    take_device(*c, options.ordinal);
  if (!uuid.empty() && !is_named(uuid, *c))
    fail(GSEL_ERR_NO_DEVICES, "device " + std::string(uuid) + " was asked for; device " +
                                  std::to_string(options.ordinal) + " of this process is " + seen_text(*c) +
                                  advice(uuid, *c));
  check(*c, found->cuDeviceGetAttribute(&c->processors, kProcessors, c->device), "its multiprocessors");
  check(*c, found->cuDevicePrimaryCtxRetain(&c->context, c->device), "its primary context");
}

gsel_status open_device(const gsel_host_v1* host, const gsel_device_options* options, void** out, gsel_error** err) {
  *out = nullptr;
  std::unique_ptr<Context> c;
  try {
    if (!options || options->struct_size < sizeof *options || options->flags || options->reserved)
      fail(GSEL_ERR_ARG, "gsel_device_options has no size, or flags and reserved fields that are not 0");
    open_context(host, *options, c);
    const Current current(*c);
    load_kernels(*c);
    *out = c.release();
    return GSEL_OK;
  } catch (...) {
    const gsel_status status = failed(host, err);
    if (c && c->context) c->driver->cuDevicePrimaryCtxRelease(c->device);
    return status;
  }
}

void close_device(void* ctx) {
  if (!ctx) return;
  run(ctx, nullptr, [](Context& c) {
    if (c.default_stream.scratch.memory) {
      c.driver->cuStreamSynchronize(c.default_stream.native);
      c.driver->cuMemFree(c.default_stream.scratch.memory);
    }
    unload_kernels(c);
  });
  Context& c = context_of(ctx);
  c.driver->cuDevicePrimaryCtxRelease(c.device);
  delete &c;
}

gsel_status describe(void* ctx, gsel_device_description* out, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    if (!out || out->struct_size < sizeof *out) fail(GSEL_ERR_VERSION, "gsel_device_description states no size");
    size_t free_bytes = 0, bytes = 0;
    check(c, c.driver->cuMemGetInfo(&free_bytes, &bytes), "the device's memory");
    const uint32_t size = out->struct_size;
    *out = {};
    out->struct_size = size;
    out->dlpack_type = kDlpackType;
    out->ordinal = c.ordinal;
    out->memory_bytes = bytes;
    out->free_bytes = free_bytes;
    out->name = {c.name.data(), c.name.size()};
    out->uuid = {c.uuid.data(), c.uuid.size()};
  });
}

// The driver keeps the previous context on its stack.
gsel_status enter_device(void* ctx, void** before, gsel_error** err) {
  *before = nullptr;
  Context& c = context_of(ctx);
  try {
    enter(c);
    return GSEL_OK;
  } catch (...) {
    return failed(c.host, err);
  }
}

void leave_device(void* ctx, void*) {
  leave(context_of(ctx));
}

gsel_device_v1 make_table() {
  gsel_device_v1 table{};
  table.struct_size = sizeof table;
  table.open = open_device;
  table.close = close_device;
  table.describe = describe;
  table.enter = enter_device;
  table.leave = leave_device;
  add_memory(table);
  add_streams(table);
  add_kernels(table);
  add_graphs(table);
  return table;
}

// Only looks for a driver: open checks for a device and kernels, which initialises it. Preferred to the host.
int32_t probe(const gsel_host_v1*, char* reason, size_t capacity) {
  std::string why;
  if (driver(&why)) return 100;
  snprintf(reason, capacity, "%s", why.c_str());
  return 0;
}

const gsel_device_v1 table = make_table();

}  // namespace
}  // namespace gsel_cuda

GSEL_PLUGIN_DEFINE = {sizeof(struct gsel_plugin_v1),
                      0,
                      GSEL_PLUGIN_ABI_MAJOR,
                      GSEL_PLUGIN_ABI_MINOR,
                      GSEL_PLUGIN_DEVICE,
                      0,
                      GSEL_VENDOR_DEVICE,
                      "1.0",
                      "compiler " __VERSION__,
                      &gsel_cuda::table,
                      gsel_cuda::probe};
