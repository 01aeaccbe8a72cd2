// comm/group.h: calls of a thread that are noted between begin and end and then run together, those of one communicator
// beside those of the others. Refuses to know how a communicator runs them.
#pragma once

#include <gsel/comm.h>

namespace gsel {

class Communicator;

void begin_group();
void end_group();  // the outermost runs what was noted; throws the first failure

// Makes the call, or notes it when this thread is between begin and end.
void call_or_note(Communicator& communicator, gsel_collective& call);

}  // namespace gsel
