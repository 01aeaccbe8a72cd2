/* cuda/image.c: embeds the fatbin that nvcc made of kernels.cu; without nvcc there is none. */
#include "gpu.h"

#ifdef GPT_CUDA_FATBIN
__asm__(
    ".section .rodata\n"
    ".balign 16\n"
    ".hidden gpt_cuda_image\n"
    ".global gpt_cuda_image\n"
    "gpt_cuda_image:\n"
    ".incbin \"" GPT_CUDA_FATBIN
    "\"\n"
    ".previous\n");
extern const unsigned char gpt_cuda_image[];

const void* gpu_image(void) {
  return gpt_cuda_image;
}
#else
const void* gpu_image(void) {
  return NULL;
}
#endif
