// axes.cc: see axes.h.
#include "axes.h"

#include <algorithm>

#include "client.h"

namespace gsel::cli {
namespace {

// Distance of neighbours on the axis in a mesh with two ranks on each axis.
int32_t stride_of(gsel_axis axis) {
  gsel_mesh mesh = GSEL_MESH_INIT;
  mesh.n_axes = gsel_axis_count();
  mesh.world_size = 1 << mesh.n_axes;
  for (gsel_axis a = 0; a < mesh.n_axes; ++a) mesh.size[a] = 2;
  int32_t neighbour[GSEL_MAX_AXES] = {};
  neighbour[axis] = 1;
  return gsel_mesh_rank(&mesh, neighbour, mesh.n_axes);
}

}  // namespace

std::vector<gsel_axis> shown_axes(int32_t context_ranks) {
  std::vector<gsel_axis> axes;
  for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis)
    if (axis != GSEL_AXIS_CONTEXT || context_ranks > 1) axes.push_back(axis);
  std::sort(axes.begin(), axes.end(), [](gsel_axis a, gsel_axis b) { return stride_of(a) < stride_of(b); });
  return axes;
}

MeshRanks ranks_of_mesh(const gsel_config* config, int64_t most) {
  MeshRanks ranks;
  for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis) {
    const std::string key = std::string("mesh.") + gsel_axis_name(axis);
    const std::string size_text = text(gsel_config_get(config, borrow(key)));
    if (size_text == "auto") {
      ranks.automatic = key;
      continue;
    }
    const int64_t size = std::stoll(size_text);
    ranks.product = size > most ? most + 1 : std::min(ranks.product * size, most + 1);
  }
  return ranks;
}

}  // namespace gsel::cli
