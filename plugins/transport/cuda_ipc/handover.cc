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

// Of who is connected; false: another user.
bool is_own_user(int connection, int32_t* pid) {
  ucred who{};
  socklen_t length = sizeof who;
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0) fail_with("asking who is connected");
  *pid = who.pid;
  return who.uid == geteuid();
}

void look(const gsel_join& join, Clock::time_point deadline) {
  must([&](gsel_error** err) { return join.control->look(join.control->ctx, err); });
  if (Clock::now() > deadline) fail(GSEL_ERR_TIMEOUT, "cuda_ipc: another rank has not handed its memory over");
}

// The other rank may not have taken earlier connections yet.
File connected(const gsel_join& join, const Place& to, Clock::time_point deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, to.name, to.length);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + to.length);
  for (;;) {
    File connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (connection.get() >= 0 && connect(connection.get(), reinterpret_cast<sockaddr*>(&address), length) == 0)
      return connection;
    if (errno != EAGAIN)
      fail_with("reaching the socket of another rank; ranks share memory within one network namespace");
    look(join, deadline);
    usleep(kPollMs * 1000);
  }
}

File send_files(const gsel_join& join, const Place& to, const Files& own, Clock::time_point deadline) {
  File connection = connected(join, to, deadline);
  int32_t pid = 0;
  if (!is_own_user(connection.get(), &pid)) fail(GSEL_ERR_IO, "cuda_ipc: another user has the socket of a rank");
  Greeting greeting{to.key, join.rank, 0};
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

// Who has connected and not sent yet. Strangers may do that, too.
struct Guest {
  File connection;
  int32_t pid;
};

// Waits until somebody connects or sends, and takes who connects.
void attend(const gsel_join& join, const File& listening, std::vector<Guest>& guests, Clock::time_point deadline) {
  std::vector<pollfd> items{{listening.get(), POLLIN, 0}};
  for (const Guest& guest : guests) items.push_back({guest.connection.get(), POLLIN, 0});
  poll(items.data(), items.size(), kPollMs);
  look(join, deadline);
  File connection(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (connection.get() < 0) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
    fail_with("taking the memory of another rank");
  }
  int32_t pid = 0;
  if (is_own_user(connection.get(), &pid)) guests.push_back({std::move(connection), pid});
}

void take_all(const gsel_join& join, const Place& place, const File& listening, std::vector<Neighbour>& all,
              Clock::time_point deadline) {
  std::vector<Guest> guests;
  for (int32_t missing = join.world_size - 1; missing > 0;) {
    attend(join, listening, guests, deadline);
    std::erase_if(guests, [&](Guest& guest) {
      pollfd item{guest.connection.get(), POLLIN, 0};
      if (poll(&item, 1, 0) <= 0) return false;
      Files files;
      const int32_t from = receive_files(guest.connection.get(), place, join.world_size, files);
      if (from < 0 || from == join.rank || all[static_cast<size_t>(from)].files[0].get() >= 0) return true;
      all[static_cast<size_t>(from)] = {std::move(files), guest.pid};
      --missing;
      return true;
    });
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

std::vector<Neighbour> hand_over(const gsel_join& join, const Files& own) {
  Place place;
  Report report;
  File listening;
  attempt(report, [&] { listening = listen_somewhere(place); });
  const std::vector<Place> places = exchanged(join, place);
  agree(join, report, "cuda_ipc");
  std::vector<Neighbour> all(static_cast<size_t>(join.world_size));
  std::vector<File> connections;  // open until all have received
  attempt(report, [&] {
    const auto deadline = after(join.join_timeout_s);
    for (int32_t q = 0; q < join.world_size; ++q)
      if (q != join.rank) connections.push_back(send_files(join, places[static_cast<size_t>(q)], own, deadline));
    take_all(join, place, listening, all, deadline);
  });
  agree(join, report, "cuda_ipc");
  return all;
}

}  // namespace gsel_ipc
