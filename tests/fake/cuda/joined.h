/* fake/cuda/joined.h: a rank with its device, a communicator over it, and memory on it; what a call that cannot end
 * comes to; and ranks as two processes that share a word. */
#ifndef GSEL_TESTS_JOINED_H
#define GSEL_TESTS_JOINED_H

#include "fake/cuda/program.h"

enum { COUNT = 16, TIMEOUT_S = 2 };

typedef struct joined {
  gpu g;
  gsel_comm* comm;
  float* memory; /* COUNT floats: the rank times 100 and their place */
} joined;

static inline gsel_status join_over(rank_run* run, const char* transport, uint32_t flags, joined* out) {
  gsel_error* err = NULL;
  load_doubles("fake_libnccl.so");
  out->g = open_gpu(run->rank);
  run->timeout_s = TIMEOUT_S;
  gsel_status status = join_with(run, transport, run->rank, flags, &out->comm, &err);
  if (status == GSEL_OK) status = gsel_comm_set_stream(out->comm, out->g.stream, &err);
  if (status == GSEL_OK) status = gsel_mem_alloc(out->comm, COUNT * sizeof(float), (void**)&out->memory, &err);
  if (status != GSEL_OK) gsel_error_format(err, run->failure, sizeof run->failure);
  float mine[COUNT];
  for (int i = 0; i < COUNT; ++i) mine[i] = (float)(100 * run->rank + i);
  if (status == GSEL_OK) copy(&out->g, out->memory, mine, sizeof mine);
  return status;
}

/* Both hosts have made a call, so that the next one waits for no connection. */
static inline gsel_status connect_ranks(const joined* j) {
  gsel_status status = gsel_barrier(j->comm, NULL);
  return status ? status : gsel_comm_synchronize(j->comm, NULL);
}

static inline float element_5(const joined* j, const float* memory) {
  float got[COUNT];
  copy(&j->g, got, memory, sizeof got);
  finish(&j->g);
  return got[5];
}

/* Behind a call that was made at `began`: the error that it or the wait for it gives, within a few timeouts. */
static inline void expect_end(rank_run* run, const joined* j, double began, gsel_status status, gsel_error** err,
                              gsel_status code, const char* part) {
  char text[600] = "";
  if (status == GSEL_OK) status = gsel_comm_synchronize(j->comm, err);
  gsel_error_format(*err, text, sizeof text);
  gsel_error_free(*err);
  if (status != code || !strstr(text, part) || seconds() - began > 10)
    snprintf(run->failure, sizeof run->failure, "rank %d: expected %s with \"%s\", got %s after %.1f s: %s",
             (int)run->rank, gsel_status_name(code), part, gsel_status_name(status), seconds() - began, text);
}

/* Waits until the other rank has seen the end of its call. */
static inline void meet(rank_run* run, int32_t step) {
  volatile int32_t* word = (volatile int32_t*)run->user;
  __atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
  await_step(word, step);
}

static inline void as_two(rank_body body) {
  int32_t* word = shared_memory(sizeof *word);
  as_processes(2, body, word);
  munmap(word, sizeof *word);
}

#endif
