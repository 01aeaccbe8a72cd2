/* cuda/exact_image.h: the kernels of exact_kernels.cu as the driver takes them; NULL: built without nvcc. */
#ifndef GPT_CUDA_EXACT_IMAGE_H
#define GPT_CUDA_EXACT_IMAGE_H

const void* gpu_exact_image(void);

#endif
