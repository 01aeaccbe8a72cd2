/* gsel/error.h: errors, as objects that the caller owns.
 * A function that can fail returns gsel_status and takes `gsel_error **err` as its last argument. If err is NULL, only
 * the code is returned. Otherwise *err is set to NULL on success and to a new object on failure, which the caller
 * releases with gsel_error_free. There is no thread-local "last error": goroutines and async tasks move
 * between threads, so a message comes back with the call that failed.
 *
 *     gsel_error *err;
 *     gsel_status status = gsel_barrier(comm, &err);
 *     if (status) ... gsel_error_message(err) ... gsel_error_free(err);
 *
 * Two ways to check cannot be written wrongly, and the examples use them. The first is an if, or a stored status, with
 * err read after it, as above. The second is a function that takes the address, as in check(gsel_barrier(comm, &err),
 * &err). If err itself were passed instead of its address, it might be read before the call has written it: C does not
 * define the order in which arguments are evaluated. */
#ifndef GSEL_ERROR_H
#define GSEL_ERROR_H

#include <gsel/types.h>

GSEL_EXTERN_C_BEGIN

/* The one list of codes: X(constant, number, default text). Numbers never change. */
#define GSEL_ERROR_LIST(X)                                                           \
  X(GSEL_OK, 0, "success")                                                           \
  X(GSEL_ERR_ARG, -1, "invalid argument")                                            \
  X(GSEL_ERR_NOMEM, -2, "out of memory")                                             \
  X(GSEL_ERR_INTERNAL, -3, "internal error, please report it")                       \
  X(GSEL_ERR_UNSUPPORTED, -4, "not supported")                                       \
  X(GSEL_ERR_VERSION, -5, "version not accepted")                                    \
  X(GSEL_ERR_IO, -6, "file or system call failed")                                   \
  X(GSEL_ERR_PARSE, -7, "text could not be parsed")                                  \
  X(GSEL_ERR_CONFIG, -8, "configuration not accepted")                               \
  X(GSEL_ERR_NOT_FOUND, -9, "not found")                                             \
  X(GSEL_ERR_PLUGIN, -10, "plugin refused")                                          \
  X(GSEL_ERR_PEER, -11, "a peer rank died or left")                                  \
  X(GSEL_ERR_TIMEOUT, -12, "timed out")                                              \
  X(GSEL_ERR_MISMATCH, -13, "ranks made different calls")                            \
  X(GSEL_ERR_ABORTED, -14, "aborted")                                                \
  X(GSEL_ERR_FORKED, -15, "handle used after fork")                                  \
  X(GSEL_ERR_CALLBACK, -16, "a callback failed")                                     \
  X(GSEL_ERR_MODEL, -17, "model description not accepted")                           \
  X(GSEL_ERR_PROGRAM, -18, "program not accepted")                                   \
  X(GSEL_ERR_STATE, -19, "call out of order")                                        \
  X(GSEL_ERR_DEVICE, -20, "a device failed")                                         \
  X(GSEL_ERR_SYNTAX, -101, "selection: syntax")                                      \
  X(GSEL_ERR_TYPE, -102, "selection: wrong type")                                    \
  X(GSEL_ERR_OUT_OF_RANGE, -103, "selection: out of range")                          \
  X(GSEL_ERR_DUPLICATE, -104, "selection: duplicate")                                \
  X(GSEL_ERR_UNKNOWN_DEVICE, -105, "selection: unknown device")                      \
  X(GSEL_ERR_AMBIGUOUS, -106, "selection: ambiguous")                                \
  X(GSEL_ERR_UNKNOWN_HOST, -107, "selection: unknown host")                          \
  X(GSEL_ERR_CONFLICT, -108, "selection: conflict")                                  \
  X(GSEL_ERR_NO_DEVICES, -109, "selection: no devices")                              \
  X(GSEL_ERR_BUSY, -110, "selection: busy")                                          \
  X(GSEL_ERR_ALREADY_INITIALIZED, -111, "selection: driver already initialized")     \
  X(GSEL_ERR_PERMISSION, -112, "permission denied")                                  \
  X(GSEL_ERR_RANK_OVERFLOW, -113, "selection: more ranks than devices")

#define GSEL_ERROR_CONSTANT(constant, number, text) constant = number,
enum { GSEL_ERROR_LIST(GSEL_ERROR_CONSTANT) GSEL_ERROR_LIST_END = -1000 };
#undef GSEL_ERROR_CONSTANT

typedef struct gsel_error gsel_error;

/* Default text of a code ("unknown code" if the library does not know it); static. Any thread. Since 0.1. */
GSEL_API const char *gsel_status_text(gsel_status status);

/* Name of a code, such as "GSEL_ERR_PEER"; "unknown" otherwise; static. Any thread. Since 0.1. */
GSEL_API const char *gsel_status_name(gsel_status status);

/* Parts of an error. Each function accepts NULL and then returns GSEL_OK, empty text, -1 or 0. Text is borrowed from
 * the object and lives until gsel_error_free; it is NUL-terminated as well. Any thread. Since 0.1. */
GSEL_API gsel_status gsel_error_code(const gsel_error *error);
GSEL_API gsel_str gsel_error_message(const gsel_error *error);
/* The cause of this error, or NULL; borrowed, not freed separately. */
GSEL_API const gsel_error *gsel_error_cause(const gsel_error *error);
/* The rank the error is about (the one that died, is late or disagrees), or -1. It is the rank's number in the
 * communicator that was called or that the trainer was given, see gsel/comm.h. */
GSEL_API int32_t gsel_error_rank(const gsel_error *error);
/* The place in the input: file (may be empty), line and column (from 1; 0: unknown), and the key or token. */
GSEL_API gsel_str gsel_error_file(const gsel_error *error);
GSEL_API int32_t gsel_error_line(const gsel_error *error);
GSEL_API int32_t gsel_error_column(const gsel_error *error);
GSEL_API gsel_str gsel_error_token(const gsel_error *error);

/* Writes "message: caused by: message ..." for the whole chain, NUL-terminated and cut to capacity bytes.
 *   buffer  [capacity], may be NULL when capacity is 0
 * Returns the size of the full text with its NUL, in bytes. Any thread. Since 0.1. */
GSEL_API size_t gsel_error_format(const gsel_error *error, char *buffer, size_t capacity);

/* Releases an error and its causes; NULL is fine. Any thread. Since 0.1. */
GSEL_API void gsel_error_free(gsel_error *error);

GSEL_EXTERN_C_END

#endif
