// plugins/device/cuda/context.cc: see context.h.
#include "context.h"

#include <new>

namespace gsel_cuda {
namespace {

// After these results no call of the driver in this process works (cuda.h, "the context cannot be used").
bool ends_cuda(CUresult result) {
  constexpr int kContained = 226, kTensorMemoryLeak = 721;  // missing in older headers
  switch (int{result}) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case kContained:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case kTensorMemoryLeak:
      return true;
    default:
      return result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED;
  }
}

gsel_status status_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return GSEL_ERR_NOMEM;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return GSEL_ERR_NO_DEVICES;
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_HANDLE:
      return GSEL_ERR_ARG;
    default:
      return GSEL_ERR_DEVICE;
  }
}

}  // namespace

void fail(gsel_status status, const std::string& text) {
  throw Failure{status, text};
}

void check(Context& c, CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  const char *name = nullptr, *text = nullptr;
  c.driver->cuGetErrorName(result, &name);
  c.driver->cuGetErrorString(result, &text);
  std::string line = what + " on device " + std::to_string(c.ordinal) + ": " + (name ? name : GSEL_VENDOR " error") +
                     " (" + std::to_string(result) + ")" + (text ? std::string(", ") + text : "") + remedy_of(result);
  if (ends_cuda(result)) {
    line += "; " GSEL_VENDOR " has ended in this process, only a new process can use the device";
    const std::lock_guard lock(c.mutex);
    if (c.poison.empty()) c.poison = line;
  }
  fail(status_of(result), line);
}

gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    if (err) *err = host->error_new(failure.status, failure.text.c_str());
    return failure.status;
  } catch (const std::bad_alloc&) {
    if (err) *err = host->error_new(GSEL_ERR_NOMEM, "out of memory in the " GSEL_VENDOR_DEVICE " device");
    return GSEL_ERR_NOMEM;
  } catch (...) {
    if (err) *err = host->error_new(GSEL_ERR_INTERNAL, "unexpected exception in the " GSEL_VENDOR_DEVICE " device");
    return GSEL_ERR_INTERNAL;
  }
}

void enter(Context& c) {
  {
    const std::lock_guard lock(c.mutex);
    if (!c.poison.empty()) fail(GSEL_ERR_STATE, "an earlier call failed: " + c.poison);
  }
  check(c, c.driver->cuCtxPushCurrent(c.context), "making the device current");
}

void leave(Context& c) {
  CUcontext popped;
  c.driver->cuCtxPopCurrent(&popped);
}

}  // namespace gsel_cuda
