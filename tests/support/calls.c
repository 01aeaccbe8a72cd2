/* See calls.h. */
#include "support/calls.h"

gsel_collective call_of(gsel_collective_kind kind, const void* send, void* recv, uint64_t count, int32_t root) {
  gsel_collective call = GSEL_COLLECTIVE_INIT;
  call.kind = kind;
  call.dtype = GSEL_I32;
  call.op = kind == GSEL_COLLECTIVE_ALLREDUCE ? GSEL_SUM : 0;
  call.send = send;
  call.recv = recv;
  call.count = count;
  call.root = root;
  return call;
}

gsel_collective sum_of(int32_t* x, uint64_t count) {
  return call_of(GSEL_COLLECTIVE_ALLREDUCE, x, x, count, -1);
}

int32_t* filled(size_t count, int32_t value) {
  int32_t* x = malloc(count * sizeof *x);
  for (size_t i = 0; i < count; ++i) x[i] = value;
  return x;
}

int all_are(const int32_t* x, size_t count, int32_t value) {
  for (size_t i = 0; i < count; ++i)
    if (x[i] != value) return 0;
  return 1;
}

void as_threads_and_processes(int32_t n, rank_body body, void* user) {
  as_threads(n, body, user);
  if (!is_started()) as_processes(n, body, user);
}
