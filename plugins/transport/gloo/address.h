// plugins/transport/gloo/address.h: the address of this host that other ranks connect to. Names are never resolved: a
// host's own name is often one of loopback, or of nothing.
#pragma once

#include <string>

#include "transport/common/failure.h"

namespace gsel_gloo {

// Collective over the ranks. Loopback where all ranks are in one network namespace; else the address of the interface
// that GSEL_INTERFACE names, or that at which the hosts have met, or of the interface that leads to the other ranks. Of
// one family on all ranks. Fails on every rank when one has none.
std::string agree_on_address(const gsel_join& join);

}  // namespace gsel_gloo
