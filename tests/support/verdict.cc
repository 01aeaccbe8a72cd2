// See verdict.h.
#include "support/verdict.h"

#include "program/text/text.h"

namespace gsel::test {

std::string refusal(const std::vector<Program>& programs, Purpose purpose) {
  try {
    verify(programs, purpose);
    return {};
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_PROGRAM);
    return e.what();
  }
}

std::string refusal_of_a_rank(const std::vector<Program>& programs, Purpose purpose) {
  const std::string why = refusal(programs, purpose);
  if (!why.empty() && why.find("rank ") == why.npos) fail_msg("no rank is named: %s", why.c_str());
  return why;
}

std::string all_text(const std::vector<Program>& programs) {
  std::string text;
  for (const Program& p : programs) text += to_text(p);
  return text;
}

}  // namespace gsel::test
