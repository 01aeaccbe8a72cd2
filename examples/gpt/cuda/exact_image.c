/* cuda/exact_image.c: embeds the fatbin that nvcc made of exact_kernels.cu; without nvcc there is none. */
#include "exact_image.h"

#include <stddef.h>

#ifdef GPT_CUDA_EXACT_FATBIN
#include "embed.h"

EMBED("gpt_cuda_exact_image", GPT_CUDA_EXACT_FATBIN);
extern const unsigned char gpt_cuda_exact_image[];

const void* gpu_exact_image(void) {
  return gpt_cuda_exact_image;
}
#else
const void* gpu_exact_image(void) {
  return NULL;
}
#endif
