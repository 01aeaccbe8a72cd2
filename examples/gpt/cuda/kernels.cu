// cuda/kernels.cu: the kernels of kernels.h on a GPU, with the same arrays and the same meaning: f32, and f64 for the
// sum of the losses. nvcc compiles this file into a fatbin; tests/fake/cuda compiles it for the host.
//
// Each element of a result is computed by one thread, or by one block in a fixed order: there are no atomics, so a
// kernel gives the same bits for the same arguments, whatever the number of blocks, and what it gives for one sample
// does not depend on the others.
#include <math.h>
#include <stdint.h>

#include "kernels.h"

namespace gpt_cuda_kernels {

constexpr int kThreads = GPT_THREADS, kLanes = GPT_LANES, kRows = GPT_ROWS;
constexpr int kTile = GPT_TILE, kDepth = 16, kSide = 4;  // of products; each thread has kSide * kSide elements

// ---- who does what ------------------------------------------------------------------------------------------------

// body(i) for each i < count.
template <class Body>
__device__ inline void over(int64_t count, Body body) {
  const int64_t step = gridDim.x * static_cast<int64_t>(blockDim.x);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += step) body(i);
}

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % kLanes;
}

// body(row, 1) for each row, by the lanes of that row. All threads of a block meet at the same barriers, so lanes that
// have no row left get (rows, 0): bounds of their loops are multiplied by this 0.
template <class Body>
__device__ inline void each_row(int64_t rows, Body body) {
  const int64_t step = gridDim.x * static_cast<int64_t>(kRows);
  for (int64_t first = blockIdx.x * static_cast<int64_t>(kRows); first < rows; first += step) {
    const int64_t row = first + static_cast<int>(threadIdx.x) / kLanes;
    body(row < rows ? row : rows, row < rows ? 1 : 0);
  }
}

struct Plus {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

// One number from each lane of a row, put together; all of them get the result.
template <class Fold>
__device__ inline float fold_lanes(float own) {
  __shared__ float of[kThreads];
  float* row = of + threadIdx.x - lane();
  of[threadIdx.x] = own;
  __syncthreads();
  for (int half = kLanes / 2; half > 0; half /= 2) {
    if (lane() < half) row[lane()] = Fold()(row[lane()], row[lane() + half]);
    __syncthreads();
  }
  const float result = row[0];
  __syncthreads();
  return result;
}

// sum[column] (+)= term(row, column) over all rows. A block takes kLanes columns, and kRows rows at a time.
template <class Term>
__device__ inline void sum_over_rows(float* sum, int64_t rows, int64_t width, int64_t accumulate, Term term) {
  __shared__ float parts[kThreads];
  const int64_t step = gridDim.x * static_cast<int64_t>(kLanes);
  for (int64_t first = blockIdx.x * static_cast<int64_t>(kLanes); first < width; first += step) {
    const int64_t column = first + lane();
    float part = 0;
    for (int64_t row = static_cast<int>(threadIdx.x) / kLanes; row < rows && column < width; row += kRows)
      part += term(row, column);
    parts[threadIdx.x] = part;
    __syncthreads();
    if (threadIdx.x < kLanes && column < width) {
      float all = parts[lane()];
      for (int k = 1; k < kRows; ++k) all += parts[k * kLanes + lane()];
      sum[column] = accumulate ? sum[column] + all : all;
    }
    __syncthreads();
  }
}

// ---- products -------------------------------------------------------------------------------------------------------

// One side of a product: number k of line i is at[i * per_line + k * per_depth].
struct Operand {
  const float* at;
  int64_t lines, per_line, per_depth;
};

// Numbers [k, k + kDepth) of lines [line, line + kTile), zero outside. Neighbours in memory go to neighbouring threads.
__device__ inline void load(float (*tile)[kTile + 1], const Operand& from, int64_t line, int64_t k, int64_t depth) {
  const bool along_depth = from.per_depth == 1;
  for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
    const int l = along_depth ? i / kDepth : i % kTile, d = along_depth ? i % kDepth : i / kTile;
    const bool is_inside = line + l < from.lines && k + d < depth;
    tile[d][l] = is_inside ? from.at[(line + l) * from.per_line + (k + d) * from.per_depth] : 0;
  }
}

// put(i, j, the sum over k < depth of a's number k of line i times b's number k of line j).
template <class Put>
__device__ inline void product(const Operand& a, const Operand& b, int64_t depth, Put put) {
  __shared__ float a_tile[kDepth][kTile + 1], b_tile[kDepth][kTile + 1];
  const int64_t across = (b.lines + kTile - 1) / kTile, tiles = across * ((a.lines + kTile - 1) / kTile);
  const int own_i = static_cast<int>(threadIdx.x) / (kTile / kSide) * kSide;
  const int own_j = static_cast<int>(threadIdx.x) % (kTile / kSide) * kSide;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t first_i = tile / across * kTile, first_j = tile % across * kTile;
    float sum[kSide][kSide] = {};
    for (int64_t k = 0; k < depth; k += kDepth) {
      load(a_tile, a, first_i, k, depth);
      load(b_tile, b, first_j, k, depth);
      __syncthreads();
      for (int d = 0; d < kDepth; ++d)
        for (int i = 0; i < kSide; ++i)
          for (int j = 0; j < kSide; ++j) sum[i][j] += a_tile[d][own_i + i] * b_tile[d][own_j + j];
      __syncthreads();
    }
    for (int i = 0; i < kSide; ++i)
      for (int j = 0; j < kSide; ++j)
        if (first_i + own_i + i < a.lines && first_j + own_j + j < b.lines)
          put(first_i + own_i + i, first_j + own_j + j, sum[i][j]);
  }
}

// ---- attention
// --------------------------------------------------------------------------------------------------------

// Where one position of one head of one sample lies. Rows count these in the order [n][heads][context].
struct Place {
  int64_t position, sample_head;  // sample_head: of [n][heads]
  int64_t in_qkv, in_y;           // of the head's position 0
  __device__ Place(int64_t row, int64_t context, int64_t heads, int64_t head) {
    position = row % context;
    sample_head = row / context;
    const int64_t sample = sample_head / heads, column = sample_head % heads * head, width = heads * head;
    in_qkv = sample * context * 3 * width + column;
    in_y = sample * context * width + column;
  }
};

__device__ inline float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// out[columns] = sum over t in [from, to) of weight(t) times row t of rows, by the lanes of one row. end: at least as
// large as the `to` of each row of the block.
template <class Weight>
__device__ inline void mix(float* out, int64_t columns, const float* rows, int64_t stride, int64_t from, int64_t to,
                           int64_t end, Weight weight) {
  __shared__ float weights[kThreads];
  const float* own = weights + threadIdx.x - lane();
  for (int64_t first = 0; first < end; first += kLanes) {
    const int64_t mine = first + lane();
    weights[threadIdx.x] = mine >= from && mine < to ? weight(mine) : 0;
    __syncthreads();
    for (int64_t c = lane(); c < columns; c += kLanes) {
      float sum = first > 0 ? out[c] : 0;
      for (int k = 0; k < kLanes; ++k)
        if (first + k >= from && first + k < to) sum += own[k] * rows[(first + k) * stride + c];
      out[c] = sum;
    }
    __syncthreads();
  }
}

// ---- gelu; see kernels.c
// ------------------------------------------------------------------------------------------------

constexpr float kGelu2u = 1.5957691f, kGeluCube = 0.044715f;

__device__ inline float logistic(float z, float e) {
  return (z < 0 ? e : 1) / (1 + e);
}

}  // namespace gpt_cuda_kernels

using namespace gpt_cuda_kernels;

#define GPT_KERNEL extern "C" __global__ void __launch_bounds__(GPT_THREADS)

// ---- embedding
// ----------------------------------------------------------------------------------------------------------

GPT_KERNEL gpt_token_forward(float* x, const uint8_t* tokens, const float* table, int64_t rows, int64_t first,
                             int64_t count, int64_t width) {
  over(rows * width, [=](int64_t i) {
    const int64_t at = tokens[i / width] - first;
    x[i] = at >= 0 && at < count ? table[at * width + i % width] : 0;
  });
}

// A thread has one column of one token and looks for that token in all rows.
GPT_KERNEL gpt_token_backward(float* dtable, const float* dx, const uint8_t* tokens, int64_t rows, int64_t first,
                              int64_t count, int64_t width, int64_t accumulate) {
  over(count * width, [=](int64_t i) {
    float sum = accumulate ? dtable[i] : 0;
    for (int64_t r = 0; r < rows; ++r)
      if (tokens[r] - first == i / width) sum += dx[r * width + i % width];
    dtable[i] = sum;
  });
}

GPT_KERNEL gpt_position_forward(float* y, const float* x, const float* table, int64_t n, int64_t first, int64_t here,
                                int64_t width) {
  over(n * here * width, [=](int64_t i) { y[i] = x[i] + table[first * width + i % (here * width)]; });
}

GPT_KERNEL gpt_position_backward(float* dtable, const float* dy, int64_t n, int64_t context, int64_t first,
                                 int64_t here, int64_t width, int64_t accumulate) {
  over(context * width, [=](int64_t i) {
    const int64_t at = i - first * width;
    float sum = accumulate ? dtable[i] : 0;
    for (int64_t s = 0; s < n && at >= 0 && at < here * width; ++s) sum += dy[s * here * width + at];
    dtable[i] = sum;
  });
}

// ---- linear
// -------------------------------------------------------------------------------------------------------------

GPT_KERNEL gpt_linear_forward(float* y, const float* x, const float* w, const float* b, int64_t rows, int64_t in,
                              int64_t out) {
  product({x, rows, in, 1}, {w, out, in, 1}, in,
          [=](int64_t r, int64_t o, float sum) { y[r * out + o] = b ? b[o] + sum : sum; });
}

GPT_KERNEL gpt_linear_backward_input(float* dx, const float* dy, const float* w, int64_t rows, int64_t in,
                                     int64_t out) {
  product({dy, rows, out, 1}, {w, in, 1, in}, out, [=](int64_t r, int64_t i, float sum) { dx[r * in + i] = sum; });
}

GPT_KERNEL gpt_linear_backward_weight(float* dw, const float* dy, const float* x, int64_t rows, int64_t in, int64_t out,
                                      int64_t accumulate) {
  product({dy, out, 1, out}, {x, in, 1, in}, rows,
          [=](int64_t o, int64_t i, float sum) { dw[o * in + i] = accumulate ? dw[o * in + i] + sum : sum; });
}

// Of biases.
GPT_KERNEL gpt_sum_rows(float* sum, const float* dy, int64_t rows, int64_t width, int64_t accumulate) {
  sum_over_rows(sum, rows, width, accumulate, [=](int64_t r, int64_t i) { return dy[r * width + i]; });
}

// ---- layer norm
// -----------------------------------------------------------------------------------------------------------

GPT_KERNEL gpt_layernorm_forward(float* y, float* stats, const float* x, const float* g, const float* b, int64_t rows,
                                 int64_t width) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    const int64_t at = row * width, n = is_here * width;
    float sum = 0, squares = 0;
    for (int64_t i = lane(); i < n; i += kLanes) sum += x[at + i];
    const float mean = fold_lanes<Plus>(sum) / static_cast<float>(width);
    for (int64_t i = lane(); i < n; i += kLanes) squares += (x[at + i] - mean) * (x[at + i] - mean);
    const float scale = 1 / sqrtf(fold_lanes<Plus>(squares) / static_cast<float>(width) + 1e-5f);
    for (int64_t i = lane(); i < n; i += kLanes) y[at + i] = (x[at + i] - mean) * scale * g[i] + b[i];
    if (is_here && lane() == 0) stats[2 * row] = mean, stats[2 * row + 1] = scale;
  });
}

GPT_KERNEL gpt_layernorm_backward_input(float* dx, const float* dy, const float* x, const float* stats, const float* g,
                                        int64_t rows, int64_t width) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    const int64_t at = row * width, n = is_here * width;
    const float mean = is_here ? stats[2 * row] : 0, scale = is_here ? stats[2 * row + 1] : 0;
    float sum = 0, with_x = 0;  // of dy * g, alone and with the normalised x
    for (int64_t i = lane(); i < n; i += kLanes) {
      sum += dy[at + i] * g[i];
      with_x += dy[at + i] * g[i] * (x[at + i] - mean) * scale;
    }
    sum = fold_lanes<Plus>(sum) / static_cast<float>(width);
    with_x = fold_lanes<Plus>(with_x) / static_cast<float>(width);
    for (int64_t i = lane(); i < n; i += kLanes)
      dx[at + i] = scale * (dy[at + i] * g[i] - sum - (x[at + i] - mean) * scale * with_x);
  });
}

GPT_KERNEL gpt_layernorm_backward_weight(float* dg, float* db, const float* dy, const float* x, const float* stats,
                                         int64_t rows, int64_t width, int64_t accumulate) {
  sum_over_rows(dg, rows, width, accumulate, [=](int64_t r, int64_t i) {
    return dy[r * width + i] * (x[r * width + i] - stats[2 * r]) * stats[2 * r + 1];
  });
  sum_over_rows(db, rows, width, accumulate, [=](int64_t r, int64_t i) { return dy[r * width + i]; });
}

// ---- attention
// --------------------------------------------------------------------------------------------------------------

// Rows of probs are those of each_row. A lane reads again only what it has written.
GPT_KERNEL gpt_attention_forward(float* y, float* probs, const float* qkv, int64_t n, int64_t context, int64_t heads,
                                 int64_t head) {
  const int64_t width = heads * head, stride = 3 * width;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const float *q = qkv + at.in_qkv + at.position * stride, *k = qkv + at.in_qkv + width, *v = k + width;
    const int64_t seen = is_here * (at.position + 1);
    float *p = probs + row * context, top = -INFINITY, sum = 0;
    for (int64_t j = lane(); j < seen; j += kLanes) {
      p[j] = scale * dot(q, k + j * stride, head);
      top = Larger()(p[j], top);
    }
    top = fold_lanes<Larger>(top);
    for (int64_t j = lane(); j < seen; j += kLanes) {
      p[j] = expf(p[j] - top);
      sum += p[j];
    }
    sum = fold_lanes<Plus>(sum);
    for (int64_t j = lane(); j < is_here * context; j += kLanes) p[j] = j < seen ? p[j] / sum : 0;
    mix(y + at.in_y + at.position * width, is_here * head, v, stride, 0, seen, context,
        [=](int64_t j) { return p[j]; });
  });
}

// The gradients of the scores of a row are scale * p * (d - the sum of p * d over the row), where d = dy v are those of
// the probabilities p. They are computed where they are needed and never stored. The sum of each row, which
// backward_keys needs as well, waits where the first gradient of its value will be; backward_values, the last of the
// three, overwrites it.
GPT_KERNEL gpt_attention_backward_queries(float* dqkv, const float* dy, const float* qkv, const float* probs, int64_t n,
                                          int64_t context, int64_t heads, int64_t head) {
  const int64_t width = heads * head, stride = 3 * width;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const float *k = qkv + at.in_qkv + width, *v = k + width, *d_out = dy + at.in_y + at.position * width;
    const float* p = probs + row * context;
    float *dq = dqkv + at.in_qkv + at.position * stride, sum = 0;
    const int64_t seen = is_here * (at.position + 1);
    for (int64_t j = lane(); j < seen; j += kLanes) sum += p[j] * dot(d_out, v + j * stride, head);
    sum = fold_lanes<Plus>(sum);
    mix(dq, is_here * head, k, stride, 0, seen, context,
        [=](int64_t j) { return scale * p[j] * (dot(d_out, v + j * stride, head) - sum); });
    if (is_here && lane() == 0) dq[2 * width] = sum;
  });
}

GPT_KERNEL gpt_attention_backward_keys(float* dqkv, const float* dy, const float* qkv, const float* probs, int64_t n,
                                       int64_t context, int64_t heads, int64_t head) {
  const int64_t width = heads * head, stride = 3 * width;
  const float scale = 1 / sqrtf(static_cast<float>(head));
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const float *q = qkv + at.in_qkv, *v = q + 2 * width + at.position * stride, *d_out = dy + at.in_y;
    const float *p = probs + at.sample_head * context * context + at.position, *sums = dqkv + at.in_qkv + 2 * width;
    mix(dqkv + at.in_qkv + width + at.position * stride, is_here * head, q, stride, at.position, is_here * context,
        context,
        [=](int64_t i) { return scale * p[i * context] * (dot(d_out + i * width, v, head) - sums[i * stride]); });
  });
}

GPT_KERNEL gpt_attention_backward_values(float* dqkv, const float* dy, const float* probs, int64_t n, int64_t context,
                                         int64_t heads, int64_t head) {
  const int64_t width = heads * head;
  each_row(n * heads * context, [=](int64_t row, int64_t is_here) {
    const Place at(row, context, heads, head);
    const float* p = probs + at.sample_head * context * context + at.position;
    mix(dqkv + at.in_qkv + (2 + 3 * at.position) * width, is_here * head, dy + at.in_y, width, at.position,
        is_here * context, context, [=](int64_t i) { return p[i * context]; });
  });
}

// ---- gelu, residual
// -----------------------------------------------------------------------------------------------------------

GPT_KERNEL gpt_gelu_forward(float* y, const float* x, int64_t count) {
  over(count, [=](int64_t i) {
    const float z = kGelu2u * (x[i] + kGeluCube * x[i] * x[i] * x[i]);
    y[i] = x[i] * logistic(z, expf(-fabsf(z)));
  });
}

GPT_KERNEL gpt_gelu_backward(float* dx, const float* dy, const float* x, int64_t count) {
  over(count, [=](int64_t i) {
    const float z = kGelu2u * (x[i] + kGeluCube * x[i] * x[i] * x[i]);
    const float slope = kGelu2u * (1 + 3 * kGeluCube * x[i] * x[i]), e = expf(-fabsf(z));
    dx[i] = dy[i] * logistic(z, e) * (1 + x[i] * slope * logistic(-z, e));
  });
}

GPT_KERNEL gpt_residual_forward(float* y, const float* x, const float* f, const float* b, int64_t rows, int64_t width) {
  over(rows * width, [=](int64_t i) { y[i] = x[i] + f[i] + b[i % width]; });
}

// ---- cross-entropy
// --------------------------------------------------------------------------------------------------------------

GPT_KERNEL gpt_cross_entropy_tops(float* tops, const float* logits, int64_t rows, int64_t count) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    float top = -INFINITY;
    for (int64_t i = lane(); i < is_here * count; i += kLanes) top = Larger()(logits[row * count + i], top);
    top = fold_lanes<Larger>(top);
    if (is_here && lane() == 0) tops[row] = top;
  });
}

GPT_KERNEL gpt_cross_entropy_sums(float* sums, const float* logits, const float* tops, const uint8_t* targets,
                                  int64_t rows, int64_t first, int64_t count) {
  each_row(rows, [=](int64_t row, int64_t is_here) {
    const float top = is_here ? tops[row] : 0;
    float sum = 0;
    for (int64_t i = lane(); i < is_here * count; i += kLanes) sum += expf(logits[row * count + i] - top);
    sum = fold_lanes<Plus>(sum);
    if (!is_here || lane() > 0) return;
    const int64_t target = targets[row] - first;
    sums[2 * row] = sum;
    sums[2 * row + 1] = target >= 0 && target < count ? logits[row * count + target] : 0;
  });
}

// One block. loss and weight are those of gsel's loss layer.
GPT_KERNEL gpt_cross_entropy_loss(double* loss, double* weight, float* log_sums, const float* tops, const float* sums,
                                  int64_t rows) {
  __shared__ double parts[kThreads];
  double sum = 0;
  for (int64_t r = threadIdx.x; r < rows; r += kThreads) {
    log_sums[r] = tops[r] + logf(sums[2 * r]);
    sum += static_cast<double>(log_sums[r] - sums[2 * r + 1]);
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *loss = parts[0], *weight = static_cast<double>(rows);
}

GPT_KERNEL gpt_cross_entropy_backward(float* dlogits, const float* logits, const float* log_sums,
                                      const uint8_t* targets, int64_t rows, int64_t first, int64_t count) {
  over(rows * count, [=](int64_t i) {
    const float p = expf(logits[i] - log_sums[i / count]);
    dlogits[i] = targets[i / count] - first == i % count ? p - 1 : p;
  });
}
