// fake/cuda/driver_trial.h: what the tests of the double of the driver share: its functions, two devices with a stream
// each, and small questions.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <functional>

#include "fake/cuda/children.h"
#include "fake/cuda/cuda_api.h"
#include "support/fake_cuda.h"

namespace {

using namespace fake_cuda;

[[maybe_unused]] constexpr const char* kOrders[] = {"least", "random", "others", "newest"};
constexpr size_t kMiB = size_t{1} << 20, kPage = 4096;

struct Driver {
  void* library = open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
#define FAKE_CUDA_MEMBER(name, version, symbol, parameters) \
  int(*name) parameters = reinterpret_cast<int(*) parameters>(dlsym(library, #symbol));
  FAKE_CUDA_FUNCTIONS(FAKE_CUDA_MEMBER)
#undef FAKE_CUDA_MEMBER
  Any contexts[2]{}, streams[2]{};  // of devices 0 and 1

  Driver() {
    for (int device : {1, 0}) {
      cuDevicePrimaryCtxRetain(&contexts[device], device);
      cuCtxPushCurrent(contexts[device]);
      cuStreamCreateWithPriority(&streams[device], 1, 0);
    }
  }  // device 0 is current
  Pointer alloc(size_t bytes) {
    Pointer at = 0;
    cuMemAlloc(&at, bytes);
    return at;
  }
  Pointer reserve(size_t bytes) {
    Pointer at = 0;
    cuMemAddressReserve(&at, bytes, 0, 0, 0);
    return at;
  }
  // Physical memory of device 0. handle_types: what it may be shared by.
  unsigned long long create(size_t bytes, int handle_types = 0) {
    const Properties what{kAllocationPinned, handle_types, {kLocationDevice, 0}, nullptr, {}};
    unsigned long long physical = 0;
    cuMemCreate(&physical, bytes, &what, 0);
    return physical;
  }
  // A segment of a reserved range, with access for the first n devices.
  void map(Pointer at, size_t bytes, unsigned long long physical, size_t n) {
    cuMemMap(at, bytes, 0, physical, 0);
    const AccessRight rights[] = {{{kLocationDevice, 0}, kReadWrite}, {{kLocationDevice, 1}, kReadWrite}};
    cuMemSetAccess(at, bytes, rights, n);
  }
  unsigned long long map(Pointer at, size_t bytes, size_t n) {
    const unsigned long long physical = create(bytes);
    map(at, bytes, physical, n);
    return physical;
  }
  int fill(Pointer at, size_t bytes, int device = 0) {
    return cuMemsetD8Async(at, 1, bytes, streams[device]);
  }
};

[[maybe_unused]] void say(int result) {
  fprintf(stderr, "%d ", result);
}

// What a program has in device memory, after all work before on the stream.
[[maybe_unused]] int byte_at(Driver& d, Pointer at) {
  unsigned char byte = 0;
  d.cuMemcpyAsync(reinterpret_cast<Pointer>(&byte), at, 1, d.streams[0]);
  d.cuStreamSynchronize(d.streams[0]);
  return byte;
}

// A capture of device 0's stream, ready to be launched.
[[maybe_unused]] Any recorded(Driver& d, const std::function<void()>& work) {
  Any graph = nullptr, executable = nullptr;
  d.cuStreamBeginCapture(d.streams[0], kCaptureThread);
  work();
  if (const int ended = d.cuStreamEndCapture(d.streams[0], &graph)) say(ended);
  if (!graph) return nullptr;
  d.cuGraphInstantiateWithFlags(&executable, graph, 0);
  d.cuGraphDestroy(graph);
  return executable;
}

// Another of device 0.
[[maybe_unused]] Any stream_of(Driver& d) {
  Any stream = nullptr;
  d.cuStreamCreateWithPriority(&stream, 1, 0);
  return stream;
}

// ---- memory of the host ---------------------------------------------------------------------------------------------

// A page that forked processes share.
[[maybe_unused]] uint32_t* shared_page() {
  return static_cast<uint32_t*>(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
}

[[maybe_unused]] Pointer pointer_to(void* memory) {
  return reinterpret_cast<Pointer>(memory);
}

[[maybe_unused]] std::atomic_ref<uint32_t> host_word(uint32_t* at) {
  return std::atomic_ref<uint32_t>(*at);
}

// A page that is page-locked, in both ways; all 0.
[[maybe_unused]] uint32_t* host_allocated(Driver& d) {
  void* memory = nullptr;
  d.cuMemHostAlloc(&memory, kPage, 3);
  memset(memory, 0, kPage);
  return static_cast<uint32_t*>(memory);
}

[[maybe_unused]] uint32_t* host_registered(Driver& d) {
  uint32_t* memory = shared_page();
  d.cuMemHostRegister(memory, kPage, kRegisterPortable | kRegisterMapped);
  return memory;
}

}  // namespace
