// checkpoint/load.cc: see load.h. The first rank reads manifest and index for all.
#include "checkpoint/load.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/contents.h"
#include "checkpoint/file_plan.h"
#include "checkpoint/read_ahead.h"
#include "checkpoint/rounds.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr size_t kMostDifferences = 10;

// A collective: the text of the first rank.
std::string from_first(Communicator& comm, std::string text) {
  uint64_t bytes = gather_numbers(comm, {text.size()}).front();
  text.resize(bytes);
  comm.collective_on_host(make_collective(GSEL_COLLECTIVE_BROADCAST, text.data(), text.data(), bytes, GSEL_U8, 0, 0));
  return text;
}

// What the first rank finds, on every rank. That there is no checkpoint is the same error on every rank.
CheckpointTexts find_together(Communicator& comm, Disk& disk, const std::string& given, int64_t end_step) {
  CheckpointTexts texts;
  std::optional<Error> missing;
  Rounds rounds(comm);
  rounds.run("trainer's state", [&] {
    if (comm.rank() == 0) try {
        rounds.aside([&] { texts = find_checkpoint(disk, given, end_step); });
      } catch (const Error& e) {
        if (e.code() != GSEL_ERR_NOT_FOUND) throw;
        missing = e;
      }
  });
  const std::string why = from_first(comm, missing ? missing->message() : "");
  if (missing) throw *missing;
  if (!why.empty()) throw Error(GSEL_ERR_NOT_FOUND, why).at({given, 0, 0, {}});
  for (std::string* part : {&texts.path, &texts.manifest, &texts.index}) *part = from_first(comm, std::move(*part));
  texts.is_named = !from_first(comm, texts.is_named ? "named" : "").empty();
  return texts;
}

// A collective after find_together has failed: whether it failed because no checkpoint is whole.
bool has_none(Communicator& comm, const Error& failure) {
  const bool is_it = failure.code() == GSEL_ERR_NOT_FOUND || failure.code() == GSEL_ERR_PARSE;
  return gather_numbers(comm, {static_cast<uint64_t>(is_it)}).front() != 0;  // the first rank has looked
}

class Loading {
 public:
  Loading(Communicator& comm, StateDict& state, const std::vector<UserState>& users, const std::string& optimizer,
          const CheckpointTexts& texts, Disk& disk)
      : comm_(comm), state_(state), users_(users), disk_(disk), optimizer_(optimizer), texts_(texts) {}

  Loaded run(const std::function<void()>& begins_to_write) {
    loaded_.path = texts_.path;
    together([&](Rounds& rounds) { rounds.aside([&] { prepare(); }); });
    const std::vector<BlockUse> uses = uses_of_all();
    together([&](Rounds& rounds) { compare_blocks(uses, rounds); });
    together([&](Rounds& rounds) { rounds.aside([&] { check_all_8bit(); }); });
    begins_to_write();
    together([&](Rounds& rounds) { read_all(rounds); });
    for (size_t u = 0; u < users_.size(); ++u) std::ranges::copy(user_bytes_[u], static_cast<char*>(users_[u].data));
    loaded_.numbers = contents_->index().numbers;
    return loaded_;
  }

  // A collective after run() has failed: whether a file differs from what was written, so that an older checkpoint is
  // worth a try. That a whole index cannot be parsed is not damage.
  bool is_damaged(const Error& failure) {
    enum : uint64_t { of_another_rank, damage, other };
    const bool is_parsed = contents_.has_value();
    const uint64_t mine = failure.code() == GSEL_ERR_PEER                 ? of_another_rank
                          : failure.code() == GSEL_ERR_PARSE && is_parsed ? damage
                                                                          : other;
    const std::vector<uint64_t> all = gather_numbers(comm_, {mine});
    return *std::ranges::max_element(all) == damage;
  }

 private:
  template <class Work>
  void together(Work&& work) {
    Rounds rounds(comm_);
    rounds.run("trainer's state", [&] { work(rounds); });
  }

  void prepare() {
    contents_.emplace(disk_, texts_);
    match();
    for (const UserState& user : users_) plan_user(user);
    for (size_t piece = 0; piece < state_.held().size(); ++piece) plan(piece);
    for (auto& [file, reads] : reads_)
      std::ranges::stable_sort(reads, {}, [](const PieceRead& read) { return read.from.offset; });
    user_order_.resize(users_.size());
    std::iota(user_order_.begin(), user_order_.end(), size_t{0});
    std::ranges::sort(user_order_, {}, [this](size_t u) { return user_reads_[u].offset; });
  }

  // Which tensor of the checkpoint each of the trainer's is.
  void match() {
    const Index& index = contents_->index();
    std::vector<std::string> wrong;
    if (index.optimizer != optimizer_)
      wrong.push_back(fmt::format("it was trained with {}, and this trainer has {}", index.optimizer, optimizer_));
    std::map<std::string_view, size_t> there;
    for (size_t t = 0; t < index.tensors.size(); ++t) there.emplace(index.tensors[t].name, t);
    const auto shape_text = [](const std::vector<int64_t>& shape) {
      return fmt::format("[{}]", fmt::join(shape, ", "));
    };
    for (const StateTensor& tensor : state_.tensors()) {
      const auto found = there.find(tensor.name);
      of_tensor_.push_back(found == there.end() ? 0 : found->second);
      if (found == there.end()) {
        wrong.push_back(in_quotes(tensor.name) + " is not in it");
        continue;
      }
      const auto& shape = index.tensors[found->second].shape;
      if (shape != tensor.shape && is_of_other_ranks(tensor, shape))
        wrong.push_back(
            fmt::format("{} is what compression has left over on each of {} ranks in it, and there are {} "
                        "now; load it with as many ranks",
                        in_quotes(tensor.name), shape.front(), tensor.shape.front()));
      else if (shape != tensor.shape)
        wrong.push_back(fmt::format("{} has shape {} in it, and {} in this model", in_quotes(tensor.name),
                                    shape_text(shape), shape_text(tensor.shape)));
      there.erase(found);
    }
    for (const UserState& user : users_) match_user(user, wrong);
    for (const auto& [name, t] : there) wrong.push_back(in_quotes(name) + " is in it and not in this model");
    if (wrong.empty()) return;
    const size_t more = wrong.size() > kMostDifferences ? wrong.size() - kMostDifferences : 0;
    wrong.resize(wrong.size() - more);
    throw Error(GSEL_ERR_MISMATCH, fmt::format("{} is of another model: {}{}", loaded_.path, fmt::join(wrong, "; "),
                                               more ? fmt::format("; and {} more", more) : std::string()))
        .at({loaded_.path, 0, 0, {}});
  }

  static bool is_of_other_ranks(const StateTensor& tensor, const std::vector<int64_t>& shape) {
    return tensor.state == StateTensor::kLowRankError && shape.size() == tensor.shape.size() &&
           std::equal(shape.begin() + 1, shape.end(), tensor.shape.begin() + 1);
  }

  void match_user(const UserState& user, std::vector<std::string>& wrong) const {
    const Index& index = contents_->index();
    const auto found = std::ranges::find(index.users, user.name, &IndexUser::name);
    const std::string name = "the program's state " + in_quotes(user.name);
    if (found == index.users.end())
      wrong.push_back(name + " is not in it");
    else if (found->is_of_rank != user.is_of_rank)
      wrong.push_back(
          fmt::format("{} is {} in it", name, found->is_of_rank ? "each rank's own" : "shared by all ranks"));
    else if (user.is_of_rank && index.n_ranks != comm_.world_size())
      wrong.push_back(fmt::format("{} is each rank's own, of {} ranks in it, and there are {} now", name, index.n_ranks,
                                  comm_.world_size()));
  }

  int32_t writer_of(const UserState& user) const { return user.is_of_rank ? comm_.rank() : 0; }
  std::string file_of(size_t user) const { return name_of_file(writer_of(users_[user])); }

  void plan_user(const UserState& user) {
    const FileRead read = contents_->find_user({user.name, user.is_of_rank}, writer_of(user));
    if (read.bytes != user.bytes)
      throw Error(GSEL_ERR_MISMATCH, fmt::format("the program's state {} has {} bytes in {}, and {} here",
                                                 in_quotes(user.name), read.bytes, loaded_.path, user.bytes))
          .at({loaded_.path, 0, 0, user.name});
    user_reads_.push_back(read);
  }

  int32_t tensor_of(const StatePiece& held) const {
    return static_cast<int32_t>(of_tensor_[static_cast<size_t>(held.tensor)]);
  }

  struct PieceRead {
    FileRead from;
    size_t piece = 0;  // index in held()
  };

  void plan(size_t piece) {
    const StatePiece& held = state_.held()[piece];
    loaded_.bytes_held += sizeof(float) * static_cast<uint64_t>(held.region.count());
    contents_->find(tensor_of(held), held.region, [&](const std::string& file, const FileRead& read) {
      reads_[file].push_back({read, piece});
    });
  }

  void check_all_8bit() {
    for (const StatePiece& held : state_.held())
      if (state_.is_in_bytes(held)) check_blocks(held);
  }

  // Ranks that divided a block of an 8-bit state had a scale for each piece of it, and this rank has one. Such blocks
  // are looked at before anything is written.
  void check_blocks(const StatePiece& held) {
    const int32_t tensor = tensor_of(held);
    bool is_divided_alike = true;
    std::vector<int64_t> begins;  // of elements that another piece may have written
    for (const IndexPiece& piece : contents_->pieces(tensor))
      for (size_t d = 0; d < piece.region.shape().size(); ++d)
        is_divided_alike &= are_same(piece.region.intervals(d), held.region.intervals(d));
    contents_->find(tensor, held.region,
                    [&](const std::string&, const FileRead& read) { begins.push_back(read.local); });
    if (!is_divided_alike)
      for (int64_t at = 0; at < held.region.count(); at = state_.block_of(held, at).end) check_block(held, at);
    else
      for (const int64_t at : begins)
        if (state_.block_of(held, at).begin != at) check_block(held, at);
  }

  static bool are_same(const Region::Intervals& a, const Region::Intervals& b) {
    return std::ranges::equal(
        a, b, [](const gsel_range& x, const gsel_range& y) { return x.begin == y.begin && x.end == y.end; });
  }

  void check_block(const StatePiece& held, int64_t at) {
    const gsel_range block = state_.block_of(held, at);
    const StatePiece piece = held.some(block.begin, block.end - block.begin);
    std::vector<float> values(static_cast<size_t>(piece.region.count()));
    contents_->read(tensor_of(held), piece.region, values.data());
    if (state_.can_hold(piece, values.data())) return;
    refuse_other_sums(piece);
    const std::string& name = state_.tensors()[static_cast<size_t>(held.tensor)].name;
    throw Error(GSEL_ERR_MISMATCH,
                fmt::format("{}: {}, elements {} to {}: the ranks that saved had divided this block of 8-bit states, "
                            "with a scale for each piece, and one rank is to hold it with one scale; load it under the "
                            "layout that saved, or one that divides parameters where that did",
                            loaded_.path, in_quotes(name), piece.region.range().begin, piece.region.range().end))
        .at({loaded_.path, 0, 0, name});
  }

  // ---- blocks of which no rank reads each byte ----

  enum BlockUse : uint8_t { unread, in_parts, whole };

  // Of every block of all files, in the order of the manifest: the most that any rank reads of it. A collective.
  std::vector<BlockUse> uses_of_all() {
    std::vector<BlockUse> uses;
    for (const ManifestFile& file : contents_->manifest().files) add_uses(file, uses);
    comm_.collective_on_host(
        make_collective(GSEL_COLLECTIVE_ALLREDUCE, uses.data(), uses.data(), uses.size(), GSEL_U8, GSEL_MAX, 0));
    return uses;
  }

  void add_uses(const ManifestFile& file, std::vector<BlockUse>& uses) {
    const size_t first = uses.size();
    uses.resize(first + file.sums.blocks.size(), unread);
    BlockWalk walk(file.sums.bytes);
    const auto add = [&](uint64_t offset, uint64_t bytes) {
      walk.add(offset, bytes, [&](const BlockWalk::Part& part) {
        uses[first + part.block] = part.is_whole && part.ends ? whole : in_parts;
      });
    };
    if (!reads_.contains(file.name) &&
        std::ranges::none_of(user_order_, [&](size_t u) { return file_of(u) == file.name; }))
      return;
    add(0, contents_->data_at(file.name));
    for (const PieceRead& read : reads_[file.name]) add(read.from.offset, read.from.bytes);
    for (const size_t u : user_order_)
      if (file_of(u) == file.name) add(user_reads_[u].offset, user_reads_[u].bytes);
  }

  // Those that are read in parts only are divided among the ranks.
  void compare_blocks(const std::vector<BlockUse>& uses, Rounds& rounds) {
    struct Block {
      const ManifestFile* file;
      size_t index;
    };
    std::vector<Block> blocks;
    size_t use = 0;
    for (const ManifestFile& file : contents_->manifest().files)
      for (size_t block = 0; block < file.sums.blocks.size(); ++block)
        if (uses[use++] == in_parts) blocks.push_back({&file, block});
    const gsel_range mine = shard_range(static_cast<int64_t>(blocks.size()), comm_.world_size(), comm_.rank());
    std::map<std::string, std::unique_ptr<DiskFile>> files;
    std::vector<FilePiece> pieces;
    std::vector<const ManifestFile*> of;  // by piece
    for (int64_t b = mine.begin; b < mine.end; ++b) {
      const Block& block = blocks[static_cast<size_t>(b)];
      auto& file = files[block.file->name];
      if (!file) file = contents_->raw(block.file->name);
      const uint64_t end = std::min((block.index + 1) * kSumBlockBytes, block.file->sums.bytes);
      for (uint64_t at = block.index * kSumBlockBytes; at < end;) {
        const size_t some = ReadAhead::piece_bytes(at, end - at);
        pieces.push_back({file.get(), at, some});
        of.push_back(block.file);
        at += some;
      }
    }
    ReadAhead ahead(pieces, rounds.idle());
    std::optional<BlockComparer> comparer;
    for (size_t p = 0; p < pieces.size(); ++p) {
      if (p == 0 || of[p] != of[p - 1]) comparer.emplace(contents_->path_of(of[p]->name), of[p]->sums);
      comparer->add(pieces[p].offset, ahead.next(), pieces[p].bytes);
      loaded_.bytes_compared += pieces[p].bytes;
      rounds.go_on();
    }
  }

  // GSEL_ERR_PARSE where a block with an element of the piece has another sum. Another thread may read ahead.
  void refuse_other_sums(const StatePiece& piece) {
    std::map<std::string, std::set<uint64_t>> blocks;  // by file
    contents_->find(tensor_of(piece), piece.region, [&](const std::string& file, const FileRead& read) {
      for (uint64_t block = read.offset / kSumBlockBytes; block <= (read.offset + read.bytes - 1) / kSumBlockBytes;
           ++block)
        blocks[file].insert(block);
    });
    std::vector<char> bytes;
    for (const auto& [name, some] : blocks) {
      const FileSums& sums = contents_->file(name).sums;
      const auto file = disk_.open(contents_->path_of(name));
      BlockComparer comparer(contents_->path_of(name), sums);
      for (const uint64_t block : some) {
        bytes.resize(std::min(kSumBlockBytes, sums.bytes - block * kSumBlockBytes));
        file->read(block * kSumBlockBytes, bytes.data(), bytes.size());
        comparer.add(block * kSumBlockBytes, bytes.data(), bytes.size());
      }
    }
  }

  // ---- the state ----

  void read_all(Rounds& rounds) {
    std::vector<FilePiece> pieces;
    for_each_piece([&](const std::string& file, const FileRead& read, size_t) {
      pieces.push_back({&contents_->open(file), read.offset, static_cast<size_t>(read.bytes)});
    });
    state_.begin_writing();
    {
      ReadAhead ahead(std::move(pieces), rounds.idle());
      for_each_piece([&](const std::string& file, const FileRead& read, size_t piece) {
        const char* const data = ahead.next();
        contents_->compare(file, read.offset, data, static_cast<size_t>(read.bytes));
        write(state_.held()[piece].some(read.local, static_cast<int64_t>(read.bytes / sizeof(float))), data);
        loaded_.bytes_read += read.bytes;
        rounds.go_on();
      });
    }
    state_.end_writing();
    // They are the last in their files, and sums are compared in the order of the bytes.
    user_bytes_.resize(users_.size());
    rounds.aside([&] {
      for (const size_t u : user_order_) {
        user_bytes_[u].resize(users_[u].bytes);
        contents_->read(file_of(u), user_reads_[u].offset, user_bytes_[u].data(), users_[u].bytes);
      }
    });
  }

  // What 8-bit states refuse may be a changed bit, in a block of the file that is not yet read to its end.
  void write(const StatePiece& piece, const char* data) {
    try {
      state_.write(piece, reinterpret_cast<const float*>(data));
    } catch (const Error&) {
      refuse_other_sums(piece);
      throw;
    }
  }

  // In the order of the bytes in the files.
  template <class Use>
  void for_each_piece(Use&& use) const {
    for (const auto& [file, reads] : reads_)
      for (const auto& [from, piece] : reads)
        for (uint64_t done = 0; done < from.bytes;) {
          const uint64_t bytes = ReadAhead::piece_bytes(from.offset + done, from.bytes - done);
          use(file, FileRead{from.offset + done, bytes, from.local + static_cast<int64_t>(done / sizeof(float))},
              piece);
          done += bytes;
        }
  }

  Communicator& comm_;
  StateDict& state_;
  const std::vector<UserState>& users_;
  Disk& disk_;
  const std::string& optimizer_;
  const CheckpointTexts& texts_;
  Loaded loaded_;
  std::optional<Contents> contents_;
  std::vector<size_t> of_tensor_;                        // of the checkpoint, by the trainer's
  std::map<std::string, std::vector<PieceRead>> reads_;  // by file
  std::vector<FileRead> user_reads_;                     // by index in users_
  std::vector<size_t> user_order_;                       // indices, by offset
  std::vector<std::vector<char>> user_bytes_;            // of the program only when all ranks have read everything
};

}  // namespace

Loaded load(Communicator& comm, StateDict& state, const std::vector<UserState>& users, const std::string& optimizer,
            const std::string& path, Disk& disk, const std::function<void()>& begins_to_write) {
  int64_t end_step = INT64_MAX;
  std::optional<Error> first;  // of the newest
  std::vector<std::string> damaged;
  while (true) {
    CheckpointTexts texts;
    try {
      texts = find_together(comm, disk, path, end_step);
    } catch (const Error& e) {
      if (first && has_none(comm, e)) throw Error(*first);
      throw;
    }
    Loading loading(comm, state, users, optimizer, texts, disk);
    try {
      Loaded loaded = loading.run(begins_to_write);
      loaded.damaged = std::move(damaged);
      return loaded;
    } catch (const Error& e) {
      if (texts.is_named || !loading.is_damaged(e)) throw;
      log(GSEL_LOG_WARN, "checkpoint", "{} is damaged, and an older one is looked for: {}", texts.path, e.message());
      if (!first) first = e;
      damaged.push_back(texts.path);
      end_step = step_of(texts.path);
    }
  }
}

}  // namespace gsel::checkpoint
