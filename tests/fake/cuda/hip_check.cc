// fake/cuda/hip_check.cc: the declarations of the double of HIP and those of the plugin, held against HIP's headers
// while this file is compiled; it has nothing to run. Only where the headers are installed.
#define __HIP_DISABLE_CPP_FUNCTIONS__  // further forms of functions
#include <hip/hip_runtime_api.h>

#include <cstddef>

#include "hip_api.h"
#define GSEL_DEVICE_AMD
#include "plugins/device/cuda/driver.h"
#include "same_abi.h"

#if HIP_VERSION < 60000000  // such headers lack these, and number the types of memory otherwise
extern "C" hipError_t hipDrvGetErrorName(hipError_t, const char**);
extern "C" hipError_t hipDrvGetErrorString(hipError_t, const char**);
extern "C" hipError_t hipStreamGetDevice(hipStream_t, hipDevice_t*);
#endif

namespace {

// An address of the device is an integer in CUDA and a pointer in HIP; both are passed in a register.
template <class T>
struct AsHip {
  using Type = T;
};
template <>
struct AsHip<gsel_cuda::CUdeviceptr> {
  using Type = void*;
};
template <class F>
struct CallAsHip;
template <class... Args>
struct CallAsHip<gsel_cuda::CUresult (*)(Args...)> {
  using Type = gsel_cuda::CUresult(typename AsHip<Args>::Type...);
};

#define COMPARE(name, ...) static_assert(is_same_call<decltype(::name), __VA_ARGS__>, #name " differs from HIP");

namespace of_double {
using namespace fake_hip;
#define COMPARE_DOUBLE(name, symbol, parameters, arguments) COMPARE(name, int parameters)
FAKE_HIP_PLAIN(COMPARE_DOUBLE)
FAKE_HIP_OF_DEVICE(COMPARE_DOUBLE)
#define COMPARE_OTHER(name, parameters) COMPARE(name, int parameters)
FAKE_HIP_OTHERS(COMPARE_OTHER)
static_assert(sizeof(Uuid) == sizeof(hipUUID) && kMemcpyDefault == int{hipMemcpyDefault} &&
              kMultiprocessors == int{hipDeviceAttributeMultiprocessorCount});
}  // namespace of_double

namespace of_plugin {
using namespace gsel_cuda;
#define COMPARE_PLUGIN(name, symbol) COMPARE(symbol, CallAsHip<decltype(Driver::name)>::Type)
GSEL_HIP_FUNCTIONS(COMPARE_PLUGIN)
#define COMPARE_PLUGIN_OTHER(name, parameters) COMPARE(name, CUresult parameters)
GSEL_HIP_OTHERS(COMPARE_PLUGIN_OTHER)
static_assert(kHipMemcpyDefault == int{hipMemcpyDefault} && kProcessors == int{hipDeviceAttributeMultiprocessorCount} &&
              sizeof(CUuuid) == sizeof(hipUUID));
static_assert(CUDA_SUCCESS == int{hipSuccess} && CUDA_ERROR_INVALID_VALUE == int{hipErrorInvalidValue} &&
              CUDA_ERROR_OUT_OF_MEMORY == int{hipErrorOutOfMemory} && CUDA_ERROR_NO_DEVICE == int{hipErrorNoDevice} &&
              CUDA_ERROR_INVALID_DEVICE == int{hipErrorInvalidDevice} &&
              CUDA_ERROR_NO_BINARY_FOR_GPU == int{hipErrorNoBinaryForGpu} &&
              CUDA_ERROR_ECC_UNCORRECTABLE == int{hipErrorECCNotCorrectable} &&
              CUDA_ERROR_INVALID_HANDLE == int{hipErrorInvalidHandle} &&
              CUDA_ERROR_NOT_READY == int{hipErrorNotReady} &&
              CUDA_ERROR_ILLEGAL_ADDRESS == int{hipErrorIllegalAddress} &&
              CUDA_ERROR_LAUNCH_TIMEOUT == int{hipErrorLaunchTimeOut} && CUDA_ERROR_ASSERT == int{hipErrorAssert} &&
              CUDA_ERROR_LAUNCH_FAILED == int{hipErrorLaunchFailure} &&
              CUDA_ERROR_CAPTURED_EVENT == int{hipErrorCapturedEvent});
static_assert(CU_POINTER_ATTRIBUTE_MEMORY_TYPE == int{HIP_POINTER_ATTRIBUTE_MEMORY_TYPE} &&
              CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL == int{HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL} &&
              CU_POINTER_ATTRIBUTE_RANGE_START_ADDR == int{HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR} &&
              CU_POINTER_ATTRIBUTE_RANGE_SIZE == int{HIP_POINTER_ATTRIBUTE_RANGE_SIZE});
static_assert(CU_STREAM_NON_BLOCKING == hipStreamNonBlocking && CU_EVENT_DISABLE_TIMING == hipEventDisableTiming &&
              kHostAllocPortable == hipHostMallocPortable && kHostAllocMapped == hipHostMallocMapped &&
              CU_STREAM_CAPTURE_MODE_THREAD_LOCAL == int{hipStreamCaptureModeThreadLocal} &&
              CU_STREAM_CAPTURE_STATUS_NONE == int{hipStreamCaptureStatusNone} &&
              CU_STREAM_CAPTURE_STATUS_ACTIVE == int{hipStreamCaptureStatusActive});
static_assert(CU_MEM_LOCATION_TYPE_DEVICE == int{hipMemLocationTypeDevice} &&
              CU_MEM_ACCESS_FLAGS_PROT_READWRITE == int{hipMemAccessFlagsProtReadWrite} &&
              sizeof(CUmemLocation) == sizeof(hipMemLocation));
#if HIP_VERSION >= 60000000
static_assert(CU_MEMORYTYPE_HOST == int{hipMemoryTypeHost} && CU_MEMORYTYPE_DEVICE == int{hipMemoryTypeDevice});
#endif
}  // namespace of_plugin

}  // namespace
