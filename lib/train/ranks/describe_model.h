// train/ranks/describe_model.h: parameters, values and layers as named fields in text, with flags and kinds by the
// names that the public headers give them. Does not know who compares them.
#pragma once

#include "train/ranks/agree.h"

namespace gsel {

std::vector<Particular::Field> fields_of(const Param& param);
std::vector<Particular::Field> fields_of(const Value& value);
std::vector<Particular::Field> fields_of(const Model& model, const Layer& layer);
std::string needs_text(int32_t needs);  // GSEL_NEEDS_*

}  // namespace gsel
