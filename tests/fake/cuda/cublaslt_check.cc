// fake/cuda/cublaslt_check.cc: what examples/gpt and the double of cuBLASLt declare, held against cublasLt.h while this
// file is compiled; it has nothing to run. Only where a toolkit with it is installed.
#include <cublasLt.h>

#include <cstddef>

#include "examples/gpt/cuda/cublaslt.h"
#include "same_abi.h"

namespace {

#define COMPARE(name, function, parameters) \
  static_assert(is_same_call<decltype(::function), int parameters>, #function " differs from cublasLt.h");
GPT_CUBLASLT_FUNCTIONS(COMPARE)

static_assert(CUBLASLT_SUCCESS == int{CUBLAS_STATUS_SUCCESS} && CUBLASLT_NO_MEMORY == int{CUBLAS_STATUS_ALLOC_FAILED} &&
              CUBLASLT_NOT_SUPPORTED == int{CUBLAS_STATUS_NOT_SUPPORTED});
static_assert(CUBLASLT_F32 == int{CUDA_R_32F} && CUBLASLT_BF16 == int{CUDA_R_16BF} &&
              CUBLASLT_COMPUTE_F32 == int{CUBLAS_COMPUTE_32F} && CUBLASLT_TRANSPOSED == int{CUBLAS_OP_T});
static_assert(CUBLASLT_TRANSPOSE_A == int{CUBLASLT_MATMUL_DESC_TRANSA} &&
              CUBLASLT_TRANSPOSE_B == int{CUBLASLT_MATMUL_DESC_TRANSB} &&
              int{CUBLASLT_EPILOGUE} == int{CUBLASLT_MATMUL_DESC_EPILOGUE} &&
              CUBLASLT_BIAS_POINTER == int{CUBLASLT_MATMUL_DESC_BIAS_POINTER} &&
              CUBLASLT_EPILOGUE_OF_BIAS == int{CUBLASLT_EPILOGUE_BIAS});
static_assert(CUBLASLT_REDUCTIONS == int{CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK} &&
              int{CUBLASLT_REDUCTION_SCHEME_NONE} == 0);
static_assert(CUBLASLT_ALIGNMENT_A == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES} &&
              CUBLASLT_ALIGNMENT_B == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES} &&
              CUBLASLT_ALIGNMENT_C == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES} &&
              CUBLASLT_ALIGNMENT_D == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES});
static_assert(sizeof(cublaslt_algo) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(cublaslt_found) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(cublaslt_found, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(cublaslt_found, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

}  // namespace
