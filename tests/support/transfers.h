// support/transfers.h: programs of all ranks, with as many transfers under way as are enough.
#pragma once

#include <vector>

#include "program/verify/verify.h"

namespace gsel::test {

inline void set_transfers(std::vector<Program>& programs) {
  const int32_t transfers = enough_transfers(whole_job(programs));
  for (Program& p : programs) p.transfers = transfers;
}

}  // namespace gsel::test
