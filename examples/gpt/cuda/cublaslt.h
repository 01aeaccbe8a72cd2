/* cuda/cublaslt.h: the functions of cuBLASLt that products.c calls, declared here, so that no toolkit is needed to
 * build. Where one is installed, tests/fake/cuda/cublaslt_check.cc compares all of this with cublasLt.h. */
#ifndef GPT_CUDA_CUBLASLT_H
#define GPT_CUDA_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

struct cublaslt_algo {
  uint64_t data[8];
};
struct cublaslt_found {
  struct cublaslt_algo algo;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

enum {
  CUBLASLT_SUCCESS = 0,
  CUBLASLT_NO_MEMORY = 3,
  CUBLASLT_NOT_SUPPORTED = 15,
  CUBLASLT_F32 = 0, /* of an array */
  CUBLASLT_BF16 = 14,
  CUBLASLT_COMPUTE_F32 = 68,
  CUBLASLT_TRANSPOSED = 1,
  /* attributes of an operation */
  CUBLASLT_TRANSPOSE_A = 3,
  CUBLASLT_TRANSPOSE_B = 4,
  CUBLASLT_EPILOGUE = 7,
  CUBLASLT_BIAS_POINTER = 8,
  CUBLASLT_EPILOGUE_OF_BIAS = 4,
  /* attributes of a preference */
  CUBLASLT_REDUCTIONS = 3,
  CUBLASLT_ALIGNMENT_A = 5,
  CUBLASLT_ALIGNMENT_B = 6,
  CUBLASLT_ALIGNMENT_C = 7,
  CUBLASLT_ALIGNMENT_D = 8
};

/* Our name, the library's, parameters. Each returns a cublasStatus_t, 0 for success; handles are pointers. */
#define GPT_CUBLASLT_FUNCTIONS(X)                                                                                      \
  X(create, cublasLtCreate, (void** handle))                                                                           \
  X(create_operation, cublasLtMatmulDescCreate, (void** operation, int compute, int scale))                            \
  X(set_operation, cublasLtMatmulDescSetAttribute, (void* operation, int attribute, const void* from, size_t bytes))   \
  X(destroy_operation, cublasLtMatmulDescDestroy, (void* operation))                                                   \
  X(create_layout, cublasLtMatrixLayoutCreate, (void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld)) \
  X(destroy_layout, cublasLtMatrixLayoutDestroy, (void* layout))                                                       \
  X(create_preference, cublasLtMatmulPreferenceCreate, (void** preference))                                            \
  X(set_preference, cublasLtMatmulPreferenceSetAttribute,                                                              \
    (void* preference, int attribute, const void* from, size_t bytes))                                                 \
  X(destroy_preference, cublasLtMatmulPreferenceDestroy, (void* preference))                                           \
  X(find, cublasLtMatmulAlgoGetHeuristic,                                                                              \
    (void* handle, void* operation, void* a, void* b, void* c, void* d, void* preference, int most,                    \
     struct cublaslt_found* found, int* n_found))                                                                      \
  X(multiply, cublasLtMatmul,                                                                                          \
    (void* handle, void* operation, const void* alpha, const void* a, void* a_layout, const void* b, void* b_layout,   \
     const void* beta, const void* c, void* c_layout, void* d, void* d_layout, const struct cublaslt_algo* algo,       \
     void* workspace, size_t workspace_bytes, void* stream))

#endif
