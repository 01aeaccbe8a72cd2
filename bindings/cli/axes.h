// axes.h: the axes that the command shows, and the sizes that a config gives them. The axes come from the library, so
// that a new axis is not forgotten here.
#pragma once

#include <gsel/gsel.h>

#include <string>
#include <vector>

namespace gsel::cli {

// Axes from inner to outer. The context axis is omitted if it has one rank.
std::vector<gsel_axis> shown_axes(int32_t context_ranks);

// The ranks that [mesh] of a config asks for.
struct MeshRanks {
  int64_t product = 1;    // of the sizes without "auto"; `most` + 1 if larger
  std::string automatic;  // key of the size that is "auto"; empty: none
};
MeshRanks ranks_of_mesh(const gsel_config* config, int64_t most);

}  // namespace gsel::cli
