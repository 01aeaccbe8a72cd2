/* support/scratch.h: a fresh folder of a test, under TMPDIR or else /tmp. */
#ifndef GSEL_TESTS_SCRATCH_H
#define GSEL_TESTS_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>

/* Makes gsel-<area>-XXXXXX and writes its path to `path`; 0 on failure. */
static inline int make_scratch(char* path, size_t bytes, const char* area) {
  const char* parent = getenv("TMPDIR");
  const int n = snprintf(path, bytes, "%s/gsel-%s-XXXXXX", parent && *parent ? parent : "/tmp", area);
  return n > 0 && (size_t)n < bytes && mkdtemp(path) != NULL;
}

/* Removes it with all that stands in it; 0 on success. */
static inline int remove_scratch(const char* path) {
  char line[512];
  snprintf(line, sizeof line, "rm -rf '%s'", path);
  return system(line);
}

#endif
