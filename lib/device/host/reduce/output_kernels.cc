// device/host/reduce/output_kernels.cc: writes results to several places, optionally with non-temporal stores. These
// save reading the line that they overwrite. They are faster if results are larger than the caches and go to several
// places, and slower if a rank reads them soon. Tiles are small, so that reads and such stores alternate often and
// neither waits for the other. Does not know what is reduced.
#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/types.h"
#include "device/host/reduce/kernels.h"

namespace gsel::host {
namespace {

constexpr size_t kTileBytes = 4096, kLine = 64;

#if defined(__x86_64__)
// Whole cache lines. Sets with wide vectors write a line in one or two stores, so that no line leaves the processor in
// parts.
using Lines = void (*)(char* to, const char* from, size_t lines);

void stream_lines(char* to, const char* from, size_t lines) {
  for (size_t i = 0; i < lines * kLine; i += sizeof(__m128i))
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
}

[[gnu::target("avx2")]] void stream_lines_avx2(char* to, const char* from, size_t lines) {
  for (size_t i = 0; i < lines * kLine; i += sizeof(__m256i))
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
}

[[gnu::target("avx512f")]] void stream_lines_avx512(char* to, const char* from, size_t lines) {
  for (size_t i = 0; i < lines * kLine; i += sizeof(__m512i))
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
}

Lines lines_for(Isa isa) {
  if (isa == Isa::avx512) return stream_lines_avx512;
  return isa == Isa::avx2 ? stream_lines_avx2 : stream_lines;
}

// The ends before and after whole cache lines are copied normally.
void stream(char* to, const char* from, size_t bytes) {
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  const size_t body = (bytes - head) / kLine * kLine, tail = head + body;
  std::memcpy(to, from, head);
  lines_for(best_isa())(to + head, from + head, body / kLine);
  std::memcpy(to + tail, from + tail, bytes - tail);
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

// Calls body(first element, elements) for tiles that end at a cache line of outs[0], or at a record.
template <class Body>
void for_tiles(const void* out, size_t count, size_t element, size_t record, Body&& body) {
  const size_t per_tile = kTileBytes / element / record * record;
  const size_t off = record > 1 ? 0 : reinterpret_cast<uintptr_t>(out) % kLine / element;
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
  for_tiles(outs[0], count, element, fold.record, [&](size_t first, size_t some) {
    void* to = streaming ? tile : at(outs[0], first * element);
    reduce(fold, to, in, n, some, first);
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

}  // namespace gsel::host
