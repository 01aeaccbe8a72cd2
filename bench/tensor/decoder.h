/* decoder.h: a decoder of the Llama kind that makes one token after another: grouped-query attention with a cache of
 * keys and values, gated MLP, f32 weights that are drawn, not learned. What it computes is of no interest; how many
 * bytes it reads per token, and what stands between the reads, is. */
#ifndef BENCH_DECODER_H
#define BENCH_DECODER_H

#include <gsel/gsel.h>

struct decoder_sizes {
  int layers, width, heads, kv_heads, head, inner, vocab, context;
};

struct decoder;
struct decoder_layer {
  struct decoder* decoder;
  float *keys, *values; /* [kv heads here][context][head], made at the first token */
};

/* One rank's: what it keeps beside its parameters. */
struct decoder {
  struct decoder_sizes sizes;
  int32_t token; /* the last one that was made */
  int32_t position;
  struct decoder_layer* layers;
  float* scratch;
  float* angles; /* [head] cosines and sines of this position */
};

/* Describes it; the model's callbacks use *d, which lives as long as the model and its pipelines. 0: no memory. */
int decoder_make(struct decoder* d, const struct decoder_sizes* sizes);
gsel_status decoder_describe(gsel_model* model, struct decoder* d, gsel_error** err);
gsel_status decoder_data(const gsel_data_request* request, void* decoder);
void decoder_free(struct decoder* d);

/* Bytes of weights that all ranks together read for a token. */
double decoder_bytes(const struct decoder_sizes* sizes);

#endif
