// Checkpoints where things go wrong: a save that is killed before or in the middle of any operation of the disk, a disk
// that fails at any operation, is full or read-only, and files that are cut short or changed in any place. The previous
// checkpoint loads, and what is damaged is refused.
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <set>
#include <sstream>

#include "api/handles.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/contents.h"
#include "checkpoint/tools.h"
#include "support/check.h"
#include "support/one_trainer.h"
#include "support/scratch.h"

namespace {

namespace checkpoint = gsel::checkpoint;

// The real disk, with a fault at one of the operations that change it.
class FaultyDisk : public checkpoint::Disk {
 public:
  enum class Fault { kill, kill_in_write, fail };
  FaultyDisk(int64_t at, Fault fault) : at_(at), fault_(fault) {}

  int64_t operations() const { return operations_; }

  std::unique_ptr<checkpoint::DiskFile> open(const std::string& path) override { return real().open(path); }
  std::unique_ptr<checkpoint::DiskFile> create(const std::string& path) override {
    before(path);
    return std::make_unique<File>(*this, path, real().create(path));
  }
  void make_folder(const std::string& path) override { before(path), real().make_folder(path); }
  void rename(const std::string& from, const std::string& to) override { before(from), real().rename(from, to); }
  void remove(const std::string& path) override { before(path), real().remove(path); }
  bool exists(const std::string& path) override { return real().exists(path); }
  std::vector<std::string> names(const std::string& folder) override { return real().names(folder); }
  void sync_folder(const std::string& path) override { before_sync(path), real().sync_folder(path); }
  uint64_t free_bytes(const std::string& folder) override { return real().free_bytes(folder); }

 private:
  class File : public checkpoint::DiskFile {
   public:
    File(FaultyDisk& disk, std::string path, std::unique_ptr<checkpoint::DiskFile> file)
        : disk_(disk), path_(std::move(path)), file_(std::move(file)) {}
    uint64_t bytes() const override { return file_->bytes(); }
    void read(uint64_t offset, void* dst, size_t bytes) override { file_->read(offset, dst, bytes); }
    void write(uint64_t offset, const void* src, size_t bytes) override {
      if (disk_.fault_ == Fault::kill_in_write && disk_.is_next()) {
        file_->write(offset, src, bytes / 2);
        raise(SIGKILL);
      }
      disk_.before(path_);
      file_->write(offset, src, bytes);
    }
    void reserve(uint64_t bytes) override { disk_.before(path_), file_->reserve(bytes); }
    void sync() override { disk_.before_sync(path_), file_->sync(); }

   private:
    FaultyDisk& disk_;
    const std::string path_;
    const std::unique_ptr<checkpoint::DiskFile> file_;
  };

  static checkpoint::Disk& real() { return checkpoint::real_disk(); }
  bool is_next() const { return operations_ == at_; }
  // One that has failed may have lost what it was for: nobody may ask again.
  void before_sync(const std::string& path) {
    assert_false(failed_syncs_.contains(path));
    try {
      before(path);
    } catch (...) {
      failed_syncs_.insert(path);
      throw;
    }
  }
  void before(const std::string& path) {
    const bool is_now = is_next();
    ++operations_;
    if (!is_now) return;
    if (fault_ != Fault::fail) raise(SIGKILL);
    throw gsel::Error(GSEL_ERR_IO, path + " cannot be written: ENOSPC").at({path, 0, 0, {}});
  }

  const int64_t at_;
  const Fault fault_;
  int64_t operations_ = 0;
  std::set<std::string> failed_syncs_;
};

// With a state of the program's own, which is the last in its file.
class Trainer : public OneTrainer {
 public:
  Trainer() {
    gsel_error* err = nullptr;
    check_ok(gsel_trainer_add_state(handle(), GSEL_STR("own"), own_, sizeof own_, GSEL_STATE_SHARED, &err), err);
  }

 private:
  char own_[5] = {'s', 't', 'a', 't', 'e'};
};

int64_t save(OneTrainer& trainer, const std::string& folder, int32_t keep, gsel::checkpoint::Disk& disk) {
  return gsel::checkpoint::save(trainer.handle()->impl(), {folder, keep}, disk).step;
}
int64_t load(OneTrainer& trainer, const std::string& path, gsel::checkpoint::Disk& disk) {
  return gsel::checkpoint::load(trainer.handle()->impl(), path, disk).step;
}

class Folder {
 public:
  Folder() { assert_int_equal(make_scratch(path_, sizeof path_, "checkpoint"), 1); }
  ~Folder() { remove_scratch(path_); }
  std::string operator/(const std::string& name) const { return std::string(path_) + "/" + name; }
  std::string path() const { return path_; }

 private:
  char path_[256];
};

// Runs in a process of its own; its status.
int in_child(const std::function<int()>& work) {
  const pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) _exit(work());
  int status = 0;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return status;
}

void loads(const std::string& path, int64_t least, int64_t most) {
  OneTrainer reader;
  const int64_t step = load(reader, path, checkpoint::real_disk());
  assert_in_range(step, least, most);
  assert_true(reader.params() == params_after(step));
}

checkpoint::Contents opened(const std::string& path) {
  return {checkpoint::real_disk(), checkpoint::find_checkpoint(checkpoint::real_disk(), path)};
}

// ---- saves that end early -------------------------------------------------------------------------------------------

void killed_anywhere(FaultyDisk::Fault fault) {
  for (int64_t at = 0;; ++at) {
    Folder folder;
    const int status = in_child([&] {
      OneTrainer trainer;
      trainer.step();
      trainer.save(folder / "run");
      trainer.step();
      FaultyDisk disk(at, fault);
      save(trainer, folder / "run", 1, disk);
      return disk.operations() > at ? 2 : 0;  // it came so far: in_write is for writes alone
    });
    const bool is_done = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!is_done && !(WIFEXITED(status) && WEXITSTATUS(status) == 2))
      assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    loads(folder / "run", is_done ? 2 : 1, 2);
    auto contents = opened(folder / "run");
    checkpoint::verify(contents, {});
    if (is_done) {
      assert_true(at > 15);
      return;
    }
  }
}
void a_kill_before_any_operation_leaves_a_whole_checkpoint(void**) {
  killed_anywhere(FaultyDisk::Fault::kill);
}
void a_kill_in_the_middle_of_any_write_leaves_a_whole_checkpoint(void**) {
  killed_anywhere(FaultyDisk::Fault::kill_in_write);
}

void a_disk_that_fails_at_any_operation_lets_the_trainer_go_on(void**) {
  for (int64_t at = 0;; ++at) {
    Folder folder;
    OneTrainer trainer;
    trainer.step();
    trainer.save(folder / "run");
    trainer.step();
    FaultyDisk disk(at, FaultyDisk::Fault::fail);
    bool has_failed = false;
    try {
      save(trainer, folder / "run", 1, disk);
    } catch (const gsel::Error& e) {
      has_failed = true;
      assert_int_equal(e.code(), GSEL_ERR_IO);
      assert_true(e.place().file.starts_with(folder.path()));
    }
    for (const std::string& name : checkpoint::real_disk().names(folder / "run"))
      assert_false(name.starts_with(".saving-") || name.starts_with(".latest-"));
    loads(folder / "run", has_failed ? 1 : 2, has_failed ? 1 : 2);
    trainer.step();
    trainer.save(folder / "run", 1);
    loads(folder / "run", 3, 3);
    if (disk.operations() <= at) return;
  }
}

// What has the name of a checkpoint and is none is set aside when its step comes; other names are left alone.
void a_damaged_checkpoint_does_not_stop_the_next(void**) {
  Folder folder;
  OneTrainer trainer;
  trainer.step();
  trainer.save(folder / "run");
  trainer.step();
  trainer.save(folder / "run");
  assert_int_equal(unlink((folder / "run/step-000000000002/manifest.json").c_str()), 0);
  for (const char* other : {"step-best", "step-000000000009.bak", "step-9"})
    assert_int_equal(mkdir((folder / (std::string("run/") + other)).c_str(), 0755), 0);
  OneTrainer again;
  assert_int_equal(load(again, folder / "run", checkpoint::real_disk()), 1);
  again.step();
  again.save(folder / "run", 1);
  loads(folder / "run", 2, 2);
  const std::vector<std::string> names = checkpoint::real_disk().names(folder / "run");
  assert_int_equal(names.size(), 6);
  assert_true(names[0].starts_with(".damaged-step-000000000002-"));
  assert_string_equal(names[2].c_str(), "step-000000000002");
}

std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream all;
  all << file.rdbuf();
  return all.str();
}
void put(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

gsel_status load_status(const std::string& path) {
  Trainer trainer;
  try {
    load(trainer, path, checkpoint::real_disk());
  } catch (const gsel::Error& e) {
    return e.code();
  }
  return GSEL_OK;
}
// It is no beginning of training.
void a_named_checkpoint_without_a_manifest_is_damaged(void**) {
  Folder folder;
  OneTrainer trainer;
  trainer.step();
  trainer.save(folder / "run");
  assert_int_equal(unlink((folder / "run/step-000000000001/manifest.json").c_str()), 0);
  assert_int_equal(load_status(folder / "run/step-000000000001"), GSEL_ERR_PARSE);
  assert_int_equal(load_status(folder / "run/step-000000000001/"), GSEL_ERR_PARSE);
  assert_int_equal(load_status(folder / "run/step-000000000002"), GSEL_ERR_NOT_FOUND);
}

// What has taken the name of a damaged one is whole.
void a_checkpoint_that_replaced_a_damaged_one_is_not_written_over(void**) {
  Folder folder;
  OneTrainer trainer;
  for (int i = 0; i < 2; ++i) {
    trainer.step();
    trainer.save(folder / "run");
  }
  const std::string file = folder / "run/step-000000000002/rank-00000.safetensors";
  std::string bytes = content(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put(file, bytes);
  OneTrainer again;
  assert_int_equal(load(again, folder / "run", checkpoint::real_disk()), 1);
  again.step();
  assert_int_equal(save(again, folder / "run/", 0, checkpoint::real_disk()), 2);
  assert_int_equal(load(again, folder / "run", checkpoint::real_disk()), 2);
  try {
    save(again, folder / "run", 0, checkpoint::real_disk());
    fail_msg("a whole checkpoint was written over");
  } catch (const gsel::Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_STATE);
  }
}

void a_full_disk_is_refused_before_the_first_byte(void**) {
  const int status = in_child([] {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    Folder folder;
    mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (mount("tmpfs", folder.path().c_str(), "tmpfs", 0, "size=64k") != 0) return 77;
    OneTrainer trainer;
    int result = 1;
    try {
      save(trainer, folder / "run", 0, checkpoint::real_disk());
    } catch (const gsel::Error& e) {
      result = e.code() == GSEL_ERR_IO && strstr(e.what(), "bytes free") ? 0 : 2;
    }
    trainer.step();
    umount(folder.path().c_str());
    return result;
  });
  // 77: this machine lets the user mount nothing, so there is no small disk to fill.
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();  // nothing can be mounted
  assert_int_equal(status, 0);
}

void a_folder_that_is_read_only_is_refused(void**) {
  Folder folder;
  assert_int_equal(chmod(folder.path().c_str(), 0555), 0);
  const int status = in_child([&] {
    OneTrainer trainer;
    if (geteuid() == 0 && setuid(65534) != 0) return 77;
    try {
      save(trainer, folder / "run", 0, checkpoint::real_disk());
    } catch (const gsel::Error& e) {
      return e.code() == GSEL_ERR_IO && strstr(e.what(), "EACCES") ? 0 : 2;
    }
    return 1;
  });
  assert_int_equal(chmod(folder.path().c_str(), 0755), 0);
  // 77: root, for whom nothing is read only, cannot become another user here.
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) skip();  // root stays root
  assert_int_equal(status, 0);
}

// ---- files that are not as they were written ------------------------------------------------------------------------

gsel_status verify_status(const std::string& path) {
  try {
    auto contents = opened(path);
    checkpoint::verify(contents, {});
  } catch (const gsel::Error& e) {
    return e.code();
  }
  return GSEL_OK;
}

constexpr const char* kFiles[] = {"rank-00000.safetensors", "index.json", "manifest.json"};

// Calls damage(path of a file, its bytes) with each file of a checkpoint, and puts it back.
void with_each_file(const std::function<void(const std::string& checkpoint, const std::string& file,
                                             const std::string& bytes)>& damage) {
  Folder folder;
  Trainer trainer;
  trainer.step();
  trainer.save(folder / "run");
  const std::string path = folder / "run/step-000000000001";
  for (const char* name : kFiles) {
    const std::string file = path + "/" + name, bytes = content(file);
    assert_true(bytes.size() > 100);
    damage(path, file, bytes);
    put(file, bytes);
  }
  assert_int_equal(verify_status(path), GSEL_OK);
  assert_int_equal(load_status(path), GSEL_OK);
}

void a_changed_bit_is_found_by_verify_and_by_a_load(void**) {
  with_each_file([](const std::string& checkpoint, const std::string& file, const std::string& bytes) {
    for (size_t at = 0; at < bytes.size(); at += 11) {
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ 1 << at % 8);
      put(file, changed);
      const gsel_status load = load_status(checkpoint), verified = verify_status(checkpoint);
      const auto is_expected = [](gsel_status s) { return s == GSEL_ERR_PARSE || s == GSEL_ERR_IO; };
      if (!is_expected(load) || !is_expected(verified))
        fail_msg("%s, byte %zu: a load gives %s, verify %s", file.c_str(), at, gsel_status_name(load),
                 gsel_status_name(verified));
    }
  });
}

void a_file_that_is_cut_short_is_refused(void**) {
  with_each_file([](const std::string& checkpoint, const std::string& file, const std::string& bytes) {
    for (size_t part = 0; part < 24; ++part) {
      put(file, bytes.substr(0, bytes.size() * part / 24));
      assert_int_not_equal(load_status(checkpoint), GSEL_OK);
      assert_int_not_equal(verify_status(checkpoint), GSEL_OK);
    }
    put(file, bytes + "x");
    assert_int_not_equal(load_status(checkpoint), GSEL_OK);
  });
}

void parts_of_other_checkpoints_are_refused(void**) {
  Folder folder;
  Trainer trainer;
  trainer.save(folder / "run");
  trainer.step();
  trainer.save(folder / "run");
  for (const char* name : kFiles) {
    const std::string file = folder / "run/step-000000000001/" + name, bytes = content(file);
    put(file, content(folder / "run/step-000000000000/" + name));
    assert_int_not_equal(verify_status(folder / "run/step-000000000001"), GSEL_OK);
    assert_int_not_equal(load_status(folder / "run/step-000000000001"), GSEL_OK);
    put(file, bytes);
  }
  OneTrainer other("adamw");
  const std::vector<float> before = other.params();
  try {
    load(other, folder / "run", checkpoint::real_disk());
    fail_msg("a checkpoint of another optimizer was loaded");
  } catch (const gsel::Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_MISMATCH);
  }
  assert_true(other.params() == before);
  other.step();
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_kill_before_any_operation_leaves_a_whole_checkpoint),
      cmocka_unit_test(a_kill_in_the_middle_of_any_write_leaves_a_whole_checkpoint),
      cmocka_unit_test(a_disk_that_fails_at_any_operation_lets_the_trainer_go_on),
      cmocka_unit_test(a_damaged_checkpoint_does_not_stop_the_next),
      cmocka_unit_test(a_named_checkpoint_without_a_manifest_is_damaged),
      cmocka_unit_test(a_checkpoint_that_replaced_a_damaged_one_is_not_written_over),
      cmocka_unit_test(a_full_disk_is_refused_before_the_first_byte),
      cmocka_unit_test(a_folder_that_is_read_only_is_refused),
      cmocka_unit_test(a_changed_bit_is_found_by_verify_and_by_a_load),
      cmocka_unit_test(a_file_that_is_cut_short_is_refused),
      cmocka_unit_test(parts_of_other_checkpoints_are_refused),
  };
  return cmocka_run_group_tests_name("checkpoint faults", tests, nullptr, nullptr);
}
