// base/weight_rules.h: the rows of [[weights.map]]: which tensors of a file of weights are which parameters of a model.
// Does not know models, files and TOML.
#pragma once

#include <gsel/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/name_pattern.h"

namespace gsel {

// How the rows of each head go from the file to the model: a head of d rows has in halves its rows 0, 2, 4, ... of
// pairs first, and then 1, 3, 5, ...
enum class HeadOrder : uint8_t { same, halves_to_pairs, pairs_to_halves };

// All patterns of a rule but those of an ignored one have the same captures.
struct WeightRule {
  Place place;                              // of the rule
  std::vector<NamePattern> sources;         // tensors of the file; several: with concat_dim, or ignored
  std::vector<NamePattern> targets;         // parameters; several: with split_dim; none: the sources are ignored
  std::vector<NamePattern> aliases;         // of the only source
  int32_t concat_dim = -1, split_dim = -1;  // of the tensors in the file
  std::vector<int64_t> parts;               // relative sizes of sources or targets; empty: see docs/weights.md
  bool transpose = false;                   // the last two dimensions
  bool optional = false;
  HeadOrder heads_order = HeadOrder::same;
  std::vector<int64_t> heads;  // by source or target, in dimension 0 of the target; 0: rows stay
  gsel_dtype cast = 0;         // that an export writes; 0: its argument

  bool ignores() const { return targets.empty(); }
  std::string text() const;  // the same for equal rules
};

}  // namespace gsel
