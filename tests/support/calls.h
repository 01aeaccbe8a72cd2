/* support/calls.h: calls of 32-bit integers as data, and buffers of one value. */
#ifndef GSEL_TESTS_CALLS_H
#define GSEL_TESTS_CALLS_H

#include "support/ranks.h"

/* Of GSEL_I32; an allreduce sums. */
gsel_collective call_of(gsel_collective_kind kind, const void* send, void* recv, uint64_t count, int32_t root);
gsel_collective sum_of(int32_t* x, uint64_t count);
int32_t* filled(size_t count, int32_t value);
int all_are(const int32_t* x, size_t count, int32_t value);
/* Ranks that a launcher has started are one thing. */
void as_threads_and_processes(int32_t n, rank_body body, void* user);

#endif
