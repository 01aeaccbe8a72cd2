// comm/shm/numbering.h: the ranks that errors speak of. A communicator that the library makes for itself out of one of
// the caller's has ranks that the caller never sees: its errors tell the ranks of the caller's communicator. Does not
// know who makes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gsel::shm {

struct Numbering {
  std::string name;                // of the caller's communicator; empty: of this one
  std::vector<int32_t> of_family;  // by rank of the family: rank there, or -1
};

}  // namespace gsel::shm
