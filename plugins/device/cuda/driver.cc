// plugins/device/cuda/driver.cc: see driver.h.
#include "driver.h"

#include <dlfcn.h>

namespace gsel_cuda {
namespace {

// libcuda.so without a number belongs to the toolkit, for linking: it is not the driver.
constexpr const char* kLibrary = "libcuda.so.1";

struct Loaded {
  Driver driver;
  bool usable = false;
  std::string why;
};

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

std::string text_of(const Driver& driver, CUresult result) {
  const char* text = nullptr;
  if (driver.cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "unknown error";
  return std::to_string(result) + ": " + text;
}

Loaded load() {
  Loaded loaded;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    loaded.why = std::string("no CUDA driver: ") + dlerror();
    return loaded;
  }
  const Finder finder(library);
#define GSEL_CUDA_FIND(name, version, symbol, parameters)                                             \
  loaded.driver.name = reinterpret_cast<CUresult(*) parameters>(finder.find(#name, version, symbol)); \
  if (!loaded.driver.name && loaded.why.empty())                                                      \
    loaded.why = std::string(kLibrary) + " has no " #name "; expected a driver of version 525 or newer";
  GSEL_CUDA_FUNCTIONS(GSEL_CUDA_FIND)
#undef GSEL_CUDA_FIND
#define GSEL_CUDA_FIND(name, version, symbol, parameters) \
  loaded.driver.name = reinterpret_cast<CUresult(*) parameters>(finder.find(#name, version, symbol));
  GSEL_CUDA_GRAPH_FUNCTIONS(GSEL_CUDA_FIND)
#undef GSEL_CUDA_FIND
  loaded.driver.card_uuid =
      reinterpret_cast<CUresult (*)(CUuuid*, CUdevice)>(finder.find("cuDeviceGetUuid", 9020, "cuDeviceGetUuid"));
  loaded.usable = loaded.why.empty();
  return loaded;
}

}  // namespace

const Driver* driver(std::string* why) {
  static const auto& loaded = *new Loaded(load());  // a thread that ends a communicator may outlive main
  if (why) *why = loaded.why;
  return loaded.usable ? &loaded.driver : nullptr;
}

const Driver* started_driver(std::string* why) {
  const Driver* found = driver(why);
  if (!found) return nullptr;
  static const CUresult started = found->cuInit(0);
  if (started == CUDA_SUCCESS) return found;
  *why = "the CUDA driver does not start: error " + text_of(*found, started);
  return nullptr;
}

}  // namespace gsel_cuda
