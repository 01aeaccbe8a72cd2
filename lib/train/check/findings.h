// train/check/findings.h: the breaches and notes of a check, each as one line.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"
#include "train/check/buffer.h"

namespace gsel::check {

struct Breach {
  gsel_breach_kind kind = 0;
  int32_t layer = 0, callback = 0, buffer = 0, index = 0;
  int64_t element = 0;
  std::vector<int64_t> coordinates;
  double found = 0, expected = 0;
  std::string text;
};

const char* callback_name(int32_t callback);  // GSEL_WORK_*

// The function under check: a layer's callback, or the data function or optimizer (layer -1).
struct Site {
  Site(std::string s, int32_t l, int32_t c) : subject(std::move(s)), layer(l), callback(c) {}
  Site(const Layer& l, int32_t c);
  std::string subject;  // "layer "fc1" forward"
  int32_t layer, callback;
};

class Findings {
 public:
  // Repeated breaches of one kind for one buffer of one callback are reported once. `what`: the text, with the number
  // found and the number expected.
  void breach(gsel_breach_kind kind, const Site& site, const Buffer& buffer, int64_t element, const std::string& what,
              double found = 0, double expected = 0);
  void note(std::string line) { notes_.push_back(std::move(line)); }
  void note(const Site& site, const Buffer& buffer, const std::string& what);
  void layer_checked() { ++layers_; }

  const std::vector<Breach>& breaches() const { return breaches_; }
  const std::vector<std::string>& notes() const { return notes_; }
  std::string summary() const;

 private:
  std::vector<Breach> breaches_;
  std::vector<std::string> notes_;
  int32_t layers_ = 0;
};

}  // namespace gsel::check
