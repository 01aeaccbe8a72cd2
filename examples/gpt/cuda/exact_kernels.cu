// cuda/exact_kernels.cu: the arithmetic of exact_layers.c on a GPU: every number is an integer that f32 holds, so sums
// have the host's bits in any order. A thread computes one element of a result, all by itself.
#include <math.h>
#include <stdint.h>

#include "exact_kernels.h"
#include "kernels.h"

namespace gpt_exact_kernels {

template <class Body>
__device__ inline void over(int64_t count, Body body) {
  const int64_t step = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) body(i);
}

// The remainder of division by 17, from -8 to 8.
__device__ inline float fold(float x) {
  return x - 17 * rintf(x / 17);
}
// A parameter as an integer: it counts in units of 1/64.
__device__ inline float whole(float w) {
  return fold(rintf(w * 64));
}

__device__ inline float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += fold(a[i]) * fold(b[i]);
  return fold(sum);
}

}  // namespace gpt_exact_kernels

#define GPT_EXACT_KERNEL extern "C" __global__ void __launch_bounds__(GPT_THREADS)

// ---- embeddings, residual -------------------------------------------------------------------------------------------

GPT_EXACT_KERNEL gpt_exact_token_forward(float* x, const uint8_t* tokens, const float* table, int64_t rows,
                                         int64_t first, int64_t count, int64_t width) {
  using namespace gpt_exact_kernels;
  over(rows * width, [=](int64_t i) {
    const int64_t at = tokens[i / width] - first;
    x[i] = at >= 0 && at < count ? whole(table[at * width + i % width]) : 0;
  });
}

GPT_EXACT_KERNEL gpt_exact_token_backward(float* dtable, const float* dx, const uint8_t* tokens, int64_t rows,
                                          int64_t first, int64_t count, int64_t width, int64_t accumulate) {
  using namespace gpt_exact_kernels;
  over(count * width, [=](int64_t i) {
    float sum = accumulate ? dtable[i] : 0;
    for (int64_t r = 0; r < rows; ++r)
      if (tokens[r] - first == i / width) sum += fold(dx[r * width + i % width]);
    dtable[i] = sum;
  });
}

// here: elements of a sample; first: of the table, that the sample's first one is added to.
GPT_EXACT_KERNEL gpt_exact_position_forward(float* y, const float* x, const float* table, int64_t count, int64_t first,
                                            int64_t here) {
  using namespace gpt_exact_kernels;
  over(count, [=](int64_t i) { y[i] = fold(x[i] + whole(table[first + i % here])); });
}

GPT_EXACT_KERNEL gpt_exact_position_backward(float* dtable, const float* dy, int64_t count, int64_t elems,
                                             int64_t first, int64_t here, int64_t accumulate) {
  using namespace gpt_exact_kernels;
  over(elems, [=](int64_t i) {
    float sum = accumulate ? dtable[i] : 0;
    for (int64_t at = i - first; i >= first && i < first + here && at < count; at += here) sum += fold(dy[at]);
    dtable[i] = sum;
  });
}

GPT_EXACT_KERNEL gpt_exact_folded(float* dx, const float* dy, int64_t count) {
  using namespace gpt_exact_kernels;
  over(count, [=](int64_t i) { dx[i] = fold(dy[i]); });
}

GPT_EXACT_KERNEL gpt_exact_sum_rows(float* d, const float* dy, int64_t rows, int64_t width, int64_t accumulate) {
  using namespace gpt_exact_kernels;
  over(width, [=](int64_t i) {
    float sum = accumulate ? d[i] : 0;
    for (int64_t r = 0; r < rows; ++r) sum += fold(dy[r * width + i]);
    d[i] = sum;
  });
}

GPT_EXACT_KERNEL gpt_exact_residual_forward(float* y, const float* x, const float* f, const float* b, int64_t count,
                                            int64_t width) {
  using namespace gpt_exact_kernels;
  over(count, [=](int64_t i) { y[i] = fold(x[i] + f[i] + whole(b[i % width])); });
}

// ---- norm: a thread has a row, or a column --------------------------------------------------------------------------

GPT_EXACT_KERNEL gpt_exact_layernorm_forward(float* y, float* sums, const float* x, const float* g, const float* b,
                                             int64_t rows, int64_t width) {
  using namespace gpt_exact_kernels;
  over(rows, [=](int64_t r) {
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += x[r * width + i];
    sums[2 * r] = fold(sum);
    for (int64_t i = 0; i < width; ++i)
      y[r * width + i] = fold(fold(x[r * width + i] + sums[2 * r]) * whole(g[i]) + whole(b[i]));
  });
}

GPT_EXACT_KERNEL gpt_exact_layernorm_backward_input(float* dx, const float* dy, const float* g, int64_t rows,
                                                    int64_t width) {
  using namespace gpt_exact_kernels;
  over(rows, [=](int64_t r) {
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) sum += fold(dy[r * width + i]);
    for (int64_t i = 0; i < width; ++i) dx[r * width + i] = fold(fold(dy[r * width + i]) * whole(g[i]) + fold(sum));
  });
}

GPT_EXACT_KERNEL gpt_exact_layernorm_backward_weight(float* dg, float* db, const float* dy, const float* x,
                                                     const float* sums, int64_t rows, int64_t width,
                                                     int64_t accumulate) {
  using namespace gpt_exact_kernels;
  over(width, [=](int64_t i) {
    float gain = accumulate ? dg[i] : 0, bias = accumulate ? db[i] : 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float d = fold(dy[r * width + i]);
      gain += d * fold(x[r * width + i] + sums[2 * r]);
      bias += d;
    }
    dg[i] = gain;
    db[i] = bias;
  });
}

// ---- linear ---------------------------------------------------------------------------------------------------------

GPT_EXACT_KERNEL gpt_exact_linear_forward(float* y, const float* x, const float* w, const float* b, int64_t rows,
                                          int64_t in, int64_t out) {
  using namespace gpt_exact_kernels;
  over(rows * out, [=](int64_t at) {
    const int64_t r = at / out, o = at % out;
    float sum = b ? whole(b[o]) : 0;
    for (int64_t i = 0; i < in; ++i) sum += fold(x[r * in + i]) * whole(w[o * in + i]);
    y[at] = sum;
  });
}

GPT_EXACT_KERNEL gpt_exact_linear_backward_input(float* dx, const float* dy, const float* w, int64_t rows, int64_t in,
                                                 int64_t out) {
  using namespace gpt_exact_kernels;
  over(rows * in, [=](int64_t at) {
    const int64_t r = at / in, i = at % in;
    float sum = 0;
    for (int64_t o = 0; o < out; ++o) sum += fold(dy[r * out + o]) * whole(w[o * in + i]);
    dx[at] = sum;
  });
}

GPT_EXACT_KERNEL gpt_exact_linear_backward_weight(float* dw, const float* dy, const float* x, int64_t rows, int64_t in,
                                                  int64_t out, int64_t accumulate) {
  using namespace gpt_exact_kernels;
  over(out * in, [=](int64_t at) {
    const int64_t o = at / in, i = at % in;
    float sum = accumulate ? dw[at] : 0;
    for (int64_t r = 0; r < rows; ++r) sum += fold(dy[r * out + o]) * fold(x[r * in + i]);
    dw[at] = sum;
  });
}

// ---- attention: width = heads * head; qkv[n][context][3][width] -----------------------------------------------------

GPT_EXACT_KERNEL gpt_exact_attention_forward(float* y, const float* qkv, int64_t n, int64_t context, int64_t width,
                                             int64_t head) {
  using namespace gpt_exact_kernels;
  over(n * context * width, [=](int64_t at) {
    const int64_t column = at % width, i = at / width % context, sample = at / width / context;
    const float* own = qkv + sample * context * 3 * width;
    const int64_t first = column / head * head;  // of its head
    float sum = 0;
    for (int64_t j = 0; j <= i; ++j)
      sum += dot(own + 3 * i * width + first, own + (3 * j + 1) * width + first, head) *
             fold(own[(3 * j + 2) * width + column]);
    y[at] = sum;
  });
}

GPT_EXACT_KERNEL gpt_exact_attention_backward(float* dqkv, const float* dy, const float* qkv, int64_t n,
                                              int64_t context, int64_t width, int64_t head) {
  using namespace gpt_exact_kernels;
  over(3 * n * context * width, [=](int64_t at) {
    const int64_t column = at % width, kind = at / width % 3, row = at / (3 * width) % context;
    const int64_t sample = at / (3 * width) / context, first = column / head * head;
    const float* own = qkv + sample * context * 3 * width;
    const float* d = dy + sample * context * width;
    // A query looks back at keys, a key and a value are looked at by later queries.
    const int64_t begin = kind == 0 ? 0 : row, end = kind == 0 ? row + 1 : context;
    float sum = 0;
    for (int64_t other = begin; other < end; ++other) {
      const int64_t i = kind == 0 ? row : other, j = kind == 0 ? other : row;
      const float *q = own + 3 * i * width, *k = own + (3 * j + 1) * width, *v = k + width;
      if (kind == 2)
        sum += dot(q + first, k + first, head) * fold(d[i * width + column]);
      else
        sum += dot(d + i * width + first, v + first, head) * fold(kind == 0 ? k[column] : q[column]);
    }
    dqkv[at] = sum;
  });
}

// ---- gelu, loss -----------------------------------------------------------------------------------------------------

GPT_EXACT_KERNEL gpt_exact_gelu_forward(float* y, const float* x, int64_t count) {
  using namespace gpt_exact_kernels;
  over(count, [=](int64_t i) { y[i] = fold(fold(x[i]) * fold(x[i]) + 3); });
}

GPT_EXACT_KERNEL gpt_exact_gelu_backward(float* dx, const float* dy, const float* x, int64_t count) {
  using namespace gpt_exact_kernels;
  over(count, [=](int64_t i) { dx[i] = fold(fold(dy[i]) * 2 * fold(x[i])); });
}

GPT_EXACT_KERNEL gpt_exact_loss_tops(float* tops, const float* logits, int64_t rows, int64_t count) {
  using namespace gpt_exact_kernels;
  over(rows, [=](int64_t r) {
    float top = logits[r * count];
    for (int64_t i = 1; i < count; ++i) top = fmaxf(top, logits[r * count + i]);
    tops[r] = top;
  });
}

GPT_EXACT_KERNEL gpt_exact_loss_sums(float* sums, const float* logits, const float* tops, const uint8_t* targets,
                                     int64_t rows, int64_t first, int64_t count) {
  using namespace gpt_exact_kernels;
  over(rows, [=](int64_t r) {
    const int64_t target = targets[r] - first;
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += fold(logits[r * count + i] - tops[r]);
    sums[2 * r] = sum;
    sums[2 * r + 1] = target >= 0 && target < count ? fold(logits[r * count + target]) : 0;
  });
}

GPT_EXACT_KERNEL gpt_exact_loss(double* loss, double* weight, float* kept, const float* tops, const float* sums,
                                int64_t rows) {
  using namespace gpt_exact_kernels;
  over(1, [=](int64_t) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) {
      kept[r] = fold(tops[r] + sums[2 * r]);
      sum += static_cast<double>(fold(kept[r] + sums[2 * r + 1])) + 9;
    }
    *loss = sum;
    *weight = static_cast<double>(rows);
  });
}

GPT_EXACT_KERNEL gpt_exact_loss_backward(float* dlogits, const float* logits, const float* kept, const uint8_t* targets,
                                         int64_t rows, int64_t first, int64_t count) {
  using namespace gpt_exact_kernels;
  over(rows * count, [=](int64_t at) {
    const float is_target = targets[at / count] - first == at % count ? 1 : 0;
    dlogits[at] = fold(fold(logits[at]) + kept[at / count] - is_target);
  });
}
