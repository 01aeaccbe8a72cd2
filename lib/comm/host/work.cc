// comm/host/work.cc: kernels as work on streams. What a kernel cannot do is refused when it is asked, not later.
#include "base/dtype.h"
#include "comm/host/host.h"
#include "comm/host/kernels.h"
#include "comm/host/stream.h"

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

// Calls body with a null pointer of the type.
template <class Body>
void for_float_type(gsel_dtype dtype, const char* kernel, Body&& body) {
  if (dtype == GSEL_F32) return body(static_cast<float*>(nullptr));
  if (dtype == GSEL_F64) return body(static_cast<double*>(nullptr));
  fail(GSEL_ERR_UNSUPPORTED, "{} of {} is not supported on the host; use f32 or f64", kernel, dtype_name(dtype));
}

gsel_status scale_work(void*, void* dst, gsel_dtype dtype, double factor, uint64_t count, gsel_stream* stream,
                       gsel_error** err) {
  return guard(err, [&] {
    for_float_type(dtype, "scale", [&](auto* typed) {
      run_on(stream, [=] { scale(static_cast<decltype(typed)>(dst), factor, count); });
    });
  });
}

gsel_status add_work(void*, void* dst, const void* src, gsel_dtype dtype, uint64_t count, gsel_stream* stream,
                     gsel_error** err) {
  return guard(err, [&] {
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

void check_states(const gsel_optimizer_step& step, bool first, bool second) {
  if (step.count > 0 && ((first && !step.state0) || (second && !step.state1)))
    fail(GSEL_ERR_ARG, "optimizer step of kind {} on {} elements needs {} and it is NULL", step.kind, step.count,
         first && !step.state0 ? "state0" : "state1");
}

gsel_status optimizer_work(void*, const gsel_optimizer_step* given, gsel_stream* stream, gsel_error** err) {
  return guard(err, [&] {
    const gsel_optimizer_step step = *given;
    switch (step.kind) {
      case GSEL_OPTIMIZER_SGD:
        check_states(step, step.momentum != 0, false);
        return run_on(stream, [=] { sgd_step(step); });
      case GSEL_OPTIMIZER_SIGN_SGD:
        return run_on(stream, [=] { sign_sgd_step(step); });
      case GSEL_OPTIMIZER_ADAMW:
        check_states(step, true, true);
        if (step.t < 1) fail(GSEL_ERR_ARG, "adamw step number is {}; it counts from 1", step.t);
        return run_on(stream, [=] { adamw_step(step); });
      default:
        fail(GSEL_ERR_UNSUPPORTED, "optimizer kind {} is unknown to the host", step.kind);
    }
  });
}

}  // namespace

void add_kernels(gsel_backend_v1& table) {
  table.cast = cast_work;
  table.scale = scale_work;
  table.add = add_work;
  table.sum_squares = sum_squares_work;
  table.optimizer_step = optimizer_work;
}

}  // namespace gsel::host
