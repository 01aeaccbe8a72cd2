// fake/cuda/driver.cc: libcuda.so.1 as far as plugins/device/cuda asks for it, over the machine of machine.h: start,
// devices, contexts, kernels, names. It carries that name inside, so that it counts as loaded from any path. A primary
// context ends with its last release, and its streams and memory with it.
#include "driver.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "captures.h"

using namespace fake_cuda;

namespace fake_cuda {
namespace {

struct Primary {
  int retained = 0, life = 0;
  int lock = -1;  // of the file that says who holds it, where one process may
  uintptr_t handle(int device) const { return static_cast<uintptr_t>(0x100 + device + 0x1000 * life); }
};
Primary primaries[kMostDevices];
std::atomic<int> n_calls;  // that reached the driver at all
std::atomic<int> n_loads;

// False: another process holds the device and shares it with nobody.
bool hold(int device) {
  const std::string folder = setting("GSEL_FAKE_CUDA_EXCLUSIVE", "");
  if (folder.empty() || primaries[device].lock >= 0) return true;
  const int file = open((folder + "/device" + std::to_string(device)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) abort();
  if (flock(file, LOCK_EX | LOCK_NB) == 0) {
    primaries[device].lock = file;
    return true;
  }
  close(file);
  return false;
}

bool is_lacking(const std::string& name) {
  const std::string list = "," + setting("GSEL_FAKE_CUDA_LACKS", "") + ",";
  return list.find("," + name + ",") != std::string::npos;
}

// The instances that this process sees: of GSEL_FAKE_CUDA_MIG those that CUDA_VISIBLE_DEVICES names, or all without it;
// the first alone, unless this driver shows several. Empty: nothing is divided.
std::vector<std::string> find_instances() {
  const std::string all = setting("GSEL_FAKE_CUDA_MIG", "");
  const auto split = [](const std::string& text) {
    std::vector<std::string> out;
    for (size_t from = 0; from < text.size();) {
      const size_t end = std::min(text.find(',', from), text.size());
      out.push_back(text.substr(from, end - from));
      from = end + 1;
    }
    return out;
  };
  if (all.empty()) return {};
  const std::vector<std::string> instances = split(all.substr(all.find(':') + 1));
  const std::string mask = setting("CUDA_VISIBLE_DEVICES", "");
  std::vector<std::string> out;
  if (mask.empty()) out = instances;
  for (const std::string& named : split(mask))
    for (const std::string& instance : instances)
      if (instance.starts_with(named)) out.push_back(instance);
  if (number_in("GSEL_FAKE_CUDA_MIG_SHOWS", 1) < static_cast<int>(out.size()))
    out.resize(static_cast<size_t>(number_in("GSEL_FAKE_CUDA_MIG_SHOWS", 1)));
  return out;
}

// As the driver of this process saw the variables when it was first asked.
const std::vector<std::string>& visible_instances() {
  static const std::vector<std::string> instances = find_instances();
  return instances;
}

Uuid uuid_of(const std::string& text) {
  Uuid uuid{};
  size_t n = 0;
  for (size_t i = 4; i < text.size() && n < 2 * sizeof uuid.bytes && text[i] != ':'; ++i) {
    if (!isxdigit(static_cast<unsigned char>(text[i]))) continue;
    char& byte = uuid.bytes[n / 2];
    byte = static_cast<char>(static_cast<unsigned char>(byte) << 4 |
                             strtoul(std::string(1, text[i]).c_str(), nullptr, 16));
    ++n;
  }
  return uuid;
}

// With MIG, each visible instance is a device.
int n_devices() {
  return visible_instances().empty() ? device_count() : static_cast<int>(visible_instances().size());
}

int64_t processor_now_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

}  // namespace

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

Inside::Inside() {
  ThreadState& state = thread_state();
  if (state.depth++ > 0) return;
  ++state.entries;
  if (state.counts_time) began_ns_ = processor_now_ns();
}

Inside::~Inside() {
  ThreadState& state = thread_state();
  if (--state.depth > 0) return;
  if (state.counts_time) state.inside_ns += processor_now_ns() - began_ns_;
}

int ended() {
  return Machine::get().ended_by;
}

void end_cuda(int error) {
  Machine::get().ended_by = error;
}

void count_call() {
  ThreadState& state = thread_state();
  if (state.calls_left == 0 || --state.calls_left > 0) return;
  if (state.loss < 0) raise(-state.loss);
  end_cuda(state.loss);
}

int take_work(Machine& machine, Stream& stream, Operation operation) {
  if (is_captured(stream)) {
    watch(machine, stream, operation);
    return capture_work(stream, std::move(operation));
  }
  if (breaks_capture_of_blocking(stream)) return kCaptureImplicit;
  enqueue_watched(machine, stream, std::move(operation));
  return kOk;
}

void count_launch(Machine& machine, Operation& operation) {
  const std::string hanging = setting("GSEL_FAKE_CUDA_HANGS", "");
  const size_t colon = hanging.find(':');
  if (operation.name == hanging.substr(0, colon) &&
      ++machine.launches_that_may_hang == (colon == std::string::npos ? 1 : atoi(hanging.c_str() + colon + 1)))
    operation.hangs = true;
  const std::string sticky = setting("GSEL_FAKE_CUDA_STICKY", "0");
  ++machine.launches;
  if (machine.launches == machine.fails_at) {
    operation.work = [error = machine.fails_with] { end_cuda(error); };
    return;
  }
  if (machine.launches != atoi(sticky.c_str())) return;
  const size_t at = sticky.find(':');
  const int error = at == std::string::npos ? static_cast<int>(kIllegalAddress) : atoi(sticky.c_str() + at + 1);
  operation.work = [error] { end_cuda(error); };
}

bool is_alive(uintptr_t context) {
  const int device = device_of(context);
  return device >= 0 && device < kMostDevices && primaries[device].retained > 0 &&
         primaries[device].handle(device) == context;
}

}  // namespace fake_cuda

// ---- what tests ask -------------------------------------------------------------------------------------------------

// Number of violations so far.
EXPORT int fake_cuda_violations() {
  const std::lock_guard lock(Machine::get().mutex());
  return static_cast<int>(Machine::get().violations().size());
}

// Text of violation i.
EXPORT const char* fake_cuda_violation(int i) {
  return Machine::get().violations().at(static_cast<size_t>(i)).c_str();
}

// How often this thread has waited for a stream or an event; looks at one record of an event are one wait.
EXPORT int fake_cuda_waits() {
  return thread_state().waits;
}

// Operations whose name begins like this that were enqueued and have not run.
EXPORT int fake_cuda_unfinished(const char* begin) {
  const std::lock_guard lock(Machine::get().mutex());
  return Machine::get().unfinished(begin);
}

// Kernels that hang end.
EXPORT void fake_cuda_release() {
  const std::lock_guard lock(Machine::get().mutex());
  Machine::get().release();
}

// How often memory of a device or page-locked memory was allocated, by any thread.
EXPORT int fake_cuda_allocations() {
  const std::lock_guard lock(Machine::get().mutex());
  return Machine::get().allocations;
}
// How many of these are not freed.
EXPORT int fake_cuda_live() {
  const std::lock_guard lock(Machine::get().mutex());
  return Machine::get().live();
}
// Bytes of allocations on a device that are not freed, or of page-locked ones.
EXPORT uint64_t fake_cuda_bytes(int device, int pinned) {
  const std::lock_guard lock(Machine::get().mutex());
  return Machine::get().live_bytes(device, pinned != 0);
}
// From here on a device has so many bytes in all; 0: as it was.
EXPORT void fake_cuda_have(int device, uint64_t bytes) {
  const std::lock_guard lock(Machine::get().mutex());
  Machine::get().has[device] = bytes;
}
// The kernel that is launched as the `launches`-th from here on ends CUDA in this process with this error.
EXPORT void fake_cuda_fail(int launches, int error) {
  const std::lock_guard lock(Machine::get().mutex());
  Machine::get().fails_at = Machine::get().launches + launches;
  Machine::get().fails_with = error;
}
// The call of this thread that comes as the `calls`-th from here on finds the device gone: it fails with this error,
// and so does every later one of any thread. An error below 0: this signal, at that call, is the process's end.
EXPORT void fake_cuda_lose(int calls, int error) {
  thread_state().calls_left = calls;
  thread_state().loss = error;
}
// How often this thread has called the driver or NCCL.
EXPORT int64_t fake_cuda_entries() {
  return thread_state().entries;
}
// The processor time in these calls, from the first call of this function on.
EXPORT double fake_cuda_processor_seconds() {
  thread_state().counts_time = true;
  return static_cast<double>(thread_state().inside_ns) * 1e-9;
}

// Contexts that are current on this thread: none outside a call, unless the program has made one so.
EXPORT int fake_cuda_current() {
  return static_cast<int>(thread_state().current.size());
}

// How often the driver was started, or asked for its devices.
EXPORT int fake_cuda_calls() {
  return n_calls;
}

// How often kernels were loaded.
EXPORT int fake_cuda_loads() {
  return n_loads;
}

// ---- start, devices, contexts ---------------------------------------------------------------------------------------

EXPORT int cuInit(unsigned) {
  ++n_calls;
  return kOk;
}

EXPORT int cuDriverGetVersion(int* version) {
  *version = number_in("GSEL_FAKE_CUDA_DRIVER", 13000);
  return kOk;
}

EXPORT int cuGetErrorName(int result, const char** text) {
  static const std::map<int, const char*> names{
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
      {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
      {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {226, "CUDA_ERROR_CONTAINED"},
      {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
      {kContextDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
      {710, "CUDA_ERROR_ASSERT"},
      {kAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {kNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"},
      {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED"},
      {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
      {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
      {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
      {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT"},
      {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
  };
  const auto found = names.find(result);
  *text = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return kOk;
}

EXPORT int cuGetErrorString(int, const char** text) {
  const auto& all = Machine::get().violations();
  *text = all.empty() ? "as the fake machine was told" : all.back().c_str();
  return kOk;
}

EXPORT int cuDeviceGetCount(int* n) {
  ++n_calls;
  *n = n_devices();
  return kOk;
}

EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < n_devices() ? kOk : kInvalidDevice;
}

EXPORT int cuDeviceGetName(char* name, int length, int device) {
  snprintf(name, static_cast<size_t>(length), "fake GPU %d%s", device,
           visible_instances().empty() ? "" : " MIG 3g.20gb");
  return kOk;
}

// Of the card.
EXPORT int cuDeviceGetUuid(Uuid* uuid, int device) {
  if (!visible_instances().empty()) {
    *uuid = uuid_of(setting("GSEL_FAKE_CUDA_MIG", ""));
    return kOk;
  }
  memset(uuid, 0x11 * (device + 1), sizeof *uuid);
  *reinterpret_cast<unsigned char*>(uuid) ^= static_cast<unsigned char>(number_in("GSEL_FAKE_CUDA_HOST", 0));
  return kOk;
}

// Of the instance where there is one, else of the card.
EXPORT int cuDeviceGetUuid_v2(Uuid* uuid, int device) {
  const std::vector<std::string> instances = visible_instances();
  if (instances.empty()) return cuDeviceGetUuid(uuid, device);
  if (device < 0 || device >= static_cast<int>(instances.size())) return kInvalidDevice;
  *uuid = uuid_of(instances[static_cast<size_t>(device)]);
  return kOk;
}

EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case kRegisteredAtHostAddress:
    case kStreamMemoryV1:
    case kStreamMemory64V1:
    case kRegistersHost:
    case kVirtualMemory:
    case kExportsFiles:
    case kStreamMemory64:
      *value = 1;
      break;
    case kStreamWaitNorV1:
    case kFlushesRemoteWrites:
    case kStreamWaitNor:
    case kIpcEvents:
    case kFabric:
      *value = 0;
      break;
    default:
      *value = 3;  // multiprocessors: a grid is smaller than most work
  }
  if (is_lacking("attribute" + std::to_string(attribute))) *value = 0;
  return kOk;
}

EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer && Machine::get().has_peers();
  return device >= 0 && device < device_count() && peer >= 0 && peer < device_count() ? kOk : kInvalidDevice;
}

EXPORT int cuDevicePrimaryCtxRetain(Any* context, int device) {
  const std::lock_guard lock(Machine::get().mutex());
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  if (!hold(device)) return kDeviceUnavailable;
  ++primaries[device].retained;
  *context = reinterpret_cast<Any>(primaries[device].handle(device));
  return kOk;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
  const std::lock_guard lock(Machine::get().mutex());
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  if (primaries[device].retained == 0) return kInvalidContext;
  if (--primaries[device].retained == 0) {
    Machine::get().drop_context(primaries[device].handle(device));
    ++primaries[device].life;
    if (primaries[device].lock >= 0) close(std::exchange(primaries[device].lock, -1));
  }
  return kOk;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  const std::lock_guard lock(Machine::get().mutex());
  if (device < 0 || device >= device_count()) return kInvalidDevice;
  *flags = 0;
  *active = primaries[device].retained > 0;
  return kOk;
}

EXPORT int cuCtxPushCurrent_v2(Any context) {
  const Inside inside;
  const std::lock_guard lock(Machine::get().mutex());
  if (!is_alive(reinterpret_cast<uintptr_t>(context))) return kInvalidContext;
  thread_state().current.push_back(reinterpret_cast<uintptr_t>(context));
  return kOk;
}

EXPORT int cuCtxPopCurrent_v2(Any* context) {
  const Inside inside;
  auto& stack = thread_state().current;
  if (stack.empty()) return kInvalidContext;
  *context = reinterpret_cast<Any>(stack.back());
  stack.pop_back();
  return kOk;
}

EXPORT int cuCtxGetCurrent(Any* context) {
  const auto& stack = thread_state().current;
  *context = stack.empty() ? nullptr : reinterpret_cast<Any>(stack.back());
  return kOk;
}

EXPORT int cuCtxGetDevice(int* device) {
  return call([&](Machine&) {
    *device = device_of(current());
    return kOk;
  });
}

EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kOk;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

EXPORT int cuModuleLoadData(Any* module, const void* image) {
  return call([&](Machine&) {
    ++n_loads;
    *module = const_cast<void*>(image);
    return image ? number_in("GSEL_FAKE_CUDA_IMAGE", kOk) : static_cast<int>(kInvalidImage);
  });
}

EXPORT int cuModuleUnload(Any) {
  return call([](Machine&) { return kOk; });
}

EXPORT int cuModuleGetFunction(Any* function, Any, const char* name) {
  return call([&](Machine&) {
    if (!has_kernel(name)) return kNotFound;
    static auto* const names = new std::set<std::string>;  // as long-lived as functions
    *function = const_cast<char*>(names->insert(name).first->c_str());
    return kOk;
  });
}

EXPORT int cuLaunchKernel(Any function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                          unsigned, Any handle, void** params, void**) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    if (blocks == 0 || threads == 0 || threads > 1024) return static_cast<int>(kInvalidValue);
    const auto* name = static_cast<const char*>(function);
    Launch launch = make_launch(name, blocks, threads, params);
    Operation operation;
    operation.name = name;
    operation.accesses = std::move(launch.accesses);
    operation.work = std::move(launch.work);
    operation.is_kernel = true;
    if (!is_captured(stream)) count_launch(machine, operation);
    for (const Access& access : operation.accesses)
      if (access.begin < access.end && machine.is_of_host(access.begin)) {  // ends CUDA in this process
        const auto& callback = callback_state().callback;
        machine.violation(operation.name + (callback ? " of " + callback->name : "") +
                          " is given memory of the host that is not page-locked");
        operation.work = [] { end_cuda(kIllegalAddress); };
      }
    return take_work(machine, stream, std::move(operation));
  });
}

// ---- names ----------------------------------------------------------------------------------------------------------

namespace {

struct Name {
  const char* base;
  int version;  // of the interface
  void* address;
};
// The library asks for addresses, programs of tests take names.
template <auto function>
struct ByLibrary;
template <class... Args, int (*function)(Args...)>
struct ByLibrary<function> {
  static int call(Args... args) {
    const OfLibrary mark;
    return function(args...);
  }
};
#define KNOWN(base, version, symbol, parameters) \
  {#base, version, reinterpret_cast<void*>(ByLibrary<&fake_cuda::symbol>::call)},
const Name kNames[] = {FAKE_CUDA_EARLIER_FUNCTIONS(KNOWN) FAKE_CUDA_FUNCTIONS(KNOWN)};

// By its name, or by name and version.
bool is_lacking(const Name& known) {
  const std::string list = "," + setting("GSEL_FAKE_CUDA_LACKS", "") + ",", name = std::string(",") + known.base;
  return list.find(name + ",") != std::string::npos ||
         list.find(name + "(" + std::to_string(known.version) + "),") != std::string::npos;
}

}  // namespace

// A version above the driver's is an error, an unknown name is not: its address is NULL.
EXPORT int cuGetProcAddress_v2(const char* name, void** out, int version, uint64_t flags, int* result) {
  *out = nullptr;
  if (version > number_in("GSEL_FAKE_CUDA_DRIVER", 13000)) return kInvalidValue;
  if (flags != kLegacyStream) Machine::get().violation("a function is asked for without saying what stream NULL is");
  *result = kSymbolNotFound;
  for (const Name& known : kNames)  // of two versions, the later stands behind
    if (!strcmp(known.base, name) && !is_lacking(known)) {
      if (known.version <= version) *out = known.address;
      *result = *out ? kSymbolFound : kSymbolTooNew;
    }
  return kOk;
}
