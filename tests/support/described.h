// support/described.h: a model that a test's numbers describe, made once and kept.
#pragma once

#include "api/handles.h"
#include "support/check.h"

namespace gsel::test {

template <class Numbers>
const Model& described(gsel_status (*describe)(gsel_model*, Numbers*, gsel_error**)) {
  static Numbers numbers;
  static gsel_model* made = nullptr;
  if (made) return *made->impl;
  gsel_error* err = nullptr;
  check_ok(gsel_model_create(&made, &err), err);
  check_ok(describe(made, &numbers, &err), err);
  check_ok(gsel_model_finish(made, &err), err);
  return *made->impl;
}

}  // namespace gsel::test
