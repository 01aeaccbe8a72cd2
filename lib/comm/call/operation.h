// comm/call/operation.h: what a reduction does, and the operations that callers create. Does not know ranks and memory.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "device/host/reduce/kernels.h"

namespace gsel {

constexpr size_t kOperationNameBytes = 32;  // with the NUL behind it

// A reduction in full. op is one of gsel/types.h below GSEL_OP_USER, or GSEL_OP_USER itself for the caller's function.
struct Operation {
  gsel_op op = 0;
  double factor = 1;  // of GSEL_SCALED_SUM
  gsel_op_fn function = nullptr;
  void* user_data = nullptr;
  uint64_t record = 1;     // elements that are never cut
  uint64_t name_hash = 0;  // of a caller's operation, its record too
  char name[kOperationNameBytes] = {};
};

// What a number stands for; GSEL_ERR_ARG for a number that was not handed out or is destroyed.
Operation operation_of(gsel_op op);

// For errors: `sum`, or the caller's name in quotes.
std::string operation_name(gsel_op op);
std::string operation_name(const Operation& operation);

// See gsel_op_create and its neighbours. Numbers that were destroyed are not handed out again soon.
gsel_op create_operation(std::string_view name, uint64_t record, gsel_op_fn function, void* user_data,
                         gsel_free_fn free_user_data);
gsel_op create_scaled_sum(double factor);
void destroy_operation(gsel_op op) noexcept;

// See gsel_reduce_local; checks its arguments. reduce_local.cc
void reduce_local(const void* const* inputs, size_t n, void* out, size_t count, gsel_dtype dtype, gsel_op op,
                  int32_t order);

}  // namespace gsel
