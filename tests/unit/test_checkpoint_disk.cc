// A save on a disk that loses what was not synced: after a crash at any operation, with any part of what was not synced
// yet, the folder has the previous checkpoint or the new one, whole, and after the save has returned the new one. So it
// is while older ones are removed. Each sync that is left out must be found by this, or it would prove nothing. A kill
// cannot show it: it keeps the system's cache.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/handles.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "support/check.h"
#include "support/draw.h"
#include "support/one_trainer.h"

using gsel::test::Draw;

namespace {

constexpr size_t kSector = 512;

struct PowerLoss {};

// What is written is a list of writes until a sync; what changes a folder is an operation until a sync of that folder.
class LossyDisk : public gsel::checkpoint::Disk {
 public:
  struct Inode {
    std::string data, durable;
    std::vector<std::pair<uint64_t, std::string>> writes;  // since the last sync
  };
  struct Operation {
    enum Kind { link, folder, rename, remove } kind;
    std::string path, to;
    std::shared_ptr<Inode> inode;
    bool is_durable = false;
  };
  struct Entry {
    std::shared_ptr<Inode> inode;  // null: a folder
  };
  using Tree = std::map<std::string, Entry>;

  int64_t fails_at = -1;    // operation before which the power is lost; -1: never
  int64_t refuses_at = -1;  // operation that fails alone
  int64_t skips_sync = -1;  // this sync does nothing
  int64_t operations = 0, syncs = 0;

  LossyDisk() { tree_["/d"] = {}; }

  // After a loss of power: durable is what was synced; of the rest each operation and write by chance.
  std::unique_ptr<LossyDisk> after_loss(const std::function<bool()>& survives, Draw& draw) const {
    auto disk = std::make_unique<LossyDisk>();
    std::map<const Inode*, std::shared_ptr<Inode>> made;
    const auto after = [&](const std::shared_ptr<Inode>& inode) {
      auto& copy = made[inode.get()];
      if (copy) return copy;
      copy = std::make_shared<Inode>();
      copy->data = inode->durable;
      for (size_t i = 0; i < inode->writes.size(); ++i) {
        if (!survives()) continue;
        std::string bytes = inode->writes[i].second;
        const bool is_torn = i + 1 == inode->writes.size() && bytes.size() > kSector && draw.chance(50);
        if (is_torn)
          bytes.resize(static_cast<size_t>(draw.from(0, static_cast<int32_t>(bytes.size() / kSector))) * kSector);
        put(copy->data, inode->writes[i].first, bytes);
      }
      copy->durable = copy->data;
      return copy;
    };
    for (const Operation& operation : log_) {
      if (!operation.is_durable && !survives()) continue;
      apply(disk->tree_, operation, operation.inode ? after(operation.inode) : nullptr);
    }
    return disk;
  }

  std::unique_ptr<gsel::checkpoint::DiskFile> open(const std::string& path) override {
    return std::make_unique<File>(*this, at(path));
  }
  std::unique_ptr<gsel::checkpoint::DiskFile> create(const std::string& path) override {
    step();
    if (tree_.contains(path)) throw gsel::Error(GSEL_ERR_IO, path + " is there");
    auto inode = std::make_shared<Inode>();
    change({Operation::link, path, {}, inode});
    return std::make_unique<File>(*this, inode);
  }
  void make_folder(const std::string& path) override {
    step();
    change({Operation::folder, path, {}, nullptr});
  }
  void rename(const std::string& from, const std::string& to) override {
    step();
    change({Operation::rename, from, to, nullptr});
  }
  void remove(const std::string& path) override {
    step();
    change({Operation::remove, path, {}, nullptr});
  }
  bool exists(const std::string& path) override { return tree_.contains(path); }
  std::vector<std::string> names(const std::string& folder) override {
    std::vector<std::string> names;
    for (const auto& [path, entry] : tree_)
      if (parent_of(path) == folder) names.push_back(path.substr(folder.size() + 1));
    return names;
  }
  void sync_folder(const std::string& path) override {
    step();
    if (syncs++ == skips_sync) return;
    for (Operation& operation : log_)
      if (parent_of(operation.path) == path) operation.is_durable = true;
  }
  uint64_t free_bytes(const std::string&) override { return uint64_t{1} << 40; }

  bool is_lost() const { return fails_at >= 0 && operations > fails_at; }
  std::string text_of(const std::string& path) { return at(path)->data; }

 private:
  class File : public gsel::checkpoint::DiskFile {
   public:
    File(LossyDisk& disk, std::shared_ptr<Inode> inode) : disk_(disk), inode_(std::move(inode)) {}
    uint64_t bytes() const override { return inode_->data.size(); }
    void read(uint64_t offset, void* dst, size_t bytes) override {
      if (offset > inode_->data.size() || bytes > inode_->data.size() - offset)
        throw gsel::Error(GSEL_ERR_IO, "the file ends");
      inode_->data.copy(static_cast<char*>(dst), bytes, offset);
    }
    void write(uint64_t offset, const void* src, size_t bytes) override {
      disk_.step();
      inode_->writes.emplace_back(offset, std::string(static_cast<const char*>(src), bytes));
      put(inode_->data, offset, inode_->writes.back().second);
    }
    void reserve(uint64_t) override { disk_.step(); }
    void sync() override {
      disk_.step();
      if (disk_.syncs++ == disk_.skips_sync) return;
      inode_->durable = inode_->data;
      inode_->writes.clear();
    }

   private:
    LossyDisk& disk_;
    const std::shared_ptr<Inode> inode_;
  };

  static std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }
  static void put(std::string& data, uint64_t offset, const std::string& bytes) {
    if (data.size() < offset + bytes.size()) data.resize(offset + bytes.size());
    data.replace(offset, bytes.size(), bytes);
  }
  // What cannot be done, since what it needs was lost, is lost too.
  static void apply(Tree& tree, const Operation& operation, std::shared_ptr<Inode> inode) {
    if (!tree.contains(parent_of(operation.path))) return;
    if (operation.kind == Operation::link || operation.kind == Operation::folder) {
      tree[operation.path] = {std::move(inode)};
    } else if (operation.kind == Operation::remove) {
      tree.erase(operation.path);
    } else {
      Tree moved;
      for (const auto& [path, entry] : tree)
        if (path == operation.path || path.starts_with(operation.path + "/"))
          moved[operation.to + path.substr(operation.path.size())] = entry;
      std::erase_if(tree, [&](const auto& item) {
        return item.first == operation.path || item.first.starts_with(operation.path + "/");
      });
      for (auto& [path, entry] : moved) tree[path] = entry;
    }
  }

  void step() {
    if (operations == refuses_at) {
      ++operations;
      throw gsel::Error(GSEL_ERR_IO, "the disk refused");
    }
    if (operations++ >= fails_at && fails_at >= 0) throw PowerLoss();
  }
  void change(Operation operation) {
    apply(tree_, operation, operation.inode);
    log_.push_back(std::move(operation));
  }
  std::shared_ptr<Inode> at(const std::string& path) const {
    const auto found = tree_.find(path);
    if (found == tree_.end() || !found->second.inode)
      throw gsel::Error(GSEL_ERR_IO, path + " is not there").at({path, 0, 0, {}});
    return found->second.inode;
  }

  Tree tree_;
  std::vector<Operation> log_;
};

int64_t save(OneTrainer& trainer, const std::string& folder, int32_t keep, gsel::checkpoint::Disk& disk) {
  return gsel::checkpoint::save(trainer.handle()->impl(), {folder, keep}, disk).step;
}
int64_t load(OneTrainer& trainer, const std::string& path, gsel::checkpoint::Disk& disk) {
  return gsel::checkpoint::load(trainer.handle()->impl(), path, disk).step;
}

// Saves at steps 1 to n_before, and once more, with `keep`, until the power is lost.
struct Way {
  int64_t n_before = 1;
  int32_t keep = 0;
};
constexpr Way kPlain{1, 0}, kKeepOne{1, 1}, kKeepTwo{3, 2};

struct Story {
  std::unique_ptr<LossyDisk> disk;
  bool is_saved = false;
  int64_t syncs = 0;  // of the last save
};
Story told(const Way& way, int64_t fails_after, int64_t skips_sync) {
  Story story{std::make_unique<LossyDisk>()};
  LossyDisk& disk = *story.disk;
  OneTrainer trainer;
  trainer.step();
  for (int64_t i = 0; i < way.n_before; ++i, trainer.step()) save(trainer, "/d/run", 0, disk);
  const int64_t before = disk.operations, syncs = disk.syncs;
  if (fails_after >= 0) disk.fails_at = before + fails_after;
  if (skips_sync >= 0) disk.skips_sync = syncs + skips_sync;
  try {
    save(trainer, "/d/run", way.keep, disk);
    story.is_saved = !disk.is_lost();
  } catch (const PowerLoss&) {
  } catch (const gsel::Error&) {
  }
  story.syncs = disk.syncs - syncs;
  return story;
}

// Whether what is left is as it should be.
bool is_whole(LossyDisk& disk, const Way& way, bool must_be_new) {
  static std::map<int64_t, std::vector<float>> expected;
  const int64_t newest = way.n_before + 1;
  OneTrainer reader;
  try {
    const int64_t step = load(reader, "/d/run", disk);
    if (step != newest && (must_be_new || step != newest - 1)) return false;
    if (!expected.contains(step)) expected[step] = params_after(step);
    if (reader.params() != expected[step]) return false;
    int64_t steps = 0;
    for (const std::string& name : disk.names("/d/run")) {  // what has a checkpoint's name is whole
      if (!name.starts_with("step-")) continue;
      ++steps;
      if (way.keep == 0) continue;
      OneTrainer other;
      load(other, "/d/run/" + name, disk);
    }
    if (must_be_new && way.keep > 0 && steps != way.keep) return false;
  } catch (const gsel::Error&) {
    return false;
  }
  if (!disk.exists("/d/run/latest")) return !must_be_new;
  const std::string latest = disk.text_of("/d/run/latest");
  if (latest.empty() || latest.back() != '\n') return false;
  if (must_be_new && latest != gsel::checkpoint::name_of_step(newest) + "\n") return false;
  return disk.exists("/d/run/" + latest.substr(0, latest.size() - 1) + "/manifest.json");
}

// The number of endings that are not as they should be.
int bad_endings(const Way& way, int64_t skips_sync, int tries) {
  Draw draw(7);
  int bad = 0;
  for (int64_t at = 0;; ++at) {
    const Story story = told(way, at, skips_sync);
    for (int i = 0; i < tries; ++i) {
      const int percent = i == 0 ? 0 : i == 1 ? 100 : draw.from(10, 90);
      const auto left = story.disk->after_loss([&] { return draw.chance(percent); }, draw);
      bad += !is_whole(*left, way, story.is_saved);
    }
    if (story.is_saved) return bad;
  }
}

void each_ends_well(const Way& way) {
  assert_int_equal(bad_endings(way, -1, 12), 0);
}
void each_sync_counts(const Way& way, int64_t expected_syncs) {
  const int64_t syncs = told(way, -1, -1).syncs;
  assert_int_equal(syncs, expected_syncs);
  for (int64_t skipped = 0; skipped < syncs; ++skipped)
    if (bad_endings(way, skipped, 12) == 0) fail_msg("nothing went wrong without sync %d", static_cast<int>(skipped));
}

void a_loss_of_power_at_any_operation_leaves_a_whole_checkpoint(void**) {
  each_ends_well(kPlain);
}
void a_loss_of_power_while_older_ones_are_removed_leaves_whole_checkpoints(void**) {
  each_ends_well(kKeepOne);
  each_ends_well(kKeepTwo);
}
void each_sync_is_needed(void**) {
  each_sync_counts(kPlain, 7);
}
void each_sync_of_a_save_that_removes_is_needed(void**) {
  each_sync_counts(kKeepOne, 8);
}
// The folder of checkpoints itself.
void a_first_save_stays(void**) {
  const auto is_left = [](int64_t skips_sync) {
    LossyDisk disk;
    OneTrainer trainer;
    disk.skips_sync = skips_sync;
    save(trainer, "/d/run", 0, disk);
    Draw draw(7);
    const auto left = disk.after_loss([] { return false; }, draw);
    return left->exists("/d/run") && left->exists("/d/run/step-000000000000/manifest.json");
  };
  assert_true(is_left(-1));
  assert_false(is_left(0));
}

// The failure comes once, whoever asks first; nothing temporary stays, and the same step can be saved afterwards.
void a_failure_in_the_background_reaches_the_caller(void**) {
  const std::vector<float> expected[] = {params_after(0), params_after(1), params_after(2)};
  for (int64_t at = 0, is_over = 0; !is_over; ++at) {
    OneTrainer trainer;
    gsel::checkpoint::BackgroundSave& background = *trainer.handle()->background_save;
    LossyDisk disk;
    trainer.step();
    save(trainer, "/d", 0, disk);
    trainer.step();
    disk.refuses_at = disk.operations + at;
    try {
      assert_int_equal(background.begin(trainer.handle()->impl(), {"/d"}, disk).step, 2);
    } catch (const gsel::Error&) {
      assert_int_equal(background.state(), GSEL_SAVE_NONE);
      continue;
    }
    trainer.step();
    bool has_failed = false;
    try {
      is_over = background.wait()->bytes == 2 * sizeof(float) * EXACT_ELEMS && disk.operations <= disk.refuses_at;
    } catch (const gsel::Error& e) {
      has_failed = e.message().find("the disk refused") != std::string::npos;
    }
    assert_int_equal(background.state(), GSEL_SAVE_NONE);
    OneTrainer reader;
    const int64_t step = load(reader, "/d", disk);
    assert_int_equal(step, has_failed ? 1 : 2);
    assert_true(reader.params() == expected[step]);
    for (const std::string& name : disk.names("/d")) assert_false(name.starts_with(".saving"));
    disk.refuses_at = -1;
    background.begin(trainer.handle()->impl(), {"/d"}, disk);
    assert_int_equal(background.wait()->step, 3);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_loss_of_power_at_any_operation_leaves_a_whole_checkpoint),
      cmocka_unit_test(a_loss_of_power_while_older_ones_are_removed_leaves_whole_checkpoints),
      cmocka_unit_test(each_sync_is_needed),
      cmocka_unit_test(a_failure_in_the_background_reaches_the_caller),
      cmocka_unit_test(each_sync_of_a_save_that_removes_is_needed),
      cmocka_unit_test(a_first_save_stays),
  };
  return cmocka_run_group_tests_name("checkpoint disk", tests, nullptr, nullptr);
}
