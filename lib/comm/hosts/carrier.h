// comm/hosts/carrier.h: a transport between hosts, joined: bytes from rank to rank (gsel/transport.h). Ends its work
// when the communicator is broken. Does not know what the bytes mean.
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

// For the control to hear of the death that an error of the transport follows from.
constexpr int64_t kCauseNs = 1'000'000'000;

class Carrier {
 public:
  // All ranks of the control join at the same time. The control outlives it. transport: of the host's memory; address:
  // where the other hosts reach this one.
  Carrier(std::shared_ptr<const Accelerator> transport, Control& control, double timeout_s, double join_timeout_s,
          std::string_view address);
  ~Carrier();
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  const char* name() const { return transport_->transport_name.c_str(); }
  bool is_prompt() const { return (transport_->can.flags & GSEL_TRANSPORT_PROMPT) != 0; }
  std::string note() const { return link_->note(); }
  void throw_what_broke() const { control_.throw_what_broke(); }
  // What is done beside, while bytes are waited for for long.
  void attend_with(std::function<void()> attend) { attend_ = std::move(attend); }
  void attend() const { attend_(); }

  // Bytes on their way; their memory stays until they have been waited for.
  class Posted {
   public:
    // failure: as in test.
    Posted(const Carrier& carrier, const gsel_transfer& transfer, std::optional<Error>* failure = nullptr);
    Posted(Posted&& other) noexcept
        : carrier_(other.carrier_), handle_(std::exchange(other.handle_, nullptr)), peer_(other.peer_) {}
    Posted& operator=(Posted&& other) = delete;
    ~Posted();
    int32_t peer() const { return peer_; }
    bool has_ended() const { return !handle_; }  // has been tested to the end
    // Whether they have gone or come, after at most so long. Throws what has broken the communicator; with `failure`
    // there, what another rank is to blame for goes there and breaks nothing.
    bool test(double seconds, std::optional<Error>* failure = nullptr);

   private:
    const Carrier& carrier_;
    gsel_posted* handle_ = nullptr;
    int32_t peer_;
  };
  // To the end; behind the deadline the communicator is broken, about the rank that is late.
  void finish(Posted& posted, int64_t deadline_ns, std::string_view asked);
  void finish(std::vector<Posted>& posted, int64_t deadline_ns, std::string_view asked);

 private:
  [[noreturn]] void fail_broken(const Error& error, int32_t peer) const;

  const std::shared_ptr<const Accelerator> transport_;
  Control& control_;
  const std::shared_ptr<TransportLink> link_;
  std::function<void()> attend_ = [] {};
};

}  // namespace gsel::hosts
