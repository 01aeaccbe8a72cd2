// api/mesh.cc: gsel/mesh.h.
#include <gsel/mesh.h>

#include <algorithm>

#include "api/comm_handle.h"
#include "api/config_handle.h"
#include "api/init_struct.h"
#include "base/guard.h"
#include "base/options.h"
#include "program/program.h"

namespace {

constexpr uint32_t kAllAxes = (1u << GSEL_AXES) - 1;

// GSEL_ERR_ARG where the sizes are not those of a mesh.
gsel::Mesh mesh_of(const gsel_mesh* given) {
  const gsel_mesh mesh = gsel::read_struct(given, "gsel_mesh");
  gsel::Mesh result;
  int64_t ranks = 1;
  for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis) {
    result.size[axis] = mesh.size[axis];
    ranks = mesh.size[axis] > 0 && ranks <= mesh.world_size ? ranks * mesh.size[axis] : -1;
    if (ranks < 0) break;
  }
  if (ranks < 1 || ranks != mesh.world_size)
    gsel::fail(GSEL_ERR_ARG,
               "gsel_mesh has sizes {}, {} and {} for {} ranks; sizes from 1 that multiply to it would do, as "
               "gsel_mesh_resolve gives them",
               mesh.size[0], mesh.size[1], mesh.size[2], mesh.world_size);
  return result;
}

}  // namespace

extern "C" {

void gsel_mesh_init(gsel_mesh* mesh, size_t struct_size) {
  gsel::init_struct(mesh, struct_size);
}

gsel_status gsel_mesh_resolve(const gsel_config* config, int32_t world_size, gsel_mesh* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::stated_size(out, "gsel_mesh");
    const auto sizes = gsel::resolve_mesh(config ? config->impl : gsel::default_config(), world_size);
    gsel_mesh mesh = GSEL_MESH_INIT;
    mesh.world_size = world_size;
    std::ranges::copy(sizes, mesh.size);
    gsel::write_struct(out, mesh, "gsel_mesh");
  });
}

int32_t gsel_mesh_place(const gsel_mesh* mesh, int32_t rank, gsel_axis axis) {
  return gsel::query(int32_t{-1}, [&] {
    const gsel::Mesh of = mesh_of(mesh);
    const bool exists = rank >= 0 && rank < of.world_size() && axis >= 0 && axis < GSEL_AXES;
    return exists ? of.coordinate(rank, axis) : -1;
  });
}

int32_t gsel_mesh_rank(const gsel_mesh* mesh, const int32_t* places) {
  return gsel::query(int32_t{-1}, [&] {
    const gsel::Mesh of = mesh_of(mesh);
    gsel::required(places, "places");
    int32_t rank = 0;
    for (gsel_axis axis = GSEL_AXES; axis-- > 0;) {
      if (places[axis] < 0 || places[axis] >= of.size[axis]) return -1;
      rank = rank * of.size[axis] + places[axis];
    }
    return rank;
  });
}

// The colour is the group's first rank: that with place 0 on the axes along which the ranks differ.
gsel_status gsel_mesh_split(gsel_comm* comm, const gsel_mesh* mesh, uint32_t axes, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const gsel::Mesh of = mesh_of(mesh);
    auto& world = gsel::required(comm, "comm").impl;
    if (of.world_size() != world.world_size())
      gsel::fail(GSEL_ERR_ARG, "a mesh of {} ranks for a communicator of {}; they must have as many", of.world_size(),
                 world.world_size());
    if (axes & ~kAllAxes)
      gsel::fail(GSEL_ERR_ARG, "axes are {:#x}; bits 1 << GSEL_AXIS_TENSOR, _DATA and _PIPELINE would do", axes);
    int32_t first = world.rank(), stride = 1;
    for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis) {
      if (axes >> axis & 1) first -= of.coordinate(world.rank(), axis) * stride;
      stride *= of.size[axis];
    }
    *out = new gsel_comm{*world.split(first, world.rank())};
  });
}

}  // extern "C"
