// plugins/device/cuda/vendor.h: what differs between the vendors of the devices that these sources drive: texts,
// numbers and the lookup of functions. The sources use CUDA's names; amd.cc gives HIP's functions these names.
#pragma once

#include <string>

#include "interface.h"

namespace gsel_cuda {

struct Driver;
// Finds all functions in the library; returns the name of a missing one, or nullptr. The name is that of the vendor.
const char* find_functions(void* library, Driver& driver);

// Where it is not empty, advice for the user after this result.
const char* remedy_of(CUresult result);
// As tools and gsel's inventory write it. kind: "GPU-", or "MIG-" of an instance.
std::string uuid_text(const char* kind, const CUuuid& uuid);
// Of the driver or of what built the kernels.
std::string version_text(int version);

}  // namespace gsel_cuda

#if defined(GSEL_DEVICE_AMD)
#include "amd.h"
#else
#include "nvidia.h"
#endif
