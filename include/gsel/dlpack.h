/* gsel/dlpack.h: exchanges tensors with other libraries without a copy, through DLPack (https://dmlc.github.io/dlpack),
 * which PyTorch, JAX, CuPy, candle and others support. dlpack.h itself is not needed here.
 *
 *     gsel_tensor t;                                            managed: a DLManagedTensor of another library
 *     gsel_tensor_from_dlpack(managed, &t, NULL, &err);
 *     gsel_allreduce(comm, t.data, t.data, (size_t)t.n_elems, t.dtype, GSEL_SUM, &err);
 *     managed->deleter(managed); */
#ifndef GSEL_DLPACK_H
#define GSEL_DLPACK_H

#include <gsel/error.h>
#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

/* The structs of these names in dlpack.h; the second since its version 1.0. */
typedef struct DLManagedTensor gsel_dlpack_tensor;
typedef struct DLManagedTensorVersioned gsel_dlpack_versioned;

/* Where a tensor is, in DLPack's numbers: type 1 CPU, 2 CUDA, 3 page-locked by CUDA, 10 ROCm. Layout is frozen. */
typedef struct gsel_dlpack_device {
  int32_t type;
  int32_t id;
} gsel_dlpack_device;

/* Describes the elements of a DLPack tensor, without copying them or taking ownership.
 *   given   borrowed for the call. The flags of a versioned tensor say whether its elements may be written
 *   out     data, dims and dtype; its memory lives as long as that of the given tensor
 *   device  may be NULL; where the elements are
 * The caller must know that the work that writes the elements has ended, as with any two streams.
 * GSEL_ERR_ARG, and nothing written: more than GSEL_MAX_DIMS dimensions, strides of another order or with gaps, a type
 * that gsel does not have, vectors (lanes above 1), a first element that is not aligned to its size, dimensions that
 * are negative or do not fit in memory, data that is NULL; the message says which. GSEL_ERR_VERSION: a major version
 * other than 1. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_tensor_from_dlpack(const gsel_dlpack_tensor *given, gsel_tensor *out,
                                             gsel_dlpack_device *device, gsel_error **err);
GSEL_API gsel_status gsel_tensor_from_dlpack_versioned(const gsel_dlpack_versioned *given, gsel_tensor *out,
                                                       gsel_dlpack_device *device, gsel_error **err);

/* Makes a versioned DLPack tensor, 1.0, of the caller's elements.
 *   tensor          borrowed for the call; its memory must live until free_user_data is called
 *   device          borrowed for the call; where the memory is
 *   free_user_data  called with user_data by the deleter, on the thread that calls the deleter; may be NULL
 *   out             given to the caller, who calls (*out)->deleter(*out), or passes it on; NULL on error, and then
 *                   free_user_data is not called
 * GSEL_ERR_ARG: dimensions that are negative or do not fit in memory, n_elems that is not their product, data that is
 * NULL, an unknown dtype. GSEL_ERR_NOMEM. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_tensor_to_dlpack(const gsel_tensor *tensor, const gsel_dlpack_device *device,
                                           gsel_free_fn free_user_data, void *user_data,
                                           gsel_dlpack_versioned **out, gsel_error **err);

GSEL_EXTERN_C_END

#endif
