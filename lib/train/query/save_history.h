// train/query/save_history.h: which checkpoints a trainer has saved since its state was last set from outside, and
// which it has found to be damaged, by their canonical paths. Several threads at a time.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace gsel {

class SaveHistory {
 public:
  struct Saved {
    int64_t step = -1;  // none
    std::string path;
  };

  SaveHistory() = default;
  // A copy; the last save is dropped if its step is later than `step`.
  SaveHistory(const SaveHistory& other, int64_t step) : last_(other.last()), damaged_(other.damaged()) {
    if (last_.step > step) last_ = {};
  }

  Saved last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }
  void saved(Saved now) {
    const std::lock_guard lock(mutex_);
    std::erase(damaged_, now.path);
    last_ = std::move(now);
  }
  std::vector<std::string> damaged() const {
    const std::lock_guard lock(mutex_);
    return damaged_;
  }
  void is_damaged(std::string path) {
    const std::lock_guard lock(mutex_);
    damaged_.push_back(std::move(path));
  }

 private:
  mutable std::mutex mutex_;
  Saved last_;
  std::vector<std::string> damaged_;
};

}  // namespace gsel
