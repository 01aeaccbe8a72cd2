// plugins/device/cuda/image.cc: the fatbin that nvcc made of kernels.cu, as bytes of this plugin.
asm(R"(
  .section .rodata
  .balign 16
  .global gsel_cuda_kernels
  .hidden gsel_cuda_kernels
gsel_cuda_kernels:
  .incbin ")" GSEL_CUDA_FATBIN R"("
  .previous
)");
