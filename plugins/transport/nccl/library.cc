// plugins/transport/nccl/library.cc: see library.h.
#include "library.h"

#include <dlfcn.h>

namespace gsel_nccl {
namespace {

constexpr const char* kFile = "libnccl.so.2";

struct Loaded {
  Library library;
  bool usable = false;
  std::string why;
};

Loaded load() {
  Loaded loaded;
  Library& nccl = loaded.library;
  if (void* file = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) {
    nccl.was_loaded = true;
    dlclose(file);
  }
  void* file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (!file) {
    loaded.why = std::string("no NCCL: ") + dlerror() + "; set LD_LIBRARY_PATH to its folder";
    return loaded;
  }
#define GSEL_NCCL_FIND(result, name, arguments) nccl.name = reinterpret_cast<result(*) arguments>(dlsym(file, #name));
  GSEL_NCCL_FUNCTIONS(GSEL_NCCL_FIND)
  GSEL_NCCL_LATER(GSEL_NCCL_FIND)
#undef GSEL_NCCL_FIND
#define GSEL_NCCL_NEED(result, name, arguments) \
  if (!nccl.name && loaded.why.empty())         \
    loaded.why = std::string(kFile) + " has no " #name "; expected NCCL 2.14 or newer";
  GSEL_NCCL_FUNCTIONS(GSEL_NCCL_NEED)
#undef GSEL_NCCL_NEED
  if (!loaded.why.empty()) return loaded;
  Dl_info info{};
  nccl.path = dladdr(reinterpret_cast<void*>(nccl.ncclGetVersion), &info) && info.dli_fname ? info.dli_fname : kFile;
  loaded.usable = true;
  return loaded;
}

}  // namespace

int version_of(const Library& nccl) {
  int version = 0;
  return nccl.ncclGetVersion(&version) == kSuccess ? version : 0;
}

const Library* library(std::string* why) {
  static const auto& loaded = *new Loaded(load());  // never destroyed: a thread that aborts may outlive main
  if (why) *why = loaded.why;
  return loaded.usable ? &loaded.library : nullptr;
}

}  // namespace gsel_nccl
