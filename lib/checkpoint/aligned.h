// checkpoint/aligned.h: memory that reads and writes around the page cache take.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace gsel::checkpoint {

constexpr size_t kDirectAlign = 4096;

struct FreeAligned {
  void operator()(char* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<char, FreeAligned>;

// bytes: a multiple of kDirectAlign. Throws std::bad_alloc.
inline AlignedMemory aligned_memory(size_t bytes) {
  AlignedMemory memory(static_cast<char*>(std::aligned_alloc(kDirectAlign, bytes)));
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace gsel::checkpoint
