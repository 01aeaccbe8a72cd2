// fake/cuda/cuda_check.cc: the declarations of the double of the driver, of the plugin and of examples/gpt, held
// against cuda.h and cudaTypedefs.h while this file is compiled; it has nothing to run. Only where a toolkit is
// installed.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>

#include "cuda_api.h"
#include "examples/gpt/cuda/driver.h"
#include "plugins/device/cuda/interface.h"
#include "same_abi.h"

namespace gsel_cuda {
namespace {

#define COMPARE_PLUGIN(name, version, symbol, parameters)                                          \
  static_assert(is_same_call<std::remove_pointer_t<PFN_##name##_v##version>, CUresult parameters>, \
                #name " differs from cudaTypedefs.h");
GSEL_CUDA_FUNCTIONS(COMPARE_PLUGIN)
GSEL_CUDA_GRAPH_FUNCTIONS(COMPARE_PLUGIN)
static_assert(is_same_call<std::remove_pointer_t<PFN_cuGetProcAddress_v11030>, GetProcAddress>);
static_assert(is_same_call<std::remove_pointer_t<PFN_cuGetProcAddress_v12000>, GetProcAddressV2>);

#define COMPARE_CONSTANT(name, value) static_assert(int{::name} == value, #name " differs from cuda.h");
GSEL_CUDA_RESULTS(COMPARE_CONSTANT)
GSEL_CUDA_POINTER_ATTRIBUTES(COMPARE_CONSTANT)
GSEL_CUDA_MEMORY_TYPES(COMPARE_CONSTANT)
GSEL_CUDA_CAPTURE_MODES(COMPARE_CONSTANT)
GSEL_CUDA_CAPTURE_STATUSES(COMPARE_CONSTANT)
GSEL_CUDA_NUMBERS(COMPARE_CONSTANT)
static_assert(kHostAllocPortable == CU_MEMHOSTALLOC_PORTABLE && kHostAllocMapped == CU_MEMHOSTALLOC_DEVICEMAP);

#define COMPARE_PLACE(type, member) static_assert(offsetof(gsel_cuda::type, member) == offsetof(::type, member));
COMPARE_PLACE(CUmemLocation, type)
COMPARE_PLACE(CUmemLocation, id)
COMPARE_PLACE(CUDA_MEMCPY2D, srcMemoryType)
COMPARE_PLACE(CUDA_MEMCPY2D, srcDevice)
COMPARE_PLACE(CUDA_MEMCPY2D, srcPitch)
COMPARE_PLACE(CUDA_MEMCPY2D, dstMemoryType)
COMPARE_PLACE(CUDA_MEMCPY2D, dstDevice)
COMPARE_PLACE(CUDA_MEMCPY2D, dstPitch)
COMPARE_PLACE(CUDA_MEMCPY2D, WidthInBytes)
COMPARE_PLACE(CUDA_MEMCPY2D, Height)
static_assert(sizeof(gsel_cuda::CUuuid) == sizeof(::CUuuid) &&
              sizeof(gsel_cuda::CUmemLocation) == sizeof(::CUmemLocation) &&
              sizeof(gsel_cuda::CUDA_MEMCPY2D) == sizeof(::CUDA_MEMCPY2D));

}  // namespace
}  // namespace gsel_cuda

#define COMPARE_EXAMPLE(name, function, version, symbol, parameters)                              \
  static_assert(is_same_call<std::remove_pointer_t<PFN_##function##_v##version>, int parameters>, \
                symbol " differs from cudaTypedefs.h in examples/gpt");
GPT_CUDA_DRIVER(COMPARE_EXAMPLE)

namespace fake_cuda {
namespace {

#define COMPARE(name, version, symbol, parameters)                                            \
  static_assert(is_same_call<std::remove_pointer_t<PFN_##name##_v##version>, int parameters>, \
                #name " differs from cudaTypedefs.h");
FAKE_CUDA_FUNCTIONS(COMPARE)
FAKE_CUDA_EARLIER_FUNCTIONS(COMPARE)

static_assert(kOk == int{CUDA_SUCCESS} && kInvalidValue == int{CUDA_ERROR_INVALID_VALUE} &&
              kOutOfMemory == int{CUDA_ERROR_OUT_OF_MEMORY} && kInvalidDevice == int{CUDA_ERROR_INVALID_DEVICE} &&
              kInvalidImage == int{CUDA_ERROR_INVALID_IMAGE} && kInvalidContext == int{CUDA_ERROR_INVALID_CONTEXT} &&
              kInvalidHandle == int{CUDA_ERROR_INVALID_HANDLE} && kNotFound == int{CUDA_ERROR_NOT_FOUND} &&
              kNotReady == int{CUDA_ERROR_NOT_READY} && kIllegalAddress == int{CUDA_ERROR_ILLEGAL_ADDRESS} &&
              kContextDestroyed == int{CUDA_ERROR_CONTEXT_IS_DESTROYED} && kUnknown == int{CUDA_ERROR_UNKNOWN} &&
              kDeviceUnavailable == int{CUDA_ERROR_DEVICE_UNAVAILABLE} &&
              kAlreadyRegistered == int{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED} &&
              kNotRegistered == int{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED} &&
              kNotSupported == int{CUDA_ERROR_NOT_SUPPORTED});
static_assert(kCaptureUnsupported == int{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED} &&
              kCaptureInvalidated == int{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED} &&
              kCaptureMerge == int{CUDA_ERROR_STREAM_CAPTURE_MERGE} &&
              kCaptureUnmatched == int{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED} &&
              kCaptureUnjoined == int{CUDA_ERROR_STREAM_CAPTURE_UNJOINED} &&
              kCaptureIsolation == int{CUDA_ERROR_STREAM_CAPTURE_ISOLATION} &&
              kCaptureImplicit == int{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT} &&
              kCapturedEvent == int{CUDA_ERROR_CAPTURED_EVENT} &&
              kCaptureWrongThread == int{CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD} &&
              kNonBlocking == unsigned{CU_STREAM_NON_BLOCKING});
static_assert(kHostMemory == int{CU_MEMORYTYPE_HOST} && kDeviceMemory == int{CU_MEMORYTYPE_DEVICE});
static_assert(kAttributeContext == int{CU_POINTER_ATTRIBUTE_CONTEXT} &&
              kAttributeType == int{CU_POINTER_ATTRIBUTE_MEMORY_TYPE} &&
              kAttributeOrdinal == int{CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL} &&
              kAttributeStart == int{CU_POINTER_ATTRIBUTE_RANGE_START_ADDR} &&
              kAttributeSize == int{CU_POINTER_ATTRIBUTE_RANGE_SIZE} &&
              kAttributeMapped == int{CU_POINTER_ATTRIBUTE_MAPPED});
static_assert(kCaptureGlobal == int{CU_STREAM_CAPTURE_MODE_GLOBAL} &&
              kCaptureThread == int{CU_STREAM_CAPTURE_MODE_THREAD_LOCAL} &&
              kCaptureRelaxed == int{CU_STREAM_CAPTURE_MODE_RELAXED});
static_assert(kLegacyStream == int{CU_GET_PROC_ADDRESS_LEGACY_STREAM} &&
              kSymbolFound == int{CU_GET_PROC_ADDRESS_SUCCESS} &&
              kSymbolNotFound == int{CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND} &&
              kSymbolTooNew == int{CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT});
static_assert(kLocationDevice == int{CU_MEM_LOCATION_TYPE_DEVICE} &&
              kAllocationPinned == int{CU_MEM_ALLOCATION_TYPE_PINNED} &&
              kReadWrite == int{CU_MEM_ACCESS_FLAGS_PROT_READWRITE} &&
              kHandleFile == int{CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR});
static_assert(kRegisterPortable == CU_MEMHOSTREGISTER_PORTABLE && kRegisterMapped == CU_MEMHOSTREGISTER_DEVICEMAP &&
              kRegisterDevice == CU_MEMHOSTREGISTER_IOMEMORY && kRegisterReadOnly == CU_MEMHOSTREGISTER_READ_ONLY);
static_assert(kWaitAtLeast == int{CU_STREAM_WAIT_VALUE_GEQ} && kWaitEqual == int{CU_STREAM_WAIT_VALUE_EQ} &&
              kWaitAnd == int{CU_STREAM_WAIT_VALUE_AND} && kWaitNor == int{CU_STREAM_WAIT_VALUE_NOR} &&
              kWaitFlush == unsigned{CU_STREAM_WAIT_VALUE_FLUSH});
static_assert(kRegisteredAtHostAddress == int{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM} &&
              kStreamMemoryV1 == int{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1} &&
              kStreamMemory64V1 == int{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1} &&
              kStreamWaitNorV1 == int{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1} &&
              kFlushesRemoteWrites == int{CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES} &&
              kRegistersHost == int{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED} &&
              kVirtualMemory == int{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED} &&
              kExportsFiles == int{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED} &&
              kStreamMemory64 == int{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS} &&
              kStreamWaitNor == int{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR} &&
              kIpcEvents == int{CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED} &&
              kFabric == int{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED});
static_assert(sizeof(Uuid) == sizeof(CUuuid) && sizeof(Location) == sizeof(CUmemLocation) &&
              sizeof(Properties) == sizeof(CUmemAllocationProp) && sizeof(AccessRight) == sizeof(CUmemAccessDesc) &&
              sizeof(Copy2D) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(Copy2D, src_type) == offsetof(CUDA_MEMCPY2D, srcMemoryType) &&
              offsetof(Copy2D, src) == offsetof(CUDA_MEMCPY2D, srcDevice) &&
              offsetof(Copy2D, src_pitch) == offsetof(CUDA_MEMCPY2D, srcPitch) &&
              offsetof(Copy2D, dst_type) == offsetof(CUDA_MEMCPY2D, dstMemoryType) &&
              offsetof(Copy2D, dst) == offsetof(CUDA_MEMCPY2D, dstDevice) &&
              offsetof(Copy2D, dst_pitch) == offsetof(CUDA_MEMCPY2D, dstPitch) &&
              offsetof(Copy2D, width) == offsetof(CUDA_MEMCPY2D, WidthInBytes) &&
              offsetof(Copy2D, height) == offsetof(CUDA_MEMCPY2D, Height));
static_assert(offsetof(Properties, location) == offsetof(CUmemAllocationProp, location) &&
              offsetof(AccessRight, flags) == offsetof(CUmemAccessDesc, flags));

}  // namespace
}  // namespace fake_cuda
