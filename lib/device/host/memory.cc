// device/host/memory.cc: memory of the host device: the heap, aligned to cache lines.
#include <cstdlib>
#include <cstring>

#include "base/guard.h"
#include "base/options.h"
#include "device/host/stream.h"
#include "device/host/table.h"

namespace gsel::host {
namespace {

constexpr uint64_t kAlignment = 64;

// Both kinds of memory are the same.
gsel_status alloc(void*, int32_t kind, uint64_t bytes, void** out, gsel_error** err) {
  return guard(err, [&] {
    *out = nullptr;
    if (kind != GSEL_MEMORY_DEVICE && kind != GSEL_MEMORY_PINNED)
      fail(GSEL_ERR_ARG, "memory of kind {} was asked for; use GSEL_MEMORY_DEVICE or GSEL_MEMORY_PINNED", kind);
    const bool possible = bytes <= static_cast<uint64_t>(PTRDIFF_MAX) - kAlignment;
    const uint64_t rounded = (bytes / kAlignment + 1) * kAlignment;
    void* memory = possible ? std::aligned_alloc(kAlignment, rounded) : nullptr;
    if (!memory) fail(GSEL_ERR_NOMEM, "no memory for {} bytes on the host", bytes);
    *out = memory;
  });
}

void free_memory(void*, void* memory) {
  std::free(memory);
}

gsel_status memory_of(void*, const void* memory, gsel_memory_info* out, gsel_error** err) {
  return guard(err, [&] {
    gsel_memory_info info{};
    info.kind = GSEL_MEMORY_HOST;
    info.ordinal = -1;
    info.base = const_cast<void*>(memory);
    write_struct(out, info, "gsel_memory_info");
  });
}

// All directions are the same.
gsel_status copy(void*, void* dst, const void* src, uint64_t bytes, int32_t, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    run_on(stream, [=] {
      if (bytes > 0) std::memmove(dst, src, bytes);
    });
  });
}

gsel_status copy_rows(void*, void* dst, uint64_t dst_stride, const void* src, uint64_t src_stride, uint64_t row_bytes,
                      uint64_t rows, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    run_on(stream, [=] {
      auto* to = static_cast<char*>(dst);
      const auto* from = static_cast<const char*>(src);
      for (uint64_t i = 0; i < rows && row_bytes > 0; ++i, to += dst_stride, from += src_stride)
        std::memcpy(to, from, row_bytes);
    });
  });
}

gsel_status zero(void*, void* dst, uint64_t bytes, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    run_on(stream, [=] {
      if (bytes > 0) std::memset(dst, 0, bytes);
    });
  });
}

}  // namespace

void add_memory(gsel_device_v1& table) {
  table.alloc = alloc;
  table.free = free_memory;
  table.memory_of = memory_of;
  table.copy = copy;
  table.zero = zero;
  table.copy_rows = copy_rows;
}

}  // namespace gsel::host
