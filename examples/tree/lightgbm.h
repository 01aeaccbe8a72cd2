/* lightgbm.h: LightGBM's network over gsel, in C or C++, without a change to LightGBM:
 *   lightgbm_comm = comm;
 *   LGBM_NetworkInitWithFunctions(ranks, rank, (void*)lightgbm_reduce_scatter, (void*)lightgbm_allgather);
 * Types are those of LightGBM/meta.h, whose reference to a ReduceFunction is a pointer to one here. Its functions have
 * no user_data and return nothing. So the communicator belongs to the thread, as LightGBM's own state does, and a
 * failure ends the process; the other ranks get an error that names this rank. */
#include <gsel/gsel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int32_t comm_size_t;
typedef void (*ReduceFunction)(const char* input, char* output, int type_size, comm_size_t array_size);
static __thread gsel_comm* lightgbm_comm;
static __thread uint64_t lightgbm_counts[256], lightgbm_offsets[256]; /* a communicator has at most 256 ranks */

static inline void must(gsel_status status, gsel_error** err) {
  if (status) fprintf(stderr, "%s\n", gsel_error_message(*err).data), exit(1);
}
/* A ReduceFunction as an operation of gsel: of records of type_size bytes. */
typedef struct {
  ReduceFunction function;
  int type_size;
} Reduction;
static inline int32_t reduce(void* to, const void* from, size_t bytes, gsel_dtype dtype, void* user_data) {
  const Reduction* r = (const Reduction*)user_data;
  return r->function((const char*)from, (char*)to, r->type_size, (comm_size_t)bytes), dtype != GSEL_U8;
}
/* Keeps counts and offsets; returns this rank's block of buffer. */
static inline char* lightgbm_blocks(char* buffer, const comm_size_t* start, const comm_size_t* len, int n) {
  for (int i = 0; i < n; ++i) lightgbm_counts[i] = (uint64_t)len[i], lightgbm_offsets[i] = (uint64_t)start[i];
  return buffer + start[gsel_comm_rank(lightgbm_comm)];
}
/* Reduces this rank's block where it stands: LightGBM lets its input be overwritten, and input may be output. A
 * quantized histogram states half an entry as type_size; its entries have 4 or 8 bytes, and blocks are multiples of
 * them. */
static inline void lightgbm_reduce_scatter(char* input, comm_size_t input_size, int type_size, const comm_size_t* start,
                                           const comm_size_t* len, int n, char* output, comm_size_t output_size,
                                           const ReduceFunction* reducer) {
  char* own = lightgbm_blocks(input, start, len, n);
  Reduction r = {*reducer, type_size};
  int record = type_size < 8 ? 2 * type_size : type_size;
  gsel_op op;
  gsel_error* err;
  for (int i = 0; i < n; ++i) record = len[i] % record ? type_size : record;
  must(gsel_op_create(gsel_str_from("lightgbm"), (size_t)record, reduce, &r, NULL, &op, &err), &err);
  must(gsel_reduce_scatterv(lightgbm_comm, input, own, lightgbm_counts, lightgbm_offsets, GSEL_U8, op, &err), &err);
  gsel_op_free(op);
  memmove(output, own, lightgbm_counts[gsel_comm_rank(lightgbm_comm)]);
  (void)input_size, (void)output_size;
}
/* Input may be output, with this rank's block at its beginning. */
static inline void lightgbm_allgather(char* input, comm_size_t input_size, const comm_size_t* start,
                                      const comm_size_t* len, int n, char* output, comm_size_t output_size) {
  char* own = lightgbm_blocks(output, start, len, n);
  gsel_error* err;
  (void)output_size;
  memmove(own, input, (size_t)input_size);
  must(gsel_allgatherv(lightgbm_comm, own, output, lightgbm_counts, lightgbm_offsets, GSEL_U8, &err), &err);
}
