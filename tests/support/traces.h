/* support/traces.h: counts what a process holds: descriptors, mappings and pages of communicators. */
#ifndef GSEL_TESTS_TRACES_H
#define GSEL_TESTS_TRACES_H

typedef struct traces {
  int descriptors;
  int threads;
  long mappings; /* of communicators' memory */
  long blocks;   /* of 512 bytes in that memory */
} traces;

int entries_of(const char* path);
traces traces_now(void);
int holds_no_more(const traces* after, const traces* before);

/* The mapping at an address, as its line of /proc/self/maps; empty where there is none. */
void mapping_at(const void* address, char* line, int capacity);

#endif
