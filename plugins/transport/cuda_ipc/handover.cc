// plugins/transport/cuda_ipc/handover.cc: see handover.h. Each rank listens, tells the others where, and sends its
// files to each. What strangers send has another key and is dropped.
#include "handover.h"

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/common/failure.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

constexpr int kPollMs = 20;

struct Place {
  char name[32] = "";  // of the socket, behind a zero byte
  uint32_t length = 0;
  uint32_t reserved = 0;
  std::array<uint64_t, 2> key{};  // of who is to be let in
};

struct Greeting {
  std::array<uint64_t, 2> key;
  int32_t rank;
  int32_t reserved;
};

[[noreturn]] void fail_with(const char* what) {
  fail(GSEL_ERR_IO, std::string("cuda_ipc: ") + what + ": " + std::strerror(errno));
}

File listen_somewhere(Place& place) {
  File made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t length = sizeof address.sun_family;  // the kernel chooses a name
  if (made.get() < 0 || bind(made.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(made.get(), SOMAXCONN) != 0)
    fail_with("a socket to hand memory over");
  length = sizeof address;
  if (getsockname(made.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) fail_with("the name of a socket");
  place.length = static_cast<uint32_t>(length - offsetof(sockaddr_un, sun_path));
  if (place.length > sizeof place.name) fail(GSEL_ERR_INTERNAL, "cuda_ipc: the name of a socket is too long");
  std::memcpy(place.name, address.sun_path, place.length);
  if (getrandom(place.key.data(), sizeof place.key, 0) != sizeof place.key) fail_with("random bytes");
  return made;
}

union Control {
  cmsghdr header;
  char bytes[CMSG_SPACE(kFiles * sizeof(int))];
};

File send_files(const Place& to, int32_t rank, const Files& own) {
  File connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, to.name, to.length);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + to.length);
  if (connection.get() < 0 || connect(connection.get(), reinterpret_cast<sockaddr*>(&address), length) != 0)
    fail_with("reaching the socket of another rank; ranks share memory within one network namespace");
  Greeting greeting{to.key, rank, 0};
  iovec part{&greeting, sizeof greeting};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kFiles * sizeof(int));
  for (size_t i = 0; i < kFiles; ++i) {
    const int fd = own[i].get();
    std::memcpy(CMSG_DATA(header) + i * sizeof fd, &fd, sizeof fd);
  }
  if (sendmsg(connection.get(), &message, MSG_NOSIGNAL) != sizeof greeting) fail_with("handing memory over");
  return connection;
}

// The rank that has sent the files; -1: a stranger.
int32_t receive_files(int connection, const Place& own, int32_t world_size, Files& out) {
  Greeting greeting{};
  iovec part{&greeting, sizeof greeting};
  Control control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  Files files;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  const bool has_files = got >= 0 && header && header->cmsg_type == SCM_RIGHTS;
  const size_t n = has_files ? (header->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
  for (size_t i = 0; i < n && i < kFiles; ++i) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
    files[i] = File(fd);
  }
  if (got != sizeof greeting || greeting.key != own.key || greeting.rank < 0 || greeting.rank >= world_size) return -1;
  if (n != kFiles)
    fail(GSEL_ERR_IO, "cuda_ipc: no files of rank " + std::to_string(greeting.rank) +
                          " have come: this process may have too many open; see ulimit -n");
  out = std::move(files);
  return greeting.rank;
}

// Waits until there is something to read.
void await(const gsel_join& join, int fd, Clock::time_point deadline) {
  for (;;) {
    pollfd item{fd, POLLIN, 0};
    if (poll(&item, 1, kPollMs) > 0) return;
    must([&](gsel_error** err) { return join.control->look(join.control->ctx, err); });
    if (Clock::now() > deadline) fail(GSEL_ERR_TIMEOUT, "cuda_ipc: another rank has not handed its memory over");
  }
}

}  // namespace

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

std::vector<Files> hand_over(const gsel_join& join, const Files& own) {
  Place place;
  Report report;
  File listening;
  try {
    listening = listen_somewhere(place);
  } catch (const Failure& failure) {
    report.say(failure.status, failure.text);
  }
  const std::vector<Place> places = exchanged(join, place);
  agree(join, report, "cuda_ipc");
  std::vector<Files> all(static_cast<size_t>(join.world_size));
  std::vector<File> connections;  // open until all have received
  try {
    const auto deadline = after(join.join_timeout_s);
    for (int32_t q = 0; q < join.world_size; ++q)
      if (q != join.rank) connections.push_back(send_files(places[static_cast<size_t>(q)], join.rank, own));
    for (int32_t missing = join.world_size - 1; missing > 0;) {
      await(join, listening.get(), deadline);
      const File connection(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (connection.get() < 0) continue;
      await(join, connection.get(), deadline);
      Files files;
      const int32_t from = receive_files(connection.get(), place, join.world_size, files);
      if (from < 0 || from == join.rank || all[static_cast<size_t>(from)][0].get() >= 0) continue;
      all[static_cast<size_t>(from)] = std::move(files);
      --missing;
    }
  } catch (const Failure& failure) {
    report.say(failure.status, failure.text);
  } catch (const std::pair<gsel_status, gsel_error*>&) {
    throw;  // the communicator is broken, which all ranks see
  }
  agree(join, report, "cuda_ipc");
  return all;
}

}  // namespace gsel_ipc
