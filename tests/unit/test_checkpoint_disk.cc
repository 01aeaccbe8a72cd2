// A save on a disk that loses what was not synced: after a crash at any operation, with any part of what was not synced
// yet, the folder has the previous checkpoint or the new one, whole, and after the save has returned the new one. Each
// sync that is left out must be found by this, or it would prove nothing. A kill cannot show it: it keeps the system's
// cache.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "api/handles.h"
#include "checkpoint/checkpoint.h"
#include "support/check.h"
#include "support/draw.h"
#include "support/exact_model.h"

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

// A trainer of one rank.
class One {
 public:
  One() {
    gsel_error* err = nullptr;
    const char* const text =
        "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = 3\nseed = 5\n";
    check_ok(gsel_config_parse(gsel_str_from(text), GSEL_STR("test"), &config_, &err), err);
    check_ok(gsel_model_create(&model_, &err), err);
    check_ok(exact_describe(model_, &exact_, &err), err);
    gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
    options.config = config_;
    options.data = exact_data;
    check_ok(gsel_trainer_create(nullptr, model_, &options, &trainer_, &err), err);
  }
  ~One() {
    gsel_trainer_free(trainer_);
    gsel_model_free(model_);
    gsel_config_free(config_);
  }
  void step() {
    gsel_error* err = nullptr;
    check_ok(gsel_trainer_step(trainer_, nullptr, &err), err);
  }
  std::vector<float> params() {
    gsel_error* err = nullptr;
    std::vector<float> all(EXACT_ELEMS);
    float* to = all.data();
    for (int p = 0; p < N_PARAMS; to += kExactElems[p++])
      check_ok(gsel_trainer_read_param(trainer_, p, to, sizeof(float) * static_cast<size_t>(kExactElems[p]), &err),
               err);
    return all;
  }
  int64_t save(LossyDisk& disk) { return gsel::checkpoint::save(trainer_->impl, "/d", disk).step; }
  int64_t load(LossyDisk& disk) { return gsel::checkpoint::load(trainer_->impl, "/d", disk).step; }

 private:
  exact_model exact_ = [] {
    exact_model m{};
    m.fail_at_step = m.overflow_at_step = -1;
    return m;
  }();
  gsel_config* config_ = nullptr;
  gsel_model* model_ = nullptr;
  gsel_trainer* trainer_ = nullptr;
};

// Saves at step 1, and at step 2 until the power is lost.
struct Story {
  std::unique_ptr<LossyDisk> disk;
  bool is_saved = false;
  int64_t operations = 0, syncs = 0;  // of the second save
};
Story told(One& trainer, int64_t fails_after, int64_t skips_sync) {
  Story story{std::make_unique<LossyDisk>()};
  LossyDisk& disk = *story.disk;
  trainer.save(disk);
  const int64_t before = disk.operations, syncs = disk.syncs;
  if (fails_after >= 0) disk.fails_at = before + fails_after;
  if (skips_sync >= 0) disk.skips_sync = syncs + skips_sync;
  trainer.step();
  try {
    trainer.save(disk);
    story.is_saved = true;
  } catch (const PowerLoss&) {
  } catch (const gsel::Error&) {
  }
  story.operations = disk.operations - before;
  story.syncs = disk.syncs - syncs;
  return story;
}

// Whether what is left is as it should be.
bool is_whole(LossyDisk& disk, bool must_be_new, const std::vector<float> (&expected)[3]) {
  One reader;
  try {
    const int64_t step = reader.load(disk);
    if (step != 1 && step != 2) return false;
    if (must_be_new && step != 2) return false;
    if (reader.params() != expected[step]) return false;
  } catch (const gsel::Error&) {
    return false;
  }
  if (!disk.exists("/d/latest")) return !must_be_new;
  const std::string latest = disk.text_of("/d/latest");
  if (must_be_new && latest != "step-000000000002\n") return false;
  return !latest.empty() && latest.back() == '\n' &&
         disk.exists("/d/" + latest.substr(0, latest.size() - 1) + "/manifest.json");
}

std::vector<float> (&params_by_step())[3] {
  static std::vector<float> params[3];
  if (params[0].empty()) {
    One trainer;
    for (auto& of_step : params) {
      of_step = trainer.params();
      trainer.step();
    }
  }
  return params;
}

// The number of endings that are not as they should be.
int bad_endings(int64_t skips_sync, int tries) {
  const auto& expected = params_by_step();
  Draw draw(7);
  int bad = 0;
  for (int64_t at = 0;; ++at) {
    One trainer;
    trainer.step();
    const Story story = told(trainer, at, skips_sync);
    for (int i = 0; i < tries; ++i) {
      const int percent = i == 0 ? 0 : i == 1 ? 100 : draw.from(10, 90);
      const auto left = story.disk->after_loss([&] { return draw.chance(percent); }, draw);
      bad += !is_whole(*left, story.is_saved, expected);
    }
    if (story.is_saved) return bad;
  }
}

void a_loss_of_power_at_any_operation_leaves_a_whole_checkpoint(void**) {
  assert_int_equal(bad_endings(-1, 12), 0);
}

void each_sync_is_needed(void**) {
  One trainer;
  trainer.step();
  const int64_t syncs = told(trainer, -1, -1).syncs;
  assert_int_equal(syncs, 7);
  for (int64_t skipped = 0; skipped < syncs; ++skipped)
    if (bad_endings(skipped, 12) == 0) fail_msg("nothing went wrong without sync %d", static_cast<int>(skipped));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_loss_of_power_at_any_operation_leaves_a_whole_checkpoint),
      cmocka_unit_test(each_sync_is_needed),
  };
  return cmocka_run_group_tests_name("checkpoint disk", tests, nullptr, nullptr);
}
