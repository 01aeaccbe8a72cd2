/* cuda/products.h: products of matrices on a GPU by cuBLASLt, which is found when it is first asked for. No card has
 * run this yet: the sequence of calls is tested on a double of the library. */
#ifndef GPT_CUDA_PRODUCTS_H
#define GPT_CUDA_PRODUCTS_H

#include "gpu.h"

/* d[rows][columns] = the product of a and b, plus bias[columns] where there is one; or that is added to d. Arrays are
 * row-major and packed; sums are f32 whatever the types are. */
struct gpu_product {
  void* d;
  const void *a, *b, *bias;       /* bias: of d's type; NULL: none */
  int64_t rows, columns, depth;   /* depth: numbers in each sum */
  int a_transposed, b_transposed; /* stored as a[depth][rows], b[columns][depth] */
  int adds;                       /* to d */
  gsel_dtype type, d_type;        /* of a and b, and of d: GSEL_F32 or GSEL_BF16 */
};

/* Enqueues it on the stream. Any thread. */
gsel_status gpu_multiply(void* stream, const struct gpu_product* product, struct gpu_say say);

/* Why there is no cuBLASLt, in one line; NULL: it is there. */
const char* gpu_products_refusal(void);

#endif
