// api/init_struct.h: the gsel_<type>_init functions. The size is the caller's: an older caller has less room than
// today's type, a newer one expects its whole struct to be cleared. If the struct cannot store the size, nothing is
// written.
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
