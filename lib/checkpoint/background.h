// checkpoint/background.h: a save whose files a thread writes while training goes on: from a copy of the state in host
// memory, over a communicator of its own, so that none of its calls can meet one of the trainer's.
#pragma once

#include <gsel/checkpoint.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "base/os.h"
#include "checkpoint/disk.h"
#include "checkpoint/save.h"
#include "train/trainer.h"

namespace gsel::checkpoint {

// Host memory that is kept from one copy to the next, since the first use of its pages costs more than the copy.
class Snapshot {
 public:
  Snapshot() = default;
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

  // Has room for it; earlier contents are lost. GSEL_ERR_NOMEM.
  void reserve(const SavedState& state);
  // Copies it.
  void take(const SavedState& state);
  // The same state, read from here; borrows the memory.
  SavedState saved(const SavedState& state);

 private:
  float* memory_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<uint64_t> first_;  // element, by piece
  std::vector<std::string> users_;
};

// At most one is under way. One thread at a time, that of the trainer.
class BackgroundSave {
 public:
  BackgroundSave() = default;
  ~BackgroundSave();  // waits
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // A collective: returns once the state is copied. GSEL_ERR_STATE while one is under way on some rank; the error of
  // an earlier one that nobody has asked for; those of begin_save.
  gsel_checkpoint_report begin(Trainer& trainer, const SaveTarget& target, Disk& disk = real_disk());
  // A collective. GSEL_ERR_STATE: a save is under way on some rank.
  void refuse_under_way(Communicator& comm) const;
  // GSEL_SAVE_*
  int32_t state() const noexcept;
  // Waits, and takes the outcome: its error is thrown, once. nullopt: no save was begun, or its outcome was taken.
  std::optional<gsel_checkpoint_report> wait();
  // Ends a save that is under way, because a rank that takes part in it is lost. Without this the save could wait for
  // that rank for an unknown time.
  void abandon(std::string_view reason) noexcept;

 private:
  void write() noexcept;  // on the thread
  void give_up() noexcept;
  void make_own_comm(Communicator& comm);

  const uint64_t fork_generation_ = os::fork_generation();
  std::optional<Communicator> comm_;  // made by the first save
  Snapshot snapshot_;
  std::unique_ptr<BegunSave> save_;
  std::shared_ptr<SaveHistory> history_;  // the trainer's, as the save began
  std::string folder_;
  gsel_checkpoint_report report_{};
  double began_ = 0;
  uint64_t bytes_ = 0;  // with those that follow written by the thread, until it ends
  double ended_ = 0;
  std::optional<Error> error_;
  std::thread thread_;
  std::atomic<int32_t> state_{GSEL_SAVE_NONE};
};

}  // namespace gsel::checkpoint
