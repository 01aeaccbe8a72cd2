// comm/shm/join/launcher.cc: see launcher.h. A line is "rank R of N ...", padded with zeros; bindings/cli/endings.cc
// sends it.
#include "comm/shm/join/launcher.h"

#include <poll.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "base/text.h"

namespace gsel::shm {
namespace {

constexpr size_t kWordBytes = 128;
constexpr int64_t kWordNs = 1'000'000'000;

}  // namespace

Launcher::Launcher(const JoinOptions& join) : join_(join) {
  const std::string job = job_of_launcher(join);
  if (job.empty()) return;
  auto socket = Socket::connect("gsel-run-1-" + job);
  if (socket && socket->peer_user() == geteuid()) socket_ = std::move(*socket);
}

void Launcher::check() {
  while (socket_.fd() >= 0) {
    char line[kWordBytes + 1] = {};
    std::vector<os::Fd> fds;
    const Read result = socket_.read(line, kWordBytes, fds);
    if (result == Read::nothing) return;
    if (result != Read::message) return socket_.close();
    int32_t rank = -1, world_size = 0;
    if (std::sscanf(line, "rank %d of %d ", &rank, &world_size) != 2 || world_size != join_.world_size) continue;
    has_line_ = true;
    throw Error(GSEL_ERR_PEER,
                fmt::format("{} before it joined; all {} are needed", line, with_noun(world_size, "rank")))
        .about_rank(rank);
  }
}

void Launcher::await_word() {
  const int64_t deadline = os::now_ns() + kWordNs;
  for (; !has_line_ && socket_.fd() >= 0 && os::now_ns() < deadline; check()) {
    pollfd item{.fd = socket_.fd(), .events = POLLIN, .revents = 0};
    poll(&item, 1, milliseconds_until(deadline));
  }
}

}  // namespace gsel::shm
