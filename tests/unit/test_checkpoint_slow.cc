// Saves and loads on a disk that is slower than the communicator's timeout: ranks that wait hear from the one that
// works, and a failure ends the work of all.
#include <gsel/state.h>
#include <sys/stat.h>

#include <functional>

#include "api/handles.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/rounds.h"
#include "support/layouts.h"
#include "support/scratch.h"

namespace {

namespace checkpoint = gsel::checkpoint;

#ifdef __SANITIZE_THREAD__
constexpr int kSlower = 5;
#else
constexpr int kSlower = 1;
#endif
constexpr double kTimeout = 0.6 * kSlower;
constexpr useconds_t kSlow = 1300 * 1000 * kSlower;

// The real disk, on which some operations of one rank are slow, or fail.
class SlowDisk : public checkpoint::Disk {
 public:
  enum class Operation { none, create, write, sync, read, rename, list };
  SlowDisk(Operation slow, bool fails, useconds_t takes = kSlow) : slow_(slow), fails_(fails), takes_(takes) {}

  std::unique_ptr<checkpoint::DiskFile> open(const std::string& path) override {
    return std::make_unique<File>(*this, real().open(path));
  }
  std::unique_ptr<checkpoint::DiskFile> create(const std::string& path) override {
    before(Operation::create);
    return std::make_unique<File>(*this, real().create(path));
  }
  void make_folder(const std::string& path) override { real().make_folder(path); }
  void rename(const std::string& from, const std::string& to) override {
    before(Operation::rename);
    real().rename(from, to);
  }
  void remove(const std::string& path) override { real().remove(path); }
  bool exists(const std::string& path) override { return real().exists(path); }
  std::vector<std::string> names(const std::string& folder) override {
    before(Operation::list);
    return real().names(folder);
  }
  void sync_folder(const std::string& path) override { real().sync_folder(path); }
  uint64_t free_bytes(const std::string& folder) override { return real().free_bytes(folder); }

 private:
  class File : public checkpoint::DiskFile {
   public:
    File(SlowDisk& disk, std::unique_ptr<checkpoint::DiskFile> file) : disk_(disk), file_(std::move(file)) {}
    uint64_t bytes() const override { return file_->bytes(); }
    void read(uint64_t offset, void* dst, size_t bytes) override {
      disk_.before(Operation::read);
      file_->read(offset, dst, bytes);
    }
    void write(uint64_t offset, const void* src, size_t bytes) override {
      disk_.before(Operation::write);
      file_->write(offset, src, bytes);
    }
    void reserve(uint64_t bytes) override { file_->reserve(bytes); }
    void sync() override {
      disk_.before(Operation::sync);
      file_->sync();
    }

   private:
    SlowDisk& disk_;
    std::unique_ptr<checkpoint::DiskFile> file_;
  };

  static checkpoint::Disk& real() { return checkpoint::real_disk(); }
  void before(Operation operation) {
    if (operation != slow_ || is_past_) return;
    is_past_ = true;
    usleep(takes_);
    if (fails_) throw gsel::Error(GSEL_ERR_IO, "the disk has failed");
  }

  const Operation slow_;
  const bool fails_;
  const useconds_t takes_;
  bool is_past_ = false;
};

char folder[256];

// More than three blocks of a writer, so that its threads are at work when the rest is written aside.
alignas(8) char long_state[2][40 << 20];

struct Case {
  trial t;
  SlowDisk::Operation slow;
  int32_t rank;
  bool loads, fails;
  bool is_long = false;      // a rank's file has several blocks
  bool other_fails = false;  // at once, while this one's disk is slow
  std::string path() const {
    return std::string(folder) + "/" + std::to_string(static_cast<int>(slow)) + (fails ? "f" : "");
  }
};

// What fn gives, as its code.
gsel_status status_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const gsel::Error& e) {
    return e.code();
  }
  return GSEL_OK;
}

void run_case(rank_run* run) {
  const auto& c = *static_cast<const Case*>(run->user);
  session s;
  gsel_error* err = nullptr;
  run->user = const_cast<trial*>(&c.t);
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_trainer_step(s.trainer, nullptr, &err), err);
  if (c.is_long)
    rank_ok(run,
            gsel_trainer_add_state(s.trainer, GSEL_STR("long"), long_state[run->rank], sizeof long_state[0],
                                   GSEL_STATE_OF_RANK, &err),
            err);
  if (c.loads) rank_ok(run, gsel_trainer_save(s.trainer, gsel_str_from(c.path().c_str()), nullptr, nullptr, &err), err);
  rank_ok(run, gsel_comm_set_timeout(s.comm, kTimeout, &err), err);
  const bool is_slow = run->rank == c.rank, fails = is_slow ? c.fails : c.other_fails;
  SlowDisk disk(is_slow || c.other_fails ? c.slow : SlowDisk::Operation::none, fails, is_slow ? kSlow : 0);
  const gsel_status status = status_of([&] {
    if (c.loads)
      checkpoint::load(s.trainer->impl(), c.path(), disk);
    else
      checkpoint::save(s.trainer->impl(), {c.path(), 0}, disk);
  });
  const gsel_status expected = !c.fails && !c.other_fails ? GSEL_OK : fails ? GSEL_ERR_IO : GSEL_ERR_PEER;
  if (status != expected)
    print_message("operation %d of rank %d: %s on rank %d, expected %s\n", static_cast<int>(c.slow), c.rank,
                  gsel_status_name(status), run->rank, gsel_status_name(expected));
  rank_check(run, status == expected);
  if (!c.loads || status == GSEL_OK) rank_ok(run, gsel_trainer_step(s.trainer, nullptr, &err), err);
  close_session(&s);
}

void ranks_wait_for_a_slow_disk(void**) {
  using O = SlowDisk::Operation;
  const struct {
    O slow;
    int32_t rank;
    bool loads, fails, is_long = false, other_fails = false;
  } cases[] = {{O::create, 1, false, false},
               {O::write, 0, false, false},
               {O::write, 1, false, false},
               {O::sync, 1, false, false},
               {O::rename, 0, false, false},
               {O::list, 0, true, false},
               {O::read, 1, true, false},
               {O::sync, 0, false, true},
               {O::write, 1, false, true},
               {O::read, 1, true, true},
               {O::write, 0, false, false, true},
               {O::write, 1, false, true, true},
               {O::sync, 1, false, false, true},
               {O::write, 1, false, false, true, true},
               {O::read, 1, true, false, true, true}};
  for (const auto& [slow, rank, loads, fails, is_long, other_fails] : cases) {
    Case c{plain(config_of(&kLayouts[2], ""), nullptr), slow, rank, loads, fails, is_long, other_fails};
    as_threads(2, run_case, &c);
    assert_int_equal(remove_scratch(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
  }
}

// ---- rounds alone ---------------------------------------------------------------------------------------------------

void works_in_rounds(rank_run* run) {
  session s;
  gsel_error* err = nullptr;
  rank_ok(run, open_session(run, &s, &err), err);
  rank_ok(run, gsel_comm_set_timeout(s.comm, kTimeout, &err), err);
  gsel::Communicator& comm = s.trainer->impl().comm();
  int64_t blocks = 0;
  const auto work_slowly = [&](gsel::checkpoint::Rounds& rounds) {
    for (; blocks < 50; ++blocks) {
      usleep(25 * 1000 * kSlower);
      rounds.go_on();
    }
  };
  {  // one works, and two wait
    gsel::checkpoint::Rounds rounds(comm);
    rank_check(run, status_of([&] {
                      rounds.run("work", [&] {
                        if (run->rank == 1) work_slowly(rounds);
                      });
                    }) == GSEL_OK);
    rank_check(run, blocks == (run->rank == 1 ? 50 : 0));
  }
  {  // one fails at once, and ends the work of another, while the third is done
    blocks = 0;
    gsel::checkpoint::Rounds rounds(comm);
    const gsel_status status = status_of([&] {
      rounds.run("work", [&] {
        if (run->rank == 0) throw gsel::Error(GSEL_ERR_IO, "there is no disk");
        if (run->rank == 1) work_slowly(rounds);
      });
    });
    rank_check(run, status == (run->rank == 0 ? GSEL_ERR_IO : GSEL_ERR_PEER));
    rank_check(run, blocks < 30);
  }
  {  // one fails at once, and another is in a call that cannot be ended
    gsel::checkpoint::Rounds rounds(comm);
    const gsel_status status = status_of([&] {
      rounds.run("work", [&] {
        if (run->rank == 0) throw gsel::Error(GSEL_ERR_IO, "there is no disk");
        if (run->rank == 1) rounds.aside([] { usleep(kSlow); });
      });
    });
    rank_check(run, status == (run->rank == 0 ? GSEL_ERR_IO : GSEL_ERR_PEER));
  }
  {  // one says nothing
    gsel::checkpoint::Rounds rounds(comm);
    const gsel_status status = status_of([&] {
      rounds.run("work", [&] {
        if (run->rank == 2) usleep(4 * kSlow);
      });
    });
    rank_check(run, status == GSEL_ERR_TIMEOUT);
  }
  close_session(&s);
}

void a_rank_that_works_is_told_from_one_that_says_nothing(void**) {
  trial t = plain(config_of(&kLayouts[1], ""), nullptr);
  as_threads(3, works_in_rounds, &t);
}

int begin(void**) {
  return make_scratch(folder, sizeof folder, "slow") ? 0 : -1;
}
int end(void**) {
  return remove_scratch(folder);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_wait_for_a_slow_disk),
      cmocka_unit_test(a_rank_that_works_is_told_from_one_that_says_nothing),
  };
  return cmocka_run_group_tests_name("checkpoints on a slow disk", tests, begin, end);
}
