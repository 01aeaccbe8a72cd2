// support/program_maker.h: good programs of every strategy, made here from the rules of docs/program.md and not by the
// plugins, so that the checks of programs do not depend on the plugins.
//
// The model: a table that embedding and head share, a linear layer whose bias backward does not read, a sum over a
// skip connection, a frozen parameter. Three buckets: table; w1 and b1; w2, which stays whole in stage 3.
#pragma once

#include <vector>

#include "program/program.h"

namespace gsel::test {

enum class Strategy { ddp, zero1, zero2, zero3, dp };
constexpr Strategy kStrategies[] = {Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3, Strategy::dp};
const char* name_of(Strategy strategy);

enum { TABLE, W1, B1, W2, FIXED };
enum { TOKENS, TARGETS, X0, X1, X2, LOGITS, LOSS, WEIGHT };
enum { EMBED, FC1, MIX, HEAD, LOSS_LAYER };

struct Wanted {
  Strategy strategy = Strategy::ddp;
  int32_t ranks = 2;
  int32_t microbatches = 2;
  bool recompute = false, clip = false, overflow = false;
  bool split = false;   // backward in two halves
  bool phases = false;  // of the linear layer, over the data axis
  int64_t batch = 7;
};

// Of all ranks.
std::vector<Program> make_programs(const Wanted& wanted);

}  // namespace gsel::test
