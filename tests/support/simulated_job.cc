// See simulated_job.h.
#include "support/simulated_job.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/hosts/lines.h"
#include "comm/hosts/meeting.h"
#include "comm/hosts/place.h"
#include "comm/hosts/relay.h"
#include "comm/hosts/stream.h"

namespace gsel::test {

Counted& counted() {
  static auto* const shared =
      static_cast<Counted*>(mmap(nullptr, sizeof(Counted), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  return *shared;
}

namespace {

Traffic* traffic_of(int fd) {
  int family = 0;
  socklen_t length = sizeof family;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0) return nullptr;
  PhaseTraffic& phase = counted().phases[counted().phase.load(std::memory_order_relaxed)];
  return family == AF_UNIX ? &phase.local : &phase.tcp;
}

void count_sent(int fd, int64_t sent) {
  Traffic* traffic = sent > 0 ? traffic_of(fd) : nullptr;
  if (!traffic) return;
  traffic->bytes += static_cast<uint64_t>(sent);
  ++traffic->messages;
}

struct SimulatedStage {
  std::atomic<int32_t> come[kAfter + 1], go, failed;
  std::atomic<uint32_t> most_connections;
  char failure[256];
};

// Sleeps until the parent starts the next stage; without polling, since processor time is measured.
void await_go(SimulatedStage& stage, int32_t phase) {
  for (int32_t at = stage.go.load(); at < phase; at = stage.go.load())
    syscall(SYS_futex, &stage.go, FUTEX_WAIT, at, nullptr, nullptr, 0);
}
void let_go(SimulatedStage& stage, int32_t phase) {
  stage.go.store(phase);
  syscall(SYS_futex, &stage.go, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void fail_simulated(SimulatedStage& stage, const char* why) {
  if (stage.failed.exchange(1) == 0) snprintf(stage.failure, sizeof stage.failure, "%s", why);
  _exit(1);
}

// Says a verdict up and gets one down, as the first rank of a host does in each call.
void make_calls(hosts::Relay& relay, int32_t calls) {
  constexpr size_t kVerdictBytes = 200;
  for (int32_t i = 0; i < calls; ++i) {
    const int64_t deadline = os::now_ns() + 60'000'000'000;
    if (!relay.receive_below(deadline, "a call")) abort();
    const auto answer = relay.exchange_above(hosts::Block(kVerdictBytes), deadline, "a call");
    if (!answer) abort();
    relay.send_below(*answer, deadline);
  }
}

void lead_simulated(const SimulatedJob& job, SimulatedStage& stage, const hosts::Met& met, int32_t rank,
                    const std::optional<hosts::Listener>& listener) {
  const hosts::Roster roster(met.table, rank);
  const double seconds = 120;
  await_go(stage, kConnect);
  auto lines = hosts::connect_lines({met.secret, met.table.job, roster.tree(), met.table.names, met.table.addresses,
                                     met.table.port, seconds, os::now_ns() + static_cast<int64_t>(seconds * 1e9)},
                                    roster.own_host(), listener);
  uint32_t connections = 0;
  for (const auto& line : lines) connections += line ? 2 : 0;
  for (uint32_t most = stage.most_connections; connections > most;)
    if (stage.most_connections.compare_exchange_weak(most, connections)) break;
  ++stage.come[kConnect];
  await_go(stage, kCalls);
  hosts::Relay relay(roster, lines, -1);
  make_calls(relay, job.calls);
  ++stage.come[kCalls];
  await_go(stage, kAfter);  // no rank leaves earlier
}

void run_simulated_host(const SimulatedJob& job, SimulatedStage& stage, int32_t host) {
  char name[32];
  snprintf(name, sizeof name, "node%04d", host);
  setenv("GSEL_HOST_ID", name, 1);
  if (unshare(CLONE_NEWUTS) != 0 || sethostname(name, strlen(name)) != 0)
    counted().hosts_have_one_name.store(1);  // more is not allowed here
  const int32_t world_size = job.hosts * job.ranks_per_host;
  const auto rank_main = [&](int32_t rank) {
    try {
      std::optional<hosts::Listener> listener;
      if (rank == 0) listener = hosts::Listener::at_any_port();
      char place[64];
      snprintf(place, sizeof place, "tcp://127.0.0.1:%d", job.port);
      const hosts::Meeting meeting{rank,
                                   world_size,
                                   hosts::parse_meeting_place(place, "the test"),
                                   hosts::Secret(std::vector<uint8_t>(32, 7)),
                                   "simulated",
                                   120,
                                   os::now_ns() + 120'000'000'000,
                                   listener ? listener->port() : uint16_t{0},
                                   job.fanout};
      const hosts::Met met = hosts::meet(meeting);
      ++stage.come[kMeet];
      if (rank == host * job.ranks_per_host) lead_simulated(job, stage, met, rank, listener);
    } catch (const std::exception& error) {
      fail_simulated(stage, error.what());
    }
  };
  std::vector<std::thread> ranks;
  for (int32_t l = 0; l < job.ranks_per_host; ++l) ranks.emplace_back(rank_main, host * job.ranks_per_host + l);
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace

Simulated simulate(const SimulatedJob& job) {
  auto* stage = static_cast<SimulatedStage*>(
      mmap(nullptr, sizeof(SimulatedStage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  Counted& count = counted();
  memset(static_cast<void*>(&count), 0, sizeof count);
  Simulated out = {count.phases, 0, 0, 0, 0, 0, false};
  std::vector<pid_t> pids;
  fflush(nullptr);
  rusage before = {}, after = {};
  getrusage(RUSAGE_CHILDREN, &before);
  const int64_t began = os::now_ns();
  for (int32_t h = 0; h < job.hosts; ++h) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(300);
      run_simulated_host(job, *stage, h);
      _exit(0);
    }
    pids.push_back(pid);
  }
  const auto phase = [&](Phase at, int32_t n, int64_t since) {
    while (stage->come[at].load() < n && !stage->failed.load()) usleep(200);
    return static_cast<double>(os::now_ns() - since) * 1e-9;
  };
  const auto next = [&](Phase at) {
    count.phase.store(at);
    let_go(*stage, at);
    return os::now_ns();
  };
  out.meet_s = phase(kMeet, job.hosts * job.ranks_per_host, began);
  out.connect_s = phase(kConnect, job.hosts, next(kConnect));
  out.calls_s = phase(kCalls, job.hosts, next(kCalls));
  next(kAfter);
  if (stage->failed.load())
    for (const pid_t pid : pids) kill(pid, SIGKILL);
  out.ok = !stage->failed.load();
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    out.ok = out.ok && status == 0;
  }
  getrusage(RUSAGE_CHILDREN, &after);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  out.processor_s =
      seconds(after.ru_utime) + seconds(after.ru_stime) - seconds(before.ru_utime) - seconds(before.ru_stime);
  out.most_connections = stage->most_connections.load();
  if (!out.ok) fprintf(stderr, "a simulated job of %d hosts failed: %s\n", job.hosts, stage->failure);
  munmap(stage, sizeof *stage);
  return out;
}

}  // namespace gsel::test

extern "C" {

__attribute__((visibility("default"))) ssize_t send(int fd, const void* bytes, size_t n, int flags) {
  const int64_t sent = syscall(SYS_sendto, fd, bytes, n, flags, nullptr, 0);
  gsel::test::count_sent(fd, sent);
  return sent;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const int64_t sent = syscall(SYS_sendmsg, fd, message, flags);
  gsel::test::count_sent(fd, sent);
  return sent;
}

__attribute__((visibility("default"))) int connect(int fd, const sockaddr* address, socklen_t length) {
  const long status = syscall(SYS_connect, fd, address, length);
  const int failure = errno;
  if (status == 0 || failure == EINPROGRESS)
    if (auto* traffic = gsel::test::traffic_of(fd)) ++traffic->connections;
  errno = failure;
  return static_cast<int>(status);
}

}  // extern "C"
