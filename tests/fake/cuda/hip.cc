// fake/cuda/hip.cc: the double of libamdhip64.so, HIP 6.2: AMD's runtime under its own names over the machine of the
// double of libcuda.so.1. What differs is as in ROCm's clr: a thread has a current device, from its start device 0, and
// no stack of contexts; the error of a call stays for hipGetLastError; a range has 32 bits of its size; an address
// range is told of page-locked memory, too. Every call counts as one of the library.
#include <cstdio>
#include <cstring>
#include <map>
#include <utility>

#include "driver.h"
#include "hip_api.h"

using namespace fake_cuda;

namespace {

thread_local int last_error;

int told(int result) {
  if (result != kOk) last_error = result;
  return result;
}

Pointer at(const void* memory) {
  return reinterpret_cast<Pointer>(memory);
}

// Contexts of HIP last as long as the process.
uintptr_t context_of(int device) {
  static auto& mutex = *new std::mutex;
  static auto& contexts = *new std::map<int, Any>;
  const std::lock_guard lock(mutex);
  Any& context = contexts[device];
  if (!context && cuDevicePrimaryCtxRetain(&context, device) != kOk) return 0;
  return reinterpret_cast<uintptr_t>(context);
}

int current_device() {
  const auto& stack = thread_state().current;
  return stack.empty() ? 0 : device_of(stack.back());
}

// What is current in the double of CUDA is, on top, HIP's current device.
template <class Body>
int on_device(Body&& body) {
  const OfLibrary mark;
  auto& stack = thread_state().current;
  if (!stack.empty()) return told(body());
  const uintptr_t context = context_of(0);
  if (!context) return told(kDeviceUnavailable);
  stack.push_back(context);
  const int result = body();
  stack.pop_back();
  return told(result);
}

}  // namespace

// The current device of this thread.
EXPORT int fake_hip_current() {
  return current_device();
}

#define DECLARE(name, parameters) EXPORT int name parameters;
#define FORWARD_PLAIN(name, symbol, parameters, arguments) \
  EXPORT int name parameters {                             \
    return told(symbol arguments);                         \
  }
#define FORWARD(name, symbol, parameters, arguments)    \
  EXPORT int name parameters {                          \
    return on_device([&] { return symbol arguments; }); \
  }
using fake_hip::Any;
FAKE_HIP_PLAIN(FORWARD_PLAIN)
FAKE_HIP_OF_DEVICE(FORWARD)
FAKE_HIP_OTHERS(DECLARE)

int hipDriverGetVersion(int* version) {
  *version = 60200000;
  return kOk;
}

int hipDrvGetErrorName(int result, const char** text) {
  static const std::map<int, const char*> names{
      {kInvalidValue, "hipErrorInvalidValue"},
      {kOutOfMemory, "hipErrorOutOfMemory"},
      {kInvalidDevice, "hipErrorInvalidDevice"},
      {209, "hipErrorNoBinaryForGpu"},
      {kInvalidHandle, "hipErrorInvalidHandle"},
      {kNotReady, "hipErrorNotReady"},
      {kIllegalAddress, "hipErrorIllegalAddress"},
      {719, "hipErrorLaunchFailure"},
      {kCaptureUnsupported, "hipErrorStreamCaptureUnsupported"},
      {kCaptureInvalidated, "hipErrorStreamCaptureInvalidated"},
  };
  const auto found = names.find(result);
  *text = found == names.end() ? "hipErrorUnknown" : found->second;
  return kOk;
}

int hipDrvGetErrorString(int result, const char** text) {
  return cuGetErrorString(result, text);
}

int hipGetLastError() {
  return std::exchange(last_error, kOk);
}

int hipPeekAtLastError() {
  return last_error;
}

int hipGetDevice(int* device) {
  *device = current_device();
  return kOk;
}

int hipSetDevice(int device) {
  int n = 0;
  cuDeviceGetCount(&n);
  if (device < 0 || device >= n) return told(kInvalidDevice);
  const uintptr_t context = context_of(device);
  if (!context) return told(kDeviceUnavailable);
  auto& stack = thread_state().current;
  if (stack.empty()) stack.push_back(context);
  stack.back() = context;
  return kOk;
}

// Sixteen digits.
int hipDeviceGetUuid(Uuid* uuid, int device) {
  Uuid bytes;
  if (const int failed = told(cuDeviceGetUuid_v2(&bytes, device))) return failed;
  char digits[17];
  for (int i = 0; i < 8; ++i) snprintf(digits + 2 * i, 3, "%02x", static_cast<unsigned char>(bytes.bytes[i]));
  memcpy(uuid->bytes, digits, sizeof uuid->bytes);
  return kOk;
}

int hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (attribute != fake_hip::kMultiprocessors) return told(kInvalidValue);
  return told(cuDeviceGetAttribute(value, 16, device));
}

int hipStreamGetDevice(Any stream, int* device) {
  return on_device([&] {
    *device = current_device();
    if (!stream) return static_cast<int>(kOk);
    Any context = nullptr;
    const int result = cuStreamGetCtx(stream, &context);
    if (result == kOk) *device = device_of(reinterpret_cast<uintptr_t>(context));
    return result == kInvalidHandle ? static_cast<int>(kContextDestroyed) : result;
  });
}

int hipMemGetAddressRange(Any* base, size_t* bytes, Any memory) {
  return on_device([&] {
    int attributes[] = {kAttributeType, kAttributeStart, kAttributeSize};
    int type = 0;
    void* values[] = {&type, base, bytes};
    const int result = cuPointerGetAttributes(3, attributes, values, at(memory));
    if (result != kOk || type == kHostMemory) return result;
    return cuMemGetAddressRange_v2(reinterpret_cast<Pointer*>(base), bytes, at(memory));
  });
}

int hipDrvPointerGetAttributes(unsigned n, int* attributes, void** values, Any memory) {
  if (!memory) return told(kInvalidValue);
  return on_device([&] {
    for (unsigned i = 0; i < n; ++i) {
      size_t bytes = 0;
      void* value = attributes[i] == kAttributeSize ? &bytes : values[i];
      if (const int failed = cuPointerGetAttributes(1, &attributes[i], &value, at(memory))) return failed;
      if (attributes[i] == kAttributeSize) memcpy(values[i], &bytes, sizeof(uint32_t));
    }
    return static_cast<int>(kOk);
  });
}

int hipMemcpyAsync(Any dst, const void* src, size_t bytes, int kind, Any stream) {
  if (kind != fake_hip::kMemcpyDefault) return told(kInvalidValue);
  return on_device([&] { return cuMemcpyAsync(at(dst), at(src), bytes, stream); });
}

int hipMemcpy2DAsync(Any dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height,
                     int kind, Any stream) {
  if (kind != fake_hip::kMemcpyDefault) return told(kInvalidValue);
  Copy2D what{};
  what.src = at(src);
  what.src_pitch = src_pitch;
  what.dst = at(dst);
  what.dst_pitch = dst_pitch;
  what.width = width;
  what.height = height;
  return on_device([&] { return cuMemcpy2DAsync_v2(&what, stream); });
}
