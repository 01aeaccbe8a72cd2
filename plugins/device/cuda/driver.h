// plugins/device/cuda/driver.h: the functions of the CUDA driver, found at run time, so that this plugin loads where
// there is no driver. Each name is asked for in the version of its interface that this file was written for, never in
// that of the headers at hand: a newer one than the driver's would not be found.
#pragma once

#include <string>

#include "interface.h"

namespace gsel_cuda {

struct Driver {
#define GSEL_CUDA_MEMBER(name, version, symbol, parameters) CUresult(*name) parameters = nullptr;
  GSEL_CUDA_FUNCTIONS(GSEL_CUDA_MEMBER)
#undef GSEL_CUDA_MEMBER
};

// The driver of this process, loaded by the first call and never again; nullptr when there is none, and then *why says
// what was tried. Calls none of its functions. Any thread.
const Driver* driver(std::string* why);
// The same, started.
const Driver* started_driver(std::string* why);

}  // namespace gsel_cuda
