// comm/shm/transport.h: the built-in transport's table: ranks of one host, through shared memory.
#pragma once

#include <gsel/transport.h>

namespace gsel::shm {

const gsel_transport_v1& transport_table();

// The link behind a handle that this table made.
class Link;
Link& link_of(gsel_link* link);

// Of calls under way, whose end still has to be waited for unless they were cancelled; see Engine.
bool cancel(gsel_pending* work);
void wait_or_cancel(gsel_pending* work);

// As the table's link_shrink, without these ranks, for which nobody waits; and as its link_split, for the library's own
// use: errors show the ranks of the caller's communicator.
gsel_status shrink_without(gsel_link* link, const int32_t* ranks, uint64_t n, gsel_membership* membership,
                           gsel_link** out, gsel_error** err);
gsel_status split_inside(gsel_link* link, int32_t colour, int32_t key, const char* label, gsel_membership* membership,
                         gsel_link** out, gsel_error** err);

}  // namespace gsel::shm
