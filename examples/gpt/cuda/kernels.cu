// cuda/kernels.cu: the kernels of kernels.h on a GPU, with the same arrays and the same meaning: f32, and f64 for the
// sum of the losses. Those of typed_kernels.h are compiled a second time for arrays in bf16: what they read is widened,
// all arithmetic and every sum is f32, and a result is rounded once, to nearest even. nvcc compiles this file into a
// fatbin; tests/fake/cuda compiles it for the host.
//
// Each element of a result is computed by one thread, or by one block in a fixed order: there are no atomics, so a
// kernel gives the same bits for the same arguments, whatever the number of blocks, and what it gives for one sample
// does not depend on the others.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels.h"

namespace gpt_cuda_kernels {

constexpr int kThreads = GPT_THREADS, kLanes = GPT_LANES, kRows = GPT_ROWS;
constexpr int kTile = GPT_TILE, kDepth = 16, kSide = 4;  // of products; each thread has kSide * kSide elements

// ---- numbers -------------------------------------------------------------------------------------------------------

struct Bf16 {
  uint16_t bits;
};

__device__ inline float wide(float x) {
  return x;
}
__device__ inline float wide(Bf16 x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return wide;
}

__device__ inline void put(float* to, float x) {
  *to = x;
}
__device__ inline void put(Bf16* to, float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  to->bits = x == x ? static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16) : uint16_t{0x7fc0};
}

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
template <class T>
struct Operand {
  const T* at;
  int64_t lines, per_line, per_depth;
};

// Numbers [k, k + kDepth) of lines [line, line + kTile), zero outside. Neighbours in memory go to neighbouring threads.
template <class T>
__device__ inline void load(float (*tile)[kTile + 1], const Operand<T>& from, int64_t line, int64_t k, int64_t depth) {
  const bool along_depth = from.per_depth == 1;
  for (int i = static_cast<int>(threadIdx.x); i < kDepth * kTile; i += kThreads) {
    const int l = along_depth ? i / kDepth : i % kTile, d = along_depth ? i % kDepth : i / kTile;
    const bool is_inside = line + l < from.lines && k + d < depth;
    tile[d][l] = is_inside ? wide(from.at[(line + l) * from.per_line + (k + d) * from.per_depth]) : 0;
  }
}

// put(i, j, the sum over k < depth of a's number k of line i times b's number k of line j).
template <class T, class Put>
__device__ inline void product(const Operand<T>& a, const Operand<T>& b, int64_t depth, Put put) {
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

template <class T>
__device__ inline float dot(const T* a, const T* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += wide(a[i]) * wide(b[i]);
  return sum;
}

// out[columns] = sum over t in [from, to) of weight(t) times row t of rows, by the lanes of one row. end and most: at
// least as large as the `to` and the `columns` of each row of the block. A lane has kWide columns at a time.
template <class T, class Weight>
__device__ inline void mix(T* out, int64_t columns, int64_t most, const T* rows, int64_t stride, int64_t from,
                           int64_t to, int64_t end, Weight weight) {
  constexpr int kWide = 4;
  __shared__ float weights[kThreads];
  const float* own = weights + threadIdx.x - lane();
  for (int64_t begin = 0; begin < most; begin += kWide * kLanes) {
    float sum[kWide] = {};
    for (int64_t first = 0; first < end; first += kLanes) {
      const int64_t mine = first + lane();
      weights[threadIdx.x] = mine >= from && mine < to ? weight(mine) : 0;
      __syncthreads();
      for (int w = 0; w < kWide; ++w) {
        const int64_t c = begin + w * kLanes + lane();
        for (int k = 0; k < kLanes && c < columns; ++k)
          if (first + k >= from && first + k < to) sum[w] += own[k] * wide(rows[(first + k) * stride + c]);
      }
      __syncthreads();
    }
    for (int w = 0; w < kWide; ++w)
      if (begin + w * kLanes + lane() < columns) put(out + begin + w * kLanes + lane(), sum[w]);
  }
}

// ---- gelu; see kernels.c
// ------------------------------------------------------------------------------------------------

constexpr float kGelu2u = 1.5957691f, kGeluCube = 0.044715f;

__device__ inline float logistic(float z, float e) {
  return (z < 0 ? e : 1) / (1 + e);
}

// ---- attention in blocks of keys: blocks.c, and without a division the fused attention ------------------------------

// A block of threads computes kOwn rows, kParts threads each, and goes over the other side, of kOthers at a time. So
// all that is read twice lies in memory that the threads share, and no matrix of scores is stored.
constexpr int kOwn = GPT_OWN, kParts = kThreads / kOwn, kOthers = 32, kHead = GPT_HEAD;
constexpr int kEach = kOthers / kParts, kColumns = kHead / kParts;  // of a thread: others, and columns of a result
using Line = float[kHead + 1];

__device__ inline int own_row() {
  return static_cast<int>(threadIdx.x) / kParts;
}
__device__ inline int part() {
  return static_cast<int>(threadIdx.x) % kParts;
}

// get(line, column) of so many lines, zero for lines past `count`.
template <class Get>
__device__ inline void load_lines(Line* to, int lines, int64_t count, int64_t head, Get get) {
  for (int64_t i = threadIdx.x; i < lines * head; i += kThreads)
    to[i / head][i % head] = i / head < count ? get(i / head, i % head) : 0;
}

__device__ inline float dot_lines(const float* a, const float* b, int64_t head) {
  float sum = 0;
  for (int64_t c = 0; c < head; ++c) sum += a[c] * b[c];
  return sum;
}

// One number from each thread of a row, put together.
template <class Fold>
__device__ inline float fold_parts(float own) {
  __shared__ float of[kThreads];
  of[threadIdx.x] = own;
  __syncthreads();
  const float* row = of + threadIdx.x - part();
  float all = row[0];
  for (int i = 1; i < kParts; ++i) all = Fold()(all, row[i]);
  __syncthreads();
  return all;
}

// out[column] += the sum over others of weight times their number there, by the threads of a row.
__device__ inline void add_others(float* out, const float* weights, const Line* others, int64_t head) {
  for (int c = 0; c < kColumns; ++c)
    for (int j = 0; j < kOthers && part() + c * kParts < head; ++j)
      out[c] += weights[j] * others[j][part() + c * kParts];
}

__device__ inline int64_t clamped(int64_t x, int64_t most) {
  return x < 0 ? 0 : x < most ? x : most;
}

// Keys and values of one head of one sample: the rank's own in qkv, or those of a block that goes round the ring, which
// are f32 and of which the first two numbers say where it begins and how many positions it has, `room` at most.
template <class T>
struct Keys {
  const T* own = nullptr;
  const float* block = nullptr;
  int64_t first, count, stride, width;
  __device__ Keys(const T* qkv, const float* from, int64_t room, int64_t sample, int64_t column, int64_t first_here,
                  int64_t here, int64_t all)
      : first(first_here), count(here), stride(3 * all), width(all) {
    if (from) {
      first = static_cast<int64_t>(from[0]);
      count = clamped(static_cast<int64_t>(from[1]), room);
      stride = 2 * width;
      block = from + GPT_BLOCK_HEAD + sample * count * stride + column;
    } else {
      own = qkv + sample * here * stride + width + column;
    }
  }
  __device__ float key(int64_t j, int64_t c) const { return block ? block[j * stride + c] : wide(own[j * stride + c]); }
  __device__ float value(int64_t j, int64_t c) const { return key(j, width + c); }
};

// Tile number `tile` of kOwn rows, of `across` for each head of a sample.
struct Tile {
  int64_t first, sample, head, sample_head;  // its first row; sample_head: of [n][heads]
  __device__ Tile(int64_t tile, int64_t across, int64_t heads)
      : first(tile % across * kOwn),
        sample(tile / across / heads),
        head(tile / across % heads),
        sample_head(tile / across) {}
};

}  // namespace gpt_cuda_kernels

using namespace gpt_cuda_kernels;

#define GPT_KERNEL(name) extern "C" __global__ void __launch_bounds__(GPT_THREADS) name

#define Real float
#define TYPED(name) GPT_KERNEL(gpt_##name)
#include "typed_kernels.h"
#undef TYPED
#undef Real

#define Real Bf16
#define TYPED(name) GPT_KERNEL(gpt_##name##_bf16)
#include "typed_kernels.h"
#undef TYPED
#undef Real

// One block. loss and weight are those of gsel's loss layer.
GPT_KERNEL(gpt_cross_entropy_loss)
(double* loss, double* weight, float* log_sums, const float* tops, const float* sums, int64_t rows) {
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
