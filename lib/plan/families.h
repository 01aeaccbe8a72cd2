// plan/families.h: what families of models do alike without saying so in their config.json, and which ones have layers
// that Transformer has no words for. Does not know the numbers of a model.
#pragma once

#include <string>

#include "plan/shape_reader.h"
#include "plan/transformer.h"

namespace gsel::plan {

struct Family {
  const char* type;
  bool gated, rms_norm, learned_positions, qkv_bias, output_bias, mlp_bias, tied, dropout;
};

// GSEL_ERR_CONFIG with the key that tells.
void refuse_unplanned(const ShapeReader& reader, const std::string& type);
// Of a type that is not known: by what its keys look like, which is said in the notes of the shape.
Family family_of(const std::string& type, const ShapeReader& reader, Transformer& shape);

}  // namespace gsel::plan
