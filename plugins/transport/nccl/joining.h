// plugins/transport/nccl/joining.h: what ranks settle before NCCL joins them: the id, and what gsel was told of the
// network and of hosts, which NCCL takes from variables of its own and reads once.
#pragma once

#include "link.h"

namespace gsel_nccl {

// Rank 0 makes an id for all. Before that, GSEL_INTERFACE becomes NCCL_SOCKET_IFNAME and GSEL_HOST_ID becomes
// NCCL_HOSTID, unless these are set. Throws on every rank where GSEL_INTERFACE of one is no interface of its host, or
// by its NCCL_SOCKET_IFNAME, NCCL takes another one.
UniqueId agree_on_id(const Library& nccl, const gsel_join& join);

}  // namespace gsel_nccl
