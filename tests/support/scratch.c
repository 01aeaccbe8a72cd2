/* See scratch.h. */
#include "support/scratch.h"

#include <stdio.h>
#include <stdlib.h>

int make_scratch(char* path, size_t bytes, const char* area) {
  const char* parent = getenv("TMPDIR");
  const int n = snprintf(path, bytes, "%s/gsel-%s-XXXXXX", parent && *parent ? parent : "/tmp", area);
  return n > 0 && (size_t)n < bytes && mkdtemp(path) != NULL;
}

int remove_scratch(const char* path) {
  char line[512];
  snprintf(line, sizeof line, "rm -rf '%s'", path);
  return system(line);
}
