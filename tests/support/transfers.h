// support/transfers.h: programs of all ranks, with enough transfers under way.
#pragma once

#include <vector>

#include "program/verify/verify.h"

namespace gsel::test {

inline void set_transfers(std::vector<Program>& programs) {
  const int32_t transfers = enough_transfers(whole_job(programs));
  for (Program& p : programs) p.transfers = transfers;
}

}  // namespace gsel::test
