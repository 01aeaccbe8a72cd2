// program/verify/walker_post_validation.cc: rules of optimistic steps within one rank: POST_VALIDATE comes before
// everything that the previous step might still change, and nothing reads the number of an optimistic instruction.
#include "program/optimistic.h"
#include "program/verify/walker.h"

namespace gsel {

void Walker::post_validate() {
  if (validated_) refuse("the step before is already validated");
  validated_ = true;
}

// Pipeline ranks exchange the numbers asynchronously, while they go on with what follows.
bool Walker::goes_on(const gsel_instr& instr, const RankGroup& group) const {
  return is_optimistic(instr) && &group == groups_[GSEL_AXIS_PIPELINE];
}

}  // namespace gsel
