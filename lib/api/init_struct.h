// api/init_struct.h: the function twin of an initialiser macro.
#pragma once

#include <cstdint>

namespace gsel {

template <class T>
void init_struct(T* s) noexcept {
  if (!s) return;
  *s = T{};
  s->struct_size = static_cast<uint32_t>(sizeof(T));
}

}  // namespace gsel
