/* support/scratch.h: a fresh folder of a test, under TMPDIR or else /tmp. */
#ifndef GSEL_TESTS_SCRATCH_H
#define GSEL_TESTS_SCRATCH_H

#include <gsel/types.h>
#include <stddef.h>

GSEL_EXTERN_C_BEGIN

/* Makes gsel-<area>-XXXXXX and writes its path to `path`; 0 on failure. Of processes that were started (started.h) main has
 * one folder in all. */
int make_scratch(char* path, size_t bytes, const char* area);

/* Removes it and its contents; 0 on success. */
int remove_scratch(const char* path);

GSEL_EXTERN_C_END

#endif
