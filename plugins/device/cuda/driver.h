// plugins/device/cuda/driver.h: the functions of the driver, found at run time, so that this plugin loads without one.
// They have CUDA's names and parameters, also where vendor.h finds others.
#pragma once

#include <string>

#include "vendor.h"

namespace gsel_cuda {

struct Driver {
#define GSEL_CUDA_MEMBER(name, version, symbol, parameters) CUresult(*name) parameters = nullptr;
  GSEL_CUDA_FUNCTIONS(GSEL_CUDA_MEMBER)
  GSEL_CUDA_GRAPH_FUNCTIONS(GSEL_CUDA_MEMBER)  // nullptr: the driver does not have it
#undef GSEL_CUDA_MEMBER
  CUresult (*card_uuid)(CUuuid*, CUdevice) = nullptr;  // cuDeviceGetUuid before 11.4; nullptr: not in this driver
};

// The driver of this process, loaded by the first call only; nullptr if there is none, and then *why says what was
// tried. Does not call the driver. Any thread.
const Driver* driver(std::string* why);
// The same, initialised.
const Driver* started_driver(std::string* why);

}  // namespace gsel_cuda
