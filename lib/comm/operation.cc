// comm/operation.cc: see operation.h.
#include "comm/operation.h"

#include "base/dtype.h"
#include "base/error.h"

namespace gsel {

Operation operation_of(gsel_op op) {
  Operation operation;
  operation.op = op;
  return operation;
}

std::string operation_name(gsel_op op) {
  return op_name(op);
}

}  // namespace gsel
