// api/mesh.cc: gsel/mesh.h.
#include <gsel/mesh.h>

#include <algorithm>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "base/types.h"
#include "program/program.h"

namespace {

using gsel::kAxes;

constexpr uint32_t kAllAxes = (1u << kAxes) - 1;

// GSEL_ERR_ARG for sizes that are no mesh.
gsel::Mesh mesh_of(const gsel_mesh* given) {
  const gsel_mesh mesh = gsel::read_struct(given, "gsel_mesh");
  if (mesh.n_axes < 0 || mesh.n_axes > GSEL_MAX_AXES)
    gsel::fail(GSEL_ERR_ARG, "gsel_mesh has {}; set n_axes from 0 to {}", gsel::with_noun(mesh.n_axes, "axis"),
               GSEL_MAX_AXES);
  gsel::Mesh result;
  int64_t ranks = 1;
  for (gsel_axis axis = 0; axis < (mesh.n_axes > 0 ? mesh.n_axes : kAxes); ++axis) {
    const int32_t size = mesh.size[axis] == 0 ? 1 : mesh.size[axis];
    if (!gsel::is_axis(axis) && size != 1)
      gsel::fail(GSEL_ERR_ARG, "gsel_mesh has {} on axis {}, which this libgsel does not have; it has {}",
                 gsel::with_noun(size, "rank"), axis, kAxes);
    ranks = size > 0 && ranks <= mesh.world_size ? ranks * size : -1;
    if (ranks < 0) break;
    if (gsel::is_axis(axis)) result.size[axis] = size;
  }
  if (ranks < 1 || ranks != mesh.world_size)
    gsel::fail(
        GSEL_ERR_ARG,
        "gsel_mesh has sizes {} for {}; expected sizes from 1 that multiply to it, as gsel_mesh_resolve gives them",
        fmt::join(mesh.size, mesh.size + kAxes, ", "), gsel::with_noun(mesh.world_size, "rank"));
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
    mesh.n_axes = kAxes;
    std::ranges::copy(sizes, mesh.size);
    gsel::write_struct(out, mesh, "gsel_mesh");
  });
}

int32_t gsel_mesh_coordinate(const gsel_mesh* mesh, int32_t rank, gsel_axis axis) {
  return gsel::query(int32_t{-1}, [&] {
    const gsel::Mesh of = mesh_of(mesh);
    const bool exists = rank >= 0 && rank < of.world_size() && gsel::is_axis(axis);
    return exists ? of.coordinate(rank, axis) : -1;
  });
}

int32_t gsel_mesh_rank(const gsel_mesh* mesh, const int32_t* coordinates, int32_t n) {
  return gsel::query(int32_t{-1}, [&] {
    const gsel::Mesh of = mesh_of(mesh);
    if (n > 0) gsel::required(coordinates, "coordinates");
    int32_t rank = 0;
    for (gsel_axis axis = 0; axis < n; ++axis) {
      if (coordinates[axis] < 0 || coordinates[axis] >= (gsel::is_axis(axis) ? of.size[axis] : 1)) return -1;
      if (gsel::is_axis(axis)) rank += coordinates[axis] * of.stride(axis);
    }
    return rank;
  });
}

// The colour is the group's first rank, which has coordinate 0 on the axes along which the ranks differ.
gsel_status gsel_mesh_split(gsel_comm* comm, const gsel_mesh* mesh, uint32_t axes, gsel_comm** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::required(out, "out") = nullptr;
    const gsel::Mesh of = mesh_of(mesh);
    auto& world = gsel::required(comm, "comm").impl;
    if (of.world_size() != world.world_size())
      gsel::fail(GSEL_ERR_ARG, "a mesh of {} for a communicator of {}; they must have as many",
                 gsel::with_noun(of.world_size(), "rank"), world.world_size());
    if (axes & ~kAllAxes)
      gsel::fail(GSEL_ERR_ARG, "axes are {:#x}; expected bits 1 << GSEL_AXIS_*, which are {:#x}", axes, kAllAxes);
    int32_t first = world.rank();
    for (gsel_axis axis = 0; axis < kAxes; ++axis)
      if (axes >> axis & 1) first -= of.coordinate(world.rank(), axis) * of.stride(axis);
    *out = new gsel_comm{*world.split(first, world.rank())};
  });
}

}  // extern "C"
