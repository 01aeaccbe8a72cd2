/* support/scratch.h: a fresh folder of a test, under TMPDIR or else /tmp. */
#ifndef GSEL_TESTS_SCRATCH_H
#define GSEL_TESTS_SCRATCH_H

#include <gsel/types.h>
#include <stddef.h>

GSEL_EXTERN_C_BEGIN

/* Makes a folder with a new name that begins with gsel-<area>- and writes its path to `path`; 0 on failure. Where the
 * ranks are processes of a launcher (started.h), main of each gets the same folder. */
int make_scratch(char* path, size_t bytes, const char* area);

/* Removes it and its contents; 0 on success. */
int remove_scratch(const char* path);

GSEL_EXTERN_C_END

#endif
