// comm/shm/join/host_side.cc: see host_side.h.
#include "comm/shm/join/host_side.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string_view>

#include "base/text.h"
#include "comm/shm/members/membership.h"
#include "comm/shm/message/peer_memory.h"
#include "comm/shm/tuning/tuning.h"

namespace gsel::shm {

HostSide::HostSide(const JoinOptions& join, const Hello& own, std::string name, Launcher& launcher, int64_t deadline_ns)
    : join_(join), own_(own), name_(std::move(name)), launcher_(launcher), deadline_(deadline_ns) {
  by_rank_.resize(static_cast<size_t>(join.world_size));
}

Joined HostSide::run() {
  os::Life life = os::open_life();
  os::Fd memory;
  Mapped mapped;
  std::shared_ptr<Family> family;
  open();
  try {
    gather();
    check_devices();
    check_alike();
    mapped = make_family(memory);
    distribute(life.watch.get(), memory.get());
    await_ready();
    family = make_members(std::move(mapped.memory), std::move(life));
    publish_readable_families(*family);
    // Before any rank returns: a rank's next rendezvous must not connect to this socket.
    listener_.close();
    Message go;
    go.say = Say::go;
    for (const Joiner* joiner : by_rank_)
      if (joiner) send(*joiner, go, nullptr, 0);
  } catch (const Error& e) {
    send_failure(named_error(e, 0));
    throw;
  }
  return {std::move(family), std::move(mapped.arena)};
}

std::shared_ptr<Family> HostSide::make_members(std::shared_ptr<SharedMemory> memory, os::Life life) {
  life.watch.reset();
  std::vector<Member> members(by_rank_.size());
  for (size_t r = 0; r < by_rank_.size(); ++r) {
    const Hello& hello = by_rank_[r] ? by_rank_[r]->hello : own_;
    members[r].pid = hello.pid;
    members[r].process = hello.process;
    members[r].witness = hello.witness;
    if (hello.process != own_.process) members[r].life = std::move(by_rank_[r]->life);
  }
  return std::make_shared<Family>(std::move(memory), std::move(members), 0, std::move(life));
}

Mapped HostSide::make_family(os::Fd& fd) const {
  const Layout layout(join_.world_size);
  fd = SharedMemory::create(layout.reserved_bytes(), layout.total_bytes, join_.world_size);
  const auto memory = SharedMemory::map(fd.get(), layout.total_bytes);
  ArenaHeader facts{};
  facts.cores = count_cores() / join_.threads_per_rank;
  facts.order = join_.order;
  facts.asymmetric = all_pass_barriers();
  facts.tuning = tuning_for(join_.world_size);
  std::vector<Seat> seats;
  for (const Joiner* joiner : by_rank_) {
    const auto rank = static_cast<int32_t>(seats.size());
    seats.push_back({joiner ? joiner->hello.pid : own_.pid, rank, shown_rank(join_, rank)});
  }
  Arena::create(memory->control(), layout, facts, seats, founded_name(view(join_.name)));
  return map_family(fd.get(), layout);
}

void HostSide::open() {
  for (;;) {
    if (auto listener = Socket::listen(name_)) {
      listener_ = std::move(*listener);
      return;
    }
    claim_as_second();
    if (os::now_ns() >= deadline_)
      fail(GSEL_ERR_TIMEOUT, "timed out: rank 0 waited {} for another rank 0 with the same id to end; use a fresh id",
           seconds_text(join_.join_timeout_s));
    poll(nullptr, 0, 1);
  }
}

// Another process is rank 0 under this id: says hello to it, so that both fail.
void HostSide::claim_as_second() {
  bool is_full = false;
  const auto socket = Socket::connect(name_, &is_full);
  if (socket) require_own_user(*socket);
  if (is_full) require_own_holder(name_);
  if (!socket || !socket->write(&own_, sizeof own_, nullptr, 0, deadline_)) return;
  Message answer;
  std::vector<os::Fd> fds;
  const Read result = socket->read_until(&answer, sizeof answer, fds, deadline_);
  if (result == Read::message && answer.say == Say::failed) throw error_of(answer);
}

void HostSide::gather() {
  while (!missing(false).empty()) {
    require_in_time(false);
    poll_once();
  }
}

void HostSide::await_ready() {
  while (!missing(true).empty()) {
    require_in_time(true);
    poll_once();
  }
}

void HostSide::require_in_time(bool ready) const {
  if (os::now_ns() >= deadline_) fail_late(missing(ready), ready, 0, join_.join_timeout_s);
}

// A joiner that waits only for rank 0 gets no answer.
void HostSide::answer_late(const Joiner& joiner, uint32_t milliseconds) const {
  const bool all_joined = missing(false).empty();
  std::vector<int32_t> late = missing(all_joined);
  std::erase(late, joiner.hello.rank);
  if (!late.empty()) fail_late(late, all_joined, joiner.hello.rank, static_cast<double>(milliseconds) / 1e3);
}

void HostSide::fail_late(const std::vector<int32_t>& late, bool ready, int32_t waiter, double seconds) const {
  std::string names;
  for (size_t i = 0; i < late.size() && i < 16; ++i) names += (i ? ", " : "") + std::to_string(shown(late[i]));
  const std::string stranger =
      stranger_ ? fmt::format(" and turned a process of user {} away, being user {}", *stranger_, geteuid()) : "";
  if (late.size() > 16) names += fmt::format(" and {} more", late.size() - 16);
  throw Error(GSEL_ERR_TIMEOUT,
              fmt::format("timed out: after {} {} of {} {}: rank {} waited for rank{} {}{}; {}", seconds_text(seconds),
                          by_rank_.size() - late.size(), with_noun(join_.world_size, "rank"),
                          ready ? "were ready" : "had joined", shown(waiter), late.size() == 1 ? "" : "s", names,
                          stranger, how_to_meet(join_)))
      .about_rank(late.empty() ? -1 : shown(late.front()));
}

void HostSide::poll_once() {
  std::vector<pollfd> items{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
  for (const auto& joiner : joiners_) items.push_back({.fd = joiner->socket.fd(), .events = POLLIN, .revents = 0});
  items.push_back({.fd = launcher_.fd(), .events = POLLIN, .revents = 0});
  const int ready = poll(items.data(), items.size(), std::min(1000, milliseconds_until(deadline_)));
  if (ready < 0 && errno != EINTR) fail(GSEL_ERR_IO, "poll failed: {}", errno_text(errno));
  if (ready <= 0) return;
  launcher_.check();
  for (size_t i = 1; i + 1 < items.size(); ++i)
    if (items[i].revents) hear(*joiners_[i - 1]);
  std::erase_if(joiners_, [](const auto& joiner) { return joiner->socket.fd() < 0; });
  if (items[0].revents) admit();
}

void HostSide::admit() {
  while (auto socket = listener_.accept()) {
    if (socket->peer_user() != geteuid()) {  // no answer for another user
      stranger_ = socket->peer_user();
      continue;
    }
    joiners_.push_back(std::make_unique<Joiner>());
    joiners_.back()->socket = std::move(*socket);
  }
}

void HostSide::hear(Joiner& joiner) {
  std::vector<os::Fd> fds;
  if (!joiner.known) {
    const Read result = joiner.socket.read(&joiner.hello, sizeof joiner.hello, fds);
    if (result == Read::nothing) return;
    const bool is_rank = result != Read::end && joiner.hello.magic == kHelloMagic && fds.size() <= 1;
    if (!is_rank) return joiner.socket.close();  // no rank
    if (result == Read::cut) fail_cut();
    joiner.known = true;
    if (!fds.empty()) joiner.life = std::move(fds.front());
    return greet(joiner);
  }
  Message message;
  const Read result = joiner.socket.read(&message, sizeof message, fds);
  if (result == Read::nothing) return;
  if (result == Read::end)
    throw Error(GSEL_ERR_PEER, fmt::format("rank {} (pid {}) died or gave up while joining", shown(joiner.hello.rank),
                                           joiner.hello.pid))
        .about_rank(shown(joiner.hello.rank));
  if (result == Read::cut) fail_cut();
  if (message.say == Say::failed) throw error_of(message);
  if (message.say == Say::late) return answer_late(joiner, message.first);
  joiner.ready = message.say == Say::ready;
}

void HostSide::greet(Joiner& joiner) {
  const Hello& hello = joiner.hello;
  if (hello.protocol != kProtocol)
    throw Error(GSEL_ERR_VERSION, fmt::format("rank {} (pid {}) joins with protocol {}, rank 0 with {}; all ranks must "
                                              "use one libgsel",
                                              shown(hello.rank), hello.pid, hello.protocol, kProtocol))
        .about_rank(hello.rank);
  if (hello.world_size != join_.world_size)
    throw Error(GSEL_ERR_MISMATCH,
                fmt::format("rank {} (pid {}) joins a world of {}, rank 0 (pid {}) one of {}; "
                            "give every rank the same world_size",
                            hello.rank, hello.pid, with_noun(hello.world_size, "rank"), own_.pid, join_.world_size))
        .about_rank(hello.rank);
  if (hello.rank < 0 || hello.rank >= join_.world_size)
    fail(GSEL_ERR_MISMATCH, "rank {} joins a world of {}", hello.rank, with_noun(join_.world_size, "rank"));
  Joiner*& place = by_rank_[static_cast<size_t>(hello.rank)];
  if (place || hello.rank == 0)
    throw Error(GSEL_ERR_MISMATCH,
                fmt::format("rank {} is claimed twice, by pid {} and pid {}; give every rank its own "
                            "number",
                            hello.rank, place ? place->hello.pid : own_.pid, hello.pid))
        .about_rank(hello.rank);
  if (!joiner.life)
    throw Error(GSEL_ERR_IO,
                fmt::format("rank {} (pid {}) could open no descriptor of its process", shown(hello.rank), hello.pid))
        .about_rank(hello.rank);
  place = &joiner;
}

// Two ranks on one device may deadlock in its driver or exhaust its memory. Checked after all ranks have connected, so
// that all get the error.
void HostSide::check_devices() const {
  std::map<std::string_view, const Hello*> seen;
  for (const Joiner* joiner : by_rank_) {
    const Hello& hello = joiner ? joiner->hello : own_;
    const std::string_view device(hello.device, strnlen(hello.device, sizeof hello.device));
    if (device.empty()) continue;
    const auto [first, fresh] = seen.emplace(device, &hello);
    if (fresh) continue;
    const Hello& other = *first->second;
    throw Error(GSEL_ERR_DUPLICATE,
                fmt::format("ranks {} (pid {}) and {} (pid {}) compute on one device, {}; give every rank its own, as "
                            "gsel run --devices does",
                            shown(other.rank), other.pid, shown(hello.rank), hello.pid, one_line(device)))
        .about_rank(shown(hello.rank));
  }
}

void HostSide::check_alike() const {
  const auto refuse = [this](const Hello& hello, const std::string& theirs, const std::string& ours,
                             const char* field) {
    throw Error(GSEL_ERR_MISMATCH, fmt::format("rank {} (pid {}) joins {}, rank {} {}; give every rank the same "
                                               "gsel_comm_options.{}",
                                               shown(hello.rank), hello.pid, theirs, shown(0), ours, field))
        .about_rank(shown(hello.rank));
  };
  const auto with = [](const Hello& hello) {
    return hello.accelerator ? "with an accelerator" : "without an accelerator";
  };
  for (const Joiner* joiner : by_rank_) {
    if (!joiner) continue;
    const Hello& hello = joiner->hello;
    if (hello.order != join_.order)
      refuse(hello, fmt::format("with order {}", hello.order), fmt::format("with {}", join_.order), "order");
    if (hello.accelerator != own_.accelerator) refuse(hello, with(hello), with(own_), "accelerator");
  }
}

bool HostSide::all_pass_barriers() const {
  return own_.barrier &&
         std::ranges::all_of(by_rank_, [](const Joiner* joiner) { return !joiner || joiner->hello.barrier; });
}

void HostSide::distribute(int own_life, int memory) {
  Message message;
  message.say = Say::arena;
  for (const Joiner* joiner : by_rank_)
    if (joiner) send(*joiner, message, &memory, 1);
  for (const Joiner* joiner : by_rank_)
    if (joiner) introduce_all_to(*joiner, own_life);
}

// A joiner gets no descriptors for ranks of its own process: threads of one process live and die together.
void HostSide::introduce_all_to(const Joiner& joiner, int own_life) {
  Message message;
  message.say = Say::lives;
  for (size_t first = 0; first < by_rank_.size(); first += kMostFds) {
    const size_t count = std::min(kMostFds, by_rank_.size() - first);
    int fds[kMostFds];
    size_t n_fds = 0;
    for (size_t i = 0; i < count; ++i) {
      const Joiner* other = by_rank_[first + i];
      const Hello& hello = other ? other->hello : own_;
      message.life[i] = {hello.pid, hello.process, hello.witness};
      if (hello.process != joiner.hello.process) fds[n_fds++] = other ? other->life.get() : own_life;
    }
    message.first = static_cast<uint32_t>(first);
    message.count = static_cast<uint32_t>(count);
    send(joiner, message, fds, n_fds);
  }
}

void HostSide::send(const Joiner& joiner, const Message& message, const int* fds, size_t n_fds) {
  if (joiner.socket.write(&message, sizeof message, fds, n_fds, deadline_)) return;
  throw Error(GSEL_ERR_PEER,
              fmt::format("rank {} (pid {}) died or gave up while joining", shown(joiner.hello.rank), joiner.hello.pid))
      .about_rank(shown(joiner.hello.rank));
}

void HostSide::send_failure(const Error& error) noexcept {
  const Message message = failed_message(error);
  for (const auto& joiner : joiners_) try {
      if (joiner->known) joiner->socket.write(&message, sizeof message, nullptr, 0, 0);
    } catch (...) {  // the joiner sees its socket closed
    }
}

std::vector<int32_t> HostSide::missing(bool ready) const {
  std::vector<int32_t> late;
  for (size_t r = 1; r < by_rank_.size(); ++r)
    if (!by_rank_[r] || (ready && !by_rank_[r]->ready)) late.push_back(static_cast<int32_t>(r));
  return late;
}

int32_t HostSide::count_cores() const {
  int32_t cores = 0;
  for (size_t word = 0; word < std::size(own_.cpus); ++word) {
    uint64_t together = own_.cpus[word];
    for (const Joiner* joiner : by_rank_) together |= joiner ? joiner->hello.cpus[word] : 0;
    cores += std::popcount(together);
  }
  return cores;
}

}  // namespace gsel::shm
