/* common/rewrite.h: what strategies share. A rank's step is read once, written anew front to back, and put in place of
 * the old one; on the data axis, parameters are grouped in buckets in the order in which backward completes their
 * gradients. Does not know what a strategy does with a bucket. */
#ifndef GSEL_STRATEGY_REWRITE_H
#define GSEL_STRATEGY_REWRITE_H

#include <gsel/plugin.h>

struct bucket {
  int32_t id; /* the host's; equal to its index in rewrite.buckets */
  int32_t n_params;
  int64_t elems;
  uint32_t flags;            /* GSEL_BUCKET_*, set by describe */
  gsel_instr_kind in_flight; /* collective of it started and not awaited, at this point of what is written; 0: none */
};

/* Where backward has produced the last gradient of a bucket. */
struct completion {
  int32_t position; /* in base */
  int32_t bucket;
};

struct rewrite {
  const gsel_host_v1* host;
  const gsel_pass_api_v1* api;
  gsel_pass* pass;
  gsel_axis axis;
  const char* name;    /* the plugin's, for messages */
  int32_t ranks, rank; /* of the axis */
  gsel_instr* base;    /* [n_base] the step as it came */
  gsel_instr* out;     /* [n_out] as it becomes */
  int32_t n_base, n_out, capacity;
  int32_t end_of_backward; /* position in base of the first loss_allreduce over ranks of one pipeline rank: what
                              stands before it is computation */
  gsel_layer_info* layers; /* [n_layers] */
  gsel_param_info* params; /* [n_params] */
  int32_t n_layers, n_params;
  struct bucket* buckets; /* [n_buckets] */
  int32_t* bucket_of;     /* [n_params] -1: in none (yet) */
  int32_t n_buckets;
  struct completion* completions; /* [n_completions] in order of position, then of bucket */
  int32_t n_completions;
  gsel_status status; /* the first failure; later steps do nothing */
  char why[512];      /* its reason */
  gsel_error* error;  /* the host's, where it said more */
};

/* Reads the step and the model. On failure status is set; rewrite_end must follow all the same. */
void rewrite_begin(struct rewrite* w, const char* name, const gsel_host_v1* host, const gsel_pass_api_v1* api,
                   gsel_pass* pass, gsel_axis axis);
/* Puts the new step in place of the old one, unless something failed, and releases everything. */
gsel_status rewrite_end(struct rewrite* w, gsel_error** err);

/* Notes a failure; `why` is NULL or printf-like, with one %s for `what` at most. */
void rewrite_fail(struct rewrite* w, gsel_status status, const char* why, const char* what);
/* The same for a call of the host that gave an error object. */
void rewrite_fail_with(struct rewrite* w, gsel_status status, gsel_error* error);
/* Index of a text option's value in words[n]; a failure that names them otherwise. */
int32_t rewrite_word(struct rewrite* w, const char* option, const char* const* words, int32_t n);
/* calloc of `n` + 1 things; a failure when there is no memory. */
void* rewrite_alloc(struct rewrite* w, int64_t n, size_t bytes);

/* Appends to the new step. */
void emit(struct rewrite* w, gsel_instr instr);
/* The same for a bucket's instruction: axis and, where there is one, the root (coordinate 0) are filled in. */
void emit_bucket(struct rewrite* w, gsel_instr_kind kind, int32_t bucket);
/* A wait, if the bucket has a collective under way. */
void emit_settle(struct rewrite* w, int32_t bucket);

/* Parameters that are here, are trained and for which wanted(param) holds (NULL: all), as buckets in the order in which
 * backward completes their gradients: later layers first, and tied parameters last. A bucket is closed when it has
 * reached its cap, so it may exceed it by part of one parameter, and where the dtype or the tie changes. first_cap: of
 * the first bucket alone, unless it is tied: then all its holders must make the same buckets, whatever else they hold.
 */
typedef int (*wanted_fn)(const gsel_param_info* param, void* user);
void make_buckets(struct rewrite* w, int64_t first_cap, int64_t cap, wanted_fn wanted, void* user);
/* A bucket for each set of layers that read the same parameters. */
void make_buckets_by_readers(struct rewrite* w, wanted_fn wanted, void* user);
void describe_buckets(struct rewrite* w, int32_t from, gsel_bucket_options options);

/* Fills completions: once per step, or once per micro-batch. A bucket that no backward of this rank touches completes
 * at the end of backward. */
void find_completions(struct rewrite* w, int per_microbatch);

/* 1 where an instruction produces gradients of a layer's parameters; where it reads its parameters[i]. */
int writes_gradients(const gsel_instr* instr);
int reads_param(const struct rewrite* w, const gsel_instr* instr, int32_t i);

/* Setup: the parameters of coordinate 0 for all, of buckets that do not shard them. */
void broadcast_at_start(struct rewrite* w);
/* Writes what follows end_of_backward: the loss's sum, then, where all gradients are looked at together (overflow,
 * norm), the waits for all, then step(bucket) for each bucket, awaited before it. */
void write_end_of_step(struct rewrite* w, void (*step)(struct rewrite* w, int32_t bucket));

#endif
