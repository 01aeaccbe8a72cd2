// device/host/work.cc: kernels as work on streams. Unsupported arguments fail when a kernel is called, not later.
#include <vector>

#include "base/guard.h"
#include "base/types.h"
#include "device/formulas/floats.h"
#include "device/formulas/step_needs.h"
#include "device/host/kernels.h"
#include "device/host/reduce/kernels.h"
#include "device/host/stream.h"
#include "device/host/table.h"

namespace gsel::host {
namespace {

gsel_status cast_work(void*, void* dst, gsel_dtype dst_dtype, const void* src, gsel_dtype src_dtype, uint64_t count,
                      gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    for (const gsel_dtype dtype : {dst_dtype, src_dtype})
      if (!can_cast(dtype))
        fail(GSEL_ERR_UNSUPPORTED,
             "cast from {} to {} is not supported on the host; it casts integers, f16, bf16, f32, f64",
             dtype_name(src_dtype), dtype_name(dst_dtype));
    run_on(stream, [=] { cast(dst, dst_dtype, src, src_dtype, count); });
  });
}

// Calls body with a typed null pointer.
template <class Body>
void for_float_type(gsel_dtype dtype, const char* kernel, Body&& body) {
  if (dtype == GSEL_F32) return body(static_cast<float*>(nullptr));
  if (dtype == GSEL_F64) return body(static_cast<double*>(nullptr));
  fail(GSEL_ERR_UNSUPPORTED, "{} of {} is not supported on the host; use f32 or f64", kernel, dtype_name(dtype));
}

// Calls body with a typed null pointer for types of 8 or 16 bits; false for other types.
template <class Body>
bool for_narrow_type(gsel_dtype dtype, Body&& body) {
  switch (dtype) {
    case GSEL_F16:
      return body(static_cast<F16*>(nullptr)), true;
    case GSEL_BF16:
      return body(static_cast<BF16*>(nullptr)), true;
    case GSEL_F8E4M3:
      return body(static_cast<F8E4M3*>(nullptr)), true;
    case GSEL_F8E5M2:
      return body(static_cast<F8E5M2*>(nullptr)), true;
    default:
      return false;
  }
}

gsel_status scale_work(void*, void* dst, gsel_dtype dtype, double factor, uint64_t count, gsel_stream* stream,
                       gsel_error** err) {
  return guard(err, [&] {
    const bool is_narrow = for_narrow_type(dtype, [&](auto* typed) {
      run_on(stream, [=] { scale_narrow(static_cast<decltype(typed)>(dst), factor, count); });
    });
    if (is_narrow) return;
    for_float_type(dtype, "scale", [&](auto* typed) {
      run_on(stream, [=] { scale(static_cast<decltype(typed)>(dst), factor, count); });
    });
  });
}

// Like a reduction: in f32, rounded once.
void add_narrow(void* dst, const void* src, gsel_dtype dtype, uint64_t count) {
  const void* const both[] = {dst, src};
  reduce({.dtype = dtype, .op = GSEL_SUM}, dst, both, 2, count);
}

gsel_status add_work(void*, void* dst, const void* src, gsel_dtype dtype, uint64_t count, gsel_stream* stream,
                     gsel_error** err) {
  return guard(err, [&] {
    if (for_narrow_type(dtype, [](auto*) {})) return run_on(stream, [=] { add_narrow(dst, src, dtype, count); });
    for_float_type(dtype, "add", [&](auto* typed) {
      using T = std::remove_pointer_t<decltype(typed)>;
      run_on(stream, [=] { add(static_cast<T*>(dst), static_cast<const T*>(src), count); });
    });
  });
}

gsel_status sum_squares_work(void*, const void* src, gsel_dtype dtype, uint64_t count, double* out, gsel_stream* stream,
                             gsel_error** err) {
  return guard(err, [&] {
    for_float_type(dtype, "sum_squares", [&](auto* typed) {
      using T = std::remove_pointer_t<decltype(typed)>;
      run_on(stream, [=] { *out = sum_squares(static_cast<const T*>(src), count); });
    });
  });
}

gsel_status optimizer_work(void*, const gsel_optimizer_step* given, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    const gsel_optimizer_step step = *given;
    if (const StepProblem problem = problem_of(step); problem.status) fail(problem.status, "{}", problem.text);
    const auto kernel = needs_of(step).scales ? byte_state_step : elementwise_step;
    run_on(stream, [=] { kernel(best_isa(), step); });
  });
}

gsel_status low_rank_work(void*, const gsel_low_rank_step* given, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    const gsel_low_rank_step step = *given;
    if (const StepProblem problem = problem_of(step); problem.status) fail(problem.status, "{}", problem.text);
    run_on(stream, [=] { low_rank_step(step); });
  });
}

gsel_status reduce_work(void*, void* dst, const void* const* srcs, int32_t n, gsel_dtype dtype, gsel_op op,
                        uint64_t count, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    const StepProblem problem = problem_of(Reduction{dst, srcs, n, dtype, op, count});
    if (problem.status) fail(problem.status, "{}", problem.text);
    if (count == 0) return;
    run_on(stream, [=, sources = std::vector(srcs, srcs + n)] {
      reduce({.dtype = dtype, .op = op}, dst, sources.data(), n, count);
    });
  });
}

}  // namespace

void add_kernels(gsel_device_v1& table) {
  table.cast = cast_work;
  table.scale = scale_work;
  table.add = add_work;
  table.sum_squares = sum_squares_work;
  table.optimizer_step = optimizer_work;
  table.low_rank_step = low_rank_work;
  table.reduce = reduce_work;
}

}  // namespace gsel::host
