// plugins/device/cuda/kernels.cu: the kernels. nvcc compiles this file into a fatbin; tests/fake/cuda compiles it for
// the host. Every loop strides over the threads, and no result depends on their number. The operations on one element
// are in lib/device/formulas.
#include "device/formulas/byte_state.h"
#include "device/formulas/floats.h"
#include "device/formulas/low_rank.h"
#include "device/formulas/optimizer_rules.h"
#include "device/formulas/reduce_rules.h"
#include "kernels.h"

// Nothing has internal linkage: nvcc derives such names from the source's folder, so builds in different folders would
// differ.
namespace gsel_cuda_kernels {

using namespace gsel;
using gsel_cuda::ReduceMemory;

struct alignas(16) FourFloats {
  float of[4];
};
struct alignas(8) FourHalves {
  uint16_t of[4];
};

__device__ inline uint64_t first_item() {
  return blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
}
__device__ inline uint64_t n_threads() {
  return gridDim.x * static_cast<uint64_t>(blockDim.x);
}

template <class... Pointers>
__device__ inline bool aligned_for_fours(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) & (sizeof(FourFloats) - 1)) == 0;
}

// Four elements at a time if `fours`, and the remaining ones one at a time.
template <class Four, class One>
__device__ inline void over(uint64_t count, bool fours, Four four, One one) {
  const uint64_t n = fours ? count / 4 : 0;
  for (uint64_t i = first_item(); i < n; i += n_threads()) four(4 * i);
  for (uint64_t i = 4 * n + first_item(); i < count; i += n_threads()) one(i);
}

template <class Body>
__device__ inline void over(uint64_t count, Body body) {
  for (uint64_t i = first_item(); i < count; i += n_threads()) body(i);
}

template <class T>
__device__ inline T load_as(const void* from) {
  return *static_cast<const T*>(from);
}

// ---- scale, add, cast -------------------------------------------------------------------------------------------

template <class T>
__device__ void scale_narrow(T* dst, double factor, uint64_t count) {
  const float f = static_cast<float>(factor);
  over(count, [=](uint64_t i) { dst[i] = T::narrow(dst[i].widen() * f); });
}

template <class T>
__device__ void add_narrow(T* dst, const T* src, uint64_t count) {
  over(count, [=](uint64_t i) { dst[i] = T::narrow(dst[i].widen() + src[i].widen()); });
}

template <class T>
__device__ void widen_all(float* dst, const T* src, uint64_t count) {
  over(
      count, aligned_for_fours(dst) && (reinterpret_cast<uintptr_t>(src) & (sizeof(FourHalves) - 1)) == 0,
      [=](uint64_t i) {
        const FourHalves halves = load_as<FourHalves>(src + i);
        FourFloats wide;
        for (int k = 0; k < 4; ++k) wide.of[k] = T{halves.of[k]}.widen();
        *reinterpret_cast<FourFloats*>(dst + i) = wide;
      },
      [=](uint64_t i) { dst[i] = src[i].widen(); });
}

template <class T>
__device__ inline FourHalves narrowed(const FourFloats& wide) {
  FourHalves halves;
  for (int k = 0; k < 4; ++k) halves.of[k] = T::narrow(wide.of[k]).bits;
  return halves;
}

template <class T>
__device__ void narrow_all(T* dst, const float* src, uint64_t count) {
  over(
      count, aligned_for_fours(src) && (reinterpret_cast<uintptr_t>(dst) & (sizeof(FourHalves) - 1)) == 0,
      [=](uint64_t i) { *reinterpret_cast<FourHalves*>(dst + i) = narrowed<T>(load_as<FourFloats>(src + i)); },
      [=](uint64_t i) { dst[i] = T::narrow(src[i]); });
}

// ---- reduce -------------------------------------------------------------------------------------------------------
// Elements are folded as float, double or uint64_t. Types and operations are told apart at run time, by branches that
// all threads take alike, which keeps the image small.

// Before a loop that is not unrolled, which saves most of the code.
#if defined(__CUDACC__) || defined(__HIP__)
#define GSEL_AS_IT_IS _Pragma("unroll 1")
#else
#define GSEL_AS_IT_IS
#endif

template <class T, int kElements>
struct alignas(kElements * sizeof(T)) Several {
  T of[kElements];
};

// Calls body with an element of the type, one that is folded as Number.
template <class Number, class Body>
__device__ inline void with_type(gsel_dtype dtype, Body body) {
  if constexpr (std::is_same_v<Number, double>) {
    body(double{});
  } else if constexpr (std::is_same_v<Number, float>) {
    switch (dtype) {
      case GSEL_F16:
        return body(F16{});
      case GSEL_BF16:
        return body(BF16{});
      case GSEL_F8E4M3:
        return body(F8E4M3{});
      case GSEL_F8E5M2:
        return body(F8E5M2{});
      default:
        return body(float{});
    }
  } else {
    switch (dtype) {
      case GSEL_I8:
        return body(int8_t{});
      case GSEL_U8:
        return body(uint8_t{});
      case GSEL_I16:
        return body(int16_t{});
      case GSEL_U16:
        return body(uint16_t{});
      case GSEL_I32:
        return body(int32_t{});
      case GSEL_U32:
        return body(uint32_t{});
      default:
        return body(uint64_t{});  // i64 has the same bits
    }
  }
}

template <class Number, class T>
__device__ inline Number as_number(T x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<Number>(x);
  else
    return x.widen();
}
template <class T, class Number>
__device__ inline T as_element(Number x) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(x);
  else
    return T::narrow(x);
}

template <int kElements, class Number>
__device__ inline void load_elements(Number (&x)[kElements], const void* from, uint64_t at, gsel_dtype dtype) {
  with_type<Number>(dtype, [&](auto type) {
    using T = decltype(type);
    const auto elements = load_as<Several<T, kElements>>(static_cast<const T*>(from) + at);
    for (int i = 0; i < kElements; ++i) x[i] = as_number<Number>(elements.of[i]);
  });
}

template <int kElements, class Number>
__device__ inline void store_elements(void* to, uint64_t at, const Number (&x)[kElements], gsel_dtype dtype) {
  with_type<Number>(dtype, [&](auto type) {
    using T = decltype(type);
    Several<T, kElements> elements;
    for (int i = 0; i < kElements; ++i) elements.of[i] = as_element<T>(x[i]);
    *reinterpret_cast<Several<T, kElements>*>(static_cast<T*>(to) + at) = elements;
  });
}

// A rule on the numbers of a signed type.
template <class Rule>
struct Signed64 {
  __device__ static uint64_t apply(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>(Rule::apply(static_cast<int64_t>(a), static_cast<int64_t>(b)));
  }
};

__device__ inline bool is_signed_integer(gsel_dtype dtype) {
  return dtype == GSEL_I8 || dtype == GSEL_I16 || dtype == GSEL_I32 || dtype == GSEL_I64;
}

template <int kElements, class Number>
__device__ inline void combine(Number (&x)[kElements], const Number (&y)[kElements], const ReduceMemory& m) {
  using namespace reduction;
  const auto by = [&](auto rule) {
    for (int i = 0; i < kElements; ++i) x[i] = decltype(rule)::apply(x[i], y[i]);
  };
  if constexpr (std::is_integral_v<Number>) {
    if (m.op == GSEL_BAND) return by(And{});
    if (m.op == GSEL_BOR) return by(Or{});
    if (m.op == GSEL_BXOR) return by(Xor{});
    if (m.op == GSEL_MIN && is_signed_integer(m.dtype)) return by(Signed64<Min>{});
    if (m.op == GSEL_MAX && is_signed_integer(m.dtype)) return by(Signed64<Max>{});
  }
  if (m.op == GSEL_PROD) return by(Prod{});
  if (m.op == GSEL_MIN) return by(Min{});
  if (m.op == GSEL_MAX) return by(Max{});
  by(Sum{});
}

// Integers are divided once they have the bits of their own type.
template <class Number>
__device__ inline Number divided(Number x, const ReduceMemory& m) {
  if constexpr (std::is_integral_v<Number>) {
    with_type<Number>(m.dtype, [&](auto type) { x = as_number<Number>(as_element<decltype(type)>(x)); });
    if (is_signed_integer(m.dtype))
      return static_cast<uint64_t>(reduction::Divide::apply(static_cast<int64_t>(x), m.n));
  }
  return reduction::Divide::apply(x, m.n);
}

template <class Number, int kElements>
__device__ inline void reduce_elements(const ReduceMemory& m, uint64_t at) {
  Number x[kElements] = {}, next[kElements];
  GSEL_AS_IT_IS
  for (int32_t q = 0; q < m.n; ++q) {
    load_elements(next, m.srcs[q], at, m.dtype);
    if (q > 0)
      combine(x, next, m);
    else
      for (int i = 0; i < kElements; ++i) x[i] = next[i];
  }
  if (m.op == GSEL_AVG)
    for (int i = 0; i < kElements; ++i) x[i] = divided(x[i], m);
  for (int i = 0; i < kElements; ++i) x[i] = reduction::one_nan(x[i]);
  store_elements(m.dst, at, x, m.dtype);
}

// ---- sums ---------------------------------------------------------------------------------------------------------

struct Squared {
  __device__ double operator()(double x) const { return x * x; }
};
struct Plain {
  __device__ double operator()(double x) const { return x; }
};

// In the order of gsel_device_v1.sum_squares: a block of threads takes one chunk after the other.
template <class Term, class T>
__device__ void sum_chunks(const T* src, uint64_t count, double* sums) {
  __shared__ double lanes[gsel_cuda::kLanes];
  for (uint64_t chunk = blockIdx.x; chunk * gsel_cuda::kChunk < count; chunk += gridDim.x) {
    const uint64_t begin = chunk * gsel_cuda::kChunk;
    const uint64_t end = count - begin < gsel_cuda::kChunk ? count : begin + gsel_cuda::kChunk;
    for (uint64_t lane = threadIdx.x; lane < gsel_cuda::kLanes; lane += blockDim.x) {
      double sum = 0;
      for (uint64_t i = begin + lane; i < end; i += gsel_cuda::kLanes) sum += Term()(static_cast<double>(src[i]));
      lanes[lane] = sum;
    }
    __syncthreads();
    for (uint64_t half = gsel_cuda::kLanes / 2; half > 0; half /= 2) {
      for (uint64_t lane = threadIdx.x; lane < half; lane += blockDim.x) lanes[lane] += lanes[lane + half];
      __syncthreads();
    }
    if (threadIdx.x == 0) sums[chunk] = lanes[0];
    __syncthreads();
  }
}

// ---- optimizers -----------------------------------------------------------------------------------------------------

__device__ inline uint16_t rounded_to(gsel_dtype dtype, float x) {
  return dtype == GSEL_BF16 ? BF16::narrow(x).bits : F16::narrow(x).bits;
}

template <class Rule>
__device__ void step(const Rule& rule, const gsel_cuda::StepMemory& s) {
  const bool fours = aligned_for_fours(s.param, s.gradient, s.state0, s.state1) &&
                     (reinterpret_cast<uintptr_t>(s.param16) & (sizeof(FourHalves) - 1)) == 0;
  over(
      s.count, fours,
      [&](uint64_t i) {
        FourFloats p = load_as<FourFloats>(s.param + i), m, v;
        const FourFloats g = load_as<FourFloats>(s.gradient + i);
        if constexpr (Rule::kStates > 0) m = load_as<FourFloats>(s.state0 + i);
        if constexpr (Rule::kStates > 1) v = load_as<FourFloats>(s.state1 + i);
        FourHalves halves;
        for (int k = 0; k < 4; ++k) {
          rule(p.of[k], g.of[k], m.of[k], v.of[k]);
          halves.of[k] = rounded_to(s.param16_dtype, p.of[k]);
        }
        *reinterpret_cast<FourFloats*>(s.param + i) = p;
        if constexpr (Rule::kStates > 0) *reinterpret_cast<FourFloats*>(s.state0 + i) = m;
        if constexpr (Rule::kStates > 1) *reinterpret_cast<FourFloats*>(s.state1 + i) = v;
        if (s.param16) *reinterpret_cast<FourHalves*>(s.param16 + i) = halves;
      },
      [&](uint64_t i) {
        float p = s.param[i], m = 0, v = 0;
        if constexpr (Rule::kStates > 0) m = s.state0[i];
        if constexpr (Rule::kStates > 1) v = s.state1[i];
        rule(p, s.gradient[i], m, v);
        s.param[i] = p;
        if constexpr (Rule::kStates > 0) s.state0[i] = m;
        if constexpr (Rule::kStates > 1) s.state1[i] = v;
        if (s.param16) s.param16[i] = rounded_to(s.param16_dtype, p);
      });
}

// In a graph: the rule is where step_factors has written it, and its scale is known by now. NaN: nothing is updated.
template <class Rule>
__device__ void step_in_graph(const void* factors, const double* update_scale, const gsel_cuda::StepMemory& memory) {
  Rule rule = *static_cast<const Rule*>(factors);
  const double scale = *update_scale;
  if (scale != scale) return;
  rule.scale = static_cast<float>(scale);
  step(rule, memory);
}

__constant__ CodeValues kSignedValues = code_values<Signed, true>();
__constant__ CodeValues kUnsignedValues = code_values<Unsigned, false>();

// The largest magnitude, compared as bits: a NaN is the largest.
__device__ float largest(const float* x, uint64_t n, uint32_t* bits) {
  for (uint64_t i = threadIdx.x; i < gsel_cuda::kStateBlock; i += blockDim.x)
    bits[i] = i < n ? bits_of(x[i]) & 0x7fffffffu : 0;
  __syncthreads();
  for (uint64_t half = gsel_cuda::kStateBlock / 2; half > 0; half /= 2) {
    for (uint64_t i = threadIdx.x; i < half; i += blockDim.x)
      bits[i] = bits[i] > bits[i + half] ? bits[i] : bits[i + half];
    __syncthreads();
  }
  const float result = float_of(bits[0]);
  __syncthreads();
  return result;
}

// ---- low rank -------------------------------------------------------------------------------------------------------

// The threads of one block.
struct Block {
  double* lanes;  // [kTeamLanes] shared

  template <class Body>
  __device__ void each(int64_t n, Body body) const {
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) body(i);
  }
  template <class Term>
  __device__ double sum(int64_t n, Term term) const {
    for (int64_t lane = threadIdx.x; lane < kTeamLanes; lane += blockDim.x) {
      double own = 0;
      for (int64_t i = lane; i < n; i += kTeamLanes) own += term(i);
      lanes[lane] = own;
    }
    __syncthreads();
    for (int64_t half = kTeamLanes / 2; half > 0; half /= 2) {
      for (int64_t lane = threadIdx.x; lane < half; lane += blockDim.x) lanes[lane] += lanes[lane + half];
      __syncthreads();
    }
    const double all = lanes[0];
    __syncthreads();
    return all;
  }
  __device__ double dot(const float* a, const float* b, int64_t n) const {
    return sum(n, [=](int64_t i) { return static_cast<double>(a[i]) * b[i]; });
  }
};

}  // namespace gsel_cuda_kernels

using namespace gsel_cuda_kernels;

using gsel_cuda::ByteStateMemory;
using gsel_cuda::LowRankMemory;
using gsel_cuda::StepMemory;

#define GSEL_KERNEL extern "C" __global__ void __launch_bounds__(256)

GSEL_KERNEL gsel_scale_f32(float* dst, double factor, uint64_t count) {
  const float f = static_cast<float>(factor);
  over(
      count, aligned_for_fours(dst),
      [=](uint64_t i) {
        FourFloats x = load_as<FourFloats>(dst + i);
        for (int k = 0; k < 4; ++k) x.of[k] *= f;
        *reinterpret_cast<FourFloats*>(dst + i) = x;
      },
      [=](uint64_t i) { dst[i] *= f; });
}
GSEL_KERNEL gsel_scale_f64(double* dst, double factor, uint64_t count) {
  over(count, [=](uint64_t i) { dst[i] *= factor; });
}
GSEL_KERNEL gsel_scale_f16(F16* dst, double factor, uint64_t count) {
  scale_narrow(dst, factor, count);
}
GSEL_KERNEL gsel_scale_bf16(BF16* dst, double factor, uint64_t count) {
  scale_narrow(dst, factor, count);
}
GSEL_KERNEL gsel_scale_f8e4m3(F8E4M3* dst, double factor, uint64_t count) {
  scale_narrow(dst, factor, count);
}
GSEL_KERNEL gsel_scale_f8e5m2(F8E5M2* dst, double factor, uint64_t count) {
  scale_narrow(dst, factor, count);
}

GSEL_KERNEL gsel_add_f32(float* dst, const float* src, uint64_t count) {
  over(
      count, aligned_for_fours(dst, src),
      [=](uint64_t i) {
        FourFloats x = load_as<FourFloats>(dst + i);
        const FourFloats y = load_as<FourFloats>(src + i);
        for (int k = 0; k < 4; ++k) x.of[k] += y.of[k];
        *reinterpret_cast<FourFloats*>(dst + i) = x;
      },
      [=](uint64_t i) { dst[i] += src[i]; });
}
GSEL_KERNEL gsel_add_f64(double* dst, const double* src, uint64_t count) {
  over(count, [=](uint64_t i) { dst[i] += src[i]; });
}
GSEL_KERNEL gsel_add_f16(F16* dst, const F16* src, uint64_t count) {
  add_narrow(dst, src, count);
}
GSEL_KERNEL gsel_add_bf16(BF16* dst, const BF16* src, uint64_t count) {
  add_narrow(dst, src, count);
}
GSEL_KERNEL gsel_add_f8e4m3(F8E4M3* dst, const F8E4M3* src, uint64_t count) {
  add_narrow(dst, src, count);
}
GSEL_KERNEL gsel_add_f8e5m2(F8E5M2* dst, const F8E5M2* src, uint64_t count) {
  add_narrow(dst, src, count);
}

GSEL_KERNEL gsel_cast_f32_f16(F16* dst, const float* src, uint64_t count) {
  narrow_all(dst, src, count);
}
GSEL_KERNEL gsel_cast_f32_bf16(BF16* dst, const float* src, uint64_t count) {
  narrow_all(dst, src, count);
}
GSEL_KERNEL gsel_cast_f16_f32(float* dst, const F16* src, uint64_t count) {
  widen_all(dst, src, count);
}
GSEL_KERNEL gsel_cast_bf16_f32(float* dst, const BF16* src, uint64_t count) {
  widen_all(dst, src, count);
}
GSEL_KERNEL gsel_cast_f32_f64(double* dst, const float* src, uint64_t count) {
  over(count, [=](uint64_t i) { dst[i] = static_cast<double>(src[i]); });
}
GSEL_KERNEL gsel_cast_f64_f32(float* dst, const double* src, uint64_t count) {
  over(count, [=](uint64_t i) { dst[i] = static_cast<float>(src[i]); });
}

GSEL_KERNEL gsel_reduce_f32(ReduceMemory m) {
  over(
      m.count, m.is_aligned, [&](uint64_t i) { reduce_elements<float, 4>(m, i); },
      [&](uint64_t i) { reduce_elements<float, 1>(m, i); });
}
GSEL_KERNEL gsel_reduce_f64(ReduceMemory m) {
  over(m.count, [&](uint64_t i) { reduce_elements<double, 1>(m, i); });
}
GSEL_KERNEL gsel_reduce_u64(ReduceMemory m) {
  over(m.count, [&](uint64_t i) { reduce_elements<uint64_t, 1>(m, i); });
}

GSEL_KERNEL gsel_square_sums_f32(const float* src, uint64_t count, double* sums) {
  sum_chunks<Squared>(src, count, sums);
}
GSEL_KERNEL gsel_square_sums_f64(const double* src, uint64_t count, double* sums) {
  sum_chunks<Squared>(src, count, sums);
}
GSEL_KERNEL gsel_sums_f64(const double* src, uint64_t count, double* sums) {
  sum_chunks<Plain>(src, count, sums);
}

GSEL_KERNEL gsel_step_sgd(Sgd rule, StepMemory memory) {
  step(rule, memory);
}
GSEL_KERNEL gsel_step_momentum(Momentum rule, StepMemory memory) {
  step(rule, memory);
}
GSEL_KERNEL gsel_step_sign_sgd(SignSgd rule, StepMemory memory) {
  step(rule, memory);
}
GSEL_KERNEL gsel_step_lion(Lion rule, StepMemory memory) {
  step(rule, memory);
}
GSEL_KERNEL gsel_step_adamw(AdamDecoupled rule, StepMemory memory) {
  step(rule, memory);
}
GSEL_KERNEL gsel_step_adam(AdamInGradient rule, StepMemory memory) {
  step(rule, memory);
}

GSEL_KERNEL gsel_graph_step_sgd(const void* factors, const double* scale, StepMemory memory) {
  step_in_graph<Sgd>(factors, scale, memory);
}
GSEL_KERNEL gsel_graph_step_momentum(const void* factors, const double* scale, StepMemory memory) {
  step_in_graph<Momentum>(factors, scale, memory);
}
GSEL_KERNEL gsel_graph_step_sign_sgd(const void* factors, const double* scale, StepMemory memory) {
  step_in_graph<SignSgd>(factors, scale, memory);
}
GSEL_KERNEL gsel_graph_step_lion(const void* factors, const double* scale, StepMemory memory) {
  step_in_graph<Lion>(factors, scale, memory);
}
GSEL_KERNEL gsel_graph_step_adamw(const void* factors, const double* scale, StepMemory memory) {
  step_in_graph<AdamDecoupled>(factors, scale, memory);
}
GSEL_KERNEL gsel_graph_step_adam(const void* factors, const double* scale, StepMemory memory) {
  step_in_graph<AdamInGradient>(factors, scale, memory);
}

// See gsel_update_scale. One thread: a step has few of these numbers.
GSEL_KERNEL gsel_scale_of_update(gsel_update_scale s) {
  if (first_item() != 0) return;
  double weight = 0, all = 0, sum = 0;
  for (int32_t i = 0; i < s.n_weights; ++i) weight += *s.weights[i];
  for (int32_t group = 0, at = 0; group < s.n_ends; ++group) {
    double squares = 0;
    for (; at < s.ends[group]; ++at) squares += s.squares[at];
    all += squares;
    if (group >= s.first_norm) sum += squares;
  }
  const double nan = float_of(0x7fc00000u), most = 1.7976931348623157e308, scaled = weight * s.loss_scale;
  const bool is_refused = !(weight > 0 && weight <= most) || (s.refuses_non_finite && !(all <= most));
  const double clip = s.clip_norm / (sqrt(sum) / scaled + 1e-6);
  const double mean = is_refused ? nan : 1 / scaled;
  s.out[0] = mean;
  s.out[1] = s.clip_norm > 0 && clip < 1 ? mean * clip : mean;
}

// See gsel_device_v1.sum_numbers. One block: its threads read, which takes long from memory of the host, one adds.
GSEL_KERNEL gsel_sum_of_numbers(const double* numbers, const int32_t* ends, int32_t n_ends, double* out) {
  __shared__ double read[gsel_cuda::kLanes];
  const int32_t n = n_ends > 0 ? ends[n_ends - 1] : 0, most = gsel_cuda::kLanes;
  double sum = 0, of_group = 0;
  int32_t group = 0;
  for (int32_t first = 0; first < n; first += most) {
    const int32_t count = n - first < most ? n - first : most;
    for (int32_t i = threadIdx.x; i < count; i += blockDim.x) read[i] = numbers[first + i];
    __syncthreads();
    for (int32_t i = 0; i < count && threadIdx.x == 0; ++i) {
      for (; ends[group] <= first + i; ++group, of_group = 0) sum += of_group;
      of_group += read[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = sum + of_group;
}

// A block of threads takes one block of state after the other.
__device__ void step_adamw_8bit(const Factors& f, const ByteStateMemory& s) {
  __shared__ float first[gsel_cuda::kStateBlock], second[gsel_cuda::kStateBlock];
  __shared__ uint32_t bits[gsel_cuda::kStateBlock];
  for (uint64_t block = blockIdx.x; block * gsel_cuda::kStateBlock < s.count; block += gridDim.x) {
    const uint64_t at = block * gsel_cuda::kStateBlock;
    const uint64_t n = s.count - at < gsel_cuda::kStateBlock ? s.count - at : gsel_cuda::kStateBlock;
    const float scale0 = s.scale0[block], scale1 = s.scale1[block];
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float g = s.gradient[at + i] * f.scale;
      const float m = f.beta1 * (kSignedValues.of[s.codes0[at + i]] * scale0) + f.rest1 * g;
      const float v = f.beta2 * (kUnsignedValues.of[s.codes1[at + i]] * scale1) + f.rest2 * (g * g);
      first[i] = m;
      second[i] = v;
      const float p = s.param[at + i] * f.kept - f.step * (m / (std::sqrt(v) * f.root + f.epsilon));
      s.param[at + i] = p;
      if (s.param16) s.param16[at + i] = rounded_to(s.param16_dtype, p);
    }
    __syncthreads();
    const float largest0 = largest(first, n, bits), largest1 = largest(second, n, bits);
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
      s.codes0[at + i] = signed_code(first[i] / (largest0 == 0 ? 1 : largest0));
      s.codes1[at + i] = unsigned_code(second[i] / (largest1 == 0 ? 1 : largest1));
    }
    if (threadIdx.x == 0) {
      s.scale0[block] = largest0;
      s.scale1[block] = largest1;
    }
    __syncthreads();
  }
}
GSEL_KERNEL gsel_step_adamw_8bit(Factors f, ByteStateMemory s) {
  step_adamw_8bit(f, s);
}
GSEL_KERNEL gsel_graph_step_adamw_8bit(const void* factors, const double* scale, ByteStateMemory s) {
  Factors f = *static_cast<const Factors*>(factors);
  const double given = *scale;
  if (given != given) return;
  f.scale = static_cast<float>(given);
  step_adamw_8bit(f, s);
}

GSEL_KERNEL gsel_low_rank_start(LowRankMemory m) {
  over(m.cols * m.rank, [=](int64_t i) { m.right[i] = random_element(m.key, i / m.cols, i % m.cols); });
}
GSEL_KERNEL gsel_low_rank_add_error(LowRankMemory m) {
  over(m.rows * m.cols, [=](int64_t i) { m.matrix[i] += m.scale * m.old_error[i]; });
}
// One block.
GSEL_KERNEL gsel_low_rank_orthonormal(float* columns, int64_t n, int64_t n_columns, uint64_t key) {
  __shared__ double lanes[kTeamLanes];
  orthonormalise(Block{lanes}, columns, n, n_columns, key);
}
// Groups of kDotLanes threads have an element of `left` each.
GSEL_KERNEL gsel_low_rank_left(LowRankMemory m) {
  __shared__ float sums[256];
  const int64_t groups = blockDim.x / kDotLanes, group = threadIdx.x / kDotLanes, lane = threadIdx.x % kDotLanes;
  const int64_t n = m.rows * m.rank;
  for (int64_t first = blockIdx.x * groups; first < n; first += gridDim.x * groups) {
    const int64_t at = first + group, row = at / m.rank, k = at % m.rank;
    float sum = 0;
    if (at < n)
      for (int64_t j = lane; j < m.cols; j += kDotLanes) sum += m.matrix[row * m.cols + j] * m.right[k * m.cols + j];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (at < n && lane == 0) {
      for (int64_t l = 1; l < kDotLanes; ++l) sum += sums[threadIdx.x + l];
      m.left[k * m.rows + row] = sum;
    }
    __syncthreads();
  }
}
GSEL_KERNEL gsel_low_rank_right(LowRankMemory m) {
  over(m.cols * m.rank, [=](int64_t at) {
    const int64_t k = at / m.cols, j = at % m.cols;
    float sum = 0;
    for (int64_t i = 0; i < m.rows; ++i) sum += m.left[k * m.rows + i] * m.matrix[i * m.cols + j];
    m.right[at] = sum;
  });
}
// One block: makes the first element of `left` NaN if the product may not be finite.
GSEL_KERNEL gsel_low_rank_look(LowRankMemory m) {
  __shared__ double lanes[kTeamLanes];
  const Block block{lanes};
  const double bad = block.sum(m.rows * m.rank, [=](int64_t i) { return is_finite(m.left[i]) ? 0.0 : 1.0; }) +
                     block.sum(m.cols, [=](int64_t j) {
                       float sum = 0;  // elements of orthonormal columns are at most 1
                       for (int64_t k = 0; k < m.rank; ++k) sum += std::fabs(m.right[k * m.cols + j]);
                       return is_finite(sum) ? 0.0 : 1.0;
                     });
  if (bad > 0 && threadIdx.x == 0) m.left[0] = float_of(kNanBits);
}
GSEL_KERNEL gsel_low_rank_finish(LowRankMemory m) {
  const bool is_good = is_finite(m.left[0]);
  over(m.rows * m.cols, [=](int64_t at) {
    const int64_t i = at / m.cols, j = at % m.cols;
    const float was = m.matrix[at], old = m.old_error[at];
    float product = 0;
    for (int64_t k = 0; k < m.rank; ++k) product += m.left[k * m.rows + i] * m.right[k * m.cols + j];
    m.matrix[at] = is_good ? product : float_of(kNanBits);
    m.error[at] = is_good ? (was - product * m.share) * m.unscale : old;
  });
}
GSEL_KERNEL gsel_low_rank_start_again(LowRankMemory m) {
  if (is_finite(m.left[0])) return;
  over(m.cols * m.rank, [=](int64_t i) { m.right[i] = random_element(m.key, i / m.cols, i % m.cols); });
}
