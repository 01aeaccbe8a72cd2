// fake/cuda/driver_memory.cc: memory, mappings and copies of the double of libcuda.so.1. cuMemFree waits for the
// device, as the driver may.
#include <cstring>

#include "captures.h"
#include "driver.h"

using namespace fake_cuda;

namespace {

constexpr uint64_t kGranularity = uint64_t{2} << 20;

Any context_of(const Allocation& a) {
  return reinterpret_cast<Any>(a.context);
}

void* here(Pointer at) {
  return Machine::get().here(reinterpret_cast<const void*>(at));
}

bool is_device(const Location& location) {
  return location.type == kLocationDevice && location.id >= 0 && location.id < device_count();
}

}  // namespace

EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* bytes) {
  return call([&](Machine& machine) {
    *free_bytes = machine.free_bytes(device_of(current()));
    *bytes = size_t{4} << 30;
    return kOk;
  });
}

EXPORT int cuMemAlloc_v2(Pointer* out, size_t bytes) {
  return call([&](Machine& machine) {
    if (breaks_capture()) return kCaptureUnsupported;
    if (bytes == 0) return kInvalidValue;
    look_at_wait(machine, "cuMemAlloc");
    *out = machine.alloc(bytes, current());
    return *out ? kOk : kOutOfMemory;
  });
}

EXPORT int cuMemFree_v2(Pointer memory) {
  return call([&](Machine& machine) {
    if (breaks_capture()) return kCaptureUnsupported;
    ++thread_state().waits;
    if (!look_at_free(machine, memory)) return kInvalidValue;
    look_at_wait(machine, "cuMemFree");
    return machine.free(memory, false) ? kOk : kInvalidValue;
  });
}

EXPORT int cuMemHostAlloc(void** out, size_t bytes, unsigned) {
  return call([&](Machine& machine) {
    if (breaks_capture()) return kCaptureUnsupported;
    look_at_wait(machine, "cuMemHostAlloc");
    *out = machine.alloc_pinned(bytes, current());
    return *out ? kOk : kOutOfMemory;
  });
}

EXPORT int cuMemFreeHost(void* memory) {
  return call([&](Machine& machine) {
    if (breaks_capture()) return kCaptureUnsupported;
    ++thread_state().waits;
    if (!look_at_free(machine, reinterpret_cast<uintptr_t>(memory))) return kInvalidValue;
    look_at_wait(machine, "cuMemFreeHost");
    return machine.free(reinterpret_cast<uintptr_t>(memory), true) ? kOk : kInvalidValue;
  });
}

// Memory for input and output of devices, and for reading alone, is not modelled.
EXPORT int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
  return call([&](Machine& machine) {
    if (breaks_capture()) return static_cast<int>(kCaptureUnsupported);
    if (flags & (kRegisterDevice | kRegisterReadOnly)) return static_cast<int>(kNotSupported);
    if (flags & ~(kRegisterPortable | kRegisterMapped)) return static_cast<int>(kInvalidValue);
    look_at_wait(machine, "cuMemHostRegister");
    return machine.register_host(reinterpret_cast<uintptr_t>(memory), bytes, current());
  });
}

EXPORT int cuMemHostUnregister(void* memory) {
  return call([&](Machine& machine) {
    if (breaks_capture()) return static_cast<int>(kCaptureUnsupported);
    if (!look_at_free(machine, reinterpret_cast<uintptr_t>(memory))) return static_cast<int>(kInvalidValue);
    look_at_wait(machine, "cuMemHostUnregister");
    return machine.unregister_host(reinterpret_cast<uintptr_t>(memory));
  });
}

// Both have one address.
EXPORT int cuMemHostGetDevicePointer_v2(Pointer* out, void* memory, unsigned flags) {
  return call([&](Machine& machine) {
    const Allocation* a = machine.find(reinterpret_cast<uintptr_t>(memory));
    if (!a || !a->pinned || flags) return kInvalidValue;
    *out = reinterpret_cast<Pointer>(memory);
    return kOk;
  });
}

// Of a mapping: the physical segment that the address is in.
EXPORT int cuMemGetAddressRange_v2(Pointer* base, size_t* bytes, Pointer memory) {
  return call([&](Machine& machine) {
    const Allocation* a = machine.find(memory);
    if (!a || a->pinned) return kNotFound;
    if (base) *base = a->begin;
    if (bytes) *bytes = a->end - a->begin;
    return kOk;
  });
}

// Attributes of an address that CUDA does not know are 0, and its ordinal is -2. The range of a mapping is all that was
// reserved.
EXPORT int cuPointerGetAttributes(unsigned n, int* attributes, void** values, Pointer memory) {
  return call([&](Machine& machine) {
    const Allocation* a = machine.find(memory);
    uintptr_t begin = a ? a->begin : 0;
    uint64_t bytes = a ? a->end - a->begin : 0;
    if (a && a->physical) machine.reserved(memory, &begin, &bytes);
    for (unsigned i = 0; i < n; ++i) switch (attributes[i]) {
        case kAttributeContext:
          *static_cast<Any*>(values[i]) = a ? context_of(*a) : nullptr;
          break;
        case kAttributeType:
          *static_cast<int*>(values[i]) = !a ? 0 : a->pinned ? kHostMemory : kDeviceMemory;
          break;
        case kAttributeOrdinal:
          *static_cast<int*>(values[i]) = a ? device_of(a->context) : -2;
          break;
        case kAttributeStart:
          *static_cast<Pointer*>(values[i]) = begin;
          break;
        case kAttributeSize:
          *static_cast<size_t*>(values[i]) = bytes;
          break;
        case kAttributeMapped:
          *static_cast<bool*>(values[i]) = a != nullptr;
          break;
        default:
          return kInvalidValue;
      }
    return kOk;
  });
}

// ---- virtual memory -------------------------------------------------------------------------------------------------

EXPORT int cuMemGetAllocationGranularity(size_t* out, const Properties* what, int) {
  *out = kGranularity;
  return is_device(what->location) ? kOk : kInvalidValue;
}

EXPORT int cuMemAddressReserve(Pointer* out, size_t bytes, size_t, Pointer, unsigned long long) {
  return call([&](Machine& machine) {
    *out = machine.reserve(bytes);
    return *out ? kOk : kInvalidValue;
  });
}

EXPORT int cuMemAddressFree(Pointer at, size_t bytes) {
  return call([&](Machine& machine) { return machine.unreserve(at, bytes) ? kOk : kInvalidValue; });
}

EXPORT int cuMemCreate(unsigned long long* out, size_t bytes, const Properties* what, unsigned long long) {
  return call([&](Machine& machine) {
    if (what->type != kAllocationPinned || !is_device(what->location) || bytes == 0 || bytes % kGranularity)
      return kInvalidValue;
    if (what->handle_types & ~kHandleFile) return kNotSupported;
    *out = machine.create(bytes, what->location.id, what->handle_types == kHandleFile);
    return *out ? kOk : kOutOfMemory;
  });
}

EXPORT int cuMemExportToShareableHandle(void* out, unsigned long long physical, int type, unsigned long long flags) {
  return call([&](Machine& machine) {
    const int file = type == kHandleFile && !flags ? machine.export_file(physical) : -1;
    if (file < 0) return kInvalidValue;
    *static_cast<int*>(out) = file;
    return kOk;
  });
}

// The descriptor stays the caller's.
EXPORT int cuMemImportFromShareableHandle(unsigned long long* out, void* file, int type) {
  return call([&](Machine& machine) {
    *out = type == kHandleFile ? machine.import_file(static_cast<int>(reinterpret_cast<uintptr_t>(file))) : 0;
    return *out ? kOk : kInvalidValue;
  });
}

EXPORT int cuMemRelease(unsigned long long physical) {
  return call([&](Machine& machine) { return machine.release(physical) ? kOk : kInvalidValue; });
}

EXPORT int cuMemMap(Pointer at, size_t bytes, size_t offset, unsigned long long physical, unsigned long long) {
  return call([&](Machine& machine) { return offset == 0 && machine.map(at, bytes, physical) ? kOk : kInvalidValue; });
}

EXPORT int cuMemUnmap(Pointer at, size_t bytes) {
  return call([&](Machine& machine) { return machine.unmap(at, bytes) ? kOk : kInvalidValue; });
}

// Nobody has access before it is given, the owner neither.
EXPORT int cuMemSetAccess(Pointer at, size_t bytes, const AccessRight* rights, size_t n) {
  return call([&](Machine& machine) {
    for (size_t i = 0; i < n; ++i) {
      const Allocation* a = machine.find(at);
      if (!is_device(rights[i].location)) return kInvalidValue;
      if (a && !machine.has_peers() && device_of(a->context) != rights[i].location.id) return kInvalidDevice;
      if (!machine.set_access(at, bytes, rights[i].location.id, rights[i].flags == kReadWrite)) return kInvalidValue;
    }
    return kOk;
  });
}

EXPORT int cuMemGetAccess(unsigned long long* flags, const Location* location, Pointer at) {
  return call([&](Machine& machine) {
    const Allocation* a = machine.find(at);
    if (!a || !a->physical || !is_device(*location)) return kInvalidValue;
    *flags = a->devices.contains(location->id) ? kReadWrite : 0;
    return kOk;
  });
}

// ---- copies ---------------------------------------------------------------------------------------------------------

// From pageable memory the driver takes the bytes before it returns, but a graph at each launch; to pageable memory
// they come late.
EXPORT int cuMemcpyAsync(Pointer dst, Pointer src, size_t bytes, Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    Operation operation;
    operation.name = "a copy of " + std::to_string(bytes) + " bytes";
    operation.accesses = {{dst, dst + bytes, true}};
    if (!is_captured(stream) && !machine.find(src) && here(src) == reinterpret_cast<void*>(src)) {
      const auto* from = reinterpret_cast<const char*>(src);
      operation.work = [dst, taken = std::vector<char>(from, from + bytes)] {
        memcpy(here(dst), taken.data(), taken.size());
      };
    } else {
      operation.accesses.push_back({src, src + bytes, false});
      operation.work = [=] { memmove(here(dst), here(src), bytes); };
    }
    return take_work(machine, stream, std::move(operation));
  });
}

EXPORT int cuMemcpy2DAsync_v2(const Copy2D* given, Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    const Copy2D what = *given;
    if (what.src_pitch < what.width || what.dst_pitch < what.width) return static_cast<int>(kInvalidValue);
    Operation operation;
    operation.name = "a copy of " + std::to_string(what.height) + " rows";
    for (size_t row = 0; row < what.height; ++row) {
      const Pointer to = what.dst + row * what.dst_pitch, from = what.src + row * what.src_pitch;
      operation.accesses.push_back({to, to + what.width, true});
      operation.accesses.push_back({from, from + what.width, false});
    }
    operation.work = [=] {
      for (size_t row = 0; row < what.height; ++row)
        memcpy(here(what.dst + row * what.dst_pitch), here(what.src + row * what.src_pitch), what.width);
    };
    return take_work(machine, stream, std::move(operation));
  });
}

EXPORT int cuMemsetD8Async(Pointer dst, unsigned char value, size_t bytes, Any handle) {
  return on_stream(handle, [&](Machine& machine, Stream& stream) {
    Operation operation;
    operation.name = "a fill of " + std::to_string(bytes) + " bytes";
    operation.accesses = {{dst, dst + bytes, true}};
    operation.work = [=] { memset(here(dst), value, bytes); };
    return take_work(machine, stream, std::move(operation));
  });
}
