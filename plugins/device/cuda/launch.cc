// plugins/device/cuda/launch.cc: kernels as work on streams. Unsupported arguments fail when a kernel is called.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "context.h"
#include "device/formulas/byte_state.h"
#include "device/formulas/low_rank.h"
#include "device/formulas/optimizer_rules.h"
#include "device/formulas/reduce_rules.h"
#include "device/formulas/step_needs.h"
#include "kernels.h"

namespace gsel_cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBlocksPerProcessor = 8;  // fills a multiprocessor with kThreads each

// For types that kernel names contain.
const char* name_of(gsel_dtype dtype) {
  switch (dtype) {
    case GSEL_F16:
      return "f16";
    case GSEL_BF16:
      return "bf16";
    case GSEL_F32:
      return "f32";
    case GSEL_F64:
      return "f64";
    case GSEL_F8E4M3:
      return "f8e4m3";
    case GSEL_F8E5M2:
      return "f8e5m2";
    default:
      return nullptr;
  }
}

std::string shown(gsel_dtype dtype) {
  static const char* const names[] = {"",    "i8",  "u8",   "i16", "u16", "i32",    "u32",    "i64",
                                      "u64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2", "bool"};
  return dtype >= GSEL_I8 && dtype <= GSEL_BOOL ? names[dtype] : "type " + std::to_string(dtype);
}

CUfunction function(Context& c, const std::string& name) {
  if (!c.module)
    fail(GSEL_ERR_UNSUPPORTED, "kernel " + name + " on device " + std::to_string(c.ordinal) + ": " + c.no_kernels);
  const std::lock_guard lock(c.mutex);
  CUfunction& found = c.functions[name];
  if (!found && c.driver->cuModuleGetFunction(&found, c.module, name.c_str()) != CUDA_SUCCESS) {
    c.functions.erase(name);
    return nullptr;
  }
  return found;
}

// items: divided among the threads; a thread may take several.
template <class... Args>
void launch(Context& c, const std::string& name, uint64_t items, gsel_stream* stream, Args... args) {
  const CUfunction kernel = function(c, name);
  if (!kernel) fail(GSEL_ERR_INTERNAL, "the " GSEL_VENDOR_DEVICE " device has no kernel " + name);
  const uint64_t most = static_cast<uint64_t>(c.processors) * kBlocksPerProcessor;
  const auto blocks = static_cast<unsigned>(std::clamp<uint64_t>((items + kThreads - 1) / kThreads, 1, most));
  void* params[] = {&args...};
  check(c,
        c.driver->cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream_of(c, stream).native, params, nullptr),
        "kernel " + name);
}

gsel_status cast(void* ctx, void* dst, gsel_dtype dst_dtype, const void* src, gsel_dtype src_dtype, uint64_t count,
                 gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    const bool is_float = dst_dtype == GSEL_F32 || src_dtype == GSEL_F32;
    const gsel_dtype other = dst_dtype == GSEL_F32 ? src_dtype : dst_dtype;
    if (!is_float || (other != GSEL_F16 && other != GSEL_BF16 && other != GSEL_F64))
      fail(GSEL_ERR_UNSUPPORTED, "cast from " + shown(src_dtype) + " to " + shown(dst_dtype) +
                                     " is not supported on " GSEL_VENDOR_DEVICE
                                     "; it casts between f32 and f16, bf16 or f64");
    if (count == 0) return;
    launch(c, std::string("gsel_cast_") + name_of(src_dtype) + "_" + name_of(dst_dtype), (count + 3) / 4, stream, dst,
           src, count);
  });
}

void refuse_type(const char* kernel, gsel_dtype dtype) {
  if (!name_of(dtype))
    fail(GSEL_ERR_UNSUPPORTED, std::string(kernel) + " of " + shown(dtype) +
                                   " is not supported on " GSEL_VENDOR_DEVICE "; use a floating-point type");
}

gsel_status scale(void* ctx, void* dst, gsel_dtype dtype, double factor, uint64_t count, gsel_stream* stream,
                  gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    refuse_type("scale", dtype);
    if (count > 0) launch(c, std::string("gsel_scale_") + name_of(dtype), (count + 3) / 4, stream, dst, factor, count);
  });
}

gsel_status add(void* ctx, void* dst, const void* src, gsel_dtype dtype, uint64_t count, gsel_stream* stream,
                gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    refuse_type("add", dtype);
    if (count > 0) launch(c, std::string("gsel_add_") + name_of(dtype), (count + 3) / 4, stream, dst, src, count);
  });
}

// Memory for this many doubles in the stream's scratch.
double* scratch_of(Context& c, gsel_stream* given, uint64_t doubles) {
  gsel_stream& stream = stream_of(c, given);
  Scratch& scratch = stream.scratch;
  if (scratch.bytes < doubles * sizeof(double)) {
    if (scratch.memory) scratch.too_small.push_back(std::exchange(scratch.memory, 0));
    const uint64_t bytes = std::max(doubles * sizeof(double), 2 * std::exchange(scratch.bytes, 0));
    check(c, c.driver->cuMemAlloc(&scratch.memory, bytes), std::to_string(bytes) + " bytes for sums");
    scratch.bytes = bytes;
  }
  return reinterpret_cast<double*>(scratch.memory);
}

uint64_t chunks_of(uint64_t count) {
  return (count + kChunk - 1) / kChunk;
}

// Sums chunks, then chunks of these sums, and so on, alternating between the two halves of the scratch.
gsel_status sum_squares(void* ctx, const void* src, gsel_dtype dtype, uint64_t count, double* out, gsel_stream* stream,
                        gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    if (dtype != GSEL_F32 && dtype != GSEL_F64)
      fail(GSEL_ERR_UNSUPPORTED,
           "sum_squares of " + shown(dtype) + " is not supported on " GSEL_VENDOR_DEVICE "; use f32 or f64");
    const uint64_t n = std::max<uint64_t>(chunks_of(count), 1);
    double* from = scratch_of(c, stream, n + chunks_of(n));
    const auto native = stream_of(c, stream).native;
    if (count == 0) {
      check(c, c.driver->cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(from), 0, sizeof(double), native), "a zero sum");
    } else {
      launch(c, std::string("gsel_square_sums_") + name_of(dtype), n * kThreads, stream, src, count, from);
      double* to = from + n;
      for (uint64_t left = n; left > 1; left = chunks_of(left)) {
        launch(c, "gsel_sums_f64", chunks_of(left) * kThreads, stream, static_cast<const double*>(from), left, to);
        std::swap(from, to);
      }
    }
    check(c,
          c.driver->cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(out), reinterpret_cast<CUdeviceptr>(from),
                                  sizeof(double), native),
          "a copy of a sum");
  });
}

StepMemory step_memory(const gsel_optimizer_step& s) {
  return {s.param, s.gradient, s.state0, s.state1, static_cast<uint16_t*>(s.param16), s.count, s.param16_dtype};
}

void refuse_factors_alone(const gsel_optimizer_step& s) {
  if (!s.factors != !s.update_scale) fail(GSEL_ERR_ARG, "an optimizer step has factors or update_scale and not both");
}

template <class Rule>
void step(Context& c, const std::string& name, const gsel_optimizer_step& s, gsel_stream* stream) {
  if (s.factors)
    return launch(c, "gsel_graph_step_" + name, (s.count + 3) / 4, stream, s.factors, s.update_scale, step_memory(s));
  launch(c, "gsel_step_" + name, (s.count + 3) / 4, stream, Rule(s), step_memory(s));
}

void step_8bit(Context& c, const gsel_optimizer_step& s, gsel_stream* stream) {
  const ByteStateMemory memory{
      s.param,        s.gradient, reinterpret_cast<uint8_t*>(s.state0), reinterpret_cast<uint8_t*>(s.state1),
      s.scale0,       s.scale1,   static_cast<uint16_t*>(s.param16),    s.count,
      s.param16_dtype};
  if (s.factors) return launch(c, "gsel_graph_step_adamw_8bit", s.count, stream, s.factors, s.update_scale, memory);
  launch(c, "gsel_step_adamw_8bit", s.count, stream, gsel::Factors(s), memory);
}

gsel_status optimizer_step(void* ctx, const gsel_optimizer_step* given, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    const gsel_optimizer_step& s = *given;
    if (const gsel::StepProblem problem = gsel::problem_of(s); problem.status) fail(problem.status, problem.text);
    refuse_factors_alone(s);
    if (s.count == 0) return;
    switch (s.kind) {
      case GSEL_OPTIMIZER_SGD:
        return s.momentum == 0 ? step<gsel::Sgd>(c, "sgd", s, stream) : step<gsel::Momentum>(c, "momentum", s, stream);
      case GSEL_OPTIMIZER_SIGN_SGD:
        return step<gsel::SignSgd>(c, "sign_sgd", s, stream);
      case GSEL_OPTIMIZER_ADAMW:
        return step<gsel::AdamDecoupled>(c, "adamw", s, stream);
      case GSEL_OPTIMIZER_ADAM:
        return step<gsel::AdamInGradient>(c, "adam", s, stream);
      case GSEL_OPTIMIZER_LION:
        return step<gsel::Lion>(c, "lion", s, stream);
      default:
        return step_8bit(c, s, stream);
    }
  });
}

template <class Rule>
void write_factors(const gsel_optimizer_step& s, void* out) {
  static_assert(sizeof(Rule) <= GSEL_STEP_FACTOR_BYTES && std::is_trivially_copyable_v<Rule>);
  const Rule rule(s);
  std::memcpy(out, &rule, sizeof rule);
}

gsel_status step_factors(void* ctx, const gsel_optimizer_step* given, void* out, gsel_error** err) {
  Context& c = context_of(ctx);
  try {
    const gsel_optimizer_step& s = *given;
    if (const gsel::StepProblem problem = gsel::problem_of(s); problem.status) fail(problem.status, problem.text);
    switch (s.kind) {
      case GSEL_OPTIMIZER_SGD:
        s.momentum == 0 ? write_factors<gsel::Sgd>(s, out) : write_factors<gsel::Momentum>(s, out);
        break;
      case GSEL_OPTIMIZER_SIGN_SGD:
        write_factors<gsel::SignSgd>(s, out);
        break;
      case GSEL_OPTIMIZER_ADAMW:
        write_factors<gsel::AdamDecoupled>(s, out);
        break;
      case GSEL_OPTIMIZER_ADAM:
        write_factors<gsel::AdamInGradient>(s, out);
        break;
      case GSEL_OPTIMIZER_LION:
        write_factors<gsel::Lion>(s, out);
        break;
      default:
        write_factors<gsel::Factors>(s, out);
    }
    return GSEL_OK;
  } catch (...) {
    return failed(c.host, err);
  }
}

gsel_status update_scale(void* ctx, const gsel_update_scale* given, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) { launch(c, "gsel_scale_of_update", 1, stream, *given); });
}

gsel_status sum_numbers(void* ctx, const double* numbers, const int32_t* ends, int32_t n_ends, double* out,
                        gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) { launch(c, "gsel_sum_of_numbers", 1, stream, numbers, ends, n_ends, out); });
}

ReduceMemory reduce_memory(const gsel::Reduction& r) {
  ReduceMemory m{};
  const bool is_bool = r.dtype == GSEL_BOOL;
  m.dst = r.dst;
  m.count = r.count;
  m.n = r.n;
  m.dtype = is_bool ? GSEL_U8 : r.dtype;
  m.op = is_bool ? gsel::reduction::op_of_bits(r.op) : r.op;
  auto addresses = reinterpret_cast<uintptr_t>(r.dst);
  for (int32_t q = 0; q < r.n; ++q) {
    m.srcs[q] = r.srcs[q];
    addresses |= reinterpret_cast<uintptr_t>(r.srcs[q]);
  }
  m.is_aligned = addresses % (4 * kElementBytes[r.dtype]) == 0;
  return m;
}

gsel_status reduce(void* ctx, void* dst, const void* const* srcs, int32_t n, gsel_dtype dtype, gsel_op op,
                   uint64_t count, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    const gsel::Reduction given{dst, srcs, n, dtype, op, count};
    if (const gsel::StepProblem problem = gsel::problem_of(given); problem.status) fail(problem.status, problem.text);
    if (count == 0 || (n == 1 && srcs[0] == dst)) return;
    if (n == 1) {
      const uint64_t bytes = count * kElementBytes[dtype];
      return check(c,
                   c.driver->cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(dst), reinterpret_cast<CUdeviceptr>(srcs[0]),
                                           bytes, stream_of(c, stream).native),
                   "a copy of " + std::to_string(bytes) + " bytes");
    }
    const bool is_floating = name_of(dtype) != nullptr, is_f64 = dtype == GSEL_F64;
    const char* kernel = is_f64 ? "gsel_reduce_f64" : is_floating ? "gsel_reduce_f32" : "gsel_reduce_u64";
    launch(c, kernel, is_floating && !is_f64 ? (count + 3) / 4 : count, stream, reduce_memory(given));
  });
}

// Kernels of one block make columns orthonormal, or look at them.
gsel_status low_rank_step(void* ctx, const gsel_low_rank_step* given, gsel_stream* stream, gsel_error** err) {
  return run(ctx, err, [&](Context& c) {
    const gsel_low_rank_step& s = *given;
    if (const gsel::StepProblem problem = gsel::problem_of(s); problem.status) fail(problem.status, problem.text);
    const LowRankMemory memory{s.matrix,
                               s.left,
                               s.right,
                               s.error,
                               s.old_error,
                               s.rows,
                               s.cols,
                               s.rank,
                               s.key,
                               static_cast<float>(s.scale),
                               1.0f / static_cast<float>(s.ranks),
                               static_cast<float>(1 / s.scale)};
    const auto elems = static_cast<uint64_t>(s.rows * s.cols);
    const auto lefts = static_cast<uint64_t>(s.rows * s.rank), rights = static_cast<uint64_t>(s.cols * s.rank);
    switch (s.kind) {
      case GSEL_LOW_RANK_START:
        return launch(c, "gsel_low_rank_start", rights, stream, memory);
      case GSEL_LOW_RANK_LEFT:
        launch(c, "gsel_low_rank_add_error", elems, stream, memory);
        launch(c, "gsel_low_rank_orthonormal", 1, stream, s.right, s.cols, s.rank, s.key);
        return launch(c, "gsel_low_rank_left", lefts * gsel::kDotLanes, stream, memory);
      case GSEL_LOW_RANK_RIGHT:
        launch(c, "gsel_low_rank_orthonormal", 1, stream, s.left, s.rows, s.rank, s.key);
        return launch(c, "gsel_low_rank_right", rights, stream, memory);
      default:
        launch(c, "gsel_low_rank_look", 1, stream, memory);
        launch(c, "gsel_low_rank_finish", elems, stream, memory);
        return launch(c, "gsel_low_rank_start_again", rights, stream, memory);
    }
  });
}

}  // namespace

void find_graph_kernels(Context& c) {
  if (!c.module) return;
  for (const char* name : {"sgd", "momentum", "sign_sgd", "lion", "adamw", "adam", "adamw_8bit"})
    function(c, std::string("gsel_graph_step_") + name);
  for (const char* name : {"gsel_scale_of_update", "gsel_reduce_f32", "gsel_reduce_f64", "gsel_reduce_u64"})
    function(c, name);
}

void add_kernels(gsel_device_v1& table) {
  table.cast = cast;
  table.scale = scale;
  table.add = add;
  table.sum_squares = sum_squares;
  table.optimizer_step = optimizer_step;
  table.low_rank_step = low_rank_step;
  table.step_factors = step_factors;
  table.update_scale = update_scale;
  table.sum_numbers = sum_numbers;
  table.reduce = reduce;
}

}  // namespace gsel_cuda
