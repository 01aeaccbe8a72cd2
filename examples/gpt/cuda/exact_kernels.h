/* cuda/exact_kernels.h: the names of the kernels of exact_kernels.cu, with the number of their parameters. Each
 * parameter is a pointer or an int64_t. */
#ifndef GPT_CUDA_EXACT_KERNELS_H
#define GPT_CUDA_EXACT_KERNELS_H

#define GPT_EXACT_KERNELS(X)      \
  X(token_forward, 7)             \
  X(token_backward, 8)            \
  X(position_forward, 6)          \
  X(position_backward, 7)         \
  X(folded, 3)                    \
  X(sum_rows, 5)                  \
  X(residual_forward, 6)          \
  X(layernorm_forward, 7)         \
  X(layernorm_backward_input, 5)  \
  X(layernorm_backward_weight, 8) \
  X(linear_forward, 7)            \
  X(linear_backward_input, 6)     \
  X(linear_backward_weight, 7)    \
  X(attention_forward, 6)         \
  X(attention_backward, 7)        \
  X(gelu_forward, 3)              \
  X(gelu_backward, 4)             \
  X(loss_tops, 4)                 \
  X(loss_sums, 7)                 \
  X(loss, 6)                      \
  X(loss_backward, 7)

#endif
