// select/probe/library.h: opens a vendor's library, which may be missing, at run time. Does not know which library it
// is or which functions are called.
#pragma once

#include <initializer_list>

#include "select/probe/file_tree.h"

namespace gsel {

class Library {
 public:
  // Opens the first of `names` that exists; none for a recorded machine, about which libraries of this machine know
  // nothing. The variable `hook` names another library, for tests. The library is never unloaded, since it may leave
  // threads and handlers. GSEL_ERR_ARG when the variable is no absolute path.
  Library(const FileTree& files, const char* hook, std::initializer_list<const char*> names);

  explicit operator bool() const { return library_ != nullptr; }

  // False when the library has no such function.
  template <class F>
  bool find(F& function, const char* symbol) const {
    function = reinterpret_cast<F>(address_of(symbol));
    return function != nullptr;
  }

 private:
  void* address_of(const char* symbol) const;

  void* library_ = nullptr;
};

}  // namespace gsel
