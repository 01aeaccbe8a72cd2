// checkpoint/save.cc: see save.h. Ranks work alone on their own files, and agree after each part.
#include "checkpoint/save.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "train/ranks/agree.h"

namespace gsel::checkpoint {
namespace {

constexpr int64_t kChunkElems = int64_t{1} << 22;
constexpr uint64_t kSpareBytes = uint64_t{1} << 20;  // on the disk, for the index and what the file system needs

std::vector<int64_t> local_shape(const Region& region) {
  if (region.count() != region.product()) return {region.count()};
  std::vector<int64_t> shape;
  for (size_t d = 0; d < region.shape().size(); ++d) {
    int64_t n = 0;
    for (const gsel_range& interval : region.intervals(d)) n += interval.end - interval.begin;
    shape.push_back(n);
  }
  return shape;
}

class Saving {
 public:
  Saving(Communicator& comm, StateDict& state, const TrainingNumbers& numbers, const std::string& optimizer,
         const std::string& folder, Disk& disk)
      : comm_(comm), state_(state), disk_(disk), folder_(folder) {
    uint64_t nonce = 0;
    os::random_bytes(&nonce, sizeof nonce);
    nonce_ = fmt::format("{:016x}", gather_numbers(comm, {nonce}).front());
    final_ = folder_ + "/" + name_of_step(numbers.step);
    temporary_ = fmt::format("{}/.saving-{}-{}", folder_, numbers.step, nonce_);
    index_.numbers = numbers;
    index_.optimizer = optimizer;
    for (const StateTensor& tensor : state.tensors()) index_.tensors.push_back({tensor.name, tensor.shape});
    file_ = fmt::format("rank-{:05}.safetensors", comm.rank());
  }

  uint64_t run() {
    plan();
    together([&] { begin(); });
    try {
      together([&] { write_own(); });
      const std::vector<std::string> items = gather_items();
      together([&] { commit(items); });
    } catch (...) {
      undo();
      throw;
    }
    return data_bytes_;
  }

 private:
  template <class Work>
  void together(Work&& work) {
    on_all_ranks(comm_, "checkpoint", work);
  }
  bool is_first() const { return comm_.rank() == 0; }

  void plan() {
    parts_ = state_.own();
    std::ranges::stable_sort(parts_, {}, &StatePart::tensor);
    std::vector<int32_t> regions(index_.tensors.size(), 0);
    uint64_t at = 0;
    for (const StatePart& part : parts_) {
      const auto tensor = static_cast<size_t>(part.tensor);
      const int32_t number = regions[tensor]++;
      std::string key = index_.tensors[tensor].name + (number == 0 ? "" : fmt::format("#{}", number));
      const uint64_t bytes = sizeof(float) * static_cast<uint64_t>(part.region.count());
      slices_.push_back({part.tensor, file_, key, part.region});
      header_.tensors.push_back({std::move(key), stored_type(GSEL_F32), local_shape(part.region), at, at + bytes});
      at += bytes;
    }
    header_.metadata = {{"format", "gsel"}, {"step", std::to_string(index_.numbers.step)}};
    data_bytes_ = at;
    for (const uint64_t bytes : gather_numbers(comm_, {at})) total_bytes_ += bytes;
  }

  void begin() {
    if (!is_first()) return;
    if (!disk_.exists(folder_)) disk_.make_folder(folder_);
    if (disk_.exists(final_))
      throw Error(GSEL_ERR_STATE, final_ + " is there already; remove it, or save into another folder")
          .at({final_, 0, 0, {}});
    if (const uint64_t free = disk_.free_bytes(folder_); free < total_bytes_ + kSpareBytes)
      throw Error(GSEL_ERR_IO, fmt::format("{} has {} bytes free, and the checkpoint needs {}", folder_, free,
                                           total_bytes_ + kSpareBytes))
          .at({folder_, 0, 0, {}});
    disk_.make_folder(temporary_);
  }

  void write_own() {
    if (parts_.empty()) return;
    const std::string head = header_.text();
    const auto file = disk_.create(temporary_ + "/" + file_);
    file->reserve(head.size() + data_bytes_);
    uint64_t at = 0;
    Sum sum;
    const auto put = [&](const void* data, size_t bytes) {
      file->write(at, data, bytes);
      sum.add(data, bytes);
      at += bytes;
    };
    put(head.data(), head.size());
    std::vector<float> chunk;
    for (const StatePart& part : parts_)
      for (int64_t first = 0; first < part.region.count(); first += kChunkElems) {
        const int64_t count = std::min(kChunkElems, part.region.count() - first);
        StatePart some = part;
        some.region = part.region.part(first, count);
        some.first += first;
        chunk.resize(static_cast<size_t>(count));
        state_.read(some, chunk.data());
        put(chunk.data(), chunk.size() * sizeof(float));
      }
    file->sync();
    manifest_.files = {{file_, at, sum.text()}};
  }

  // Of each rank: what the manifest says of its file, and its slices. Only the first rank gets them.
  std::vector<std::string> gather_items() {
    std::string mine;
    if (!parts_.empty())
      mine = fmt::format("{} {}\n{}", manifest_.files.front().bytes, manifest_.files.front().sum,
                         Index::text_of(slices_, index_.tensors));
    const std::vector<uint64_t> sizes = gather_numbers(comm_, {mine.size()});
    uint64_t total = 0;
    for (uint64_t size : sizes) total += size;
    std::string all(is_first() ? total : 0, '\0');
    gsel_collective call = make_collective(GSEL_COLLECTIVE_GATHERV, mine.data(), all.data(), 0, GSEL_U8, 0, 0);
    call.recv_counts = sizes.data();
    comm_.collective_on_host(call);
    std::vector<std::string> items;
    if (!is_first()) return items;
    uint64_t at = 0;
    for (uint64_t size : sizes) {
      items.push_back(all.substr(at, size));
      at += size;
    }
    return items;
  }

  void put_file(const std::string& path, const std::string& text) {
    const auto file = disk_.create(path);
    file->write(0, text.data(), text.size());
    file->sync();
  }

  void commit(const std::vector<std::string>& items) {
    if (!is_first()) return;
    std::vector<std::string> slices;
    manifest_ = {index_.numbers.step, {}};
    for (size_t rank = 0; rank < items.size(); ++rank) {
      const size_t line = items[rank].find('\n'), blank = items[rank].find(' ');
      if (items[rank].empty()) continue;
      manifest_.files.push_back({fmt::format("rank-{:05}.safetensors", rank), std::stoull(items[rank]),
                                 items[rank].substr(blank + 1, line - blank - 1)});
      slices.push_back(items[rank].substr(line + 1));
    }
    const std::string index = index_.text(slices);
    put_file(temporary_ + "/" + kIndexName, index);
    manifest_.files.push_back({kIndexName, index.size(), sum_of(index.data(), index.size())});
    put_file(temporary_ + "/" + kManifestName, manifest_.text());
    disk_.sync_folder(temporary_);
    disk_.rename(temporary_, final_);
    is_committed_ = true;
    disk_.sync_folder(folder_);
    const std::string latest = folder_ + "/.latest-" + nonce_;
    put_file(latest, name_of_step(index_.numbers.step) + "\n");
    disk_.rename(latest, folder_ + "/" + kLatestName);
    disk_.sync_folder(folder_);
  }

  // What cannot be removed is no checkpoint either: it has no manifest, or its temporary name.
  void undo() noexcept {
    try {
      if (is_committed_) return;
      disk_.remove(temporary_ + "/" + file_);
      if (!is_first()) return;
      for (const std::string& name : disk_.names(temporary_)) disk_.remove(temporary_ + "/" + name);
      disk_.remove(temporary_);
    } catch (...) {
    }
  }

  Communicator& comm_;
  StateDict& state_;
  Disk& disk_;
  const std::string folder_;
  std::string nonce_, final_, temporary_, file_;
  Index index_;
  Manifest manifest_;
  std::vector<StatePart> parts_;
  std::vector<Slice> slices_;
  SafetensorsHeader header_;
  uint64_t data_bytes_ = 0, total_bytes_ = 0;  // of this rank, of all
  bool is_committed_ = false;
};

}  // namespace

std::string name_of_step(int64_t step) {
  return fmt::format("step-{:012}", step);
}

uint64_t save(Communicator& comm, StateDict& state, const TrainingNumbers& numbers, const std::string& optimizer,
              const std::string& folder, Disk& disk) {
  return Saving(comm, state, numbers, optimizer, folder, disk).run();
}

}  // namespace gsel::checkpoint
