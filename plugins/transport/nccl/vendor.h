// plugins/transport/nccl/vendor.h: what differs between NVIDIA's NCCL and AMD's RCCL, which has NCCL's functions under
// their names and tells the version of NCCL whose interface it has.
#pragma once

#include <cstdint>

namespace gsel_nccl {

#if defined(GSEL_TRANSPORT_AMD)
#define GSEL_NCCL "RCCL"
#define GSEL_NCCL_PLUGIN "rccl"
#define GSEL_NCCL_OLDEST "RCCL of ROCm 6.0 or newer"
constexpr const char* kFile = "librccl.so.1";
constexpr int32_t kDlpackType = 10;
// A capture of several streams with RCCL's calls ends the process in HIP (ROCm/rocm-systems#11369), and replays of one
// communicator's calls on several streams wait for each other (ROCm/rccl#2179).
constexpr bool kCaptures = false;
// Three communicators whose calls run at the same time wait for each other, also with NCCL_LAUNCH_ORDER_IMPLICIT
// (ROCm/rccl#2191).
constexpr bool kKeepsLaunchOrder = false;
// Without symmetric memory, which is its default, a newer RCCL gives out windows of another kind
// (ROCm/rocm-systems#7888), and an older one none.
constexpr bool kUsesWindows = false;
#else
#define GSEL_NCCL "NCCL"
#define GSEL_NCCL_PLUGIN "nccl"
#define GSEL_NCCL_OLDEST "NCCL 2.14 or newer"
constexpr const char* kFile = "libnccl.so.2";
constexpr int32_t kDlpackType = 2;
constexpr bool kCaptures = true;
constexpr bool kKeepsLaunchOrder = true;  // where it is asked for, since 2.26
constexpr bool kUsesWindows = true;       // where it has them
#endif

}  // namespace gsel_nccl
