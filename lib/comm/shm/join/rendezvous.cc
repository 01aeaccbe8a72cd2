// comm/shm/join/rendezvous.cc: the common functions of a rendezvous, and the side of ranks other than 0.
#include "comm/shm/join/rendezvous.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/text.h"
#include "comm/shm/join/host_side.h"
#include "comm/shm/join/launcher.h"
#include "comm/shm/join/messages.h"
#include "comm/shm/join/socket.h"
#include "comm/shm/members/membership.h"
#include "comm/shm/message/peer_memory.h"

namespace gsel::shm {

std::string meeting_name(const gsel_unique_id& id) {
  std::string name = "gsel-1-";
  uint64_t folded[2] = {};  // hashes the whole id, since any of its bytes may be the random ones
  for (size_t i = 0; i < sizeof id.bytes; ++i) {
    uint64_t& word = folded[i & 1];
    word = (word ^ id.bytes[i]) * 1099511628211u + (word >> 29);
  }
  return name + fmt::format("{:016x}{:016x}", folded[0], folded[1]);
}

namespace {

// An abstract name belongs to the user that binds it first.
void require_own(uid_t user) {
  if (user != geteuid())
    throw Error(
        GSEL_ERR_PERMISSION,
        fmt::format("the name under which these ranks meet is held by user {}, this is user {}; use a fresh id, "
                    "or another MASTER_PORT where the id comes from it",
                    user, geteuid()))
        .about_rank(0);
}

}  // namespace

void require_own_user(const Socket& socket) {
  require_own(socket.peer_user());
}

void require_own_holder(const std::string& name) {
  if (const auto user = user_of_listener(name)) require_own(*user);
}

namespace {

constexpr int64_t kAnswerNs = 1'000'000'000;
constexpr int kTriesPerLook = 64;  // between checks of the user that holds the name

Hello make_hello(const JoinOptions& join) {
  Hello hello;
  hello.rank = join.rank;
  hello.world_size = join.world_size;
  hello.pid = getpid();
  hello.process = os::process_token();
  hello.witness = reinterpret_cast<uintptr_t>(os::process_token_place());
  hello.order = join.order;
  hello.accelerator = join.accelerator;
  hello.barrier = os::register_for_barriers();
  if (join.device.len >= sizeof hello.device)
    fail(GSEL_ERR_ARG, "device has {} bytes, at most {} are needed", join.device.len, sizeof hello.device - 1);
  if (join.device.data) std::memcpy(hello.device, join.device.data, join.device.len);
  cpu_set_t set;
  CPU_ZERO(&set);
  static_assert(sizeof set == sizeof hello.cpus);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    std::memcpy(hello.cpus, &set, sizeof set);
  else
    std::fill(std::begin(hello.cpus), std::end(hello.cpus), ~uint64_t{0});  // more than 1024 processors
  return hello;
}

int32_t all_ranks(const JoinOptions& join) {
  return join.known_ranks > 0 ? join.known_ranks : join.world_size;
}

[[noreturn]] void fail_gone(const JoinOptions& join, const char* step) {
  throw Error(GSEL_ERR_PEER, fmt::format("rank {} died or gave up joining while rank {} of {} waited {}",
                                         shown_rank(join, 0), shown_rank(join, join.rank), all_ranks(join), step))
      .about_rank(shown_rank(join, 0));
}

[[noreturn]] void fail_late(const JoinOptions& join, const char* step) {
  throw Error(GSEL_ERR_TIMEOUT,
              fmt::format("timed out: rank {} of {} waited {} {}; {}", shown_rank(join, join.rank), all_ranks(join),
                          seconds_text(join.join_timeout_s), step, how_to_meet(join)))
      .about_rank(shown_rank(join, 0));
}

[[noreturn]] void fail_protocol() {
  throw Error(GSEL_ERR_VERSION, "rank 0 speaks another protocol; all ranks must use one libgsel").about_rank(0);
}

Socket connect_to_rank_0(const JoinOptions& join, const std::string& name, Launcher& launcher, int64_t deadline) {
  for (int tries = 0;; ++tries) {
    bool is_full = false;
    if (auto socket = Socket::connect(name, &is_full)) {
      require_own_user(*socket);
      return std::move(*socket);
    }
    if (is_full && tries % kTriesPerLook == 0) require_own_holder(name);
    if (os::now_ns() >= deadline)
      fail_late(join, is_full ? "for rank 0 to take its connection, and too many wait there" : "for rank 0 to appear");
    launcher.check();
    poll(nullptr, 0, std::min(2, milliseconds_until(deadline)));
  }
}

// Asks rank 0, which knows the missing ranks.
void say_late(const JoinOptions& join, const Socket& socket) {
  Message late;
  late.say = Say::late;
  late.first = static_cast<uint32_t>(std::min(join.join_timeout_s * 1e3, 1e9));
  socket.write(&late, sizeof late, nullptr, 0, os::now_ns() + kAnswerNs);
}

// The next message of rank 0, which must be `expected`.
Message listen_to_rank_0(const JoinOptions& join, const Socket& socket, Say expected, std::vector<os::Fd>& fds,
                         int64_t deadline, const char* step) {
  Message message;
  Read result = socket.read_until(&message, sizeof message, fds, deadline);
  if (result == Read::nothing) {
    say_late(join, socket);
    result = socket.read_until(&message, sizeof message, fds, os::now_ns() + kAnswerNs);
  }
  if (result == Read::nothing) fail_late(join, fmt::format("{}, and rank 0 does not answer", step).c_str());
  if (result == Read::end) fail_gone(join, step);
  if (message.say == Say::failed) throw error_of(message);
  if (message.say != expected) fail_protocol();
  return message;
}

void receive_lives(const JoinOptions& join, const Socket& socket, uint64_t own_process, std::vector<Member>& members,
                   int64_t deadline) {
  for (size_t known = 0; known < members.size();) {
    std::vector<os::Fd> fds;
    const Message message = listen_to_rank_0(join, socket, Say::lives, fds, deadline, "to learn of the other ranks");
    if (message.first != known || message.count == 0 || message.count > kMostFds ||
        message.count > members.size() - known)
      fail_protocol();
    size_t taken = 0;
    for (size_t i = 0; i < message.count; ++i, ++known) {
      members[known].pid = message.life[i].pid;
      members[known].process = message.life[i].process;
      members[known].witness = message.life[i].witness;
      if (message.life[i].process == own_process) continue;
      if (taken == fds.size()) fail_protocol();
      members[known].life = std::move(fds[taken++]);
    }
  }
}

Joined join_as_joiner(const JoinOptions& join, const std::string& name, Launcher& launcher, int64_t deadline) {
  const Hello hello = make_hello(join);
  const Socket socket = connect_to_rank_0(join, name, launcher, deadline);
  os::Life life;
  try {
    life = os::open_life();
  } catch (const Error&) {
    socket.write(&hello, sizeof hello, nullptr, 0, deadline);  // rank 0 then fails on all ranks
    throw;
  }
  const int watch = life.watch.get();
  socket.write(&hello, sizeof hello, &watch, 1, deadline);  // the next read reports a failure
  life.watch.reset();
  std::vector<os::Fd> fds;
  listen_to_rank_0(join, socket, Say::arena, fds, deadline, "for the other ranks to join");
  if (fds.size() != 1) fail_protocol();
  std::vector<Member> members(static_cast<size_t>(join.world_size));
  receive_lives(join, socket, hello.process, members, deadline);
  Message ready;
  ready.say = Say::ready;
  Mapped mapped;
  std::shared_ptr<Family> family;
  try {
    mapped = map_family(fds.front().get(), Layout(join.world_size));
    family = std::make_shared<Family>(mapped.memory, std::move(members), join.rank, std::move(life));
    publish_readable_families(*family);
  } catch (const Error& e) {
    const Message failed = failed_message(named_error(e, join.rank));
    socket.write(&failed, sizeof failed, nullptr, 0, deadline);
    throw;
  }
  socket.write(&ready, sizeof ready, nullptr, 0, deadline);
  fds.clear();
  listen_to_rank_0(join, socket, Say::go, fds, deadline, "for the other ranks to be ready");
  return {std::move(family), mapped.arena};
}

// The launcher also reports a rank that is gone, a moment later, and knows why it ended.
Joined join_told_by_launcher(const JoinOptions& join, const std::string& name, int64_t deadline) {
  Launcher launcher(join);
  try {
    return join.rank == 0 ? HostSide(join, make_hello(join), name, launcher, deadline).run()
                          : join_as_joiner(join, name, launcher, deadline);
  } catch (const Error& e) {
    if (e.code() == GSEL_ERR_PEER) launcher.await_word();
    throw named_error(e, join.rank);
  }
}

Joined join_alone(const JoinOptions& join) {
  std::vector<Member> members(1);
  members[0].pid = getpid();
  members[0].process = os::process_token();
  const Seat seat{members[0].pid, 0, shown_rank(join, 0)};
  return {std::make_shared<Family>(nullptr, std::move(members), 0, os::Life()),
          Arena::alone(join.order, seat, founded_name(view(join.name)), all_ranks(join) > 1)};
}

}  // namespace

Mapped map_family(int fd, const Layout& layout) {
  auto memory = SharedMemory::map(fd, layout.total_bytes);
  auto arena = Arena::at(memory->control(), layout, memory, SharedMemory::kControlAt);
  return {std::move(memory), std::move(arena)};
}

Joined rendezvous(const JoinOptions& join) {
  if (join.world_size > kMaxRanks)
    fail(GSEL_ERR_UNSUPPORTED, "a world of {} was asked for; shared memory joins at most {}",
         with_noun(join.world_size, "rank"), kMaxRanks);
  if (join.world_size == 1) return join_alone(join);
  const int64_t deadline = os::now_ns() + static_cast<int64_t>(join.join_timeout_s * 1e9);
  const std::string name = meeting_name(join.id);
  Joined joined = join_told_by_launcher(join, name, deadline);
  log(GSEL_LOG_INFO, "comm", "rank {} of {} joined over shared memory", join.rank, join.world_size);
  return joined;
}

}  // namespace gsel::shm
