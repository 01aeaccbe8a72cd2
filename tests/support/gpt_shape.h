// support/gpt_shape.h: a GPT from the sizes that tables of measurements usually print: GELU, LayerNorm, learned
// positions.
#pragma once

#include <utility>

#include "plan/transformer.h"

namespace gsel::plan {

inline Transformer gpt(std::string name, int64_t layers, int64_t hidden, int64_t heads, int64_t vocab,
                       int64_t positions) {
  Transformer shape;
  shape.name = std::move(name);
  shape.layers = layers, shape.hidden = hidden, shape.ffn = 4 * hidden, shape.vocab = vocab;
  shape.heads = shape.kv_heads = heads;
  shape.head_dim = heads > 0 ? hidden / heads : 0;
  shape.positions = shape.max_positions = positions;
  return shape;
}

}  // namespace gsel::plan
