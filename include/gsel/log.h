/* gsel/log.h: where log lines go. By default they are dropped, or written to standard error with
 * GSEL_LOG=error|warn|info|debug in the environment. One exception: an environment variable of gsel with a wrong value
 * is always reported on standard error, once (docs/variables.md). */
#ifndef GSEL_LOG_H
#define GSEL_LOG_H

#include <gsel/error.h>

GSEL_EXTERN_C_BEGIN

/* Levels of log lines; a line of a lower number is more serious. */
typedef int32_t gsel_log_level;
#define GSEL_LOG_ERROR 1
#define GSEL_LOG_WARN 2
#define GSEL_LOG_INFO 3
#define GSEL_LOG_DEBUG 4

/* Receives one line, without a newline. Both texts are borrowed for the call. Called on the thread that logs, never by
 * two threads at the same time; it may call no gsel function. */
typedef void (*gsel_log_fn)(gsel_log_level level, gsel_str component, gsel_str line, void *user_data);

/* Sets the sink of this process and the most detailed level it wants; sink NULL means silence.
 *   user_data  kept until the next call, which calls free_user_data (see gsel/types.h; may be NULL)
 * Any thread; returns after a sink in use by another thread has finished its line. Since 0.1. */
GSEL_API void gsel_log_set(gsel_log_fn sink, gsel_log_level level, void *user_data, gsel_free_fn free_user_data);

GSEL_EXTERN_C_END

#endif
