/* See closed_forms.h. */
#include "support/closed_forms.h"

uint64_t shard_of(uint64_t elems, uint64_t n) {
  return (elems + n - 1) / n;
}
/* Each rank sends its shard to n - 1 others, or n - 1 shards of its gradients; shards are padded. */
static uint64_t sharded(uint64_t elems, uint64_t n) {
  return n * (n - 1) * shard_of(elems, n) * sizeof(float);
}
static uint64_t all_reduced(uint64_t bytes, uint64_t n) {
  return 2 * (n - 1) * bytes;
}
/* All but the master's slice is read from the master; the others send all, their own slice as its sum. */
static uint64_t reduced_to_root(uint64_t elems, uint64_t n) {
  return (n * elems - shard_of(elems, n)) * sizeof(float);
}

/* Samples the master keeps of a batch cut in m wholes of `whole` samples each. */
static uint64_t of_master(uint64_t batch, uint64_t whole, uint64_t n) {
  uint64_t kept = 0;
  for (uint64_t first = 0; first < batch; first += whole)
    kept += shard_of(batch - first < whole ? batch - first : whole, n);
  return kept;
}

struct closed_form expected_traffic(int i, uint64_t n, uint64_t batch, uint64_t m, uint64_t largest) {
  const uint64_t loss = all_reduced(2 * sizeof(double), n), f = sizeof(float);
  const uint64_t others = batch - of_master(batch, largest * n, n);
  const uint64_t layers = sharded(TABLE, n) + sharded(POSITION, n) + sharded(FC1, n) + sharded(FC2, n);
  /* Callbacks that read: the table in embed's forward and both of head's, the position once, the linears twice. */
  const uint64_t uses = 3 * sharded(TABLE, n) + sharded(POSITION, n) + 2 * sharded(FC1, n) + 2 * sharded(FC2, n);
  /* Recomputed, once more each; head's backward and fc2's follow their recomputation at once and share its gather. */
  const uint64_t recomputed = uses + sharded(TABLE, n) + sharded(POSITION, n) + sharded(FC1, n);
  const struct closed_form forms[N_CLOSED_FORMS] = {
      {DP("") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_BROADCAST, (n - 1) * EXACT_ELEMS * f, 1},
        {GSEL_INSTR_SCATTER, others * (TOKENS * f + TOKENS * VOCAB * f), 2 * m},
        {GSEL_INSTR_GATHER, others * TOKENS * VOCAB * f, m},
        {GSEL_INSTR_REDUCE, reduced_to_root(EXACT_ELEMS, n), 1}},
       0},
      {DDP("") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1}, {GSEL_INSTR_ALLREDUCE, all_reduced(EXACT_ELEMS * f, n), 1}},
       (n - 1) * EXACT_ELEMS * f},
      {ZERO("1", "") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, sharded(EXACT_ELEMS, n), 1},
        {GSEL_INSTR_ALLGATHER, sharded(EXACT_ELEMS, n), 1}},
       (n - 1) * EXACT_ELEMS * f},
      {ZERO("2", "") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * sharded(EXACT_ELEMS, n), m},
        {GSEL_INSTR_ALLGATHER, sharded(EXACT_ELEMS, n), 1}},
       (n - 1) * EXACT_ELEMS * f},
      {ZERO("3", ALL_SHARDED) TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * layers, 4 * m},
        {GSEL_INSTR_ALLGATHER, m * uses, 8 * m}},
       0},
      {ZERO("3", ALL_SHARDED "prefetch_elems = 20\n") TRAIN("%d", "microbatch = %d\nrecompute = \"all\"\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * layers, 4 * m},
        {GSEL_INSTR_ALLGATHER, m * recomputed, 11 * m}},
       0},
      {ZERO("3", ALL_SHARDED "keep = \"forward\"\n") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * layers, 4 * m},
        {GSEL_INSTR_ALLGATHER, m * layers, 4 * m}},
       0},
      {ZERO("3", ALL_SHARDED "keep = \"step\"\n") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * layers, 4 * m},
        {GSEL_INSTR_ALLGATHER, layers, 4}},
       0},
      /* The table and the two matrices are sharded; position and b1, 16 elements in one bucket, are as in stage 2. */
      {ZERO("3", "persist_elems = 13\n") TRAIN("%d", "microbatch = %d\n"),
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * (sharded(TABLE, n) + 3 * sharded(16, n)), 4 * m},
        {GSEL_INSTR_ALLGATHER, m * (3 * sharded(TABLE, n) + 4 * sharded(16, n)) + sharded(16, n), 7 * m + 1}},
       (n - 1) * 16 * f},
      {ZERO("3", "") TRAIN("%d", "microbatch = %d\n"), /* all are small */
       {{GSEL_INSTR_LOSS_ALLREDUCE, loss, 1},
        {GSEL_INSTR_REDUCE_SCATTER, m * sharded(EXACT_ELEMS, n), m},
        {GSEL_INSTR_ALLGATHER, sharded(EXACT_ELEMS, n), 1}},
       (n - 1) * EXACT_ELEMS * f},
  };
  return forms[i];
}

const gsel_instr_kind kSending[] = {GSEL_INSTR_BROADCAST,      GSEL_INSTR_ALLREDUCE, GSEL_INSTR_LOSS_ALLREDUCE,
                                    GSEL_INSTR_ALLGATHER,      GSEL_INSTR_SCATTER,   GSEL_INSTR_GATHER,
                                    GSEL_INSTR_REDUCE_SCATTER, GSEL_INSTR_REDUCE};

uint64_t step_bytes(const struct closed_form* form, gsel_instr_kind kind, uint64_t* calls) {
  for (int i = 0; i < 6; ++i)
    if (form->per_step[i].kind == kind) {
      *calls = form->per_step[i].calls;
      return form->per_step[i].bytes;
    }
  *calls = 0;
  return 0;
}
