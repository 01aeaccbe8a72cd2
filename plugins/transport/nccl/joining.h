// plugins/transport/nccl/joining.h: what ranks agree on before NCCL joins them: the id, and gsel's settings for network
// and hosts, which are passed on in NCCL's own variables, since NCCL reads them once.
#pragma once

#include "link.h"

namespace gsel_nccl {

// Rank 0 makes an id for all. Before that, sets NCCL_SOCKET_IFNAME from GSEL_INTERFACE and NCCL_HOSTID from
// GSEL_HOST_ID, unless these are set. Throws on every rank if GSEL_INTERFACE of one rank is no interface of its host,
// or if NCCL_SOCKET_IFNAME selects another interface.
UniqueId agree_on_id(const Library& nccl, const gsel_join& join);

}  // namespace gsel_nccl
