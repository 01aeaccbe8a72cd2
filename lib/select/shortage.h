// select/shortage.h: explains in words why too few devices are left. Does not know what follows from it.
#pragma once

#include <string>

#include "select/candidates.h"
#include "select/choose.h"

namespace gsel {

constexpr size_t kMostTold = 16;  // reasons in one message

class Shortage {
 public:
  Shortage(const Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene)
      : candidates_(candidates), question_(question), choice_(choice), scene_(scene) {}

  // Why no accelerator is left.
  std::string nothing() const;
  // How many are left of how many.
  std::string count(size_t found) const;
  // "; a part of a name is written name:*A100*" where a whole name was given, or nothing.
  std::string glob_hint() const;

 private:
  std::string hidden() const;

  const Candidates& candidates_;
  const Question& question_;
  const Choice& choice_;
  const Scene& scene_;
};

}  // namespace gsel
