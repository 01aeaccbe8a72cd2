// support/verdict.h: the answers of the verifier about programs.
#pragma once

#include <string>
#include <vector>

#include "program/verify/verify.h"
#include "support/check.h"
#include "support/draw.h"
#include "support/share.h"

namespace gsel::test {

// Empty when accepted.
std::string refusal(const std::vector<Program>& programs, Purpose purpose = Purpose::training);

// As above; the reason names a rank.
std::string refusal_of_a_rank(const std::vector<Program>& programs, Purpose purpose = Purpose::training);
std::string all_text(const std::vector<Program>& programs);

// Each damage is done to programs of n seeds, some of which it fits; none may be accepted.
template <class Damages, class Drawn>
void check_damage_is_refused(const Damages& damages, uint32_t n, Drawn&& drawn) {
  for (const auto& [name, damage] : damages) {
    int applied = 0;
    for (uint32_t seed = 0; seed < n; ++seed) {
      std::vector<Program> programs = drawn(seed);
      Draw draw(seed + 1000);
      if (!damage(programs, draw)) continue;
      ++applied;
      if (refusal(programs).empty())
        fail_msg("%s, seed %u: accepted\n%s", name.c_str(), seed, all_text(programs).c_str());
    }
    if (applied < (SANITIZED ? 2 : 10)) fail_msg("%s: fits %d programs alone", name.c_str(), applied);
  }
}

}  // namespace gsel::test
