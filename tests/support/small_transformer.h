/* support/small_transformer.h: a small transformer whose numbers are all integers, so that f32 holds every sum exactly
 * and any way to share it must give the single rank's parameters bit for bit. It has the difficult cases of a tensor
 * axis: a table of rows that is embedding and head, columns and rows of linears, parameters and values in blocks that
 * are each split, heads that stay together and fewer of keys than of queries, whole parameters in layers that have
 * parts, biases that are added once, values read by several layers in several placements, reductions in the middle of
 * layers forward and backward, sizes that no number of ranks divides. Kernels take sizes from what they are lent. Where
 * a layer does not look across positions it says so. Gradients are those of a sum of absolute distances, which keeps
 * them small.
 *
 *   embed    e <- tokens            rows of the table, partial sums
 *   positions x = e + position
 *   norm     n = clip(scale * x + shift)
 *   queries  q = n wq               columns, in heads
 *   keys     kv = n wkv             columns, keys and values, in heads
 *   attend   a <- q, kv             of each head, over earlier positions; relative distances have a bias
 *   project  o = a wo               rows, partial sums
 *   add      r = clip(x + o + bo)
 *   up       m = r wu               columns, gates and inputs
 *   gate     g = clip(gate * input)
 *   share    h = clip(g + clip(sum of g))     the sum is over all columns
 *   down     y = h wd               rows, partial sums
 *   last     z = clip(r + y)
 *   head     logits = z table^T     columns
 *   loss     of logits: distances to a target, the largest, and the distance of their sum to 0 */
#ifndef GSEL_TESTS_SMALL_TRANSFORMER_H
#define GSEL_TESTS_SMALL_TRANSFORMER_H

#include "support/small_transformer_kernels.h"

GSEL_EXTERN_C_BEGIN

gsel_status tm_data(const gsel_data_request* r, void* user);

struct tm_layer {
  const char* name;
  int32_t in[2], out[2], param[2]; /* -1: none */
  gsel_layer_fn forward, backward_input, backward_weight, backward;
  uint32_t flags;
  uint64_t saved, input_unread, weight_unread, unread_params;
  const gsel_phase *forward_phases, *backward_phases;
  int n_forward_phases, n_backward_phases;
};
extern const struct tm_layer kTmLayers[];
enum { TM_L_QUERIES = 3, TM_L_ATTEND = 5, TM_L_PROJECT = 6, TM_L_ADD = 7, TM_L_SHARE = 10, TM_L_LOSS = 14 };

gsel_status tm_describe(gsel_model* model, small_transformer* m, gsel_error** err);

GSEL_EXTERN_C_END

#endif
