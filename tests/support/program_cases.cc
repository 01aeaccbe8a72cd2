// See program_cases.h.
#include "support/program_cases.h"

#include "program/text/text.h"

namespace gsel::test {

std::string verdict(const Texts& texts, Purpose purpose) {
  std::vector<Program> programs;
  for (const std::string& text : texts) programs.push_back(parse_program(text, "p.txt"));
  if (purpose == Purpose::evaluation)
    for (Program& p : programs) p = forward_only(p);
  return refusal(programs, purpose);
}

void check_verdict(const std::string& why, const char* expected, const std::string& of) {
  const bool fits = expected ? std::strstr(why.c_str(), expected) != nullptr : why.empty();
  if (!fits)
    fail_msg("%s\n  expected: %s\n  got: %s", of.c_str(), expected ? expected : "accepted",
             why.empty() ? "accepted" : why.c_str());
}

void change(std::string& text, const std::string& lines, int nth, const std::string& replacement) {
  size_t at = 0;
  for (int i = 0; i < nth; ++i) {
    at = text.find("\n" + lines + "\n", at + (i > 0));
    if (at == std::string::npos) fail_msg("no %d times \"%s\" in\n%s", nth, lines.c_str(), text.c_str());
  }
  text.replace(at + 1, lines.size() + 1, replacement.empty() ? "" : replacement + "\n");
}

Wanted on_two(Strategy strategy, bool recompute) {
  return {.strategy = strategy, .ranks = 2, .microbatches = 1, .recompute = recompute};
}
Wanted clipped(Wanted wanted) {
  wanted.clip = wanted.overflow = true;
  return wanted;
}

}  // namespace gsel::test
