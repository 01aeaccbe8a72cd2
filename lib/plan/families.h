// plan/families.h: properties of model families that their config.json does not state, and families with layers that
// Transformer cannot describe. Does not know the numbers of a model.
#pragma once

#include <string>

#include "plan/shape_reader.h"
#include "plan/transformer.h"

namespace gsel::plan {

struct Family {
  const char* type;
  bool gated, rms_norm, learned_positions, qkv_bias, output_bias, mlp_bias, tied, dropout;
};

// Throws GSEL_ERR_CONFIG with the key that shows an unsupported layer.
void refuse_unplanned(const ShapeReader& reader, const std::string& type);
// For an unknown type, guesses the family from the file's keys, and adds a note to the shape.
Family family_of(const std::string& type, const ShapeReader& reader, Transformer& shape);

}  // namespace gsel::plan
