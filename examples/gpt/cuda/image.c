/* cuda/image.c: embeds the fatbin that nvcc made of kernels.cu; without nvcc there is none. */
#include "gpu.h"

#ifdef GPT_CUDA_FATBIN
#include "embed.h"

EMBED("gpt_cuda_image", GPT_CUDA_FATBIN);
extern const unsigned char gpt_cuda_image[];

const void* gpu_image(void) {
  return gpt_cuda_image;
}
#else
const void* gpu_image(void) {
  return NULL;
}
#endif
