/* fuzz/memory.c: counts the memory that the program holds, by standing before glibc's allocator; the library's own
 * allocations come here too. Left out under a sanitizer, which stands there itself and looks for leaks. */
#include "fuzz/memory.h"

#include <malloc.h>
#include <stdint.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);

static size_t held, most;

#define SEEN __attribute__((visibility("default"))) /* by the libraries, though all else here is hidden */

static void* counted(void* block) {
  const size_t now = __atomic_add_fetch(&held, block ? malloc_usable_size(block) : 0, __ATOMIC_RELAXED);
  if (now > most) most = now;
  return block;
}

SEEN void* malloc(size_t bytes) {
  return counted(__libc_malloc(bytes));
}
SEEN void* calloc(size_t count, size_t bytes) {
  return counted(__libc_calloc(count, bytes));
}
SEEN void* memalign(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}
SEEN void* aligned_alloc(size_t alignment, size_t bytes) {
  return counted(__libc_memalign(alignment, bytes));
}

SEEN void* realloc(void* block, size_t bytes) {
  const size_t before = block ? malloc_usable_size(block) : 0;
  void* moved = __libc_realloc(block, bytes);
  if (!moved && bytes) return NULL;
  __atomic_sub_fetch(&held, before, __ATOMIC_RELAXED);
  return counted(moved);
}

SEEN void free(void* block) {
  if (block) __atomic_sub_fetch(&held, malloc_usable_size(block), __ATOMIC_RELAXED);
  __libc_free(block);
}

void memory_mark(void) {
  most = held;
}
size_t memory_held(void) {
  return held;
}
size_t memory_most(void) {
  return most;
}

#else

void memory_mark(void) {}
size_t memory_held(void) {
  return 0;
}
size_t memory_most(void) {
  return 0;
}

#endif
