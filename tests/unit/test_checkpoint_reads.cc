// What a load reads, counted at the disk: each rank reads the elements that it holds, each once, of the files that have
// them, and of these files the headers; the first rank reads manifest and index. Blocks of which no rank needs each
// byte are read once more for their sums. The figures of the report are those.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/handles.h"
#include "base/align.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/disk.h"
#include "support/layouts.h"
#include "support/scratch.h"
#include "support/share.h"

namespace {

namespace checkpoint = gsel::checkpoint;

// Consecutive bytes of a file that were asked for in one read.
struct ReadRange {
  uint64_t begin = 0, end = 0;
};

// The real disk, with a list of what is read.
class CountingDisk : public checkpoint::Disk {
 public:
  using Reads = std::map<std::string, std::vector<ReadRange>>;  // by the file's name

  Reads reads() const {
    const std::lock_guard lock(mutex_);
    return reads_;
  }

  std::unique_ptr<checkpoint::DiskFile> open(const std::string& path) override {
    return std::make_unique<File>(*this, path.substr(path.rfind('/') + 1), real().open(path));
  }
  std::unique_ptr<checkpoint::DiskFile> create(const std::string& path) override { return real().create(path); }
  void make_folder(const std::string& path) override { real().make_folder(path); }
  void rename(const std::string& from, const std::string& to) override { real().rename(from, to); }
  void remove(const std::string& path) override { real().remove(path); }
  bool exists(const std::string& path) override { return real().exists(path); }
  std::vector<std::string> names(const std::string& folder) override { return real().names(folder); }
  void sync_folder(const std::string& path) override { real().sync_folder(path); }
  uint64_t free_bytes(const std::string& folder) override { return real().free_bytes(folder); }

 private:
  class File : public checkpoint::DiskFile {
   public:
    File(CountingDisk& disk, std::string name, std::unique_ptr<checkpoint::DiskFile> file)
        : disk_(disk), name_(std::move(name)), file_(std::move(file)) {}
    uint64_t bytes() const override { return file_->bytes(); }
    void read(uint64_t offset, void* dst, size_t bytes) override {
      file_->read(offset, dst, bytes);
      const std::lock_guard lock(disk_.mutex_);
      disk_.reads_[name_].push_back({offset, offset + bytes});
    }
    void write(uint64_t offset, const void* src, size_t bytes) override { file_->write(offset, src, bytes); }
    void reserve(uint64_t bytes) override { file_->reserve(bytes); }
    void sync() override { file_->sync(); }

   private:
    CountingDisk& disk_;
    const std::string name_;
    const std::unique_ptr<checkpoint::DiskFile> file_;
  };

  static checkpoint::Disk& real() { return checkpoint::real_disk(); }

  mutable std::mutex mutex_;
  Reads reads_;
};

// Where the data of a safetensors file begin.
uint64_t data_at(const std::string& path) {
  uint64_t header = 0;
  checkpoint::real_disk().open(path)->read(0, &header, sizeof header);
  return sizeof header + header;
}

bool is_of_tensors(const std::string& name) {
  return name.ends_with(".safetensors");
}

// Takes out what was read for the sums of blocks: files here are shorter than one, and are then read as a whole, once.
// Returns how many bytes that were.
uint64_t take_compared(CountingDisk::Reads& all, const std::string& checkpoint) {
  uint64_t compared = 0;
  for (auto& [name, ranges] : all) {
    if (!is_of_tensors(name)) continue;
    const uint64_t bytes = checkpoint::real_disk().open(checkpoint + "/" + name)->bytes();
    const auto whole = std::ranges::find_if(ranges, [&](const ReadRange& r) { return r.begin == 0 && r.end == bytes; });
    if (whole == ranges.end()) continue;
    compared += bytes;
    ranges.erase(whole);
  }
  std::erase_if(all, [](const auto& item) { return item.second.empty(); });
  return compared;
}

// Of all reads the parts in tensors' data, by file and in ascending order. Headers are read once, and of no other file.
CountingDisk::Reads of_data(const CountingDisk::Reads& all, const std::string& checkpoint, std::string* wrong) {
  CountingDisk::Reads data;
  for (const auto& [name, ranges] : all) {
    if (!is_of_tensors(name)) continue;
    const uint64_t begin = data_at(checkpoint + "/" + name);
    uint64_t header_bytes = 0;
    for (const ReadRange& range : ranges) {
      header_bytes += std::min(range.end, begin) - std::min(range.begin, begin);
      if (range.end > begin) data[name].push_back({std::max(range.begin, begin), range.end});
    }
    if (header_bytes != begin) *wrong = name + ": the header was not read once";
    if (!data.contains(name)) *wrong = name + ": its header was read, and no data";
    std::ranges::sort(data[name], {}, &ReadRange::begin);
  }
  return data;
}

uint64_t bytes_of(const std::vector<ReadRange>& ranges) {
  uint64_t bytes = 0;
  for (const ReadRange& range : ranges) bytes += range.end - range.begin;
  return bytes;
}

bool are_disjoint(const std::vector<ReadRange>& sorted) {
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].begin < sorted[i - 1].end) return false;
  return true;
}

// Elements of all tensors that this rank has, by its own account.
void held_elements(rank_run* run, gsel_trainer* trainer, uint64_t* elements) {
  gsel_error* err = nullptr;
  gsel_state* state = nullptr;
  rank_ok(run, gsel_state_open(trainer, &state, &err), err);
  for (int32_t i = 0; i < gsel_state_count(state); ++i) {
    gsel_state_entry entry = GSEL_STATE_ENTRY_INIT;
    rank_ok(run, gsel_state_entry_at(state, i, &entry, &err), err);
    for (int32_t piece = 0; piece < entry.n_pieces; ++piece) {
      std::vector<gsel_state_run> runs(MOST_ELEMS);
      int64_t n = 0;
      rank_ok(run, gsel_state_runs(state, i, piece, runs.data(), MOST_ELEMS, &n, &err), err);
      for (int64_t r = 0; r < n; ++r) *elements += static_cast<uint64_t>(runs[static_cast<size_t>(r)].count);
    }
  }
  gsel_state_free(state);
}

struct Case {
  trial t;
  std::string folder, checkpoint;
};

void save(rank_run* run) {
  const Case* of = static_cast<const Case*>(run->user);
  session s;
  gsel_error* err = nullptr;
  run->user = const_cast<trial*>(&of->t);
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, nullptr, &err), err);
  rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(of->folder.c_str()), nullptr, nullptr, &err), err);
  close_session(&s);
}

void load(rank_run* run) {
  const Case* of = static_cast<const Case*>(run->user);
  session s;
  gsel_error* err = nullptr;
  CountingDisk disk;
  run->user = const_cast<trial*>(&of->t);
  rank_ok(run, open_session(run, &s, &err), err);
  const gsel_checkpoint_report report = checkpoint::load(s.trainer->impl(), of->folder, disk);
  uint64_t held = 0, read = 0;
  held_elements(run, s.trainer, &held);
  if (run->failure[0]) return;
  std::string wrong;
  CountingDisk::Reads all = disk.reads();
  const uint64_t compared = take_compared(all, of->checkpoint);
  for (const auto& [name, ranges] : of_data(all, of->checkpoint, &wrong)) {
    if (!are_disjoint(ranges)) wrong = name + ": bytes were read twice";
    read += bytes_of(ranges);
  }
  if (!wrong.empty()) snprintf(run->failure, sizeof run->failure, "rank %d: %s", run->rank, wrong.c_str());
  if (!wrong.empty()) return;
  rank_check(run, read == sizeof(float) * held);
  rank_check(run, report.needed_bytes == read && report.bytes == read && report.compared_bytes == compared);
  const auto others = std::ranges::count_if(all, [](const auto& item) { return !is_of_tensors(item.first); });
  rank_check(run, others == (run->rank == 0 ? 2 : 0)); /* manifest and index */
  close_session(&s);
}

void each_pair(const layout* layouts, int n, const small_transformer* m, int share) {
  char scratch[256];
  assert_true(make_scratch(scratch, sizeof scratch, "reads"));
  const auto case_of = [&](int saved, int loaded, std::string& text) {
    text = std::string(layouts[loaded].sections) + LION + layouts[loaded].more;
    Case of{plain(text.c_str(), nullptr), std::string(scratch) + "/" + std::to_string(saved), {}};
    of.t.transformer = m;
    of.checkpoint = of.folder + "/step-000000000001";
    return of;
  };
  for (int saved = 0; saved < n; ++saved) {
    std::string text;
    Case of = case_of(saved, saved, text);
    as_threads(layouts[saved].ranks, save, &of);
    for (int loaded = 0; loaded < n; ++loaded) {
      if ((saved + loaded) % share || !in_share()) continue;
      of = case_of(saved, loaded, text);
      print_message("  saved under %s, loaded under %s\n", layouts[saved].name, layouts[loaded].name);
      as_threads(layouts[loaded].ranks, load, &of);
    }
  }
  assert_int_equal(remove_scratch(scratch), 0);
}

void each_rank_reads_what_it_holds_and_headers(void**) {
  each_pair(kLayouts, N_LAYOUTS, nullptr, 2);
}

void each_rank_reads_what_it_holds_over_all_axes(void**) {
  const auto m = std::make_unique<small_transformer>();
  m->overflow_at_step = m->fail_at_step = -1;
  each_pair(kAxes, N_AXES, m.get(), 5);
}

}  // namespace

// ---- what the system reads ------------------------------------------------------------------------------------------

namespace {
std::atomic<uint64_t> system_bytes{0};
}

extern "C" __attribute__((visibility("default"))) ssize_t pread(int fd, void* dst, size_t bytes, off_t offset) {
  using Call = ssize_t(int, void*, size_t, off_t);
  static const auto call = reinterpret_cast<Call*>(dlsym(RTLD_NEXT, "pread"));
  const ssize_t n = call(fd, dst, bytes, offset);
  if (n > 0) system_bytes += static_cast<uint64_t>(n);
  return n;
}

namespace {

// A long read goes around the page cache where it can, in whole blocks: at its ends it takes a block too much at most.
void a_read_takes_no_more_than_the_blocks_at_its_ends(void**) {
  constexpr size_t kBytes = size_t{3} << 20;
  char scratch[256];
  assert_true(make_scratch(scratch, sizeof scratch, "blocks"));
  const std::string path = std::string(scratch) + "/file";
  std::vector<char> written(kBytes), got(kBytes + gsel::checkpoint::kDirectAlign);
  for (size_t i = 0; i < kBytes; ++i) written[i] = static_cast<char>(i * 2654435761u >> 13);
  {
    const auto file = checkpoint::real_disk().create(path);
    file->write(0, written.data(), kBytes);
    file->sync();
  }
  const auto file = checkpoint::real_disk().open(path);
  const size_t sizes[] = {1, 4096, (size_t{1} << 20) - 1, size_t{1} << 20, (size_t{2} << 20) + 12345};
  for (const size_t bytes : sizes)
    for (const size_t offset : {size_t{0}, size_t{4}, size_t{4095}, size_t{8192}, kBytes - bytes})
      for (const size_t shift : {size_t{0}, size_t{64}}) {
        if (offset + bytes > kBytes) continue;
        const uint64_t before = system_bytes;
        file->read(offset, got.data() + shift, bytes);
        assert_memory_equal(got.data() + shift, written.data() + offset, bytes);
        assert_in_range(system_bytes - before, bytes, bytes + 2 * gsel::checkpoint::kDirectAlign);
      }
  assert_int_equal(remove_scratch(scratch), 0);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_rank_reads_what_it_holds_and_headers),
      cmocka_unit_test(each_rank_reads_what_it_holds_over_all_axes),
      cmocka_unit_test(a_read_takes_no_more_than_the_blocks_at_its_ends),
  };
  return cmocka_run_group_tests_name("what loads read", tests, nullptr, nullptr);
}
