/* gsel/types.h: the plain types that all other headers use: status, text, element types, tensors. C99, freestanding
 * headers only. */
#ifndef GSEL_TYPES_H
#define GSEL_TYPES_H

#include <stddef.h>
#include <stdint.h>

#if defined(GSEL_BUILDING)
#define GSEL_API __attribute__((visibility("default")))
#else
#define GSEL_API
#endif

#ifdef __cplusplus
#define GSEL_EXTERN_C_BEGIN extern "C" {
#define GSEL_EXTERN_C_END }
#else
#define GSEL_EXTERN_C_BEGIN
#define GSEL_EXTERN_C_END
#endif

GSEL_EXTERN_C_BEGIN

/* Version of these headers; gsel_version() returns that of the loaded library. */
#define GSEL_VERSION_MAJOR 0
#define GSEL_VERSION_MINOR 1
#define GSEL_VERSION_PATCH 0
#define GSEL_VERSION_NUMBER (GSEL_VERSION_MAJOR * 10000 + GSEL_VERSION_MINOR * 100 + GSEL_VERSION_PATCH)

/* Version of the loaded library as major * 10000 + minor * 100 + patch. Any thread. Since 0.1. */
GSEL_API int32_t gsel_version(void);

/* Version of the loaded library as text, such as "0.1.0"; static. Any thread. Since 0.1. */
GSEL_API const char *gsel_version_text(void);

/* Result of a function that can fail: 0 (GSEL_OK) or one of the negative GSEL_ERR_* codes of gsel/error.h. */
typedef int32_t gsel_status;

/* UTF-8 text as pointer and length in bytes. Layout is frozen. len == GSEL_NUL means NUL-terminated; data == NULL means
 * "not given". Text that the caller passes is borrowed for the call, unless stated otherwise. Text that the library
 * returns has its true length and is NUL-terminated as well; each function states how long it lives. */
typedef struct gsel_str {
  const char *data;
  size_t len;
} gsel_str;

/* Length of a gsel_str that ends with NUL. */
#define GSEL_NUL ((size_t)-1)

/* A C string or literal as gsel_str: macro for initialisers, function for foreign callers. `text` is borrowed for as
 * long as the result is used; NULL gives "not given". Any thread. Since 0.1. */
#define GSEL_STR(text) {(text), GSEL_NUL}
GSEL_API gsel_str gsel_str_from(const char *text);

/* Rules of all headers.
 *   Objects    A _create, _load, _parse or _init call makes an object; the _free function with its name releases it,
 *              once, and accepts NULL. An object may be used from any thread and passed from one thread to another. Its
 *              header says which calls may overlap; by default calls on one object must not overlap, calls on two
 *              objects may
 *   Lists      have a _count function and a function of the index i from 0. An index out of range is GSEL_ERR_ARG; a
 *              function that returns text returns empty text
 *   Callbacks  must return: no C++ exception, longjmp or Rust panic may leave them
 *   user_data  is passed to the callback unchanged. If the library keeps it beyond the call, there is a free_user_data
 *              (may be NULL). The library calls it once with user_data when it no longer uses it, on the thread that
 *              releases the last object that keeps it. A call that fails has kept nothing
 *   Since 0.1  means that version 0.1 of the library is the first that has the function */
typedef void (*gsel_free_fn)(void *user_data);

/* Every transparent struct starts with `uint32_t struct_size` and grows only at its end. Fields named reserved are
 * zero, and unnamed bits of `flags` are refused. A struct with a smaller size comes from an older caller, and its
 * missing fields take defaults. One with a larger size is accepted if the tail that this library does not know is zero.
 * Each such type that a program passes has an initialiser GSEL_<TYPE>_INIT, made with this macro, and for foreign
 * callers a function gsel_<type>_init(s, struct_size). The function zeroes struct_size bytes and stores the size.
 * struct_size is the size that the caller was compiled with, and the library never writes past it. Nothing is written
 * if s is NULL, or if struct_size is smaller than the first two fields or at least 4 GiB. In C++ the initialiser is a
 * value, because braces would warn about each omitted field.
 * All structs of an array state the same size, which is the distance between them. Structs with a frozen layout say so
 * and have no struct_size. */
#ifdef __cplusplus
extern "C++" {
template <class T>
constexpr T gsel_struct_init() noexcept {
  T value = T();
  value.struct_size = static_cast<uint32_t>(sizeof(T));
  return value;
}
}
#define GSEL_STRUCT_INIT(type) gsel_struct_init<type>()
#else
#define GSEL_STRUCT_INIT(type) {.struct_size = sizeof(type)}
#endif

/* Element types. Numbers never change. The library may return a type that the caller does not know. */
typedef int32_t gsel_dtype;
#define GSEL_I8 1
#define GSEL_U8 2
#define GSEL_I16 3
#define GSEL_U16 4
#define GSEL_I32 5
#define GSEL_U32 6
#define GSEL_I64 7
#define GSEL_U64 8
#define GSEL_F16 9
#define GSEL_BF16 10
#define GSEL_F32 11
#define GSEL_F64 12
#define GSEL_F8E4M3 13
#define GSEL_F8E5M2 14
#define GSEL_BOOL 15 /* one byte, 0 or 1, as _Bool of C */

/* Bytes of one element; 0 for an unknown type. Any thread. Since 0.1. */
GSEL_API size_t gsel_dtype_bytes(gsel_dtype dtype);

/* Name such as "f32"; "unknown" for an unknown type; static. Any thread. Since 0.1. */
GSEL_API const char *gsel_dtype_name(gsel_dtype dtype);

/* Reduction operations, element by element, inputs in rank order. The bits of a result depend only on the inputs, not
 * on sizes, buffers or processor. With one rank a reduction is a copy.
 *   integers           SUM and PROD wrap; AVG is the wrapped SUM divided by the number of ranks, towards zero; BAND,
 *                      BOR and BXOR work on bits
 *   f32, f64           computed in the type itself, to nearest, ties to even; AVG divides the SUM
 *   f16, bf16, 8 bit   computed in f32 and rounded once at the end, to nearest, ties to even. A number that is too
 *                      large becomes infinity, or NaN in f8e4m3, which has no infinity (OCP E4M3: largest 448, NaN
 *                      0x7f)
 *   bool               SUM, MAX and BOR are the logical or; PROD, MIN and BAND the logical and; BXOR one or the other.
 *                      AVG and SCALED_SUM are GSEL_ERR_ARG
 *   MIN, MAX           the first of equal numbers, such as zeros of either sign; NaN if any input is NaN
 *   NaN                a result that is NaN is the positive quiet NaN without payload: f16 0x7e00, bf16 0x7fc0,
 *                      f32 0x7fc00000, f64 0x7ff8000000000000, f8e4m3 0x7f, f8e5m2 0x7e
 *   SCALED_SUM         the sum of the inputs, each times the factor of its rank (gsel/comm.h). Factors and products are
 *                      rounded to the type of the computation. Floating point only (GSEL_ERR_ARG). With one rank the
 *                      input is scaled, too
 * BAND, BOR and BXOR are for integers and bool (GSEL_ERR_ARG). Numbers from GSEL_OP_USER on are those of gsel_op_create. */
typedef int32_t gsel_op;
#define GSEL_SUM 1
#define GSEL_PROD 2
#define GSEL_MIN 3
#define GSEL_MAX 4
#define GSEL_AVG 5
#define GSEL_BAND 6
#define GSEL_BOR 7
#define GSEL_BXOR 8
#define GSEL_SCALED_SUM 9
#define GSEL_OP_USER 4096

/* Axes of the mesh. Numbers never change, and more will come: gsel_axis_count returns how many the loaded library has.
 * The order of the axes in the mesh is not that of their numbers: from inner to outer it is tensor, context, data,
 * pipeline (gsel/mesh.h). */
typedef int32_t gsel_axis;
#define GSEL_AXIS_TENSOR 0
#define GSEL_AXIS_DATA 1
#define GSEL_AXIS_PIPELINE 2
#define GSEL_AXIS_CONTEXT 3
#define GSEL_MAX_AXES 8 /* room in a gsel_mesh */

/* Number of axes that the library has. Name of an axis as in config files, "unknown" for a number without one; static.
 * Any thread. Since 0.1. */
GSEL_API int32_t gsel_axis_count(void);
GSEL_API const char *gsel_axis_name(gsel_axis axis);

/* The part of a layer or stage that is computed: in work of pull mode, in schedules, in checks, and in instructions of
 * a program. gsel/program.h continues this list. Numbers never change. */
#define GSEL_INPUT 1
#define GSEL_FORWARD 2
#define GSEL_BACKWARD_INPUT 3
#define GSEL_BACKWARD_WEIGHT 4
#define GSEL_BACKWARD 5 /* both halves */

/* A dense row-major view of library memory, valid during one call. Layout is frozen: arrays of it are passed.
 *   data    first element; may be at another address in the next call
 *   dims    [n_dims] sizes in elements; dims[0] is the number of samples for values of a model
 *   n_elems product of dims (1 when n_dims is 0)                                                       */
#define GSEL_MAX_DIMS 6
typedef struct gsel_tensor {
  void *data;
  int64_t n_elems;
  int64_t dims[GSEL_MAX_DIMS];
  int32_t n_dims;
  gsel_dtype dtype;
} gsel_tensor;

/* Half-open range [begin, end). Layout is frozen. */
typedef struct gsel_range {
  int64_t begin;
  int64_t end;
} gsel_range;

/* The shard of a tensor that is split along one dimension. The dimension consists of `blocks` equal blocks of `whole`
 * elements each (q, k and v in one matrix are three blocks); the rank has elements [begin, end) of each block. Layout
 * is frozen: arrays of it are passed.
 *   dim  the dimension; -1: the rank has the whole tensor, blocks is 1, and the other fields are 0 */
typedef struct gsel_shard {
  int32_t dim;
  int32_t blocks;
  int64_t begin;
  int64_t end;
  int64_t whole;
} gsel_shard;

/* The range of shard `index` when n items are divided into `parts` shards: sizes differ by at most one, larger shards
 * first. A pure function, so that a loader can read only the bytes of its shard. Out-of-range arguments (n < 0, parts <
 * 1, index outside 0..parts-1) give the empty range {0, 0}. Any thread. Since 0.1. */
GSEL_API gsel_range gsel_shard_range(int64_t n, int64_t parts, int64_t index);

/* Numbers of calls made and of payload bytes sent. */
typedef struct gsel_comm_count {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t calls;
  uint64_t bytes_sent;
} gsel_comm_count;
#define GSEL_COMM_COUNT_INIT GSEL_STRUCT_INIT(gsel_comm_count)
GSEL_API void gsel_comm_count_init(gsel_comm_count *count, size_t struct_size);

GSEL_EXTERN_C_END

#endif
