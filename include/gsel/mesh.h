/* gsel/mesh.h: the coordinates of ranks on the axes of a mesh. From inner to outer the axes are tensor, context, data
 * and pipeline: ranks 0 and 1 differ on the innermost axis that has two or more ranks. A mesh is plain data; the
 * trainer makes the same mesh from its config. */
#ifndef GSEL_MESH_H
#define GSEL_MESH_H

#include <gsel/comm.h>
#include <gsel/config.h>
#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

/* With coordinates t, c, d and p on these axes: rank = t + size[tensor] * (c + size[context] * (d + size[data] * p)).
 *   n_axes  number of axes in size; further axes have one rank. 0 stands for all axes of the library
 *   size    by GSEL_AXIS_*; the product of the sizes is world_size. 0 stands for 1 */
typedef struct gsel_mesh {
  uint32_t struct_size;
  uint32_t reserved;
  int32_t world_size;
  int32_t n_axes;
  int32_t size[GSEL_MAX_AXES];
} gsel_mesh;
#define GSEL_MESH_INIT GSEL_STRUCT_INIT(gsel_mesh)
GSEL_API void gsel_mesh_init(gsel_mesh *mesh, size_t struct_size);

/* The mesh that config specifies for world_size ranks, with "auto" resolved.
 *   config  NULL: defaults, all ranks on the data axis
 * Errors: GSEL_ERR_ARG; GSEL_ERR_CONFIG with file, line and key if the product of the sizes is not world_size;
 * GSEL_ERR_UNSUPPORTED if tensor and context both have several ranks. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_mesh_resolve(const gsel_config *config, int32_t world_size, gsel_mesh *out, gsel_error **err);

/* Coordinate of a rank on an axis; -1 for a rank or axis that does not exist. Any thread. Since 0.1. */
GSEL_API int32_t gsel_mesh_coordinate(const gsel_mesh *mesh, int32_t rank, gsel_axis axis);

/* The rank at these coordinates, or -1.
 *   coordinates  [n] by GSEL_AXIS_*; 0 on axes beyond n. Any thread. Since 0.1. */
GSEL_API int32_t gsel_mesh_rank(const gsel_mesh *mesh, const int32_t *coordinates, int32_t n);

/* Makes the communicator of the ranks whose coordinates differ from this rank's only on these axes (bits 1 <<
 * GSEL_AXIS_*), in order of their ranks. Collective over comm. Errors: GSEL_ERR_ARG (a mesh of another size than comm),
 * those of gsel_comm_split.
 *   out  given to the caller, free with gsel_comm_free. Since 0.1. */
GSEL_API gsel_status gsel_mesh_split(gsel_comm *comm, const gsel_mesh *mesh, uint32_t axes, gsel_comm **out,
                                     gsel_error **err);

GSEL_EXTERN_C_END

#endif
