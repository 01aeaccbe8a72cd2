// plugins/device/cuda/driver.cc: see driver.h.
#include "driver.h"

#include <dlfcn.h>

namespace gsel_cuda {
namespace {

struct Loaded {
  Driver driver;
  bool usable = false;
  std::string why;
};

std::string text_of(const Driver& driver, CUresult result) {
  const char* text = nullptr;
  if (driver.cuGetErrorString(result, &text) != CUDA_SUCCESS || !text) text = "unknown error";
  return std::to_string(result) + ": " + text;
}

// One that the program has loaded goes before others.
void* open_library(const char** name, std::string* why) {
  for (const int flags : {RTLD_NOLOAD, 0}) {
    why->clear();
    for (const char* one : kLibraries) {
      *name = one;
      if (void* library = dlopen(one, RTLD_NOW | RTLD_LOCAL | flags)) return library;
      const char* text = dlerror();
      *why += (why->empty() ? "" : "; ") + std::string(text ? text : one);
    }
  }
  return nullptr;
}

Loaded load() {
  Loaded loaded;
  const char* name = nullptr;
  std::string why;
  void* library = open_library(&name, &why);
  if (!library) {
    loaded.why = "no " GSEL_VENDOR " driver: " + why;
    return loaded;
  }
  const char* missing = find_functions(library, loaded.driver);
  if (missing) loaded.why = std::string(name) + " has no " + missing + "; expected " GSEL_VENDOR_OLDEST;
  loaded.usable = !missing;
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
  *why = "the " GSEL_VENDOR " driver does not start: error " + text_of(*found, started);
  return nullptr;
}

}  // namespace gsel_cuda
