// plugins/transport/cuda_ipc/driver.cc: see driver.h.
#include "driver.h"

#include <dlfcn.h>

#include "transport/common/failure.h"

namespace gsel_ipc {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

constexpr int kInterface = 12000;  // version of the functions' interfaces; driver 525 has them all

// An unknown name gives success with a NULL address.
class Finder {
 public:
  explicit Finder(void* library) : get_(reinterpret_cast<Get*>(dlsym(library, "cuGetProcAddress_v2"))) {}
  void* find(const char* name) const {
    void* address = nullptr;
    int found = 0;
    if (get_) get_(name, &address, kInterface, kLegacyStream, &found);
    return address;
  }

 private:
  using Get = int(const char*, void**, int, uint64_t, int*);
  static constexpr uint64_t kLegacyStream = 1;  // what a NULL stream is
  Get* const get_;
};

struct Loaded {
  Driver driver;
  std::string why;
};

Loaded load() {
  Loaded loaded;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    loaded.why = std::string("no CUDA driver: ") + dlerror();
    return loaded;
  }
  const Finder finder(library);
#define GSEL_IPC_FIND(name, symbol, parameters) \
  loaded.driver.name = reinterpret_cast<int(*) parameters>(finder.find(symbol));
  GSEL_IPC_STREAM_FUNCTIONS(GSEL_IPC_FIND)
#undef GSEL_IPC_FIND
#define GSEL_IPC_FIND(name, symbol, parameters)                                  \
  loaded.driver.name = reinterpret_cast<int(*) parameters>(finder.find(symbol)); \
  if (!loaded.driver.name && loaded.why.empty())                                 \
    loaded.why = std::string(kLibrary) + " has no " symbol "; expected a driver of version 525 or newer";
  GSEL_IPC_FUNCTIONS(GSEL_IPC_FIND)
#undef GSEL_IPC_FIND
  return loaded;
}

}  // namespace

const Driver* driver(std::string* why) {
  static const auto& loaded = *new Loaded(load());  // a thread that ends a link may outlive main
  if (why) *why = loaded.why;
  return loaded.why.empty() ? &loaded.driver : nullptr;
}

void check(const Driver& driver, int result, const std::string& what) {
  if (result == kSuccess) return;
  const char* text = nullptr;
  if (driver.error_text(result, &text) != kSuccess || !text) text = "unknown error";
  gsel_between::fail(result == kOutOfMemory ? GSEL_ERR_NOMEM : GSEL_ERR_DEVICE,
                     "cuda_ipc: " + what + ": error " + std::to_string(result) + " of the driver, " + text);
}

}  // namespace gsel_ipc
