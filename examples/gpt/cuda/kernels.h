/* cuda/kernels.h: the names of the kernels, with the number of their parameters, and how they divide work among blocks;
 * shared by kernels.cu and those who launch them. Each parameter is a pointer or an int64_t. Those of the first list
 * exist for arrays in f32 and, with _bf16 behind their names, for arrays in bf16. */
#ifndef GPT_CUDA_KERNELS_H
#define GPT_CUDA_KERNELS_H

#define GPT_TYPED_KERNELS(X)              \
  X(token_forward, 7)                     \
  X(token_backward, 8)                    \
  X(position_forward, 7)                  \
  X(position_backward, 8)                 \
  X(linear_forward, 7)                    \
  X(linear_backward_input, 6)             \
  X(linear_backward_weight, 7)            \
  X(sum_rows, 5)                          \
  X(layernorm_forward, 7)                 \
  X(layernorm_backward_input, 7)          \
  X(layernorm_backward_weight, 8)         \
  X(attention_forward, 7)                 \
  X(attention_backward_queries, 8)        \
  X(attention_backward_keys, 8)           \
  X(attention_backward_values, 7)         \
  X(attention_block_forward, 11)          \
  X(attention_block_backward_queries, 13) \
  X(attention_block_backward_keys, 12)    \
  X(block_fill, 7)                        \
  X(block_home, 5)                        \
  X(gelu_forward, 3)                      \
  X(gelu_backward, 4)                     \
  X(residual_forward, 6)                  \
  X(cross_entropy_tops, 4)                \
  X(cross_entropy_sums, 7)                \
  X(cross_entropy_backward, 7)
#define GPT_OTHER_KERNELS(X) X(cross_entropy_loss, 6)

enum {
  GPT_THREADS = 256, /* of a block; elements that it takes at a time */
  GPT_LANES = 32,    /* threads that share a row; columns of sums over rows that a block takes at a time */
  GPT_ROWS = GPT_THREADS / GPT_LANES, /* rows that a block takes at a time */
  GPT_TILE = 64,                      /* a block computes a square of so many rows and columns of a product */
  GPT_OWN = 16,       /* queries or keys of one head that a block takes at a time, of attention in blocks */
  GPT_HEAD = 128,     /* largest head of attention in blocks */
  GPT_BLOCK_HEAD = 16 /* floats in front of the keys of a block that goes round the ring */
};

#endif
