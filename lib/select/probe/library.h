// select/probe/library.h: opens a vendor's library, which may be missing, at run time. Does not know which library it
// is and what is called.
#pragma once

#include <initializer_list>

#include "select/probe/file_tree.h"

namespace gsel {

class Library {
 public:
  // The first of `names` that can be opened; nothing for a recorded machine, of which this one's libraries know
  // nothing. Tests name another by the variable `hook`. It is never unloaded: such libraries leave threads and handlers
  // behind. GSEL_ERR_ARG when the variable is no absolute path.
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
