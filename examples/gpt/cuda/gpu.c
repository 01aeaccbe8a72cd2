/* cuda/gpu.c: see gpu.h. A stream says which context it belongs to: that of the device whose memory gsel lends. It is
 * current inside each function here, and what was current before is current again behind it. */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "driver.h"

/* ---- the driver ------------------------------------------------------------------------------------------- */

/* libcuda.so.1 is the driver; libcuda.so without a number is the toolkit's, for linking. */
static const char library_name[] = "libcuda.so.1";

#define DRIVER_MEMBER(name, function, version, symbol, parameters) int(*name) parameters;
static struct { GPT_CUDA_DRIVER(DRIVER_MEMBER) } cuda;
static char why_none[256]; /* "": the driver is there */

static void* find(void* library, const char* symbol) {
  void* found = dlsym(library, symbol);
  if (!found && !*why_none)
    snprintf(why_none, sizeof why_none, "%s has no %s; use a newer driver", library_name, symbol);
  return found;
}

static void load_driver(void) {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(why_none, sizeof why_none, "no CUDA driver: %s", dlerror());
    return;
  }
#define DRIVER_FIND(name, function, version, symbol, parameters) *(void**)&cuda.name = find(library, symbol);
  GPT_CUDA_DRIVER(DRIVER_FIND)
}

/* ---- a device: its context and its kernels ----------------------------------------------------------------- */

enum { MOST_GPUS = 64, MOST_SETS = 2, MOST_KERNELS = 96 };
struct gpu {
  void* context;
  struct loaded {
    const struct gpu_set* set;
    void* kernels[MOST_KERNELS];
  } sets[MOST_SETS];
};

static struct gpu gpus[MOST_GPUS];
static int n_gpus;
static pthread_mutex_t gpus_lock = PTHREAD_MUTEX_INITIALIZER;

#define KERNEL_NAME(name, n) "gpt_" #name,
#define BF16_NAME(name, n) "gpt_" #name "_bf16",
#define KERNEL_PARAMETERS(name, n) n,
static const char* const kernel_names[] = {GPT_TYPED_KERNELS(KERNEL_NAME) GPT_TYPED_KERNELS(BF16_NAME)
                                               GPT_OTHER_KERNELS(KERNEL_NAME)};
static const int kernel_parameters[] = {GPT_TYPED_KERNELS(KERNEL_PARAMETERS) GPT_TYPED_KERNELS(KERNEL_PARAMETERS)
                                            GPT_OTHER_KERNELS(KERNEL_PARAMETERS)};
_Static_assert(GPT_N_KERNELS <= MOST_KERNELS, "a device has no room for all kernels");
static const struct gpu_set gpt_kernels = {"the GPT", gpu_image, kernel_names, kernel_parameters, GPT_N_KERNELS};

static gsel_status failed(int result, const char* what, struct gpu_say say) {
  const char* text = NULL;
  if (cuda.error_string(result, &text) || !text) text = "unknown error";
  snprintf(say.message, say.capacity, "%s: CUDA error %d: %s", what, result, text);
  return result == 2 ? GSEL_ERR_NOMEM : GSEL_ERR_DEVICE;
}

/* Loads all kernels of a set for the current device. */
static gsel_status load_set(struct loaded* into, const struct gpu_set* set, struct gpu_say say) {
  void* module;
  char what[64];
  int result;
  if (!set->image()) {
    snprintf(say.message, say.capacity, "this program was built without kernels for a GPU: CMake found no nvcc");
    return GSEL_ERR_UNSUPPORTED;
  }
  snprintf(what, sizeof what, "loading the kernels of %s", set->of);
  if ((result = cuda.load(&module, set->image()))) return failed(result, what, say);
  for (int k = 0; k < set->n; ++k)
    if ((result = cuda.function(&into->kernels[k], module, set->names[k]))) return failed(result, set->names[k], say);
  into->set = set;
  return GSEL_OK;
}

/* The GPT's kernels are loaded before anything runs. The current device's primary context is kept until the process
 * ends, so that kernels stay valid. */
static gsel_status open_gpu(struct gpu* gpu, void* context, struct gpu_say say) {
  void* kept;
  int device, result;
  if ((result = cuda.current_device(&device)) || (result = cuda.retain(&kept, device)))
    return failed(result, "keeping the device", say);
  gpu->context = context;
  return load_set(&gpu->sets[0], &gpt_kernels, say);
}

/* A kernel of the current device. */
static gsel_status find_kernel(struct gpu* gpu, const struct gpu_set* set, int kernel, void** out, struct gpu_say say) {
  gsel_status status = GSEL_OK;
  int i = 0;
  pthread_mutex_lock(&gpus_lock);
  while (i + 1 < MOST_SETS && gpu->sets[i].set && gpu->sets[i].set != set) ++i;
  if (gpu->sets[i].set != set) status = load_set(&gpu->sets[i], set, say);
  *out = gpu->sets[i].kernels[kernel];
  pthread_mutex_unlock(&gpus_lock);
  return status;
}

static gsel_status find_gpu(void* context, struct gpu** out, struct gpu_say say) {
  int i = 0;
  while (i < n_gpus && gpus[i].context != context) ++i;
  *out = &gpus[i];
  if (i < n_gpus) return GSEL_OK;
  if (i == MOST_GPUS) {
    snprintf(say.message, say.capacity, "a process has at most %d devices here", MOST_GPUS);
    return GSEL_ERR_UNSUPPORTED;
  }
  const gsel_status status = open_gpu(&gpus[i], context, say);
  n_gpus += status == GSEL_OK;
  return status;
}

/* Makes any device current that this process uses: only then does a stream tell its own. gsel uses the stream's, so
 * there is one, and no other is touched. */
static int push_any(void) {
  int n, active = 0, result = cuda.device_count(&n);
  unsigned flags;
  void* context;
  if (n_gpus > 0) return cuda.push(gpus[0].context);
  for (int device = 0; device < n && !result; ++device) {
    result = cuda.state(device, &flags, &active);
    if (result || !active) continue;
    result = cuda.retain(&context, device);
    return result ? result : cuda.push(context);
  }
  return result ? result : 201; /* no context */
}

/* Makes the stream's device current until gpu_leave(). */
static gsel_status make_current(void* stream, void** context, struct gpu_say say) {
  void* other;
  int result = push_any();
  if (!result) {
    result = cuda.stream_context(stream, context);
    cuda.pop(&other);
  }
  if (!result) result = cuda.push(*context);
  return result ? failed(result, "making the stream's device current", say) : GSEL_OK;
}

void gpu_leave(void) {
  void* popped;
  cuda.pop(&popped);
}

static gsel_status enter(void* stream, struct gpu** gpu, struct gpu_say say) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  void* context;
  pthread_once(&once, load_driver);
  if (*why_none) {
    snprintf(say.message, say.capacity, "%s", why_none);
    return GSEL_ERR_UNSUPPORTED;
  }
  pthread_mutex_lock(&gpus_lock);
  gsel_status status = make_current(stream, &context, say);
  if (!status && (status = find_gpu(context, gpu, say)) != GSEL_OK) gpu_leave();
  pthread_mutex_unlock(&gpus_lock);
  return status;
}

gsel_status gpu_enter(void* stream, void** context, struct gpu_say say) {
  struct gpu* gpu;
  const gsel_status status = enter(stream, &gpu, say);
  if (!status) *context = gpu->context;
  return status;
}

/* ---- what callbacks do -------------------------------------------------------------------------------------- */

gsel_status gpu_launch_of(const struct gpu_set* set, void* stream, int kernel, int64_t blocks,
                          const union gpu_argument* arguments, int n_arguments, struct gpu_say say) {
  enum { MOST_ARGUMENTS = 16, MOST_BLOCKS = 1 << 20 };
  void *places[MOST_ARGUMENTS], *function;
  struct gpu* gpu;
  if (n_arguments != set->parameters[kernel]) {
    snprintf(say.message, say.capacity, "%s has %d parameters and got %d", set->names[kernel], set->parameters[kernel],
             n_arguments);
    return GSEL_ERR_INTERNAL;
  }
  if (blocks == 0) return GSEL_OK;
  for (int i = 0; i < n_arguments; ++i) places[i] = (void*)&arguments[i];
  gsel_status status = enter(stream, &gpu, say);
  if (status) return status;
  status = find_kernel(gpu, set, kernel, &function, say);
  const unsigned grid = (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
  const int result = status ? 0 : cuda.launch(function, grid, 1, 1, GPT_THREADS, 1, 1, 0, stream, places, NULL);
  gpu_leave();
  return result ? failed(result, set->names[kernel], say) : status;
}

gsel_status gpu_launch(void* stream, enum gpt_kernel kernel, int64_t blocks, const union gpu_argument* arguments,
                       int n_arguments, struct gpu_say say) {
  return gpu_launch_of(&gpt_kernels, stream, (int)kernel, blocks, arguments, n_arguments, say);
}

gsel_status gpu_copy(void* stream, void* dst, const void* src, size_t bytes, struct gpu_say say) {
  struct gpu* gpu;
  const gsel_status status = enter(stream, &gpu, say);
  if (status) return status;
  const int result = bytes ? cuda.copy((uintptr_t)dst, (uintptr_t)src, bytes, stream) : 0;
  gpu_leave();
  return result ? failed(result, "a copy", say) : GSEL_OK;
}

gsel_status gpu_lock(void* stream, size_t bytes, struct gpu_locked* out, struct gpu_say say) {
  struct gpu* gpu;
  const gsel_status status = enter(stream, &gpu, say);
  if (status) return status;
  void* memory;
  const int result = cuda.lock(&memory, bytes, 0);
  gpu_leave();
  if (result) return failed(result, "page-locked memory for the text", say);
  *out = (struct gpu_locked){memory, gpu->context};
  return GSEL_OK;
}

void gpu_unlock(struct gpu_locked* locked) {
  if (locked->memory && cuda.push(locked->context) == 0) {
    cuda.unlock(locked->memory);
    gpu_leave();
  }
  *locked = (struct gpu_locked){0};
}
