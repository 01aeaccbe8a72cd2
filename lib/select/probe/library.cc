// select/probe/library.cc: see library.h.
#include "select/probe/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace gsel {

Library::Library(const FileTree& files, const char* hook, std::initializer_list<const char*> names) {
  constexpr int kHow = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  const char* other = secure_getenv(hook);
  if (other && other[0] != '/') fail(GSEL_ERR_ARG, "{}={}: an absolute path is needed", hook, other);
  if (other && !(library_ = dlopen(other, kHow))) {
    const char* why = dlerror();
    fail(GSEL_ERR_IO, "{}={} cannot be opened: {}", hook, other, why ? why : "unknown");
  }
  if (other || files.recorded()) return;
  for (const char* name : names)
    if (!library_) library_ = dlopen(name, kHow);
}

void* Library::address_of(const char* symbol) const {
  return library_ ? dlsym(library_, symbol) : nullptr;
}

}  // namespace gsel
