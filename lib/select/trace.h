// select/trace.h: why a selection is what it is, written down while it is made: what each token became, by which rule,
// in which layer of software, and the warnings for the caller. Does not know how it is shown.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "select/tokens.h"

namespace gsel {

// What became of one token of a variable or of the request.
struct Step {
  std::string layer;  // "container", "cgroup", "ROCr", "HIP", "CUDA", "Level Zero", "request", or a framework
  std::string input;  // "CUDA_VISIBLE_DEVICES", "devices"
  std::string token;
  int32_t column = 1;  // of the token in the input, from 1
  std::string became;  // "device 2 (GPU-c4f8...)", "nothing", "the end of the list"
  std::string rule;    // the rule in one clause, with its source where there is one
};

struct Trace {
  std::vector<Step> steps;
  std::vector<std::string> warnings;

  void add(std::string layer, const Input& input, const Token& token, std::string became, std::string rule) {
    steps.push_back({std::move(layer), input.name, token.text, token.column, std::move(became), std::move(rule)});
  }
  void warn(std::string text) { warnings.push_back(std::move(text)); }
};

}  // namespace gsel
