// comm/device/agreement.h: which transport the ranks of a communicator use together. Each says what it has; all come to
// the same answer. Does not know how a transport works.
#pragma once

#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/device/accelerator.h"

namespace gsel {

struct Agreement {
  bool through_host = true;
  std::string reason;               // why that one, and why the others were not taken
  std::vector<int32_t> reached_by;  // devices of other ranks of this process, which reach buffers where they are
};

// Collective. Throws where a transport that some rank names cannot be used, or where some rank does not allow what the
// ranks would have to do: flags are GSEL_COMM_*.
Agreement agree_on_transport(const Accelerator& accelerator, Control& control, uint32_t flags);

}  // namespace gsel
