// checkpoint/weights_match.h: finds the tensors of a plan in files, and says all at once what does not fit. Does not
// read tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "checkpoint/weights_files.h"
#include "checkpoint/weights_plan.h"

namespace gsel::checkpoint {

struct WeightMatch {
  // A tensor of the file under one of its names, and copies of it under others.
  struct Found {
    std::string name;
    const WeightFiles::Tensor* tensor = nullptr;  // nullptr: there is none
    std::vector<std::pair<std::string, const WeightFiles::Tensor*>> copies;
  };
  std::vector<Found> sources;   // by source of the plan
  std::vector<bool> is_filled;  // by parameter; not filled: an optional one
  int32_t n_ignored = 0;

  // GSEL_ERR_MISMATCH: parameters without tensors, tensors without parameters, other shapes and types; the first ten of
  // each. path: for messages. prefix: that names may have in front. files is borrowed.
  WeightMatch(const WeightPlan& plan, const std::vector<WeightParam>& params, const std::vector<WeightRule>& rules,
              const std::string& prefix, const WeightFiles& files, const std::string& path);
};

}  // namespace gsel::checkpoint
