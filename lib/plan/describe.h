// plan/describe.h: a gsel model of a transformer of which only the shape is known, layer by layer as a program would
// describe it, so that strategies compile it and memory and traffic are forecast from its programs. It is never run:
// its layers have callbacks that fail. Does not know devices and layouts.
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <memory>

#include "model/model.h"
#include "plan/transformer.h"

namespace gsel::plan {

struct Description {
  int64_t sequence = 1;         // tokens of a sample
  gsel_dtype dtype = GSEL_F32;  // of parameters and values, as kernels get them
  bool fused_attention = true;  // keeps a number for each row of scores, in place of the scores
  bool ring_attention = false;  // where positions are divided, keys and values go round the ranks
};

// Embeddings of tokens and positions; for each layer "h0." and on: ln1, attn.qkv, attn, attn.proj, add1, ln2, mlp.fc1,
// mlp.act, mlp.fc2, add2; final norm, head, loss. Each layer's output and parameters have its name. GSEL_ERR_ARG for
// sizes that no model has.
std::shared_ptr<Model> describe(const Transformer& shape, const Description& description);

}  // namespace gsel::plan
