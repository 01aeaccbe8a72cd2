// plugins/transport/nccl/library.cc: see library.h.
#include "library.h"

#include <dlfcn.h>

#include <initializer_list>

namespace gsel_nccl {
namespace {

struct Loaded {
  Library library;
  bool usable = false;
  std::string why;
};

bool has_all(void* file, std::initializer_list<const char*> functions) {
  for (const char* name : functions)
    if (!dlsym(file, name)) return false;
  return true;
}

void find_unused(void* file, Library& nccl) {
  nccl.has_idle_windows = !kUsesWindows && has_all(file, {"ncclCommWindowRegister", "ncclCommWindowDeregister"});
  nccl.has_shrink = has_all(file, {"ncclCommShrink"});
  nccl.has_grow = has_all(file, {"ncclCommGetUniqueId", "ncclCommGrow"});
  nccl.has_suspend = has_all(file, {"ncclCommSuspend", "ncclCommResume"});
  nccl.has_put = has_all(file, {"ncclPutSignal", "ncclSignal", "ncclWaitSignal"});
}

void add(std::string& list, const std::string& word) {
  list += (list.empty() ? "" : ", ") + word;
}

Loaded load() {
  Loaded loaded;
  Library& nccl = loaded.library;
  if (void* file = dlopen(kFile, RTLD_NOW | RTLD_NOLOAD)) {
    nccl.was_loaded = true;
    dlclose(file);
  }
  void* file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (!file) {
    loaded.why = std::string("no " GSEL_NCCL ": ") + dlerror() + "; set LD_LIBRARY_PATH to its folder";
    return loaded;
  }
#define GSEL_NCCL_FIND(result, name, arguments) nccl.name = reinterpret_cast<result(*) arguments>(dlsym(file, #name));
  GSEL_NCCL_FUNCTIONS(GSEL_NCCL_FIND)
  GSEL_NCCL_LATER(GSEL_NCCL_FIND)
  GSEL_NCCL_WINDOWS(GSEL_NCCL_FIND)
#undef GSEL_NCCL_FIND
#define GSEL_NCCL_NEED(result, name, arguments) \
  if (!nccl.name && loaded.why.empty())         \
    loaded.why = std::string(kFile) + " has no " #name "; expected " GSEL_NCCL_OLDEST;
  GSEL_NCCL_FUNCTIONS(GSEL_NCCL_NEED)
#undef GSEL_NCCL_NEED
  if (!loaded.why.empty()) return loaded;
  find_unused(file, nccl);
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

std::string features_of(const Library& nccl, int version) {
  const auto number = [](int of) { return std::to_string(of); };
  std::string unused, lacking, text = GSEL_NCCL;
  if (version > 0)
    text += " " + number(version / 10000) + "." + number(version / 100 % 100) + "." + number(version % 100);
  const struct {
    bool has;
    const char *name, *since;
  } others[] = {{nccl.has_shrink, "shrink", "2.27"},
                {nccl.has_grow, "grow", "2.29"},
                {nccl.has_suspend, "suspend", "2.29.7"},
                {nccl.has_put, "put", "2.29"}};
  if (nccl.has_idle_windows)
    add(unused, "symmetric windows");
  else if (!uses_windows(nccl))
    add(lacking, "symmetric windows (2.27)");
  for (const auto& one : others)
    one.has ? add(unused, one.name) : add(lacking, std::string(one.name) + " (" + one.since + ")");
  text += uses_windows(nccl) ? ": uses symmetric windows" : ": uses none of its newer functions";
  if (!unused.empty()) text += "; has " + unused + ", which gsel does not use";
  if (!lacking.empty()) text += "; lacks " + lacking;
  return text;
}

const Library* library(std::string* why) {
  static const auto& loaded = *new Loaded(load());  // never destroyed: a thread that aborts may outlive main
  if (why) *why = loaded.why;
  return loaded.usable ? &loaded.library : nullptr;
}

}  // namespace gsel_nccl
