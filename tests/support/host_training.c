/* See host_training.h. */
#include "support/host_training.h"

#include "support/trainer_trial.h"

/* FNV-1a. */
static uint64_t with_bytes(uint64_t hash, const void* memory, size_t n) {
  for (size_t i = 0; i < n; ++i) hash = (hash ^ ((const unsigned char*)memory)[i]) * 1099511628211u;
  return hash;
}

uint64_t host_training(char* failure, size_t size) {
  outcome* out = shared_outcomes();
  trial t = plain(TRAIN("6", "microbatches = 2\ndevice = \"cpu\"\n"), out);
  rank_run run = {.world_size = 1, .user = &t};
  t.without_comm = 1;
  train(&run);
  snprintf(failure, size, "%s", run.failure);
  uint64_t hash = with_bytes(14695981039346656037u, out->params, sizeof out->params);
  hash = with_bytes(hash, out->loss, sizeof out->loss);
  hash = with_bytes(hash, out->weight, sizeof out->weight);
  free_outcomes(out);
  return run.failure[0] ? 0 : hash;
}
