/* common/rewrite.c: see rewrite.h. Reading and writing a step, and its beginning and end; buckets are in buckets.c. */
#include "rewrite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rewrite_fail(struct rewrite* w, gsel_status status, const char* why, const char* what) {
  if (!status || w->status) return;
  w->status = status;
  if (why) snprintf(w->why, sizeof w->why, why, what);
}

void rewrite_fail_with(struct rewrite* w, gsel_status status, gsel_error* error) {
  if (!status || w->status) return;
  w->status = status;
  w->error = error;
}

void* rewrite_alloc(struct rewrite* w, int64_t n, size_t bytes) {
  void* memory = calloc((size_t)n + 1, bytes);
  if (!memory) rewrite_fail(w, GSEL_ERR_NOMEM, NULL, NULL);
  return memory;
}

static void read_model(struct rewrite* w) {
  w->n_layers = w->api->layer_count(w->pass);
  w->n_params = w->api->param_count(w->pass);
  w->layers = rewrite_alloc(w, w->n_layers, sizeof *w->layers);
  w->params = rewrite_alloc(w, w->n_params, sizeof *w->params);
  w->bucket_of = rewrite_alloc(w, w->n_params, sizeof *w->bucket_of);
  w->buckets = rewrite_alloc(w, w->n_params, sizeof *w->buckets);
  for (int32_t l = 0; l < w->n_layers && !w->status; ++l) {
    w->layers[l].struct_size = sizeof *w->layers;
    rewrite_fail(w, w->api->layer(w->pass, l, &w->layers[l]), NULL, NULL);
  }
  for (int32_t p = 0; p < w->n_params && !w->status; ++p) {
    w->params[p].struct_size = sizeof *w->params;
    w->bucket_of[p] = -1;
    rewrite_fail(w, w->api->param(w->pass, p, &w->params[p]), NULL, NULL);
  }
}

static void read_step(struct rewrite* w) {
  w->n_base = w->end_of_backward = w->api->length(w->pass);
  w->base = rewrite_alloc(w, w->n_base, sizeof *w->base);
  for (int32_t i = w->n_base - 1; i >= 0 && !w->status; --i) {
    rewrite_fail(w, w->api->get(w->pass, i, &w->base[i]), NULL, NULL);
    if (w->base[i].kind == GSEL_INSTR_LOSS_ALLREDUCE && w->base[i].axis != GSEL_AXIS_PIPELINE) w->end_of_backward = i;
  }
}

void rewrite_begin(struct rewrite* w, const char* name, const gsel_host_v1* host, const gsel_pass_api_v1* api,
                   gsel_pass* pass, gsel_axis axis) {
  memset(w, 0, sizeof *w);
  w->name = name;
  w->host = host;
  w->api = api;
  w->pass = pass;
  w->axis = axis;
  w->ranks = api->axis_size(pass, axis);
  w->rank = api->axis_coordinate(pass, axis);
  api->clear_buckets(pass);
  read_model(w);
  read_step(w);
}

static void put_in_place(struct rewrite* w) {
  for (int32_t i = w->api->length(w->pass); i-- > 0;) rewrite_fail(w, w->api->remove(w->pass, i), NULL, NULL);
  for (int32_t i = 0; i < w->n_out && !w->status; ++i)
    rewrite_fail(w, w->api->insert(w->pass, i, &w->out[i]), NULL, NULL);
}

gsel_status rewrite_end(struct rewrite* w, gsel_error** err) {
  if (!w->status) put_in_place(w);
  free(w->base);
  free(w->out);
  free(w->layers);
  free(w->params);
  free(w->bucket_of);
  free(w->buckets);
  free(w->completions);
  if (w->status && err && w->error) {
    *err = w->error;
  } else if (w->status && err) {
    char text[576];
    snprintf(text, sizeof text, "%s: %s", w->name, w->why[0] ? w->why : "the program could not be rewritten");
    *err = w->host->error_new(w->status, text);
  }
  return w->status;
}

int32_t rewrite_word(struct rewrite* w, const char* option, const char* const* words, int32_t n) {
  const char* given = w->api->option_text(w->pass, option);
  char known[128] = "", why[256];
  for (int32_t i = 0; i < n; ++i) {
    if (given && !strcmp(given, words[i])) return i;
    snprintf(known + strlen(known), sizeof known - strlen(known), "%s\"%s\"",
             i == 0      ? ""
             : i + 1 < n ? ", "
                         : " or ",
             words[i]);
  }
  snprintf(why, sizeof why, "%s = \"%%s\" is not accepted; expected %s", option, known);
  rewrite_fail(w, GSEL_ERR_CONFIG, why, given ? given : "");
  return 0;
}

void emit(struct rewrite* w, gsel_instr instr) {
  if (w->status) return;
  if (w->n_out == w->capacity) {
    const int32_t capacity = w->capacity ? 2 * w->capacity : 2 * w->n_base + 64;
    gsel_instr* out = realloc(w->out, sizeof *out * (size_t)capacity);
    if (!out) {
      rewrite_fail(w, GSEL_ERR_NOMEM, NULL, NULL);
      return;
    }
    w->out = out;
    w->capacity = capacity;
  }
  w->out[w->n_out++] = instr;
}

static gsel_instr bucket_instr(const struct rewrite* w, gsel_instr_kind kind, int32_t bucket, gsel_axis axis,
                               int32_t root) {
  const gsel_instr instr = {kind, -1, -1, -1, w->buckets[bucket].id, axis, root, 0};
  return instr;
}

void emit_bucket(struct rewrite* w, gsel_instr_kind kind, int32_t bucket) {
  emit(w, bucket_instr(w, kind, bucket, -1, -1));
}

void emit_collective(struct rewrite* w, gsel_instr_kind kind, int32_t bucket) {
  emit(w, bucket_instr(w, kind, bucket, w->axis, -1));
  w->buckets[bucket].under_way = kind;
}

void emit_rooted(struct rewrite* w, gsel_instr_kind kind, int32_t bucket) {
  emit(w, bucket_instr(w, kind, bucket, w->axis, 0));
  w->buckets[bucket].under_way = kind;
}

void emit_settle(struct rewrite* w, int32_t bucket) {
  if (w->buckets[bucket].under_way) emit_bucket(w, GSEL_INSTR_WAIT, bucket);
  w->buckets[bucket].under_way = 0;
}

int writes_gradients(const gsel_instr* instr) {
  return instr->kind == GSEL_BACKWARD || instr->kind == GSEL_BACKWARD_WEIGHT;
}

int reads_param(const struct rewrite* w, const gsel_instr* instr, int32_t i) {
  if (instr->kind == GSEL_FORWARD || instr->kind == GSEL_INSTR_RECOMPUTE) return 1;
  const int weight_reads = (w->layers[instr->layer].flags & GSEL_LAYER_WEIGHT_READS_PARAMS) != 0;
  const int reads = instr->kind == GSEL_BACKWARD_WEIGHT
                        ? weight_reads
                        : instr->kind == GSEL_BACKWARD || instr->kind == GSEL_BACKWARD_INPUT;
  if (!reads) return 0;
  return i > 63 || !(w->layers[instr->layer].backward_unread_params >> i & 1);
}

int looks_at_all_gradients(const gsel_instr* instr) {
  return instr->kind == GSEL_INSTR_NORM || instr->kind == GSEL_INSTR_OVERFLOW;
}

void broadcast_at_start(struct rewrite* w) {
  for (int pass = 0; pass < 2; ++pass)
    for (int32_t b = 0; b < w->n_buckets && !w->status; ++b) {
      if (w->buckets[b].flags & GSEL_BUCKET_SHARD_PARAM) continue;
      const gsel_instr instr =
          pass ? bucket_instr(w, GSEL_INSTR_WAIT, b, -1, -1) : bucket_instr(w, GSEL_INSTR_BROADCAST, b, w->axis, 0);
      rewrite_fail(w, w->api->setup(w->pass, &instr), NULL, NULL);
    }
}

void write_end_of_step(struct rewrite* w, void (*step)(struct rewrite* w, int32_t bucket)) {
  for (int32_t i = w->end_of_backward; i < w->n_base; ++i) {
    if (w->base[i].kind == GSEL_INSTR_STEP) continue;
    if (looks_at_all_gradients(&w->base[i]))
      for (int32_t b = 0; b < w->n_buckets; ++b) emit_settle(w, b);
    emit(w, w->base[i]);
  }
  for (int32_t b = 0; b < w->n_buckets; ++b) {
    emit_settle(w, b);
    step(w, b);
  }
}
