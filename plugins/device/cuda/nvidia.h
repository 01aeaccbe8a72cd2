// plugins/device/cuda/nvidia.h: part of vendor.h: NVIDIA.
#pragma once

#include "interface.h"

#define GSEL_VENDOR "CUDA"
#define GSEL_VENDOR_DEVICE "cuda"
#define GSEL_VENDOR_OLDEST "a driver of version 525 or newer"
#define GSEL_VENDOR_COMPILER "a CUDA toolkit"
#define GSEL_VENDOR_COMPILER_OLDEST "one of 12.0 or newer"
#define GSEL_VENDOR_MASK "CUDA_VISIBLE_DEVICES"

namespace gsel_cuda {

// libcuda.so without a number belongs to the toolkit, for linking: it is not the driver.
constexpr const char* kLibraries[] = {"libcuda.so.1"};
constexpr int32_t kDlpackType = 2;
constexpr uintptr_t kDefaultStream = 1;  // CU_STREAM_LEGACY
constexpr bool kHasInstances = true;     // of MIG
constexpr int kProcessors = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;

}  // namespace gsel_cuda
