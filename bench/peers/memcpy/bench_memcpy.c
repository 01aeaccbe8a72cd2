/* bench_memcpy.c: the floor. Every rank copies its own buffer at the same time; nothing is communicated. */
#include <string.h>

#include "common/forked.h"
#include "common/harness.h"

static void join(int* argc, char*** argv, int wanted, int* rank, int* ranks) {
  (void)argc;
  (void)argv;
  forked_join(wanted, rank, ranks);
}

static float* copy(const bench_call* c) {
  return memcpy(c->data, c->source, c->count * sizeof *c->data);
}

int main(int argc, char** argv) {
  static const bench_operation operations[] = {{"memcpy", copy}, {NULL, NULL}};
  static const bench_peer peer = {join, forked_gather, forked_leave, NULL, operations};
  return bench_main(&peer, argc, argv);
}
