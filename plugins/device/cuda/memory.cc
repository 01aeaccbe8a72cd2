// plugins/device/cuda/memory.cc: device memory, page-locked host memory, and copies between any two.
#include "context.h"

namespace gsel_cuda {
namespace {

CUdeviceptr address_of(const void* memory) {
  return reinterpret_cast<CUdeviceptr>(memory);
}

gsel_status alloc(void* ctx, int32_t kind, uint64_t bytes, void** out, gsel_error** err) {
  *out = nullptr;
  return run(ctx, err, [&](Context& c) {
    const uint64_t some = bytes ? bytes : 1;
    void* memory = nullptr;
    if (kind == GSEL_MEMORY_DEVICE) {
      CUdeviceptr address = 0;
      check(c, c.driver->cuMemAlloc(&address, some), std::to_string(bytes) + " bytes of device memory");
      memory = reinterpret_cast<void*>(address);
    } else if (kind == GSEL_MEMORY_PINNED) {
      check(c, c.driver->cuMemHostAlloc(&memory, some, kHostAllocPortable | kHostAllocMapped),
            std::to_string(bytes) + " bytes of page-locked memory");
    } else {
      fail(GSEL_ERR_ARG,
           "memory of kind " + std::to_string(kind) + " was asked for; use GSEL_MEMORY_DEVICE or GSEL_MEMORY_PINNED");
    }
    const std::lock_guard lock(c.mutex);
    c.kinds[memory] = kind;
    *out = memory;
  });
}

// After CUDA has ended, nothing can be freed.
void free_memory(void* ctx, void* memory) {
  if (!memory) return;
  run(ctx, nullptr, [&](Context& c) {
    int32_t kind = 0;
    {
      const std::lock_guard lock(c.mutex);
      if (const auto at = c.kinds.find(memory); at != c.kinds.end()) {
        kind = at->second;
        c.kinds.erase(at);
      }
    }
    if (kind == GSEL_MEMORY_DEVICE) c.driver->cuMemFree(address_of(memory));
    if (kind == GSEL_MEMORY_PINNED) c.driver->cuMemFreeHost(memory);
  });
}

gsel_status memory_of(void* ctx, const void* memory, gsel_memory_info* out, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    if (!out || out->struct_size < sizeof *out) fail(GSEL_ERR_VERSION, "gsel_memory_info states no size");
    CUmemorytype type{};
    int ordinal = -1;
    CUdeviceptr start = 0;
    size_t bytes = 0;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* values[] = {&type, &ordinal, &start, &bytes};
    check(c, c.driver->cuPointerGetAttributes(4, attributes, values, address_of(memory)), "attributes of an address");
    const uint32_t size = out->struct_size;
    *out = {size, GSEL_MEMORY_HOST, -1, 0, const_cast<void*>(memory), 0};
    if (type == CU_MEMORYTYPE_HOST) {
      out->kind = GSEL_MEMORY_PINNED;
      out->base = reinterpret_cast<void*>(start);
      out->bytes = bytes;
    }
    if (type != CU_MEMORYTYPE_DEVICE) return;
    out->kind = GSEL_MEMORY_DEVICE;
    out->ordinal = ordinal;
    // For a mapping made by the virtual memory calls: one physical segment.
    check(c, c.driver->cuMemGetAddressRange(&start, &bytes, address_of(memory)), "the range of an address");
    out->base = reinterpret_cast<void*>(start);
    out->bytes = bytes;
  });
}

// Only mappings have access rights; a driver error means that the memory is no mapping.
gsel_status memory_closed(void* ctx, const void* memory, int32_t ordinal, int32_t* closed, gsel_error** err) {
  *closed = 0;
  return run(ctx, err, [&](Context& c) {
    const CUmemLocation other{CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    unsigned long long rights = 0;
    if (c.driver->cuMemGetAccess(&rights, &other, address_of(memory)) != CUDA_SUCCESS) return;
    if (rights == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return;
    CUdevice device;
    int reaches = 0;
    check(c, c.driver->cuDeviceGet(&device, ordinal), "device " + std::to_string(ordinal));
    check(c, c.driver->cuDeviceCanAccessPeer(&reaches, device, c.device),
          "whether device " + std::to_string(ordinal) + " reaches memory");
    *closed = reaches;
  });
}

gsel_status copy(void* ctx, void* dst, const void* src, uint64_t bytes, int32_t, gsel_stream* stream,
                 gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    if (bytes == 0) return;
    check(c, c.driver->cuMemcpyAsync(address_of(dst), address_of(src), bytes, stream_of(c, stream).native),
          "a copy of " + std::to_string(bytes) + " bytes");
  });
}

gsel_status copy_rows(void* ctx, void* dst, uint64_t dst_stride, const void* src, uint64_t src_stride,
                      uint64_t row_bytes, uint64_t rows, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    if (row_bytes == 0 || rows == 0) return;
    CUDA_MEMCPY2D what{};
    what.srcMemoryType = what.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    what.srcDevice = address_of(src);
    what.srcPitch = src_stride;
    what.dstDevice = address_of(dst);
    what.dstPitch = dst_stride;
    what.WidthInBytes = row_bytes;
    what.Height = rows;
    check(c, c.driver->cuMemcpy2DAsync(&what, stream_of(c, stream).native),
          "a copy of " + std::to_string(rows) + " rows of " + std::to_string(row_bytes) + " bytes");
  });
}

gsel_status zero(void* ctx, void* dst, uint64_t bytes, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    if (bytes == 0) return;
    check(c, c.driver->cuMemsetD8Async(address_of(dst), 0, bytes, stream_of(c, stream).native),
          "zeros in " + std::to_string(bytes) + " bytes");
  });
}

}  // namespace

void add_memory(gsel_device_v1& table) {
  table.alloc = alloc;
  table.free = free_memory;
  table.memory_of = memory_of;
  table.memory_closed = memory_closed;
  table.copy = copy;
  table.copy_rows = copy_rows;
  table.zero = zero;
}

}  // namespace gsel_cuda
