/* gsel/mesh.h: how ranks stand on the axes tensor, data and pipeline. The tensor axis is the innermost: ranks 0 and 1 are
 * neighbours on it where it has two places or more. A mesh is plain data; the trainer makes the same from its config. */
#ifndef GSEL_MESH_H
#define GSEL_MESH_H

#include <gsel/comm.h>
#include <gsel/config.h>
#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

/* rank = place on tensor + size[tensor] * (place on data + size[data] * place on pipeline). */
typedef struct gsel_mesh {
  uint32_t struct_size;
  int32_t world_size;
  int32_t size[GSEL_AXES]; /* by GSEL_AXIS_*; they multiply to world_size */
  int32_t reserved;
} gsel_mesh;
#define GSEL_MESH_INIT GSEL_STRUCT_INIT(gsel_mesh)
GSEL_API void gsel_mesh_init(gsel_mesh *mesh, size_t struct_size);

/* The mesh that config asks for with so many ranks, "auto" resolved.
 *   config  NULL: defaults, all ranks on the data axis
 * Errors: GSEL_ERR_ARG; GSEL_ERR_CONFIG with file, line and key where sizes do not multiply to world_size. Any thread.
 * Since 0.1. */
GSEL_API gsel_status gsel_mesh_resolve(const gsel_config *config, int32_t world_size, gsel_mesh *out, gsel_error **err);

/* Place of a rank on an axis; -1 for a rank or axis that does not exist. Any thread. Since 0.1. */
GSEL_API int32_t gsel_mesh_place(const gsel_mesh *mesh, int32_t rank, gsel_axis axis);

/* The rank at these places, or -1. places [GSEL_AXES]. Any thread. Since 0.1. */
GSEL_API int32_t gsel_mesh_rank(const gsel_mesh *mesh, const int32_t *places);

/* The communicator of the ranks that differ from this one on these axes alone (bits 1 << GSEL_AXIS_*), in order of their
 * ranks. Collective over comm. Errors: GSEL_ERR_ARG (a mesh of another size than comm), those of gsel_comm_split.
 *   out  given to the caller, free with gsel_comm_free. Since 0.1. */
GSEL_API gsel_status gsel_mesh_split(gsel_comm *comm, const gsel_mesh *mesh, uint32_t axes, gsel_comm **out,
                                     gsel_error **err);

GSEL_EXTERN_C_END

#endif
