// plugins/device/cuda/amd.cc: see vendor.h. HIP is a runtime whose functions of contexts are deprecated: a thread has a
// current device, and hipCtxPopCurrent does not restore the one before. So a context here stands for a device, and
// pushing and popping it is hipSetDevice. Source: ROCm's clr, hipamd/src/hip_context.cpp, hip_memory.cpp,
// hip_device.cpp.
#include <dlfcn.h>

#include <cctype>
#include <vector>

#include "driver.h"

namespace gsel_cuda {
namespace {

struct Hip : Driver {  // members as HIP has them
#define GSEL_HIP_MEMBER(name, parameters) CUresult(*name) parameters = nullptr;
  GSEL_HIP_OTHERS(GSEL_HIP_MEMBER)
#undef GSEL_HIP_MEMBER
};
Hip& hip() {
  static auto& functions = *new Hip;
  return functions;
}

// HIP keeps the last error of a thread for hipGetLastError, where the program looks for its own. Of a stream that it
// does not know it says hipErrorContextIsDestroyed.
CUresult tidied(CUresult result) {
  if (result != CUDA_SUCCESS) hip().hipGetLastError();
  return result == CUDA_ERROR_CONTEXT_IS_DESTROYED ? CUDA_ERROR_INVALID_HANDLE : result;
}

template <auto member>
struct Tidied;
template <class... Args, CUresult (*Driver::*member)(Args...)>
struct Tidied<member> {
  static CUresult call(Args... args) { return tidied((hip().*member)(args...)); }
};

// ---- contexts -------------------------------------------------------------------------------------------------------

CUcontext context_of_device(int device) {
  return reinterpret_cast<CUcontext>(static_cast<uintptr_t>(device) + 1);
}

int device_of_context(CUcontext context) {
  return static_cast<int>(reinterpret_cast<uintptr_t>(context)) - 1;
}

thread_local std::vector<int> devices_before;  // of this thread, under those that are pushed

CUresult retain(CUcontext* context, CUdevice device) {
  *context = context_of_device(device);
  return CUDA_SUCCESS;
}

CUresult release(CUdevice) {
  return CUDA_SUCCESS;
}

CUresult push(CUcontext context) {
  int before = 0;
  if (const CUresult failed = tidied(hip().hipGetDevice(&before))) return failed;
  if (const CUresult failed = tidied(hip().hipSetDevice(device_of_context(context)))) return failed;
  devices_before.push_back(before);
  return CUDA_SUCCESS;
}

CUresult pop(CUcontext* popped) {
  int device = 0;
  if (const CUresult failed = tidied(hip().hipGetDevice(&device))) return failed;
  *popped = context_of_device(device);
  const int before = devices_before.back();
  devices_before.pop_back();
  return tidied(hip().hipSetDevice(before));
}

// The device of the default stream is the current one.
CUresult stream_context(CUstream stream, CUcontext* context) {
  int device = 0;
  const CUresult result = tidied(hip().hipStreamGetDevice(stream, &device));
  *context = context_of_device(device);
  return result;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

// HIP writes 32 bits of the size of a range alone.
CUresult pointer_attributes(unsigned n, CUpointer_attribute* attributes, void** values, CUdeviceptr at) {
  const CUresult result = tidied(hip().cuPointerGetAttributes(n, attributes, values, at));
  CUdeviceptr start = 0;
  size_t bytes = 0;
  for (unsigned i = 0; i < n && result == CUDA_SUCCESS; ++i)
    if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
      if (tidied(hip().cuMemGetAddressRange(&start, &bytes, at)) == CUDA_SUCCESS)
        *static_cast<size_t*>(values[i]) = bytes;
  return result;
}

CUresult copy_bytes(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return tidied(hip().hipMemcpyAsync(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes,
                                     kHipMemcpyDefault, stream));
}

CUresult copy_rows_of(const CUDA_MEMCPY2D* what, CUstream stream) {
  return tidied(hip().hipMemcpy2DAsync(reinterpret_cast<void*>(what->dstDevice), what->dstPitch,
                                       reinterpret_cast<const void*>(what->srcDevice), what->srcPitch,
                                       what->WidthInBytes, what->Height, kHipMemcpyDefault, stream));
}

}  // namespace

const char* find_functions(void* library, Driver& driver) {
  const char* missing = nullptr;
#define GSEL_HIP_FIND(name, symbol)                                             \
  hip().name = reinterpret_cast<decltype(hip().name)>(dlsym(library, #symbol)); \
  driver.name = hip().name ? Tidied<&Driver::name>::call : nullptr;             \
  if (!hip().name && !missing) missing = #symbol;
  GSEL_HIP_FUNCTIONS(GSEL_HIP_FIND)
#undef GSEL_HIP_FIND
#define GSEL_HIP_FIND(name, parameters)                                         \
  hip().name = reinterpret_cast<CUresult(*) parameters>(dlsym(library, #name)); \
  if (!hip().name && !missing) missing = #name;
  GSEL_HIP_OTHERS(GSEL_HIP_FIND)
#undef GSEL_HIP_FIND
  driver.cuDevicePrimaryCtxRetain = retain;
  driver.cuDevicePrimaryCtxRelease = release;
  driver.cuCtxPushCurrent = push;
  driver.cuCtxPopCurrent = pop;
  driver.cuStreamGetCtx = stream_context;
  driver.cuPointerGetAttributes = pointer_attributes;
  driver.cuMemcpyAsync = copy_bytes;
  driver.cuMemcpy2DAsync = copy_rows_of;
  return missing;
}

const char* remedy_of(CUresult result) {
  return result == CUDA_ERROR_NO_BINARY_FOR_GPU
             ? "; build gsel with a hipcc that knows this GPU, and name it in GSEL_HIP_ARCHITECTURES"
             : "";
}

// HIP gives the 16 digits of the name that ROCr has: "GPU-" and the unique id of the kernel's topology.
std::string uuid_text(const char* kind, const CUuuid& uuid) {
  std::string text = kind;
  for (const char digit : uuid.bytes)
    if (isxdigit(static_cast<unsigned char>(digit))) text += digit;
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 10000000) + "." + std::to_string(version % 10000000 / 100000);
}

}  // namespace gsel_cuda
