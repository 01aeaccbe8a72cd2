// checkpoint/checkpoint.cc: see checkpoint.h.
#include "checkpoint/checkpoint.h"

#include "base/error.h"
#include "base/os.h"
#include "checkpoint/background.h"
#include "checkpoint/folder.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"

namespace gsel::checkpoint {
void check_target(const SaveTarget& target) {
  check_path(target.folder, "folder");
  if (target.keep < 0) fail(GSEL_ERR_ARG, "gsel_checkpoint_options.keep is {}; expected 0 or more", target.keep);
}

SaveTarget target_of(const Trainer& trainer, const SaveTarget& given) {
  check_target(given);
  return {given.folder, given.keep, trainer.save_history()->damaged()};
}

uint64_t finish_save(BegunSave& begun, Communicator& comm, SaveHistory& history, const std::string& folder,
                     int64_t step) {
  const auto note = [&] { history.saved({step, canonical(path_of_step(folder, step))}); };
  try {
    const uint64_t bytes = begun.finish(comm);
    note();
    return bytes;
  } catch (...) {
    if (begun.is_committed()) note();
    throw;
  }
}

gsel_checkpoint_report save(Trainer& trainer, const SaveTarget& given, Disk& disk, BackgroundSave* other) {
  const SaveTarget target = target_of(trainer, given);
  const double began = os::now_seconds();
  StateDict state = trainer.begin_state(JointCall::save);
  if (other) other->refuse_under_way(trainer.comm());
  const TrainingNumbers numbers = trainer.numbers();
  const std::unique_ptr<BegunSave> begun = begin_save(trainer.comm(), saved_state(state, trainer.user_states()),
                                                      numbers, trainer.optimizer_name(), target, disk);
  const uint64_t bytes = finish_save(*begun, trainer.comm(), *trainer.save_history(), target.folder, numbers.step);
  const double seconds = os::now_seconds() - began;
  return {sizeof(gsel_checkpoint_report), 0, numbers.step, bytes, bytes, seconds, seconds, 0, 0};
}

// An error while tensors are read leaves a mixture, from which no rank may go on; another load may make it whole.
gsel_checkpoint_report load(Trainer& trainer, const std::string& path, Disk& disk, bool with_own) {
  check_path(path, "path");
  const double began = os::now_seconds();
  StateDict state = trainer.begin_state(JointCall::load);
  std::vector<UserState> users = trainer.user_states();
  if (!with_own) std::erase_if(users, [](const UserState& user) { return user.is_of_rank; });
  bool is_writing = false;
  try {
    const Loaded loaded =
        load(trainer.comm(), state, users, trainer.optimizer_name(), path, disk, [&is_writing] { is_writing = true; });
    trainer.go_on_from(loaded.numbers);
    for (const std::string& damaged : loaded.damaged) trainer.save_history()->is_damaged(canonical(damaged));
    const double seconds = os::now_seconds() - began;
    return {sizeof(gsel_checkpoint_report),
            0,
            loaded.numbers.step,
            loaded.bytes_read,
            loaded.bytes_held,
            seconds,
            seconds,
            0,
            loaded.bytes_compared};
  } catch (const Error& e) {
    if (is_writing) trainer.lose_state("a checkpoint was loaded in part: " + e.message());
    throw;
  }
}

}  // namespace gsel::checkpoint
