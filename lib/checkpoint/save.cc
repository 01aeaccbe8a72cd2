// checkpoint/save.cc: see save.h. Ranks work alone on their own files, and agree after each piece.
#include "checkpoint/save.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/file_plan.h"
#include "checkpoint/folder.h"
#include "checkpoint/rounds.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

class Saving : public BegunSave {
 public:
  Saving(Communicator& comm, SavedState state, const TrainingNumbers& numbers, const std::string& optimizer,
         const SaveTarget& target, Disk& disk)
      : comm_(&comm),
        rank_(comm.rank()),
        state_(std::move(state)),
        disk_(disk),
        keep_(target.keep),
        file_(name_of_file(comm.rank()), numbers.step),
        checkpoint_(disk, target.folder, numbers.step, agreed_nonce(), target.damaged) {
    index_.numbers = numbers;
    index_.n_ranks = comm.world_size();
    index_.optimizer = optimizer;
    for (const StateTensor& tensor : state_.tensors) index_.tensors.push_back({tensor.name, tensor.shape});
    plan();
    try {
      together([&](Rounds& rounds) {
        if (is_first()) rounds.aside([&] { checkpoint_.begin(total_bytes_); });
      });
    } catch (...) {
      if (is_first()) checkpoint_.undo();
      throw;
    }
  }

  // Nothing is undone once the checkpoint has its name.
  ~Saving() override {
    if (is_first())
      checkpoint_.undo();
    else if (!is_finished_)
      checkpoint_.undo(file_.name);
  }

  uint64_t finish(Communicator& comm) override {
    comm_ = &comm;
    together([&](Rounds& rounds) { write_own(rounds); });
    const std::vector<std::string> items = gather_items();
    is_finished_ = true;  // the files are the first rank's now, which names them or removes all
    together([&](Rounds& rounds) {
      if (is_first()) rounds.aside([&] { commit(items); });
    });
    return file_.bytes();
  }
  bool is_committed() const override { return checkpoint_.is_committed(); }

 private:
  template <class Work>
  void together(Work&& work) {
    Rounds rounds(*comm_);
    rounds.run("checkpoint", [&] { work(rounds); });
  }
  bool is_first() const { return rank_ == 0; }
  bool writes(const UserState& user) const { return user.is_of_rank || is_first(); }
  bool has_file() const { return !file_.header.tensors.empty(); }

  // The first rank's. All ranks have to save alike.
  uint64_t agreed_nonce() {
    uint64_t nonce = 0;
    os::random_bytes(&nonce, sizeof nonce);
    const std::vector<uint64_t> all =
        gather_numbers(*comm_, {nonce, static_cast<uint64_t>(keep_), hash_of(state_.users)});
    for (size_t rank = 1; 3 * rank < all.size(); ++rank) {
      const uint64_t* const of = &all[3 * rank];
      if (of[1] != all[1])
        throw Error(GSEL_ERR_MISMATCH,
                    fmt::format("rank {} keeps {} checkpoints, and rank 0 keeps {}", rank, of[1], all[1]))
            .about_rank(static_cast<int32_t>(rank));
      if (of[2] != all[2])
        throw Error(
            GSEL_ERR_MISMATCH,
            fmt::format("rank {} has other states of the program's own than rank 0; call gsel_trainer_add_state "
                        "alike on all ranks: names, scopes, and sizes of shared ones",
                        rank))
            .about_rank(static_cast<int32_t>(rank));
    }
    return all.front();
  }

  static uint64_t hash_of(const std::vector<UserState>& users) {
    std::string all;
    for (const UserState& user : users)
      all += fmt::format("{} {} {}\n", user.name, user.is_of_rank, user.is_of_rank ? 0 : user.bytes);
    return std::stoull(sum_of(all.data(), all.size()).substr(0, 16), nullptr, 16);
  }

  void plan() {
    for (const StatePiece& piece : state_.pieces)
      file_.add(piece.tensor, index_.tensors[static_cast<size_t>(piece.tensor)].name, piece.region);
    for (const UserState& user : state_.users) {
      index_.users.push_back({user.name, user.is_of_rank});
      if (writes(user)) file_.add_user(user.name, user.bytes);
    }
    for (const uint64_t bytes : gather_numbers(*comm_, {file_.bytes()})) total_bytes_ += bytes;
  }

  void write_own(Rounds& rounds) {
    if (!has_file()) return;
    std::optional<FileWriter> file;
    rounds.aside([&] { file.emplace(disk_, checkpoint_.path_of(file_.name), file_.header, rounds.idle()); });
    std::vector<float> chunk;
    for (size_t p = 0; p < state_.pieces.size(); ++p)
      for (int64_t first = 0, all = state_.pieces[p].region.count(); first < all; first += kSumBlockElems) {
        const int64_t count = std::min(kSumBlockElems, all - first);
        chunk.resize(static_cast<size_t>(count));
        state_.read(p, first, count, chunk.data());
        file->put(chunk.data(), chunk.size() * sizeof(float));
        rounds.go_on();
      }
    for (const UserState& user : state_.users)
      for (uint64_t at = 0; writes(user) && at < user.bytes; at += kSumBlockBytes) {
        file->put(static_cast<const char*>(user.data) + at, std::min(kSumBlockBytes, user.bytes - at));
        rounds.go_on();
      }
    rounds.aside([&] { in_manifest_ = ManifestFile{file_.name, file->finish()}.text(); });
  }

  // Of each rank: what the manifest says of its file, and its pieces. Only the first rank gets them.
  std::vector<std::string> gather_items() {
    std::string mine;
    if (has_file()) mine = in_manifest_ + "\n" + Index::text_of(file_.pieces, index_.tensors);
    const std::vector<uint64_t> sizes = gather_numbers(*comm_, {mine.size()});
    uint64_t total = 0;
    for (uint64_t size : sizes) total += size;
    std::string all(is_first() ? total : 0, '\0');
    gsel_collective call = make_collective(GSEL_COLLECTIVE_GATHERV, mine.data(), all.data(), 0, GSEL_U8, 0, 0);
    call.recv_counts = sizes.data();
    comm_->collective_on_host(call);
    std::vector<std::string> items;
    if (!is_first()) return items;
    uint64_t at = 0;
    for (uint64_t size : sizes) {
      if (size > 0) items.push_back(all.substr(at, size));
      at += size;
    }
    return items;
  }

  void commit(const std::vector<std::string>& items) {
    std::vector<std::string> files, pieces;
    for (const std::string& item : items) {
      const size_t line = item.find('\n');
      files.push_back(item.substr(0, line));
      pieces.push_back(item.substr(line + 1));
    }
    checkpoint_.commit(index_.text(pieces), std::move(files));
    checkpoint_.remove_older(keep_);
  }

  Communicator* comm_;  // of the call under way
  const int32_t rank_;
  const SavedState state_;  // pieces: as in the file
  Disk& disk_;
  const int32_t keep_;
  FilePlan file_;
  NewCheckpoint checkpoint_;
  Index index_;
  std::string in_manifest_;
  uint64_t total_bytes_ = 0;  // of all ranks
  bool is_finished_ = false;
};

}  // namespace

SavedState saved_state(StateDict& state, const std::vector<UserState>& users) {
  SavedState saved{state.tensors(), state.own(), users, {}};
  std::ranges::stable_sort(saved.pieces, {}, &StatePiece::tensor);
  saved.read = [&state, pieces = saved.pieces](size_t piece, int64_t first, int64_t count, float* dst) {
    state.read(pieces[piece].some(first, count), dst);
  };
  return saved;
}

std::unique_ptr<BegunSave> begin_save(Communicator& comm, SavedState state, const TrainingNumbers& numbers,
                                      const std::string& optimizer, const SaveTarget& target, Disk& disk) {
  return std::make_unique<Saving>(comm, std::move(state), numbers, optimizer, target, disk);
}

}  // namespace gsel::checkpoint
