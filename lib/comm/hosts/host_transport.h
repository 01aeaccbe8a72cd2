// comm/hosts/host_transport.h: a link of a transport between hosts, which moves bytes from rank to rank
// (gsel/transport.h). Aborts its work when the communicator is broken. Does not know what the bytes mean.
#pragma once

#include <gsel/transport.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/device/accelerator.h"
#include "comm/device/transport.h"
#include "comm/interface/control.h"

namespace gsel::hosts {

// Wait for the control to notice the death that caused an error of the transport.
constexpr int64_t kCauseNs = 1'000'000'000;

class HostTransport {
 public:
  // Collective over the ranks of the control, which outlives the transport. transport: for host memory. address: of
  // this host for other hosts.
  HostTransport(std::shared_ptr<const Accelerator> transport, Control& control, double timeout_s, double join_timeout_s,
                std::string_view address);
  ~HostTransport();
  HostTransport(const HostTransport&) = delete;
  HostTransport& operator=(const HostTransport&) = delete;

  const char* name() const { return transport_->offers.front().name.c_str(); }
  bool is_prompt() const { return (transport_->offers.front().can.flags & GSEL_TRANSPORT_PROMPT) != 0; }
  std::string note() const { return link_->note(); }
  void throw_break_reason() const { control_.throw_break_reason(); }
  // Sets a function that is called repeatedly during a long wait for bytes.
  void attend_with(std::function<void()> attend) { attend_ = std::move(attend); }
  void attend() const { attend_(); }

  // A transfer under way; its memory must live until the transfer has ended.
  class Posted {
   public:
    // failure: as in test.
    Posted(const HostTransport& host_transport, const gsel_transfer& transfer, std::optional<Error>* failure = nullptr);
    Posted(Posted&& other) noexcept
        : host_transport_(other.host_transport_), handle_(std::exchange(other.handle_, nullptr)), peer_(other.peer_) {}
    Posted& operator=(Posted&& other) = delete;
    ~Posted();
    int32_t peer() const { return peer_; }
    bool has_ended() const { return !handle_; }  // a test has seen its end
    // Waits at most `seconds` and returns whether the transfer has ended. A failure breaks the communicator and is
    // thrown; if `failure` is given, a failure that another rank caused is only stored there.
    bool test(double seconds, std::optional<Error>* failure = nullptr);

   private:
    const HostTransport& host_transport_;
    gsel_posted* handle_ = nullptr;
    int32_t peer_;
  };
  // Waits until the end; after the deadline breaks the communicator and blames the peer.
  void finish(Posted& posted, int64_t deadline_ns, std::string_view what);
  void finish(std::vector<Posted>& posted, int64_t deadline_ns, std::string_view what);

 private:
  [[noreturn]] void fail_broken(const Error& error, int32_t peer) const;

  const std::shared_ptr<const Accelerator> transport_;
  Control& control_;
  const std::shared_ptr<TransportLink> link_;
  std::function<void()> attend_ = [] {};
};

}  // namespace gsel::hosts
