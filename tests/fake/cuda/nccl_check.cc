// fake/cuda/nccl_check.cc: the declarations of the double and those of the plugin, held against nccl.h, or AMD's
// rccl.h, while this file is compiled; it has nothing to run. Only where these are installed.
#if defined(FAKE_CHECKS_RCCL)
#include <rccl/rccl.h>
#else
#include <nccl.h>
#endif

#include <cstddef>

#include "nccl_api.h"
#include "plugins/transport/nccl/library.h"
#include "same_abi.h"

namespace {

#define COMPARE(result, name, parameters) \
  static_assert(is_same_call<decltype(::name), result parameters>, #name " differs from nccl.h");

namespace of_double {
using namespace fake_nccl;
FAKE_NCCL_FUNCTIONS(COMPARE)
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(kSuccess == int{ncclSuccess} && kUnhandledCudaError == int{ncclUnhandledCudaError} &&
              kSystemError == int{ncclSystemError} && kInternalError == int{ncclInternalError} &&
              kInvalidArgument == int{ncclInvalidArgument} && kInvalidUsage == int{ncclInvalidUsage} &&
              kRemoteError == int{ncclRemoteError} && kInProgress == int{ncclInProgress});
static_assert(kInt8 == int{ncclInt8} && kUint8 == int{ncclUint8} && kInt32 == int{ncclInt32} &&
              kUint32 == int{ncclUint32} && kInt64 == int{ncclInt64} && kUint64 == int{ncclUint64} &&
              kFloat16 == int{ncclFloat16} && kFloat32 == int{ncclFloat32} && kFloat64 == int{ncclFloat64} &&
              kBfloat16 == int{ncclBfloat16});
static_assert(kSum == int{ncclSum} && kProd == int{ncclProd} && kMax == int{ncclMax} && kMin == int{ncclMin} &&
              kAvg == int{ncclAvg});
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(kSymmetric == NCCL_WIN_COLL_SYMMETRIC && kWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);
constexpr ncclConfig_t kInitial = NCCL_CONFIG_INITIALIZER;
static_assert(kInitial.magic == kConfigMagic);
}  // namespace of_double

namespace of_plugin {
using namespace gsel_nccl;
GSEL_NCCL_FUNCTIONS(COMPARE)
GSEL_NCCL_LATER(COMPARE)
GSEL_NCCL_WINDOWS(COMPARE)
static_assert(kSymmetric == NCCL_WIN_COLL_SYMMETRIC && kWindowAlignment == NCCL_WIN_REQUIRED_ALIGNMENT);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(kSuccess == int{ncclSuccess} && kUnhandledCudaError == int{ncclUnhandledCudaError} &&
              kSystemError == int{ncclSystemError} && kInvalidArgument == int{ncclInvalidArgument} &&
              kInvalidUsage == int{ncclInvalidUsage} && kRemoteError == int{ncclRemoteError} &&
              kInProgress == int{ncclInProgress});
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size) &&
              offsetof(Config, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(Config, version) == offsetof(ncclConfig_t, version) &&
              offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
}  // namespace of_plugin

}  // namespace
