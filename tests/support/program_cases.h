// support/program_cases.h: programs whose text is changed, in whole lines, and what the verifier is to say to it.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "program/forward_programs.h"
#include "support/program_maker.h"
#include "support/verdict.h"

namespace gsel::test {

using Texts = std::vector<std::string>;  // by rank

// Empty when accepted.
inline std::string verdict(const Texts& texts, Purpose purpose = Purpose::training) {
  std::vector<Program> programs;
  for (const std::string& text : texts) programs.push_back(parse_program(text, "p.txt"));
  if (purpose == Purpose::evaluation)
    for (Program& p : programs) p = forward_only(p);
  return refusal(programs, purpose);
}

inline void check_verdict(const std::string& why, const char* expected, const std::string& of) {
  const bool fits = expected ? std::strstr(why.c_str(), expected) != nullptr : why.empty();
  if (!fits)
    fail_msg("%s\n  expected: %s\n  got: %s", of.c_str(), expected ? expected : "accepted",
             why.empty() ? "accepted" : why.c_str());
}

// Replaces the n-th place (from 1) where these whole lines stand; no replacement: they go.
inline void change(std::string& text, const std::string& lines, int nth, const std::string& replacement) {
  size_t at = 0;
  for (int i = 0; i < nth; ++i) {
    at = text.find("\n" + lines + "\n", at + (i > 0));
    if (at == std::string::npos) fail_msg("no %d times \"%s\" in\n%s", nth, lines.c_str(), text.c_str());
  }
  text.replace(at + 1, lines.size() + 1, replacement.empty() ? "" : replacement + "\n");
}

struct Case {
  Wanted wanted;
  int32_t rank;  // whose text is changed; -1: all
  int nth;
  const char *lines, *replacement;
  const char* message;  // nullptr: accepted
};

template <size_t n>
void check_cases(const Case (&cases)[n]) {
  for (const Case& c : cases) {
    Texts texts;
    for (const Program& p : test::make_programs(c.wanted)) texts.push_back(to_text(p));
    check_verdict(verdict(texts), nullptr, name_of(c.wanted.strategy));
    for (size_t rank = 0; rank < texts.size(); ++rank)
      if (c.rank < 0 || c.rank == static_cast<int32_t>(rank)) change(texts[rank], c.lines, c.nth, c.replacement);
    check_verdict(verdict(texts), c.message,
                  fmt::format("{}, \"{}\" -> \"{}\"", name_of(c.wanted.strategy), c.lines, c.replacement));
  }
}

inline Wanted on_two(Strategy strategy, bool recompute = false) {
  return {.strategy = strategy, .ranks = 2, .microbatches = 1, .recompute = recompute};
}
inline const Wanted kDdp = on_two(Strategy::ddp), kZero1 = on_two(Strategy::zero1), kZero2 = on_two(Strategy::zero2),
                    kZero3 = on_two(Strategy::zero3), kDp = on_two(Strategy::dp), kAgain = on_two(Strategy::ddp, true);

inline Wanted clipped(Wanted wanted) {
  wanted.clip = wanted.overflow = true;
  return wanted;
}

}  // namespace gsel::test
