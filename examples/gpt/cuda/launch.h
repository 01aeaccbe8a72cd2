/* cuda/launch.h: how a callback writes a launch down: arguments, so many blocks, and where a failure is told. */
#ifndef GPT_CUDA_LAUNCH_H
#define GPT_CUDA_LAUNCH_H

#include <gsel/model.h>

#include "gpu.h"

#define P(address) \
  { .pointer = (address) }
#define N(count) \
  { .number = (count) }
#define GPU_ARGUMENTS(...)                   \
  (const union gpu_argument[]){__VA_ARGS__}, \
      (int)(sizeof((const union gpu_argument[]){__VA_ARGS__}) / sizeof(union gpu_argument))

static inline struct gpu_say say_of(const gsel_call* call) {
  return (struct gpu_say){call->message, call->message_capacity};
}

/* A kernel of the typed ones, for what the call's values are: those of the loss layer are its logits. */
static inline enum gpt_kernel typed_kernel(const gsel_call* call, enum gpt_kernel kernel) {
  const int is_bf16 = call->outputs[0].dtype == GSEL_BF16 || call->inputs[0].dtype == GSEL_BF16;
  return (enum gpt_kernel)(kernel + (is_bf16 && kernel < GPT_N_TYPED ? GPT_N_TYPED : 0));
}

/* So many blocks have a part of `n` each. */
static inline int64_t blocks_of(int64_t n, int64_t part) {
  return (n + part - 1) / part;
}
static inline int64_t elements(int64_t n) {
  return blocks_of(n, GPT_THREADS);
}

#endif
