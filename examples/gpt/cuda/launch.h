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

/* So many blocks have a part of `n` each. */
static inline int64_t blocks_of(int64_t n, int64_t part) {
  return (n + part - 1) / part;
}
static inline int64_t elements(int64_t n) {
  return blocks_of(n, GPT_THREADS);
}

#endif
