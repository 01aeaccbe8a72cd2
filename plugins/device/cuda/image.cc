// plugins/device/cuda/image.cc: embeds what nvcc or hipcc made of kernels.cu; without these a single 0 byte.
#ifdef GSEL_CUDA_FATBIN
asm(R"(
  .section .rodata
  .balign 4096
  .global gsel_cuda_kernels
  .hidden gsel_cuda_kernels
gsel_cuda_kernels:
  .incbin ")" GSEL_CUDA_FATBIN R"("
  .previous
)");
#else
#define GSEL_CUDA_TOOLKIT 0
extern "C" {
extern const unsigned char gsel_cuda_kernels[];
const unsigned char gsel_cuda_kernels[] = {0};
}
#endif
extern "C" {
extern const int gsel_cuda_kernels_version;
const int gsel_cuda_kernels_version = GSEL_CUDA_TOOLKIT;
}
