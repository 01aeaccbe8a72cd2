// axes.h: the axes of the library as people see them, and the sizes that a config gives them. Axes are asked of the
// library, so that none that it has is left out here.
#pragma once

#include <gsel/gsel.h>

#include <string>
#include <vector>

namespace gsel::cli {

// From inner to outer. The context axis goes without saying where it has one rank.
std::vector<gsel_axis> shown_axes(int32_t context_ranks);

// The ranks that [mesh] of a config asks for.
struct MeshRanks {
  int64_t product = 1;    // of the sizes, "auto" left out; `most` + 1 when there are more
  std::string automatic;  // key of the size that is "auto"; empty when none is
};
MeshRanks ranks_of_mesh(const gsel_config* config, int64_t most);

}  // namespace gsel::cli
