// comm/hosts/listening_id.h: this process listens for the ranks that are given an id of its own
// (gsel_unique_id_listen), before it joins as rank 0. Does not know how the ranks meet.
#pragma once

#include <gsel/comm.h>

#include <optional>

#include "comm/hosts/secret.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {

// Listens at a free port until take_listener() or the end of this process, and returns an id that tells where.
gsel_unique_id listen_for_id();
// Of the id, which is the job's secret. GSEL_ERR_ARG if this process does not listen for it.
Listener take_listener(const Secret& id);

}  // namespace gsel::hosts
