/* common/rewrite.h: shared by strategies. Reads a rank's step, writes a new one front to back, and replaces the old
 * one. On the data axis, groups parameters into buckets in the order in which backward completes their gradients. Does
 * not know what a strategy does with a bucket. */
#ifndef GSEL_STRATEGY_REWRITE_H
#define GSEL_STRATEGY_REWRITE_H

#include <gsel/plugin.h>

struct bucket {
  int32_t id; /* the host's id; equal to the index in rewrite.buckets */
  int32_t n_params;
  int64_t elems;
  uint32_t flags;            /* GSEL_BUCKET_*, set by describe */
  gsel_instr_kind under_way; /* its collective under way at the end of `out`; 0: none */
};

/* The instruction that produces the last gradient of a bucket. */
struct completion {
  int32_t position; /* in base */
  int32_t bucket;
};

struct rewrite {
  const gsel_host_v1* host;
  const gsel_pass_api_v1* api;
  gsel_pass* pass;
  gsel_axis axis;
  const char* name;    /* plugin name for messages */
  int32_t ranks, rank; /* size of the axis, and this rank's coordinate */
  gsel_instr* base;    /* [n_base] the old step */
  gsel_instr* out;     /* [n_out] the new step */
  int32_t n_base, n_out, capacity;
  int32_t end_of_backward; /* position in base of the first loss_allreduce over ranks of one pipeline rank: what
                              stands before it is computation */
  gsel_layer_info* layers; /* [n_layers] */
  gsel_param_info* params; /* [n_params] */
  int32_t n_layers, n_params;
  struct bucket* buckets; /* [n_buckets] */
  int32_t* bucket_of;     /* [n_params] -1: none yet */
  int32_t n_buckets;
  struct completion* completions; /* [n_completions] in order of position, then of bucket */
  int32_t n_completions;
  gsel_status status; /* the first failure; later steps do nothing */
  char why[512];      /* reason of the failure */
  gsel_error* error;  /* the host's error, if any */
};

/* Reads the step and the model. Failures set status; call rewrite_end in any case. */
void rewrite_begin(struct rewrite* w, const char* name, const gsel_host_v1* host, const gsel_pass_api_v1* api,
                   gsel_pass* pass, gsel_axis axis);
/* Replaces the old step unless something failed; frees everything. */
gsel_status rewrite_end(struct rewrite* w, gsel_error** err);

/* Records a failure; `why` is NULL or printf-like, with at most one %s for `what`. */
void rewrite_fail(struct rewrite* w, gsel_status status, const char* why, const char* what);
/* The same, with an error object from the host. */
void rewrite_fail_with(struct rewrite* w, gsel_status status, gsel_error* error);
/* Index of a text option's value in words[n]; fails, naming the words, if it is none of these. */
int32_t rewrite_word(struct rewrite* w, const char* option, const char* const* words, int32_t n);
/* calloc of `n` + 1 elements; fails if there is no memory. */
void* rewrite_alloc(struct rewrite* w, int64_t n, size_t bytes);

/* Appends to the new step. */
void emit(struct rewrite* w, gsel_instr instr);
/* The same for a bucket's instruction; emit_collective for an asynchronous collective over the axis, and emit_rooted
 * for one whose root is coordinate 0. */
void emit_bucket(struct rewrite* w, gsel_instr_kind kind, int32_t bucket);
void emit_collective(struct rewrite* w, gsel_instr_kind kind, int32_t bucket);
void emit_rooted(struct rewrite* w, gsel_instr_kind kind, int32_t bucket);
/* Appends a WAIT if the bucket has a collective under way. */
void emit_settle(struct rewrite* w, int32_t bucket);

/* Groups this rank's trained parameters for which wanted(param) holds (NULL: all) into buckets in the order in which
 * backward completes their gradients: later layers first, tied parameters last. A bucket ends when it reaches its cap
 * (so it may exceed the cap by part of a parameter) and where the dtype or the tie changes. first_cap applies to the
 * first bucket unless it is tied, since all holders of tied parameters must make the same buckets. */
typedef int (*wanted_fn)(const gsel_param_info* param, void* user);
void make_buckets(struct rewrite* w, int64_t first_cap, int64_t cap, wanted_fn wanted, void* user);
/* The same, with one bucket per set of layers that read the same parameters. */
void make_buckets_by_readers(struct rewrite* w, wanted_fn wanted, void* user);
void describe_buckets(struct rewrite* w, int32_t from, gsel_bucket_options options);

/* Fills completions: once per step, or once per micro-batch. A bucket that no backward of this rank writes completes at
 * the end of backward. */
void find_completions(struct rewrite* w, int per_microbatch);

/* Whether an instruction makes a number of all gradients: a norm, or a check for overflow. */
int looks_at_all_gradients(const gsel_instr* instr);
/* Whether an instruction produces gradients of its layer's parameters; whether it reads the layer's params[i]. */
int writes_gradients(const gsel_instr* instr);
int reads_param(const struct rewrite* w, const gsel_instr* instr, int32_t i);

/* Setup: broadcasts the parameters of coordinate 0, for buckets that do not shard them. */
void broadcast_at_start(struct rewrite* w);
/* Writes the instructions from end_of_backward on: the sum of the loss; all waits, if an instruction reads all
 * gradients (overflow, norm); then step(bucket) for each bucket, after its wait. */
void write_end_of_step(struct rewrite* w, void (*step)(struct rewrite* w, int32_t bucket));

#endif
