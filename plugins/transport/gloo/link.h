// plugins/transport/gloo/link.h: one rank's connections to all others, made by gloo over TCP, and transfers over them.
// gloo sends after the receiver has asked, so a waiting send needs no buffer. gloo's own waits are not used, since a
// timeout there closes every connection.
#pragma once

#include <gloo/transport/tcp/context.h>
#include <gloo/transport/tcp/unbound_buffer.h>
#include <signal.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "thread.h"
#include "transport/common/failure.h"

namespace gsel_gloo {

using gsel_between::Clock;

// Shared by all links of a transport: a thread of gloo for each address, while links use it.
struct Transport {
  const gsel_host_v1* host;
  std::string library;
  std::mutex mutex{};
  std::map<std::string, std::weak_ptr<Thread>> threads{};
};

// Memory that is sent or received once, and its state.
class TransferBuffer : public gloo::transport::tcp::UnboundBuffer {
 public:
  enum class State { kUnderWay, kDone, kFailed };
  using UnboundBuffer::UnboundBuffer;
  // After gloo's thread has notified. gloo's own destructor waits for that thread by atomics, which ThreadSanitizer does
  // not see in a library that it has not compiled.
  ~TransferBuffer() override { const std::lock_guard lock(m_); }

  State wait(bool sends, Clock::time_point until);  // polls if `until` has passed
  std::string failure();                            // reason of kFailed

 private:
  State state(bool sends) const;
};

// Blocks SIGPIPE on this thread, which a write to a closed connection raises.
class NoPipeSignal {
 public:
  NoPipeSignal();
  ~NoPipeSignal();
  NoPipeSignal(const NoPipeSignal&) = delete;
  NoPipeSignal& operator=(const NoPipeSignal&) = delete;

 private:
  sigset_t before_;
  bool was_pending_;
};

}  // namespace gsel_gloo

struct gsel_link {
  const gsel_host_v1* host;
  int32_t rank;
  int32_t world_size;
  std::shared_ptr<gsel_gloo::Thread> thread{};
  std::shared_ptr<gloo::transport::tcp::Context> context{};
  // By rank: a receive that no send matches. It fails when the connection fails; a transfer under way does not.
  std::vector<std::unique_ptr<gsel_gloo::TransferBuffer>> guards{};
  std::atomic<bool> aborting{false};
};

struct gsel_posted {
  gsel_link* link;
  int32_t peer;
  bool sends;
  std::unique_ptr<gsel_gloo::TransferBuffer> buffer;
  std::shared_ptr<gsel_posted> self{};  // until it is released
  // State of begin(), which runs on gloo's thread.
  std::atomic<bool> begun{false}, given_up{false};
  std::string failure{};  // of begin(); empty: none
};

namespace gsel_gloo {

gsel_link* join(Transport& transport, const gsel_join& join);
void leave(gsel_link* link) noexcept;
void abort(gsel_link* link) noexcept;

// Parts of the table.
void add_transfers(gsel_transport_v2& table);

}  // namespace gsel_gloo
