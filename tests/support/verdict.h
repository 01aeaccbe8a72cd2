// support/verdict.h: what the verifier says to programs.
#pragma once

#include <string>
#include <vector>

#include "program/verify/verify.h"
#include "support/check.h"

namespace gsel::test {

// Empty when accepted.
inline std::string refusal(const std::vector<Program>& programs, Purpose purpose = Purpose::training) {
  try {
    verify(programs, purpose);
    return {};
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_PROGRAM);
    return e.what();
  }
}

inline std::string all_text(const std::vector<Program>& programs) {
  std::string text;
  for (const Program& p : programs) text += to_text(p);
  return text;
}

}  // namespace gsel::test
