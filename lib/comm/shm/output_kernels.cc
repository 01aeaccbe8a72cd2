// comm/shm/output_kernels.cc: where results go: to several places at once, and past the caches. Refuses to know what is
// folded. A store that bypasses the caches saves reading the line it overwrites, which is a third of the traffic of a
// sum of two; it pays where the result is larger than the caches, and costs where somebody reads it soon.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "base/dtype.h"
#include "comm/shm/kernels.h"

namespace gsel::shm {
namespace {

constexpr size_t kTileBytes = 8192, kLine = 64;

#if defined(__x86_64__)
// Whole cache lines, so that the processor's write buffers go out full; what is left at both ends goes the usual way.
void stream(char* to, const char* from, size_t bytes) {
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  size_t done = head;
  for (; done + kLine <= bytes; done += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + done);
    auto* target = reinterpret_cast<__m128i*>(to + done);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + done, from + done, bytes - done);
}
void fence() {
  _mm_sfence();
}
#else
void stream(char* to, const char* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
void fence() {}
#endif

char* at(void* base, size_t offset) {
  return static_cast<char*>(base) + offset;
}

// body(first element, elements) over tiles that end where a cache line of outs[0] does.
template <class Body>
void for_tiles(const void* out, size_t count, size_t element, Body&& body) {
  const size_t per_tile = kTileBytes / element, off = reinterpret_cast<uintptr_t>(out) % kLine / element;
  for (size_t first = 0; first < count;) {
    const size_t some = std::min(count - first, first == 0 ? per_tile - off : per_tile);
    body(first, some);
    first += some;
  }
}

}  // namespace

void copy_streaming(void* dst, const void* src, size_t bytes) {
  stream(static_cast<char*>(dst), static_cast<const char*>(src), bytes);
  fence();
}

void reduce_to(const Fold& fold, void* const* outs, int n_outs, const void* const* in, int n, size_t count,
               bool streaming) {
  if (n_outs == 1 && !streaming) return reduce(fold, outs[0], in, n, count);
  const size_t element = dtype_bytes(fold.dtype);
  alignas(kLine) char tile[kTileBytes];
  std::vector<const void*> inputs(static_cast<size_t>(n));
  for_tiles(outs[0], count, element, [&](size_t first, size_t some) {
    for (int q = 0; q < n; ++q) inputs[static_cast<size_t>(q)] = static_cast<const char*>(in[q]) + first * element;
    void* to = streaming ? tile : at(outs[0], first * element);
    reduce(fold, to, inputs.data(), n, some);
    for (int o = streaming ? 0 : 1; o < n_outs; ++o) {
      char* out = at(outs[o], first * element);
      if (streaming)
        stream(out, static_cast<const char*>(to), some * element);
      else
        std::memcpy(out, to, some * element);
    }
  });
  if (streaming) fence();
}

}  // namespace gsel::shm
