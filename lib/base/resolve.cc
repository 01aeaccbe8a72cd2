// base/resolve.cc: see resolve.h.
#include "base/resolve.h"

#include <dlfcn.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/os.h"
#include "base/threads.h"

namespace gsel {
namespace {

Resolved resolve_now(const std::string& host, const std::string& port, int flags) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  Resolved out;
  out.failure = getaddrinfo(host.c_str(), port.empty() ? nullptr : port.c_str(), &hints, &found);
  if (out.failure == 0) out.list.reset(found);
  return out;
}

// Shared with the thread, which may live longer than the question.
struct Lookup {
  Lookup(std::string given_host, std::string given_port, int given_flags)
      : host(std::move(given_host)), port(std::move(given_port)), flags(given_flags) {}
  const std::string host, port;
  const int flags;
  std::mutex mutex;
  std::condition_variable answered;
  bool is_answered = false;
  Resolved answer;
};

// A thread that was left behind ends in code of this library, which must not be unloaded.
void stay_loaded() {
  Dl_info own = {};
  if (dladdr(reinterpret_cast<void*>(&resolve_now), &own) != 0 && own.dli_fname)
    static_cast<void>(dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE));
}

}  // namespace

std::string Resolved::why() const {
  return is_late ? "the resolver does not answer" : gai_strerror(failure);
}

Resolved resolve(const std::string& host, const std::string& port, int flags, int64_t deadline_ns) {
  if (Resolved numeric = resolve_now(host, port, flags | AI_NUMERICHOST); numeric.failure == 0) return numeric;
  if ((flags & AI_NUMERICHOST) != 0) return resolve_now(host, port, flags);
  auto lookup = std::make_shared<Lookup>(host, port, flags);
  std::thread thread;
  try {
    thread = quiet_thread([lookup] {
      Resolved found = resolve_now(lookup->host, lookup->port, lookup->flags);
      const std::lock_guard lock(lookup->mutex);
      lookup->answer = std::move(found);
      lookup->is_answered = true;
      lookup->answered.notify_all();
    });
  } catch (const std::system_error&) {  // no thread is to be had
    return resolve_now(host, port, flags);
  }
  std::unique_lock lock(lookup->mutex);
  const auto left = std::chrono::nanoseconds(deadline_ns - os::now_ns());
  if (lookup->answered.wait_for(lock, left, [&] { return lookup->is_answered; })) {
    lock.unlock();
    thread.join();
    return std::move(lookup->answer);
  }
  stay_loaded();
  thread.detach();
  Resolved out;
  out.failure = EAI_AGAIN;
  out.is_late = true;
  return out;
}

}  // namespace gsel
