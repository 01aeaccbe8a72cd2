// plan/describe.h: builds a gsel model of a transformer from its shape alone, layer by layer as a program describes it,
// so that strategies can compile it and its memory and traffic can be forecast. The model cannot run: its callbacks
// fail. Does not know devices or layouts.
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <memory>

#include "model/model.h"
#include "plan/transformer.h"

namespace gsel::plan {

struct Description {
  int64_t sequence = 1;         // tokens of a sample
  gsel_dtype dtype = GSEL_F32;  // of parameters and values
  bool fused_attention = true;  // keeps one number per row of scores instead of the scores
  bool ring_attention = false;  // on a context axis, keys and values are sent around the ranks
};

// Embeddings of tokens and positions; for each layer, with prefix "h0." etc.: ln1, attn.qkv, attn, attn.proj, add1,
// ln2, mlp.fc1, mlp.act, mlp.fc2, add2; then final norm, head, loss. Outputs and parameters are named after their
// layer. GSEL_ERR_ARG for impossible sizes.
std::shared_ptr<Model> describe(const Transformer& shape, const Description& description);

}  // namespace gsel::plan
