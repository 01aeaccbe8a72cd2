// plugins/device/cuda/nvidia.cc: see vendor.h. Each function is requested in the interface version for which this
// plugin was written, not in the version of installed headers, which an older driver would not have.
#include <dlfcn.h>

#include <cstdio>

#include "driver.h"

namespace gsel_cuda {
namespace {

class Finder {
 public:
  explicit Finder(void* library)
      : library_(library),
        get_v2_(reinterpret_cast<GetProcAddressV2*>(dlsym(library, "cuGetProcAddress_v2"))),
        get_v1_(reinterpret_cast<GetProcAddress*>(dlsym(library, "cuGetProcAddress"))) {}

  // An unknown name gives success with a NULL address. A NULL stream is the legacy default stream.
  void* find(const char* name, int version, const char* symbol) const {
    void* address = nullptr;
    int result;
    if (get_v2_)
      get_v2_(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &result);
    else if (get_v1_)
      get_v1_(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    else
      address = dlsym(library_, symbol);
    return address;
  }

 private:
  void* library_;
  GetProcAddressV2* get_v2_;
  GetProcAddress* get_v1_;
};

}  // namespace

const char* find_functions(void* library, Driver& driver) {
  const Finder finder(library);
  const char* missing = nullptr;
#define GSEL_CUDA_FIND(name, version, symbol, parameters)                                      \
  driver.name = reinterpret_cast<CUresult(*) parameters>(finder.find(#name, version, symbol)); \
  if (!driver.name && !missing) missing = #name;
  GSEL_CUDA_FUNCTIONS(GSEL_CUDA_FIND)
#undef GSEL_CUDA_FIND
#define GSEL_CUDA_FIND(name, version, symbol, parameters) \
  driver.name = reinterpret_cast<CUresult(*) parameters>(finder.find(#name, version, symbol));
  GSEL_CUDA_GRAPH_FUNCTIONS(GSEL_CUDA_FIND)
#undef GSEL_CUDA_FIND
  driver.card_uuid =
      reinterpret_cast<CUresult (*)(CUuuid*, CUdevice)>(finder.find("cuDeviceGetUuid", 9020, "cuDeviceGetUuid"));
  return missing;
}

const char* remedy_of(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
      return "; build gsel with a CUDA toolkit that knows this GPU";
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return "; use a newer driver, or gsel built with an older CUDA toolkit";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "; the parts of the driver have several versions: reboot, or install it anew";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return "; the forward-compatibility package is for data centre GPUs: remove it from the library path";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return "; another process has the device for itself";
    default:
      return "";
  }
}

std::string uuid_text(const char* kind, const CUuuid& uuid) {
  std::string text = kind;
  char two[3];
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += two;
  }
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace gsel_cuda
