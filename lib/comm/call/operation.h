// comm/call/operation.h: reduction operations, including those that callers create. Does not know ranks and memory.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel {

constexpr size_t kOperationNameBytes = 32;  // with NUL

// op: a value of gsel/types.h below GSEL_OP_USER, or GSEL_OP_USER for a caller's function.
struct Operation {
  gsel_op op = 0;
  double factor = 1;  // of GSEL_SCALED_SUM
  gsel_op_fn function = nullptr;
  void* user_data = nullptr;
  uint64_t record = 1;     // elements that are never split
  uint64_t name_hash = 0;  // of the name and record of a caller's operation
  char name[kOperationNameBytes] = {};
};

// The operation of a number; GSEL_ERR_ARG if there is none.
Operation operation_of(gsel_op op);

// For errors: `sum`, or a caller's operation by its name in quotes.
std::string operation_name(gsel_op op);
std::string operation_name(const Operation& operation);

// See gsel_op_create and the functions after it. Numbers of destroyed operations are not reused soon.
gsel_op create_operation(std::string_view name, uint64_t record, gsel_op_fn function, void* user_data,
                         gsel_free_fn free_user_data);
gsel_op create_scaled_sum(double factor);
void destroy_operation(gsel_op op) noexcept;

// See gsel_reduce_local; checks its arguments.
void reduce_local(const void* const* inputs, size_t n, void* out, size_t count, gsel_dtype dtype, gsel_op op,
                  int32_t order);

}  // namespace gsel
