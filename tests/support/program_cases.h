// support/program_cases.h: programs whose text is changed, in whole lines, and the answer that the verifier must give.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "program/forward_programs.h"
#include "program/text/text.h"
#include "support/program_maker.h"
#include "support/verdict.h"

namespace gsel::test {

using Texts = std::vector<std::string>;  // by rank

// Empty when accepted.
std::string verdict(const Texts& texts, Purpose purpose = Purpose::training);
void check_verdict(const std::string& why, const char* expected, const std::string& of);

// Replaces the n-th occurrence (from 1) of these whole lines; an empty replacement removes them.
void change(std::string& text, const std::string& lines, int nth, const std::string& replacement);

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

Wanted on_two(Strategy strategy, bool recompute = false);
inline const Wanted kDdp = on_two(Strategy::ddp), kZero1 = on_two(Strategy::zero1), kZero2 = on_two(Strategy::zero2),
                    kZero3 = on_two(Strategy::zero3), kDp = on_two(Strategy::dp), kAgain = on_two(Strategy::ddp, true);

Wanted clipped(Wanted wanted);

}  // namespace gsel::test
