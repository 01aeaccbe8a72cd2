// A disk that fails at any operation: a load that fails before tensors are read has changed nothing, one that fails
// later has broken the trainer; an export that fails leaves what was there under its name, nothing temporary, and a
// trainer that goes on.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/handles.h"
#include "checkpoint/weights.h"
#include "support/check.h"
#include "support/exact_model.h"

namespace {

using gsel::checkpoint::Disk;
using gsel::checkpoint::DiskFile;

class FailingDisk : public Disk {
 public:
  std::map<std::string, std::string> files;
  int64_t fails_at = -1;  // this operation fails; -1: none
  int64_t operations = 0;

  std::unique_ptr<DiskFile> open(const std::string& path) override {
    step();
    if (!files.contains(path)) throw gsel::Error(GSEL_ERR_IO, path + " is not there");
    return std::make_unique<File>(*this, files[path]);
  }
  std::unique_ptr<DiskFile> create(const std::string& path) override {
    step();
    assert_false(files.contains(path));
    return std::make_unique<File>(*this, files[path]);
  }
  void make_folder(const std::string&) override { step(); }
  void rename(const std::string& from, const std::string& to) override {
    step();
    files[to] = files.at(from);
    files.erase(from);
  }
  void remove(const std::string& path) override { files.erase(path); }
  bool exists(const std::string& path) override { return files.contains(path); }
  std::vector<std::string> names(const std::string&) override { return {}; }
  void sync_folder(const std::string&) override { step(); }
  uint64_t free_bytes(const std::string&) override {
    step();
    return uint64_t{1} << 40;
  }

 private:
  class File : public DiskFile {
   public:
    File(FailingDisk& disk, std::string& data) : disk_(disk), data_(data) {}
    uint64_t bytes() const override { return data_.size(); }
    void read(uint64_t offset, void* dst, size_t bytes) override {
      disk_.step();
      assert_true(offset <= data_.size() && bytes <= data_.size() - offset);
      data_.copy(static_cast<char*>(dst), bytes, offset);
    }
    void write(uint64_t offset, const void* src, size_t bytes) override {
      disk_.step();
      data_.resize(std::max(data_.size(), offset + bytes));
      data_.replace(offset, bytes, static_cast<const char*>(src), bytes);
    }
    void reserve(uint64_t) override { disk_.step(); }
    void sync() override { disk_.step(); }

   private:
    FailingDisk& disk_;
    std::string& data_;
  };

  void step() {
    if (operations++ == fails_at) throw gsel::Error(GSEL_ERR_IO, "the disk has failed");
  }
};

// A trainer of one rank.
class OneRank {
 public:
  OneRank() {
    gsel_error* err = nullptr;
    const char* const text =
        "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nweight_decay = 0.0\nbatch = 3\nseed = 5\n"
        "[[weights.map]]\nsource = \"{name:any}\"\ntarget = \"{name:any}\"\n";
    check_ok(gsel_config_parse(gsel_str_from(text), GSEL_STR("test"), &config_, &err), err);
    check_ok(gsel_model_create(&model_, &err), err);
    check_ok(exact_describe(model_, &exact_, &err), err);
    gsel_trainer_options options = GSEL_TRAINER_OPTIONS_INIT;
    options.config = config_;
    options.data = exact_data;
    check_ok(gsel_trainer_create(nullptr, model_, &options, &trainer_, &err), err);
  }
  ~OneRank() {
    gsel_trainer_free(trainer_);
    gsel_model_free(model_);
    gsel_config_free(config_);
  }
  gsel_status step() { return gsel_trainer_step(trainer_, nullptr, nullptr); }
  std::vector<float> params() {
    gsel_error* err = nullptr;
    std::vector<float> all(EXACT_ELEMS);
    float* to = all.data();
    for (int p = 0; p < N_PARAMS; to += kExactElems[p++])
      check_ok(gsel_trainer_read_param(trainer_, p, to, sizeof(float) * static_cast<size_t>(kExactElems[p]), &err),
               err);
    return all;
  }
  // Whether it succeeded.
  bool load(FailingDisk& disk) {
    return tried([&] { gsel::checkpoint::load_weights(trainer_->impl(), "/d/w", nullptr, disk); });
  }
  bool give(FailingDisk& disk) {
    return tried([&] { gsel::checkpoint::export_weights(trainer_->impl(), "/d/w", nullptr, GSEL_F32, disk); });
  }

 private:
  template <class Work>
  static bool tried(Work&& work) {
    try {
      work();
      return true;
    } catch (const gsel::Error& e) {
      assert_int_equal(e.code(), GSEL_ERR_IO);
      return false;
    }
  }

  exact_model exact_ = [] {
    exact_model m{};
    m.fail_at_step = m.overflow_at_step = -1;
    return m;
  }();
  gsel_config* config_ = nullptr;
  gsel_model* model_ = nullptr;
  gsel_trainer* trainer_ = nullptr;
};

void an_export_that_fails_anywhere_leaves_the_old_file_and_nothing_else(void**) {
  for (int64_t at = 0;; ++at) {
    OneRank trainer;
    FailingDisk disk;
    disk.files["/d/w"] = "old";
    disk.fails_at = at;
    const bool is_done = trainer.give(disk);
    assert_int_equal(disk.files.size(), 1);
    // The last operation is the sync of the folder, after which the new file has its name.
    if (!is_done && disk.operations < at + 1) fail_msg("operation %d is not reached", static_cast<int>(at));
    if (disk.files.at("/d/w") != "old") {
      FailingDisk good;
      good.files = disk.files;
      OneRank reader;
      assert_int_equal(reader.step(), GSEL_OK);
      assert_true(reader.load(good));
      assert_true(reader.params() == trainer.params());
    }
    assert_int_equal(trainer.step(), GSEL_OK);
    if (!is_done) continue;
    assert_true(at > N_PARAMS);
    return;
  }
}

void a_load_that_fails_has_changed_nothing_or_broken_the_trainer(void**) {
  FailingDisk good;
  OneRank writer;
  assert_int_equal(writer.step(), GSEL_OK);
  assert_true(writer.give(good));
  int n_unchanged = 0, n_broken = 0;
  for (int64_t at = 0;; ++at) {
    OneRank trainer;
    const std::vector<float> before = trainer.params();
    FailingDisk disk;
    disk.files = good.files;
    disk.fails_at = at;
    if (trainer.load(disk)) {
      assert_true(trainer.params() == writer.params());
      assert_int_equal(trainer.step(), GSEL_OK);
      break;
    }
    if (trainer.step() == GSEL_OK)
      ++n_unchanged;
    else
      ++n_broken;
    if (n_broken == 0) {
      OneRank same;
      assert_int_equal(same.step(), GSEL_OK);
      assert_true(trainer.params() == same.params());
    }
  }
  assert_int_equal(n_unchanged, 3);  // the open, and the two parts of the header
  assert_int_equal(n_broken, N_PARAMS);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_export_that_fails_anywhere_leaves_the_old_file_and_nothing_else),
      cmocka_unit_test(a_load_that_fails_has_changed_nothing_or_broken_the_trainer),
  };
  return cmocka_run_group_tests_name("weights disk", tests, nullptr, nullptr);
}
