// checkpoint/rebind.cc: see rebind.h.
#include "checkpoint/rebind.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/random.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

// Tensors of the state have their meanings and their order by the optimizer.
void check_optimizer(Communicator& comm, const std::string& had, const std::string& has) {
  const uint64_t mine = derive_key(0, has);
  const std::vector<uint64_t> all = gather_numbers(comm, {derive_key(0, had), mine});
  if (had != has)
    fail(GSEL_ERR_MISMATCH,
         "the state is that of train.optimizer = \"{}\", and the configuration for the new ranks says \"{}\"; a change "
         "of "
         "ranks keeps the optimizer",
         had, has);
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != mine)
      throw Error(GSEL_ERR_MISMATCH,
                  fmt::format("train.optimizer is \"{}\" here, and rank {} has another one; give all ranks the same",
                              has, i / 2))
          .about_rank(static_cast<int32_t>(i / 2));
}

// A collective. The first that a rank has given; empty: none has.
std::string folder_of_all(Communicator& comm, const std::string& mine) {
  const std::vector<uint64_t> sizes = gather_numbers(comm, {mine.size()});
  const auto first = std::ranges::find_if(sizes, [](uint64_t size) { return size > 0; });
  if (first == sizes.end()) return {};
  std::string folder = mine;
  folder.resize(*first);
  comm.collective_on_host(make_collective(GSEL_COLLECTIVE_BROADCAST, folder.data(), folder.data(), *first, GSEL_U8, 0,
                                          static_cast<int32_t>(first - sizes.begin())));
  return folder;
}

// A collective. The step of the last checkpoint that these ranks have saved to the folder, -1 if there is none: what
// another run has saved there, or this one before it went back, is not what follows from their state.
int64_t last_saved(Communicator& comm, const SaveHistory& history, const std::string& folder) {
  const SaveHistory::Saved mine = history.last();
  const bool is_here = mine.step >= 0 && mine.path == canonical(path_of_step(folder, mine.step));
  const std::vector<uint64_t> all = gather_numbers(comm, {is_here ? static_cast<uint64_t>(mine.step) + 1 : 0});
  return static_cast<int64_t>(*std::ranges::max_element(all)) - 1;
}

gsel_rebind_report report_of(int32_t source, int64_t step, uint64_t bytes) {
  gsel_rebind_report report{};
  report.source = source;
  report.step = step;
  report.bytes_moved = bytes;
  return report;
}

std::optional<gsel_rebind_report> take_from_ranks(Trainer& made, StateOffers& offers, int64_t first_step) {
  StateDict into = made.state_dict();
  const std::optional<MovedState> moved = move_state(made.comm(), offers, into, first_step);
  if (!moved) return {};
  made.take_over(moved->numbers);
  return report_of(GSEL_REBIND_FROM_RANKS, moved->numbers.step, moved->bytes_moved);
}

gsel_rebind_report take_from_folder(Trainer& made, const std::string& path, Disk& disk) {
  const gsel_checkpoint_report loaded = load(made, path, disk, false);
  return report_of(GSEL_REBIND_FROM_CHECKPOINT, loaded.step, loaded.bytes);
}

// The newest state there is: of the ranks, or what they have saved; else what the folder has.
gsel_rebind_report take_newest(Trainer& made, StateOffers& offers, const std::string& folder, Disk& disk) {
  Communicator& comm = made.comm();
  std::optional<Error> failure;
  const int64_t saved = folder.empty() ? -1 : last_saved(comm, *made.save_history(), folder);
  if (saved >= 0) {
    if (const auto taken = take_from_ranks(made, offers, saved)) return *taken;
    try {
      return take_from_folder(made, path_of_step(folder, saved), disk);
    } catch (const Error& e) {
      failure = e;
    }
    gather_numbers(comm, {0});  // throws where the communicator is what failed
    log(GSEL_LOG_WARN, "checkpoint", "{} is left out: {}", path_of_step(folder, saved), failure->message());
  }
  if (const auto taken = take_from_ranks(made, offers, 0)) return *taken;
  if (!folder.empty()) return take_from_folder(made, folder, disk);
  throw Error(GSEL_ERR_NOT_FOUND,
              offers.newest < 0
                  ? "no rank has a whole state, and no folder of checkpoints was given; set train.elastic = \"on\", "
                    "or train.redundancy = 1, or give a folder"
                  : fmt::format("of {} before step {} a part is on no rank, and no folder of checkpoints was given; "
                                "set train.redundancy = 1, or give a folder",
                                offers.missing.empty() ? "the state" : in_quotes(offers.missing), offers.newest));
}

gsel_rebind_report take_state(Trainer& made, StateOffers& offers, int64_t reached, const std::string& folder,
                              Disk& disk) {
  const double began = os::now_seconds();
  gsel_rebind_report report = take_newest(made, offers, folder_of_all(made.comm(), folder), disk);
  const auto furthest = gather_numbers(made.comm(), {static_cast<uint64_t>(reached)});
  report.lost_steps = std::max<int64_t>(0, static_cast<int64_t>(*std::ranges::max_element(furthest)) - report.step);
  report.move_seconds = os::now_seconds() - began;
  return report;
}

// The embedder's shared states, from the first rank that had a trainer to those that join.
void give_user_states(Trainer& made, bool joins) {
  Communicator& comm = made.comm();
  std::string packed = joins ? std::string() : made.packed_states();
  const auto all = gather_numbers(comm, {joins ? uint64_t{0} : 1 + packed.size()});
  const auto first = std::ranges::find_if(all, [](uint64_t n) { return n > 0; });
  if (first == all.end() || *first == 1 || std::ranges::find(all, uint64_t{0}) == all.end()) return;
  const auto root = static_cast<int32_t>(first - all.begin());
  packed.resize(*first - 1);
  comm.collective_on_host(
      make_collective(GSEL_COLLECTIVE_BROADCAST, packed.data(), packed.data(), packed.size(), GSEL_U8, 0, root));
  if (joins) made.give_states(packed);
}

}  // namespace

Rebound rebind(Trainer& old, Communicator& comm, const Config* config, const std::string& folder, Disk& disk) {
  if (!folder.empty()) check_path(folder, "folder");
  const double began = os::now_seconds();
  Rebound rebound{old.remade(comm, config), {}};
  check_optimizer(comm, old.optimizer_name(), rebound.trainer->optimizer_name());
  std::optional<StateDict> dict;
  StateOffers offers;
  on_all_ranks(comm, "list of the state", [&] { offers = old.offers(dict); });
  rebound.report = take_state(*rebound.trainer, offers, old.numbers().step, folder, disk);
  give_user_states(*rebound.trainer, false);
  if (rebound.report.source == GSEL_REBIND_FROM_RANKS) rebound.trainer->take_copies_of(old);
  rebound.report.seconds = os::now_seconds() - began;
  return rebound;
}

gsel_rebind_report join(Trainer& made, const std::string& folder, Disk& disk) {
  if (!folder.empty()) check_path(folder, "folder");
  const double began = os::now_seconds();
  check_optimizer(made.comm(), made.optimizer_name(), made.optimizer_name());
  StateOffers offers;
  on_all_ranks(made.comm(), "list of the state", [] {});
  gsel_rebind_report report = take_state(made, offers, 0, folder, disk);
  give_user_states(made, true);
  report.seconds = os::now_seconds() - began;
  return report;
}

}  // namespace gsel::checkpoint
