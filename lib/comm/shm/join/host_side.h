// comm/shm/join/host_side.h: rank 0's side of a rendezvous. Rank 0 collects the hello of every rank, sends the
// descriptors of the arena and of the processes, waits until all ranks are ready, stops listening, and sends go. An
// error is first sent to all ranks that have connected, then thrown. A rank whose deadline passes before that of rank 0
// asks rank 0, which fails with the same error.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/shm/join/launcher.h"
#include "comm/shm/join/messages.h"
#include "comm/shm/join/rendezvous.h"

namespace gsel::shm {

class HostSide {
 public:
  HostSide(const JoinOptions& join, const Hello& own, std::string name, Launcher& launcher, int64_t deadline_ns);
  Joined run();

 private:
  int32_t shown(int32_t rank) const { return shown_rank(join_, rank); }  // in texts
  struct Joiner {
    Socket socket;
    Hello hello;
    os::Fd life;
    bool known = false;  // has sent hello
    bool ready = false;
  };

  void open();
  void claim_as_second();
  void gather();
  void poll_once();
  void admit();
  void hear(Joiner& joiner);
  void greet(Joiner& joiner);
  void check_devices() const;
  Mapped make_family(os::Fd& fd) const;
  std::shared_ptr<Family> make_members(std::shared_ptr<SharedMemory> memory, os::Life life);
  void distribute(int own_life, int memory);
  void await_ready();
  void introduce_all_to(const Joiner& joiner, int own_life);
  void send(const Joiner& joiner, const Message& message, const int* fds, size_t n_fds);
  void send_failure(const Error& error) noexcept;
  std::vector<int32_t> missing(bool ready) const;
  int32_t count_cores() const;
  void check_alike() const;
  bool all_pass_barriers() const;
  void require_in_time(bool ready) const;
  void answer_late(const Joiner& joiner, uint32_t milliseconds) const;
  [[noreturn]] void fail_late(const std::vector<int32_t>& late, bool ready, int32_t waiter, double seconds) const;

  const JoinOptions& join_;
  Hello own_;
  std::string name_;
  Launcher& launcher_;
  int64_t deadline_;
  Socket listener_;
  std::optional<uid_t> stranger_;                 // another user who tried to join
  std::vector<std::unique_ptr<Joiner>> joiners_;  // in order of arrival
  std::vector<Joiner*> by_rank_;                  // [world_size], 0 is nullptr
};

}  // namespace gsel::shm
