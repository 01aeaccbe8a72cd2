/* See scratch.h. */
#include "support/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "support/started.h"

static int make_own(char* path, size_t bytes, const char* area) {
  const char* parent = getenv("TMPDIR");
  const int n = snprintf(path, bytes, "%s/gsel-%s-XXXXXX", parent && *parent ? parent : "/tmp", area);
  return n > 0 && (size_t)n < bytes && mkdtemp(path) != NULL;
}

/* The first process makes it, and tells the others where it is. */
static int make_shared(struct started* s, char* path, size_t bytes, const char* area) {
  enum { TEXT = 4096 };
  char* told = (char*)started_map(s, "scratch", s->folders++, TEXT);
  if ((void*)told == MAP_FAILED) return 0;
  BY_FIRST_PROCESS(if (!make_own(told, TEXT, area)) told[0] = 0);
  const int n = snprintf(path, bytes, "%s", told);
  munmap(told, TEXT);
  return n > 0 && (size_t)n < bytes;
}

int make_scratch(char* path, size_t bytes, const char* area) {
  struct started* s = started_job();
  return s->folder && !s->in_body ? make_shared(s, path, bytes, area) : make_own(path, bytes, area);
}

int remove_scratch(const char* path) {
  char line[512];
  int status = 0;
  snprintf(line, sizeof line, "rm -rf '%s'", path);
  BY_FIRST_PROCESS(status = system(line));
  return status;
}
