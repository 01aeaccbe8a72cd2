/* cuda/gpu.h: the part of NVIDIA's driver that callbacks need: kernels and copies, enqueued on the stream that gsel
 * gives them. The driver is found when it is first used, so a program that has this linked in starts on any machine. It
 * knows no layer.
 *
 * What fails writes one line to `say` and returns the code that a callback may return. Any thread. */
#ifndef GPT_CUDA_GPU_H
#define GPT_CUDA_GPU_H

#include <gsel/error.h>
#include <gsel/types.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels.h"

/* A kernel of the first list, and GPT_N_TYPED behind it the same for bf16. */
#define GPT_KERNEL_NUMBER(name, n) GPT_##name,
#define GPT_BF16_NUMBER(name, n) GPT_##name##_bf16,
enum gpt_kernel {
  GPT_TYPED_KERNELS(GPT_KERNEL_NUMBER) GPT_N_TYPED,
  GPT_BEFORE_BF16 = GPT_N_TYPED - 1,
  GPT_TYPED_KERNELS(GPT_BF16_NUMBER) GPT_OTHER_KERNELS(GPT_KERNEL_NUMBER) GPT_N_KERNELS
};
#undef GPT_KERNEL_NUMBER
#undef GPT_BF16_NUMBER

/* Where a reason goes: the message of a gsel_call or of a gsel_data_request. */
struct gpu_say {
  char* message;
  size_t capacity;
};

/* A parameter of a kernel. */
union gpu_argument {
  const void* pointer;
  int64_t number;
};

/* The kernels of this build as the driver takes them; NULL: it was built without nvcc. */
const void* gpu_image(void);

/* Makes the device of the stream current, for calls of the driver and of NVIDIA's libraries, until gpu_leave(); its
 * context says which one that is. */
gsel_status gpu_enter(void* stream, void** context, struct gpu_say say);
void gpu_leave(void);

gsel_status gpu_launch(void* stream, enum gpt_kernel kernel, int64_t blocks, const union gpu_argument* arguments,
                       int n_arguments, struct gpu_say say);

/* Kernels of another image, for other arithmetic. A device loads them when it launches the first of them. */
struct gpu_set {
  const char* of; /* whose kernels these are, in messages */
  const void* (*image)(void);
  const char* const* names;
  const int* parameters; /* [n] how many each kernel has */
  int n;
};
gsel_status gpu_launch_of(const struct gpu_set* set, void* stream, int kernel, int64_t blocks,
                          const union gpu_argument* arguments, int n_arguments, struct gpu_say say);

/* Memory of the host must not change until the stream has passed the copy, unless it is pageable: of that the driver
 * takes the bytes at once, and it may wait. */
gsel_status gpu_copy(void* stream, void* dst, const void* src, size_t bytes, struct gpu_say say);

/* Page-locked memory of the host, for copies that nobody waits for, of the stream's device. gpu_unlock waits for what
 * is enqueued there; NULL is fine. */
struct gpu_locked {
  void *memory, *context;
};
gsel_status gpu_lock(void* stream, size_t bytes, struct gpu_locked* out, struct gpu_say say);
void gpu_unlock(struct gpu_locked* locked);

#endif
