// checkpoint/tools.cc: see tools.h.
#include "checkpoint/tools.h"

#include <gsel/checkpoint.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/os.h"
#include "base/text.h"
#include "checkpoint/file_plan.h"

namespace gsel::checkpoint {
namespace {

constexpr int32_t kMostFiles = 65536;

class Meter {
 public:
  Meter(const Progress& progress, uint64_t total) : progress_(progress), total_(total) { add(0); }
  void add(uint64_t bytes) {
    done_ += bytes;
    if (progress_ && !progress_(done_, total_))
      fail(GSEL_ERR_ABORTED, "the progress callback ended the call after {} of {} bytes", done_, total_);
  }

 private:
  const Progress& progress_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

// Calls use(part) with parts of a region that fit into the buffer.
template <class Use>
void by_parts(const Region& region, Use&& use) {
  for (int64_t first = 0; first < region.count(); first += kSumBlockElems)
    use(region.part(first, std::min(kSumBlockElems, region.count() - first)));
}

// The same of consecutive bytes: use(offset in the file, bytes before, bytes).
template <class Use>
void by_parts(const FileRead& read, Use&& use) {
  for (uint64_t done = 0; done < read.bytes; done += kSumBlockBytes)
    use(read.offset + done, done, std::min(kSumBlockBytes, read.bytes - done));
}

void verify_file(Contents& contents, const ManifestFile& file, Meter& meter) {
  const std::string path = contents.path_of(file.name);
  const auto opened = contents.disk().open(path);
  BlockComparer blocks(path, file.sums);
  Sum whole;
  std::vector<char> buffer;
  for (uint64_t at = 0; at < file.sums.bytes; at += buffer.size()) {
    buffer.resize(std::min(kSumBlockBytes, file.sums.bytes - at));
    opened->read(at, buffer.data(), buffer.size());
    blocks.add(at, buffer.data(), buffer.size());
    whole.add(buffer.data(), buffer.size());
    meter.add(buffer.size());
  }
  if (whole.text() != file.sums.whole)
    throw Error(GSEL_ERR_PARSE,
                fmt::format("{} has the sum {}, and the manifest says {}", path, whole.text(), file.sums.whole))
        .at({path, 0, 0, {}});
}

void verify(Contents& contents, Meter& meter) {
  for (const ManifestFile& file : contents.manifest().files) verify_file(contents, file, meter);
  for (const IndexPiece& piece : contents.index().pieces) contents.check(piece);
  for (const IndexUser& user : contents.index().users)
    for (int32_t rank = 0; rank < contents.index().writers_of(user); ++rank) contents.find_user(user, rank);
}

// ---- diff -----------------------------------------------------------------------------------------------------------

class Comparing {
 public:
  Comparing(Contents& first, Contents& second, const Progress& progress)
      : first_(first), second_(second), meter_(progress, common_bytes()) {}

  std::vector<Difference> run() {
    numbers();
    for (size_t t = 0; t < tensors(first_).size(); ++t) {
      const IndexTensor& tensor = tensors(first_)[t];
      if (const auto other = find(second_, tensor.name))
        compare(static_cast<int32_t>(t), *other, tensor);
      else
        found_.push_back({GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST, tensor.name, shape_text(tensor), {}});
    }
    for (const IndexTensor& tensor : tensors(second_))
      if (!find(first_, tensor.name))
        found_.push_back({GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND, tensor.name, {}, shape_text(tensor)});
    users();
    return std::move(found_);
  }

 private:
  using ByName = std::map<std::string_view, int32_t>;

  static const std::vector<IndexTensor>& tensors(const Contents& of) { return of.index().tensors; }
  static std::string shape_text(const IndexTensor& tensor) {
    return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
  }
  static ByName by_name(const Contents& of) {
    ByName names;
    for (const IndexTensor& tensor : tensors(of)) names.emplace(tensor.name, static_cast<int32_t>(names.size()));
    return names;
  }
  std::optional<int32_t> find(const Contents& in, const std::string& name) const {
    const ByName& names = &in == &first_ ? first_names_ : second_names_;
    const auto found = names.find(name);
    return found == names.end() ? std::nullopt : std::optional(found->second);
  }

  uint64_t common_bytes() const {
    uint64_t bytes = 0;
    for (const IndexTensor& tensor : tensors(first_))
      if (find(second_, tensor.name)) bytes += bytes_of(tensor);
    for_common_users([&](const IndexUser& user, int32_t rank) { bytes += first_.find_user(user, rank).bytes; });
    return bytes;
  }

  void numbers() {
    const auto compare = [&](const char* name, const auto& a, const auto& b) {
      if (a != b) found_.push_back({GSEL_CHECKPOINT_DIFFERS_NUMBER, name, fmt::format("{}", a), fmt::format("{}", b)});
    };
    const TrainingNumbers &a = first_.index().numbers, &b = second_.index().numbers;
    const auto rate = [](const TrainingNumbers& of) {
      return of.learning_rate ? fmt::format("{}", *of.learning_rate) : std::string("as configured");
    };
    compare("step", a.step, b.step);
    compare("updates", a.updates, b.updates);
    compare("first_sample", a.first_sample, b.first_sample);
    compare("seed", a.seed, b.seed);
    compare("optimizer", first_.index().optimizer, second_.index().optimizer);
    compare("learning_rate", rate(a), rate(b));
    compare("loss_scale", a.loss_scale, b.loss_scale);
    compare("good_steps", a.good_steps, b.good_steps);
    compare("overflows_left", a.overflows_left, b.overflows_left);
  }

  void compare(int32_t a, int32_t b, const IndexTensor& tensor) {
    const IndexTensor& other = tensors(second_)[static_cast<size_t>(b)];
    if (other.shape != tensor.shape) {
      found_.push_back({GSEL_CHECKPOINT_DIFFERS_SHAPE, tensor.name, shape_text(tensor), shape_text(other)});
      meter_.add(bytes_of(tensor));
      return;
    }
    Difference difference{GSEL_CHECKPOINT_DIFFERS_VALUES, tensor.name, {}, {}};
    by_parts(Region(tensor.shape), [&](const Region& part) {
      const auto count = static_cast<size_t>(part.count());
      x_.resize(count), y_.resize(count);
      first_.read(a, part, x_.data());
      second_.read(b, part, y_.data());
      compare(part.range().begin, difference);
      meter_.add(sizeof(float) * count);
    });
    if (difference.count > 0) found_.push_back(std::move(difference));
  }

  // By bits, so that a NaN equals itself and -0 is not 0.
  void compare(int64_t begin, Difference& difference) {
    if (std::memcmp(x_.data(), y_.data(), sizeof(float) * x_.size()) == 0) return;
    for (size_t i = 0; i < x_.size(); ++i) {
      if (std::memcmp(&x_[i], &y_[i], sizeof(float)) == 0) continue;
      if (difference.count++ == 0) {
        difference.element = begin + static_cast<int64_t>(i);
        difference.first = fmt::format("{}", x_[i]);
        difference.second = fmt::format("{}", y_[i]);
      }
      const double by = std::fabs(double{x_[i]} - double{y_[i]});
      difference.largest = std::isnan(by) ? std::numeric_limits<double>::infinity() : std::max(difference.largest, by);
    }
  }

  // ---- states of the embedder's ----

  static const IndexUser* find_user(const Contents& in, const std::string& name) {
    const std::vector<IndexUser>& users = in.index().users;
    const auto found = std::ranges::find(users, name, &IndexUser::name);
    return found == users.end() ? nullptr : &*found;
  }
  static std::string scope_text(const Contents& in, const IndexUser& user) {
    return user.is_of_rank ? fmt::format("of each of {}", with_noun(in.index().n_ranks, "rank")) : "shared";
  }

  // use(state, rank) of those that both have, as far as both have a rank's.
  template <class Use>
  void for_common_users(Use&& use) const {
    for (const IndexUser& user : first_.index().users) {
      const IndexUser* const other = find_user(second_, user.name);
      if (!other || other->is_of_rank != user.is_of_rank) continue;
      const int32_t n = std::min(first_.index().writers_of(user), second_.index().writers_of(*other));
      for (int32_t rank = 0; rank < n; ++rank) use(user, rank);
    }
  }

  void users() {
    for (const IndexUser& user : first_.index().users) {
      const std::string scope = scope_text(first_, user);
      const IndexUser* const other = find_user(second_, user.name);
      if (!other)
        found_.push_back({GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST, user_key(user.name), scope, {}});
      else if (std::string others = scope_text(second_, *other); others != scope)
        found_.push_back({GSEL_CHECKPOINT_DIFFERS_SCOPE, user_key(user.name), scope, std::move(others)});
    }
    for (const IndexUser& user : second_.index().users)
      if (!find_user(first_, user.name))
        found_.push_back({GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND, user_key(user.name), {}, scope_text(second_, user)});
    for_common_users([this](const IndexUser& user, int32_t rank) { compare(user, rank); });
  }

  void compare(const IndexUser& user, int32_t rank) {
    const StoredUser a = first_.stored_user(user, rank), b = second_.stored_user(user, rank);
    const std::string key = user_key(user, rank);
    if (a.read.bytes != b.read.bytes) {
      found_.push_back({GSEL_CHECKPOINT_DIFFERS_SIZE, key, std::to_string(a.read.bytes), std::to_string(b.read.bytes)});
      meter_.add(a.read.bytes);
      return;
    }
    Difference difference{GSEL_CHECKPOINT_DIFFERS_BYTES, key, {}, {}};
    std::vector<uint8_t> x, y;
    by_parts(a.read, [&](uint64_t offset, uint64_t begin, uint64_t bytes) {
      x.resize(bytes), y.resize(bytes);
      first_.open(a.file).read(offset, x.data(), bytes);
      second_.open(b.file).read(b.read.offset + begin, y.data(), bytes);
      if (x != y) compare(x, y, begin, difference);
      meter_.add(bytes);
    });
    if (difference.count > 0) found_.push_back(std::move(difference));
  }

  static void compare(const std::vector<uint8_t>& x, const std::vector<uint8_t>& y, uint64_t begin,
                      Difference& difference) {
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] == y[i] || difference.count++ > 0) continue;
      difference.element = static_cast<int64_t>(begin + i);
      difference.first = std::to_string(x[i]);
      difference.second = std::to_string(y[i]);
    }
  }

  Contents &first_, &second_;
  const ByName first_names_ = by_name(first_), second_names_ = by_name(second_);
  Meter meter_;
  std::vector<float> x_, y_;
  std::vector<Difference> found_;
};

// ---- new files ------------------------------------------------------------------------------------------------------

void copy(Contents& from, int32_t tensor, const Region& region, FileWriter& to, Meter& meter) {
  std::vector<float> buffer;
  by_parts(region, [&](const Region& part) {
    buffer.resize(static_cast<size_t>(part.count()));
    from.read(tensor, part, buffer.data());
    to.put(buffer.data(), sizeof(float) * buffer.size());
    meter.add(sizeof(float) * buffer.size());
  });
}

void copy(Contents& from, const IndexUser& user, int32_t rank, FileWriter& to, Meter& meter) {
  const StoredUser stored = from.stored_user(user, rank);
  std::vector<char> buffer;
  by_parts(stored.read, [&](uint64_t offset, uint64_t, uint64_t bytes) {
    buffer.resize(bytes);
    from.read(stored.file, offset, buffer.data(), bytes);
    to.put(buffer.data(), bytes);
    meter.add(bytes);
  });
}

uint64_t random_number() {
  uint64_t number = 0;
  os::random_bytes(&number, sizeof number);
  return number;
}

void refuse_existing(Disk& disk, const std::string& file) {
  if (disk.exists(file)) throw Error(GSEL_ERR_STATE, file + " is there already").at({file, 0, 0, {}});
}

constexpr std::string_view kParamRole = "param:";

}  // namespace

uint64_t verify(Contents& contents, const Progress& progress) {
  const uint64_t bytes = contents.file_bytes();
  Meter meter(progress, bytes);
  verify(contents, meter);
  return bytes;
}

std::vector<Difference> diff(Contents& first, Contents& second, const Progress& progress) {
  return Comparing(first, second, progress).run();
}

// "format" is what other readers of such files ask for.
uint64_t consolidate(Contents& contents, const std::string& file, bool params_only, const Progress& progress) {
  Disk& disk = contents.disk();
  check_path(file, "path");
  const Index& index = contents.index();
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}, {"step", std::to_string(index.numbers.step)}};
  std::vector<int32_t> tensors;
  uint64_t bytes = 0;
  const auto add = [&](std::string key, gsel_dtype dtype, std::vector<int64_t> shape, uint64_t n_bytes) {
    header.tensors.push_back({std::move(key), stored_type(dtype), std::move(shape), bytes, bytes + n_bytes});
    bytes += n_bytes;
  };
  for (size_t t = 0; t < index.tensors.size(); ++t) {
    const IndexTensor& tensor = index.tensors[t];
    if (params_only && !tensor.name.starts_with(kParamRole)) continue;
    tensors.push_back(static_cast<int32_t>(t));
    add(params_only ? tensor.name.substr(kParamRole.size()) : tensor.name, GSEL_F32, tensor.shape, bytes_of(tensor));
  }
  std::vector<std::pair<const IndexUser*, int32_t>> users;  // with the rank
  for (const IndexUser& user : index.users)
    for (int32_t rank = 0; !params_only && rank < index.writers_of(user); ++rank) {
      const uint64_t n_bytes = contents.find_user(user, rank).bytes;
      users.emplace_back(&user, rank);
      add(user_key(user, rank), GSEL_U8, {static_cast<int64_t>(n_bytes)}, n_bytes);
    }
  refuse_existing(disk, file);
  Meter meter(progress, contents.file_bytes() + bytes);
  verify(contents, meter);
  const std::string folder = parent_of(file);
  const std::string temporary = fmt::format("{}/.saving-{:016x}", folder, random_number());
  try {
    FileWriter to(disk, temporary, header);
    for (const int32_t tensor : tensors)
      copy(contents, tensor, Region(index.tensors[static_cast<size_t>(tensor)].shape), to, meter);
    for (const auto& [user, rank] : users) copy(contents, *user, rank, to, meter);
    to.finish();
    refuse_existing(disk, file);
    disk.rename(temporary, file);
  } catch (...) {
    try {
      disk.remove(temporary);
    } catch (const Error&) {  // the first failure is the one to tell
    }
    throw;
  }
  disk.sync_folder(folder);
  return bytes;
}

// File i of n has the elements [i T / n, (i + 1) T / n) of the T elements of all tensors.
namespace {

// States of the embedder's that are each rank's own stay in the files of as many ranks. Returns the bytes of all.
uint64_t add_users(Contents& contents, std::vector<FilePlan>& files) {
  const Index& index = contents.index();
  uint64_t bytes = 0;
  for (const IndexUser& user : index.users) {
    if (user.is_of_rank && index.n_ranks != static_cast<int32_t>(files.size()))
      fail(GSEL_ERR_UNSUPPORTED, "{} is each rank's own, of {} ranks; it cannot be divided among {} files",
           in_quotes(user.name), index.n_ranks, files.size());
    for (int32_t rank = 0; rank < index.writers_of(user); ++rank) {
      const uint64_t n_bytes = contents.find_user(user, rank).bytes;
      files[static_cast<size_t>(rank)].add_user(user.name, n_bytes);
      bytes += n_bytes;
    }
  }
  return bytes;
}

}  // namespace

uint64_t reshard(Contents& contents, const std::string& folder, int32_t n, const Progress& progress) {
  check_path(folder, "folder");
  if (n < 1 || n > kMostFiles) fail(GSEL_ERR_ARG, "n is {}; expected 1 to {} files", n, kMostFiles);
  const Index& index = contents.index();
  std::vector<FilePlan> files;
  for (int32_t i = 0; i < n; ++i) files.emplace_back(name_of_file(i), index.numbers.step);
  int64_t total = 0;
  for (const IndexTensor& tensor : index.tensors) total += Region(tensor.shape).count();
  const auto begin_of = [&](size_t i) { return static_cast<int64_t>(static_cast<__int128>(total) * i / n); };
  int64_t at = 0;  // of all elements
  size_t file = 0;
  for (size_t t = 0; t < index.tensors.size(); ++t) {
    const Region whole(index.tensors[t].shape);
    for (int64_t first = 0; first < whole.count();) {
      while (begin_of(file + 1) <= at) ++file;
      const int64_t count = std::min(whole.count() - first, begin_of(file + 1) - at);
      files[file].add(static_cast<int32_t>(t), index.tensors[t].name, whole.part(first, count));
      first += count, at += count;
    }
  }
  const uint64_t bytes = sizeof(float) * static_cast<uint64_t>(total) + add_users(contents, files);
  Meter meter(progress, contents.file_bytes() + bytes);
  verify(contents, meter);
  NewCheckpoint made(contents.disk(), folder, index.numbers.step, random_number());
  made.begin(bytes);
  try {
    std::vector<std::string> in_manifest, in_index;
    for (int32_t rank = 0; rank < n; ++rank) {
      const FilePlan& plan = files[static_cast<size_t>(rank)];
      if (plan.header.tensors.empty()) continue;
      FileWriter to(contents.disk(), made.path_of(plan.name), plan.header);
      for (const IndexPiece& piece : plan.pieces) copy(contents, piece.tensor, piece.region, to, meter);
      for (const IndexUser& user : index.users)
        if (rank < index.writers_of(user)) copy(contents, user, rank, to, meter);
      in_manifest.push_back(ManifestFile{plan.name, to.finish()}.text());
      in_index.push_back(Index::text_of(plan.pieces, index.tensors));
    }
    Index of_these = index;
    of_these.n_ranks = n;
    made.commit(of_these.text(in_index), std::move(in_manifest));
  } catch (...) {
    made.undo();
    throw;
  }
  return bytes;
}

}  // namespace gsel::checkpoint
