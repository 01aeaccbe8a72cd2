// support/random_program.h: models and programs made at random for tests of memory: everything a strategy may do with
// buckets, windows and recomputed layers, and more than any of ours does.
#ifndef GSEL_TESTS_RANDOM_PROGRAM_H
#define GSEL_TESTS_RANDOM_PROGRAM_H

#include <random>

#include "support/made_model.h"

namespace made {

using namespace gsel;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }

 private:
  std::mt19937 engine_;
};

// Layers that read any earlier values, with skips, tied and frozen parameters, saved bytes, phases, and things unread.
std::unique_ptr<Model> random_model(Random& random);

// Rewrites the base program with buckets kept in all ways, recomputed layers, windows opened early and late.
Program random_program(const Model& model, const Config& config, Random& random);

}  // namespace made

#endif
