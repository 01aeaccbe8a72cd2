// api/init_struct.h: the gsel_<type>_init functions. The caller states the size of its struct: an older caller has less
// room than the current type, a newer one expects its whole struct to be cleared. Nothing is written if the struct is
// too small to store the size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gsel {

template <class T>
void init_struct(T* s, size_t struct_size) noexcept {
  if (!s || struct_size < 2 * sizeof(uint32_t) || struct_size > UINT32_MAX) return;
  std::memset(static_cast<void*>(s), 0, struct_size);
  s->struct_size = static_cast<uint32_t>(struct_size);
}

}  // namespace gsel
