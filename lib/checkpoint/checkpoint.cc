// checkpoint/checkpoint.cc: see checkpoint.h.
#include "checkpoint/checkpoint.h"

#include <algorithm>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "checkpoint/load.h"
#include "checkpoint/save.h"

namespace gsel::checkpoint {
namespace {

void check_path(const std::string& path, const char* name) {
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (path.empty()) fail(GSEL_ERR_ARG, "{} is empty; expected the path of a folder", name);
  if (std::ranges::any_of(path, is_control))
    fail(GSEL_ERR_ARG, "{} is {}, with control characters; expected the path of a folder", name, in_quotes(path));
}

}  // namespace

gsel_checkpoint_report save(Trainer& trainer, const std::string& folder, Disk& disk) {
  check_path(folder, "folder");
  const double began = os::now_seconds();
  StateDict state = trainer.begin_state(JointCall::save);
  const TrainingNumbers numbers = trainer.numbers();
  const uint64_t bytes = save(trainer.comm(), state, numbers, trainer.optimizer_name(), folder, disk);
  return {sizeof(gsel_checkpoint_report), 0, numbers.step, bytes, bytes, os::now_seconds() - began};
}

// An error while tensors are read leaves a mixture, with which no rank may go on.
gsel_checkpoint_report load(Trainer& trainer, const std::string& path, Disk& disk) {
  check_path(path, "path");
  const double began = os::now_seconds();
  StateDict state = trainer.begin_state(JointCall::load);
  bool is_writing = false;
  try {
    const Loaded loaded =
        load(trainer.comm(), state, trainer.optimizer_name(), path, disk, [&is_writing] { is_writing = true; });
    trainer.go_on_from(loaded.numbers);
    return {sizeof(gsel_checkpoint_report), 0, loaded.numbers.step, loaded.bytes_read, loaded.bytes_held,
            os::now_seconds() - began};
  } catch (const Error& e) {
    if (is_writing) trainer.end_all("a checkpoint was loaded in part: " + e.message());
    throw;
  }
}

}  // namespace gsel::checkpoint
