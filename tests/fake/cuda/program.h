/* fake/cuda/program.h: what the tests of communicators on devices share: the double of the driver as a program uses it,
 * with streams of its own, and ranks with a device each. With GSEL_TEST_GPU the driver is this machine's;
 * tests/gpu/run.sh has the programs that can run there. */
#ifndef GSEL_TESTS_PROGRAM_H
#define GSEL_TESTS_PROGRAM_H

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include "support/ranks.h"

/* glibc frees what a thread has left behind from another one, in an order that ThreadSanitizer does not see. */
__attribute__((visibility("default"))) const char* __tsan_default_suppressions(void);
const char* __tsan_default_suppressions(void) {
  return "race:_dl_deallocate_tls";
}

/* ---- the driver, as a program uses it --------------------------------------------------------------------------- */

typedef struct driver {
  void* library;
  int (*retain)(void** context, int device);
  int (*push)(void* context);
  int (*pop)(void** context);
  int (*create)(void** stream, unsigned flags, int priority);
  int (*synchronize)(void* stream);
  int (*copy)(uintptr_t to, uintptr_t from, size_t bytes, void* stream);
  int (*alloc)(uintptr_t* out, size_t bytes);
  int (*violations)(void);
  const char* (*violation)(int i);
  int (*waits)(void);
  int (*current)(void);
  int n_devices; /* of a driver; ranks share them */
} driver;
static driver cuda;

static inline int is_on_card(void) {
  return getenv("GSEL_TEST_GPU") != NULL;
}
static inline int no_violation(void) {
  return 0; /* a driver does not tell */
}

/* Communicators and trainers are given AMD's devices: the plugins rocm and rccl, over AMD's names. */
static inline int is_of_amd(void) {
  const char* vendor = getenv("GSEL_TEST_VENDOR");
  return vendor && !strcmp(vendor, "amd");
}
static inline const char* device_plugin(void) {
  return is_of_amd() ? "rocm" : "cuda";
}
static inline const char* first_device(void) {
  return is_of_amd() ? "rocm:0" : "cuda:0";
}
static inline const char* transport_plugin(const char* of_nvidia) {
  return is_of_amd() && !strcmp(of_nvidia, "nccl") ? "rccl" : of_nvidia;
}

static inline void* module(const char* file) {
  if (is_of_amd() && !strcmp(file, "fake_libnccl.so")) file = "fake_librccl.so";
  char path[4096];
  snprintf(path, sizeof path, "%s/tests/fixtures/%s", getenv("GSEL_TEST_BIN"), file);
  if (is_on_card()) snprintf(path, sizeof path, "%s", strstr(file, "nccl") ? "libnccl.so.2" : "libcuda.so.1");
  void* opened = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!opened) fprintf(stderr, "%s\n", dlerror());
  return opened;
}

/* Ends a program that has no card. */
static inline void count_devices(void* library) {
  int (*start)(unsigned) = NULL;
  int (*count)(int*) = NULL;
  if (library) {
    *(void**)&start = dlsym(library, "cuInit");
    *(void**)&count = dlsym(library, "cuDeviceGetCount");
  }
  if (start && count && start(0) == 0 && count(&cuda.n_devices) == 0 && cuda.n_devices > 0) return;
  fprintf(stderr, "there is no CUDA driver with a card\n");
  exit(77);
}

/* What a test needs besides. */
#define CUDA(name, ...) ((int (*)(__VA_ARGS__))dlsym(cuda.library, name))

#define FIND(member, symbol) *(void**)&cuda.member = dlsym(library, symbol)
static inline void find_all(void* library) {
  cuda.library = library;
  FIND(retain, "cuDevicePrimaryCtxRetain");
  FIND(push, "cuCtxPushCurrent_v2");
  FIND(pop, "cuCtxPopCurrent_v2");
  FIND(create, "cuStreamCreateWithPriority");
  FIND(synchronize, "cuStreamSynchronize");
  FIND(copy, "cuMemcpyAsync");
  FIND(alloc, "cuMemAlloc_v2");
  FIND(violations, "fake_cuda_violations");
  if (!cuda.violations) cuda.violations = no_violation;
  FIND(violation, "fake_cuda_violation");
  FIND(waits, "fake_cuda_waits");
  FIND(current, "fake_cuda_current");
}

/* From any rank's thread. */
static inline void load_doubles(const char* nccl) {
  static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&loading);
  void* library = module("fake_libcuda.so");
  if (is_on_card() && !cuda.n_devices) count_devices(library);
  if (library != cuda.library) find_all(library);
  if (is_of_amd()) *(void**)&cuda.current = dlsym(module("fake_libamdhip64.so"), "fake_hip_current");
  module(nccl);
  pthread_mutex_unlock(&loading);
}

/* One rank's device, with a stream of the program. */
typedef struct gpu {
  void* context;
  void* stream;
} gpu;

static inline int device_of_rank(int rank) {
  return cuda.n_devices ? rank % cuda.n_devices : rank;
}

static inline gpu open_gpu(int device) {
  gpu g;
  cuda.retain(&g.context, device_of_rank(device));
  cuda.push(g.context);
  cuda.create(&g.stream, 1, 0);
  cuda.pop(&(void*){NULL});
  return g;
}

static inline void copy(const gpu* g, void* to, const void* from, size_t bytes) {
  cuda.push(g->context);
  cuda.copy((uintptr_t)to, (uintptr_t)from, bytes, g->stream);
  cuda.pop(&(void*){NULL});
}

static inline void finish(const gpu* g) {
  cuda.push(g->context);
  cuda.synchronize(g->stream);
  cuda.pop(&(void*){NULL});
}

static inline gsel_status join_with(const rank_run* run, const char* transport, int device, uint32_t flags,
                                    gsel_comm** out, gsel_error** err) {
  char accelerator[32];
  snprintf(accelerator, sizeof accelerator, "%s:%d", device_plugin(), device);
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  options.timeout_s = run->timeout_s;
  options.join_timeout_s = 20;
  options.accelerator = gsel_str_from(accelerator);
  options.transport = gsel_str_from(transport_plugin(transport));
  options.flags = flags;
  return gsel_comm_init(&options, out, err);
}

static inline gsel_status join_on(const rank_run* run, const char* transport, int device, gsel_comm** out,
                                  gsel_error** err) {
  return join_with(run, transport, device, 0, out, err);
}

static inline void no_violations(void) {
  for (int i = 0; i < cuda.violations(); ++i) print_error("violation: %s\n", cuda.violation(i));
  assert_int_equal(cuda.violations(), 0);
}

/* Memory of the program's own on a device. */
static inline uintptr_t alloc(const gpu* g, size_t bytes) {
  uintptr_t at = 0;
  cuda.push(g->context);
  cuda.alloc(&at, bytes);
  cuda.pop(&(void*){NULL});
  return at;
}

static inline double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
