// checkpoint/background.cc: see background.h.
#include "checkpoint/background.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/threads.h"
#include "checkpoint/checkpoint.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

// Training does not wait for the writing threads, so that a disk may stop for longer than a step may.
constexpr double kLeastTimeoutSeconds = 600;

}  // namespace

// ---- the copy -------------------------------------------------------------------------------------------------------

Snapshot::~Snapshot() {
  if (memory_) munmap(memory_, bytes_);
}

void Snapshot::reserve(const SavedState& state) {
  users_.clear();
  for (const UserState& user : state.users) users_.emplace_back(user.bytes, '\0');
  first_.clear();
  uint64_t elems = 0;
  for (const StatePiece& piece : state.pieces) {
    first_.push_back(elems);
    elems += static_cast<uint64_t>(piece.region.count());
  }
  const uint64_t bytes = elems * sizeof(float);
  if (bytes <= bytes_) return;
  if (memory_) munmap(memory_, bytes_);
  memory_ = nullptr;
  bytes_ = 0;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail(GSEL_ERR_NOMEM, "no memory for a copy of the state, {} bytes", bytes);
  memory_ = static_cast<float*>(memory);
  bytes_ = bytes;
  madvise(memory_, bytes_, MADV_HUGEPAGE);
  if (madvise(memory_, bytes_, MADV_POPULATE_WRITE) != 0 && errno == ENOMEM)
    fail(GSEL_ERR_NOMEM, "no pages for a copy of the state, {} bytes", bytes);
}

void Snapshot::take(const SavedState& state) {
  for (size_t p = 0; p < state.pieces.size(); ++p)
    state.read(p, 0, state.pieces[p].region.count(), memory_ + first_[p]);
  for (size_t u = 0; u < state.users.size(); ++u) std::memcpy(users_[u].data(), state.users[u].data, users_[u].size());
}

SavedState Snapshot::saved(const SavedState& state) {
  SavedState saved{state.tensors, state.pieces, state.users, {}};
  for (size_t u = 0; u < users_.size(); ++u) saved.users[u].data = users_[u].data();
  saved.read = [this](size_t piece, int64_t first, int64_t count, float* dst) {
    std::memcpy(dst, memory_ + first_[piece] + first, static_cast<size_t>(count) * sizeof(float));
  };
  return saved;
}

// ---- the save -------------------------------------------------------------------------------------------------------

BackgroundSave::~BackgroundSave() {
  if (!thread_.joinable()) return;
  if (os::fork_generation() == fork_generation_)
    thread_.join();
  else
    thread_.detach();  // it runs in the parent
}

int32_t BackgroundSave::state() const noexcept {
  return state_.load(std::memory_order_acquire);
}

// Threads of different ranks end at different moments, so that all ranks have to agree.
void BackgroundSave::refuse_under_way(Communicator& comm) const {
  on_all_ranks(comm, "checkpoint", [&] {
    if (state() == GSEL_SAVE_UNDER_WAY)
      fail(GSEL_ERR_STATE, "a save is under way; wait for it with gsel_trainer_save_wait");
  });
}

// One that broke, as where a rank was stopped for too long, is of no use any more. All ranks have to agree.
void BackgroundSave::make_own_comm(Communicator& comm) {
  bool is_fit = comm_.has_value();
  try {
    if (comm_) comm_->throw_async_error();
  } catch (const Error&) {
    is_fit = false;
  }
  if (all_succeed(comm, is_fit)) return;
  comm_.reset();
  comm_.emplace(*comm.split_inside(0, comm.rank(), "checkpoints", true));
  comm_->set_timeout(std::max(comm.timeout_s(), kLeastTimeoutSeconds));
}

gsel_checkpoint_report BackgroundSave::begin(Trainer& trainer, const SaveTarget& given, Disk& disk) {
  const SaveTarget target = target_of(trainer, given);
  const double began = os::now_seconds();
  StateDict dict = trainer.begin_state(JointCall::save);
  refuse_under_way(trainer.comm());
  on_all_ranks(trainer.comm(), "checkpoint", [&] { wait(); });
  const SavedState state = saved_state(dict, trainer.user_states());
  on_all_ranks(trainer.comm(), "checkpoint", [&] { snapshot_.reserve(state); });
  const TrainingNumbers numbers = trainer.numbers();
  make_own_comm(trainer.comm());
  save_ = begin_save(trainer.comm(), snapshot_.saved(state), numbers, trainer.optimizer_name(), target, disk);
  history_ = trainer.save_history();
  folder_ = target.folder;
  report_ = {sizeof(gsel_checkpoint_report), 0, numbers.step, 0, 0, 0, 0, 0, 0};
  try {
    on_all_ranks(trainer.comm(), "checkpoint", [&] {
      const double copy_began = os::now_seconds();
      snapshot_.take(state);
      report_.copy_seconds = os::now_seconds() - copy_began;
      state_.store(GSEL_SAVE_UNDER_WAY, std::memory_order_release);
      thread_ = request_thread([this] { write(); });
    });
  } catch (...) {
    give_up();
    throw;
  }
  report_.blocked_seconds = os::now_seconds() - began;
  began_ = began;
  gsel_checkpoint_report begun = report_;
  begun.seconds = begun.blocked_seconds;
  return begun;
}

void BackgroundSave::write() noexcept {
  try {
    bytes_ = finish_save(*save_, *comm_, *history_, folder_, report_.step);
    ended_ = os::now_seconds();
  } catch (...) {
    error_ = current_error();
  }
  save_.reset();  // undoes one that failed
  if (error_) log(GSEL_LOG_ERROR, "checkpoint", "a save in the background failed: {}", error_->message());
  state_.store(error_ ? GSEL_SAVE_FAILED : GSEL_SAVE_DONE, std::memory_order_release);
}

// A rank could not copy its state or start its thread, and those of the others wait for it.
void BackgroundSave::give_up() noexcept {
  comm_->abort("a save did not begin on every rank");
  if (thread_.joinable()) thread_.join();
  save_.reset();
  error_.reset();
  comm_.reset();  // the next save makes another
  state_.store(GSEL_SAVE_NONE, std::memory_order_release);
}

void BackgroundSave::abandon(std::string_view reason) noexcept {
  if (os::fork_generation() != fork_generation_) return;  // it is the parent's
  if (comm_ && state() == GSEL_SAVE_UNDER_WAY) comm_->abort(reason);
}

std::optional<gsel_checkpoint_report> BackgroundSave::wait() {
  if (os::fork_generation() != fork_generation_)
    fail(GSEL_ERR_FORKED, "the trainer belongs to the parent process, which waits for its save");
  if (thread_.joinable()) thread_.join();
  const int32_t was = state_.exchange(GSEL_SAVE_NONE);
  if (was == GSEL_SAVE_NONE) return {};
  if (was == GSEL_SAVE_FAILED) throw Error(*std::exchange(error_, {}));
  report_.bytes = report_.needed_bytes = bytes_;
  report_.seconds = ended_ - began_;
  return report_;
}

}  // namespace gsel::checkpoint
