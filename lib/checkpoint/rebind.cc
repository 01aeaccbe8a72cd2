// checkpoint/rebind.cc: see rebind.h.
#include "checkpoint/rebind.h"

#include <algorithm>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

gsel_rebind_report take_state(Trainer& made, StateOffers& offers, int64_t reached, const std::string& folder,
                              Disk& disk) {
  const double began = os::now_seconds();
  StateDict into = made.state_dict();
  gsel_rebind_report report{};
  const std::optional<MovedState> moved = move_state(made.comm(), offers, into);
  if (moved) {
    made.go_on_from(moved->numbers);
    report.source = GSEL_REBIND_FROM_RANKS;
    report.step = moved->numbers.step;
    report.bytes_moved = moved->bytes_moved;
  } else {
    if (folder.empty())
      throw Error(
          GSEL_ERR_NOT_FOUND,
          offers.newest < 0
              ? "no rank has a whole state, and no folder of checkpoints was given; set train.elastic = \"on\", "
                "or train.redundancy = 1, or give a folder"
              : fmt::format("of {} before step {} a part is on no rank, and no folder of checkpoints was given; "
                            "set train.redundancy = 1, or give a folder",
                            offers.missing.empty() ? "the state" : in_quotes(offers.missing), offers.newest));
    const gsel_checkpoint_report loaded = load(made, folder, disk);
    report.source = GSEL_REBIND_FROM_CHECKPOINT;
    report.step = loaded.step;
    report.bytes_moved = loaded.bytes;
  }
  const auto furthest = gather_numbers(made.comm(), {static_cast<uint64_t>(reached)});
  report.lost_steps = std::max<int64_t>(0, static_cast<int64_t>(*std::ranges::max_element(furthest)) - report.step);
  report.move_seconds = os::now_seconds() - began;
  return report;
}

}  // namespace

Rebound rebind(Trainer& old, Communicator& comm, const Config* config, const std::string& folder, Disk& disk) {
  if (!folder.empty()) check_path(folder, "folder");
  const double began = os::now_seconds();
  Rebound rebound{old.remade(comm, config), {}};
  std::optional<StateDict> dict;
  StateOffers offers = old.offers(dict);
  rebound.report = take_state(*rebound.trainer, offers, old.numbers().step, folder, disk);
  rebound.report.seconds = os::now_seconds() - began;
  return rebound;
}

gsel_rebind_report join(Trainer& made, const std::string& folder, Disk& disk) {
  if (!folder.empty()) check_path(folder, "folder");
  const double began = os::now_seconds();
  StateOffers offers;
  gsel_rebind_report report = take_state(made, offers, 0, folder, disk);
  report.seconds = os::now_seconds() - began;
  return report;
}

}  // namespace gsel::checkpoint
