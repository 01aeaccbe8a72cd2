// fake/cuda/nccl_ranks.h: ranks that call the double of NCCL through its own interface, each a process with one device.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

#include "fake/cuda/children.h"
#include "fake/cuda/nccl_api.h"
#include "support/fake_cuda.h"

namespace {

using namespace fake_nccl;

// The doubles, loaded by path, with the functions that this file calls.
struct Doubles {
  void* driver = open_module("/tests/fixtures/fake_libcuda.so", RTLD_GLOBAL);
  void* library = open_module("/tests/fixtures/fake_libnccl.so", RTLD_GLOBAL);
#define FAKE_NCCL_MEMBER(result, name, parameters) \
  result(*name) parameters = reinterpret_cast<result(*) parameters>(dlsym(library, #name));
  FAKE_NCCL_FUNCTIONS(FAKE_NCCL_MEMBER)
#undef FAKE_NCCL_MEMBER
  template <class F>
  F* cuda(const char* name) const {
    return reinterpret_cast<F*>(dlsym(driver, name));
  }
  int violations() const {
    return cuda<int()>("fake_cuda_violations")();
  }
};

// What the ranks share besides NCCL.
struct Shared {
  std::atomic<int> has_id, step;
  UniqueId id;
};

struct Rank {
  Doubles d;
  Shared& shared;
  int rank;
  Handle comm = nullptr;
  void *context = nullptr, *stream = nullptr;
  int joined = 0;

  Rank(Shared& all, int own, int n, int blocking = 0, int device = -1) : shared(all), rank(own) {
    d.cuda<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device < 0 ? own : device);
    d.cuda<int(void*)>("cuCtxPushCurrent_v2")(context);
    d.cuda<int(void**, unsigned, int)>("cuStreamCreateWithPriority")(&stream, 1, 0);
    if (own == 0) d.ncclGetUniqueId(&shared.id), shared.has_id = 1;
    while (!shared.has_id) usleep(100);
    Config config{sizeof config, kConfigMagic, 21400, blocking};
    joined = d.ncclCommInitRankConfig(&comm, n, shared.id, own, &config);
    if (joined == kInProgress) joined = settle();
  }
  // Until no call is in progress any more; kInProgress: it is after so many seconds.
  int settle(double seconds = 20) {
    int state = kInProgress;
    for (int64_t turn = 0; turn < static_cast<int64_t>(seconds * 1000); ++turn) {
      if (const int result = d.ncclCommGetAsyncError(comm, &state)) return result;
      if (state != kInProgress) return state;
      usleep(1000);
    }
    return state;
  }
  float* memory(const std::vector<float>& values) {
    uintptr_t at = 0;
    d.cuda<int(uintptr_t*, size_t)>("cuMemAlloc_v2")(&at, values.size() * sizeof(float));
    copy(at, reinterpret_cast<uintptr_t>(values.data()), values.size() * sizeof(float));
    return reinterpret_cast<float*>(at);
  }
  void copy(uintptr_t to, uintptr_t from, size_t bytes) {
    d.cuda<int(uintptr_t, uintptr_t, size_t, void*)>("cuMemcpyAsync")(to, from, bytes, stream);
  }
  int wait() { return d.cuda<int(void*)>("cuStreamSynchronize")(stream); }
  std::vector<float> values(const void* memory, size_t n) {
    std::vector<float> all(n);
    copy(reinterpret_cast<uintptr_t>(all.data()), reinterpret_cast<uintptr_t>(memory), n * sizeof(float));
    wait();
    return all;
  }
  int allreduce(float* at, size_t count) { return d.ncclAllReduce(at, at, count, kFloat32, kSum, comm, stream); }
};

// Each rank says one line; the parent looks for a part in that of rank `who`.
[[maybe_unused]] void expect_ranks(const Settings& settings, int n, int who, const char* part,
                                   const std::function<void(Shared&, int)>& body) {
  auto* shared = static_cast<Shared*>(  // and one more
      mmap(nullptr, 2 * sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::vector<std::thread> waiting;
  std::vector<Ended> ended(static_cast<size_t>(n));
  for (int r = 0; r < n; ++r)
    waiting.emplace_back([&, r] { ended[static_cast<size_t>(r)] = in_child(settings, [&] { body(*shared, r); }); });
  for (std::thread& thread : waiting) thread.join();
  for (int r = 0; r < n; ++r) {
    const Ended& e = ended[static_cast<size_t>(r)];
    if (e.status != 0 || (r == who && e.text.find(part) == std::string::npos))
      fail_msg("rank %d: status %#x, expected \"%s\" in: %s", r, static_cast<unsigned>(e.status), part, e.text.c_str());
  }
  munmap(shared, 2 * sizeof(Shared));
}

[[maybe_unused]] void say(int result) {
  fprintf(stderr, "result %d;", result);
}
[[maybe_unused]] void say(const std::vector<float>& values) {
  for (const float value : values) fprintf(stderr, " %g", static_cast<double>(value));
}

// What never ends: a wait of so long finds the stream busy.
[[maybe_unused]] bool is_stuck(Rank& rank) {
  void* event = nullptr;
  rank.d.cuda<int(void**, unsigned)>("cuEventCreate")(&event, 2);
  rank.d.cuda<int(void*, void*)>("cuEventRecord")(event, rank.stream);
  for (int turn = 0; turn < 100; ++turn) {
    if (rank.d.cuda<int(void*)>("cuEventQuery")(event) == 0) return false;
    usleep(1000);
  }
  return true;
}

}  // namespace
