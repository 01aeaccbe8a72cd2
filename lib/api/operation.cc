// api/operation.cc: operations of gsel/comm.h.
#include "comm/operation.h"

#include <gsel/comm.h>

#include "base/guard.h"
#include "base/text.h"
#include "comm/local.h"

extern "C" {

gsel_status gsel_op_create(gsel_str name, size_t record_elems, gsel_op_fn function, void* user_data,
                           gsel_free_fn free_user_data, gsel_op* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = 0;
    if (!gsel::given(name)) gsel::fail(GSEL_ERR_ARG, "name is not given; ranks compare operations by it");
    *out = gsel::create_operation(gsel::view(name), record_elems, function, user_data, free_user_data);
  });
}

gsel_status gsel_op_create_scaled_sum(double factor, gsel_op* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = 0;
    *out = gsel::create_scaled_sum(factor);
  });
}

void gsel_op_free(gsel_op op) {
  gsel::destroy_operation(op);
}

gsel_status gsel_reduce_local(const void* const* inputs, size_t n, void* out, size_t count, gsel_dtype dtype,
                              gsel_op op, int32_t order, gsel_error** err) {
  return gsel::guard(err, [&] { gsel::reduce_local(inputs, n, out, count, dtype, op, order); });
}

}  // extern "C"
