// plugins/transport/gloo/link.cc: see link.h. Makes and ends connections.
#include "link.h"

#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/pair.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <optional>
#include <thread>

#include "address.h"

namespace gsel_gloo {
namespace {

using gsel_between::after;
using gsel_between::agree;
using gsel_between::fail;
using gsel_between::must;
using gsel_between::Report;
namespace tcp = gloo::transport::tcp;

constexpr std::chrono::milliseconds kLook{5}, kForLock{2};

std::shared_ptr<Thread> thread_at(Transport& transport, const std::string& address) {
  const std::lock_guard lock(transport.mutex);
  auto& known = transport.threads[address];
  std::shared_ptr<Thread> thread = known.lock();
  if (!thread) known = thread = std::make_shared<Thread>(address);
  return thread;
}

// gloo's thread throws if a connection is reset before it is handled, for example by the death of a rank, which ends
// this process. Here the exception fails the connection instead.
class Connection final : public tcp::Pair {
 public:
  using Pair::Pair;
  ~Connection() override {
    const std::lock_guard lock(m_);
    if (state_ != CLOSED) changeState(CLOSED);
  }
  void handleEvents(int events) override {
    try {
      Pair::handleEvents(events);
    } catch (const std::exception& e) {
      give_up(e.what());
    }
  }

 protected:
  // An accepted socket that is not registered with gloo's thread must not be unregistered from it.
  void changeState(state next) noexcept override {
    int listens = 0;
    socklen_t length = sizeof listens;
    if (next == CLOSED && state_ == LISTENING && fd_ >= 0 &&
        getsockopt(fd_, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens == 0) {
      ::close(fd_);
      fd_ = -1;
    }
    Pair::changeState(next);
  }

 private:
  // A thread that holds the lock for long is closing the connection, and waits for this thread.
  void give_up(const std::string& why) noexcept {
    const auto end = Clock::now() + kForLock;
    std::unique_lock lock(m_, std::try_to_lock);
    while (!lock && Clock::now() < end) {
      std::this_thread::yield();
      lock = std::unique_lock(m_, std::try_to_lock);
    }
    if (lock && !ex_) signalException(why);
  }
};

sockaddr_storage socket_address(const gloo::transport::Pair& pair) {
  return tcp::Address(pair.address().bytes()).getSockaddr();
}

// Each pair listens at its own port.
in_port_t& port_of(sockaddr_storage& address) {
  return address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in&>(address).sin_port
                                      : reinterpret_cast<sockaddr_in6&>(address).sin6_port;
}

// This rank's address and its port for each other rank.
std::vector<char> own_row(gsel_link& link) {
  std::vector<char> row(sizeof(sockaddr_in6) + sizeof(in_port_t) * static_cast<size_t>(link.world_size));
  for (int32_t peer = 0; peer < link.world_size; ++peer) {
    if (peer == link.rank) continue;
    sockaddr_storage address = socket_address(*link.context->getPair(peer));
    memcpy(&row[0], &address, sizeof(sockaddr_in6));
    memcpy(&row[sizeof(sockaddr_in6) + sizeof(in_port_t) * static_cast<size_t>(peer)], &port_of(address),
           sizeof(in_port_t));
  }
  return row;
}

std::vector<char> address_for(const char* row, int32_t rank) {
  sockaddr_storage address{};
  memcpy(&address, row, sizeof(sockaddr_in6));
  memcpy(&port_of(address), row + sizeof(sockaddr_in6) + sizeof(in_port_t) * static_cast<size_t>(rank),
         sizeof(in_port_t));
  return tcp::Address(address).bytes();
}

void close_all(gsel_link& link) noexcept {
  const Thread::Hurry hurry(*link.thread);
  for (int32_t peer = 0; peer < link.world_size; ++peer) try {
      if (auto& pair = link.context->getPair(peer)) pair->close();
    } catch (...) {  // closed already
    }
}

// Stops begin() on gloo's thread. Otherwise a deadlock is possible: a thread that closes a connection holds its lock
// and waits for gloo's thread, which waits for that lock. true: it was stopped before, or there are no connections.
bool stop_beginning(gsel_link& link) noexcept {
  if (link.aborting.exchange(true) || !link.context) return true;
  link.thread->await_pause();
  return false;
}

// While ranks connect: closes all connections when the communicator breaks or the deadline has passed.
class Watch {
 public:
  Watch(gsel_link& link, const gsel_join& join)
      : thread_([this, &link, control = join.control, deadline = after(join.join_timeout_s)] {
          std::unique_lock lock(mutex_);
          while (!changed_.wait_for(lock, kLook, [this] { return is_over_; }))
            if (control->await_break(control->ctx, 0) != 0 || Clock::now() >= deadline) return close_all(link);
        }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;
};

void connect_to(gsel_link& link, int32_t peer, const char* row) {
  const NoPipeSignal none;
  link.context->getPair(peer)->connect(address_for(row, link.rank));
  auto guard = std::make_unique<TransferBuffer>(link.context, nullptr, 0);
  guard->recv(peer, 0, 0, 0);
  link.guards[static_cast<size_t>(peer)] = std::move(guard);
}

void connect_all(gsel_link& link, const gsel_join& join, Report& report) {
  const std::vector<char> mine = own_row(link);
  std::vector<char> all(mine.size() * static_cast<size_t>(join.world_size));
  must([&](gsel_error** err) {
    return join.control->exchange(join.control->ctx, mine.data(), all.data(), mine.size(), err);
  });
  const Watch watch(link, join);
  const Thread::Hurry hurry(*link.thread);
  for (int32_t peer = 0; peer < link.world_size && report.status == GSEL_OK; ++peer) try {
      if (peer != link.rank) connect_to(link, peer, &all[mine.size() * static_cast<size_t>(peer)]);
    } catch (const std::exception& e) {
      const std::string text = e.what();
      report.say(GSEL_ERR_IO,
                 "no connection to rank " + std::to_string(peer) + ": " + text.substr(text.find("] ") + 2));
    }
}

}  // namespace

gsel_link* join(Transport& transport, const gsel_join& join) {
  auto link = std::make_unique<gsel_link>();
  link->host = transport.host, link->rank = join.rank, link->world_size = join.world_size;
  link->guards.resize(static_cast<size_t>(join.world_size));
  if (join.world_size == 1) return link.release();
  const std::string address = agree_on_address(join);
  Report report;
  try {
    link->thread = thread_at(transport, address);
    auto context = link->thread->device().createContext(join.rank, join.world_size);
    link->context = std::static_pointer_cast<tcp::Context>(context);
    link->context->setTimeout(std::chrono::hours(24));  // Watch has the deadline
    for (int32_t peer = 0; peer < join.world_size; ++peer)
      if (peer != join.rank)
        link->context->getPair(peer) = std::make_unique<Connection>(link->context.get(), &link->thread->device(), peer,
                                                                    link->context->getTimeout());
  } catch (const std::exception& e) {
    report.say(GSEL_ERR_IO, "no socket at " + address + ": " + e.what());
  }
  agree(join, report, "gloo");
  try {
    connect_all(*link, join, report);
    agree(join, report, "gloo");
  } catch (...) {
    link->guards.clear();
    throw;
  }
  return link.release();
}

void leave(gsel_link* link) noexcept {
  stop_beginning(*link);
  link->guards.clear();
  const std::shared_ptr<Thread> thread = link->thread;  // outlives the connections
  std::optional<Thread::Hurry> hurry;
  if (thread) hurry.emplace(*thread);
  delete link;
}

// A waiting thread sees the flag.
void abort(gsel_link* link) noexcept {
  if (!stop_beginning(*link)) close_all(*link);
}

}  // namespace gsel_gloo
