/* fuzz/memory.h: how much memory a call held at most. One thread. */
#ifndef GSEL_TESTS_FUZZ_MEMORY_H
#define GSEL_TESTS_FUZZ_MEMORY_H

#include <stddef.h>

/* From here on, what is held most is counted anew. */
void memory_mark(void);
/* Bytes held now, and at most since the mark; 0 where nothing counts. */
size_t memory_held(void);
size_t memory_most(void);

#endif
