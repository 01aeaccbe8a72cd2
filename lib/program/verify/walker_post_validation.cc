// program/verify/walker_post_validation.cc: rules of steps that are validated later, as one rank meets them:
// POST_VALIDATE comes before all that the step before might change, and behind an optimistic number nothing looks at
// it.
#include "program/verify/post_validation.h"
#include "program/verify/walker.h"

namespace gsel {

void Walker::post_validate() {
  if (validated_) refuse("the step before is already validated");
  validated_ = true;
}

// Pipeline ranks exchange the numbers asynchronously, while they go on with what follows.
bool Walker::goes_on(const gsel_instr& instr, const Group& group) const {
  return is_optimistic(instr) && &group == groups_[GSEL_AXIS_PIPELINE];
}

}  // namespace gsel
