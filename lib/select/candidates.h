// select/candidates.h: the devices still in question. Selecting is a row of layers; each narrows this list or puts it
// in another order, and leaves a reason with every device it looked at. Refuses to know: which layers there are.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "select/inventory.h"

namespace gsel {

// What became of one device of the inventory.
struct Verdict {
  int32_t position = -1;  // place in the selection
  std::string reason;
};

class Candidates {
 public:
  explicit Candidates(const Inventory& inventory) : inventory_(inventory), verdicts_(inventory.devices.size()) {
    for (size_t i = 0; i < verdicts_.size(); ++i) kept_.push_back(static_cast<int32_t>(i));
  }

  const Inventory& inventory() const { return inventory_; }
  const Device& device(int32_t index) const { return inventory_.devices[index]; }
  const std::vector<int32_t>& kept() const { return kept_; }
  bool keeps(int32_t index) const { return std::find(kept_.begin(), kept_.end(), index) != kept_.end(); }
  const std::string& reason(int32_t index) const { return verdicts_[index].reason; }

  // Of the kept devices that `concerns` picks, keeps those in `order`, in that order, and drops the others.
  template <class Concerns>
  void narrow(const std::vector<int32_t>& order, Concerns concerns, const std::string& why_dropped) {
    std::vector<int32_t> kept = order;
    for (int32_t index : kept_) {
      if (std::find(order.begin(), order.end(), index) != order.end()) continue;
      if (concerns(device(index)))
        verdicts_[index].reason = why_dropped;
      else
        kept.push_back(index);
    }
    kept_ = std::move(kept);
  }

  // Adds to why a kept device is kept.
  void note(int32_t index, const std::string& reason) {
    std::string& text = verdicts_[index].reason;
    text += text.empty() ? reason : "; " + reason;
  }

  // Puts a reason in place of those before it.
  void explain(int32_t index, const std::string& reason) { verdicts_[index].reason = reason; }

  // Places by now.
  std::vector<Verdict> verdicts() const {
    std::vector<Verdict> out = verdicts_;
    for (size_t i = 0; i < kept_.size(); ++i) out[kept_[i]].position = static_cast<int32_t>(i);
    return out;
  }

 private:
  const Inventory& inventory_;
  std::vector<int32_t> kept_;
  std::vector<Verdict> verdicts_;
};

}  // namespace gsel
