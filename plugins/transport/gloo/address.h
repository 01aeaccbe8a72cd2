// plugins/transport/gloo/address.h: the address of this host that other ranks connect to. Names are never resolved: a
// host's own name often resolves to loopback or not at all.
#pragma once

#include <string>

#include "transport/common/failure.h"

namespace gsel_gloo {

// Collective over the ranks. Loopback if all ranks are in one network namespace; else the address of the interface
// named in GSEL_INTERFACE, the address at which the hosts have met, or that of the interface on the route to the other
// ranks. All ranks get the same address family. Fails on every rank if one has no address.
std::string agree_on_address(const gsel_join& join);

}  // namespace gsel_gloo
