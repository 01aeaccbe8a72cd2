// checkpoint/weights_plan.h: which elements of which tensors of a file are the elements of each parameter: the rules of
// [[weights.map]] applied to the parameters of a model. A pure function of both, for loads as for exports. Does not
// know files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/region.h"
#include "base/weight_rules.h"

namespace gsel::checkpoint {

struct WeightParam {
  std::string name;
  std::vector<int64_t> shape;
};

// A tensor of the file, as the rules and the parameters ask for it.
struct WeightSource {
  std::string name;
  std::vector<std::string> aliases;
  std::vector<int64_t> shape;
  gsel_dtype cast = 0;
  bool is_optional = false;
  std::vector<int32_t> params;  // that have elements of it
};

// A box of a parameter that lies in one tensor of the file.
struct WeightPiece {
  struct Digit {
    int64_t count = 0, stride = 0;  // of the tensor's elements
  };
  int32_t source = 0;
  int64_t first = 0;                       // element of the tensor that is the box's first
  std::vector<gsel_range> box;             // by dimension of the parameter
  std::vector<std::vector<Digit>> digits;  // by dimension: indices in the box, outer first
};

struct WeightPlan {
  // GSEL_ERR_CONFIG with the rule's place. Without rules each parameter is the tensor of its name.
  WeightPlan(const std::vector<WeightRule>& rules, const std::vector<WeightParam>& params);

  std::vector<WeightSource> sources;
  std::vector<std::vector<WeightPiece>> pieces;  // by parameter; none: no rule names it
};

// A strided copy between a tensor of a file and consecutive memory, which has the elements of a region. Offsets and
// strides are in elements.
struct WeightCopy {
  struct Dim {
    int64_t count = 0, file = 0, memory = 0;
  };
  int64_t file = 0, memory = 0;
  std::vector<Dim> dims;  // counts above 1, strides in the file descending; none that could be one with the next

  int64_t count() const;
  int64_t extent() const;  // in the file, from the first element to the last
  int64_t run() const;     // elements that are consecutive in the file
};
// What a region of the parameter shares with a piece.
void each_copy(const Region& region, const WeightPiece& piece, const std::function<void(const WeightCopy&)>& use);

}  // namespace gsel::checkpoint
