// comm/hosts/failure_notifier.h: spreads the failure that breaks a communicator from host to host, and notices lost
// hosts. Runs in the first rank of each host, on two threads. One waits until the communicator is broken on this host
// and notifies the hosts at the other ends of its lines. The other receives such notices and breaks the communicator on
// this host. A silent host is lost if another host confirms it (inquiry.h). Does not know the calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/hosts/inquiry.h"
#include "comm/hosts/lines.h"
#include "comm/hosts/roster.h"
#include "comm/interface/control.h"

namespace gsel::hosts {

class FailureNotifier {
 public:
  // local: the control of the ranks of this host. silence_ns: time without a message after which a host is suspected.
  // wake: an eventfd that becomes readable when the communicator is broken.
  FailureNotifier(const Roster& roster, Control& local, std::vector<std::optional<Line>>& lines, int64_t silence_ns,
                  const os::Fd& wake);
  ~FailureNotifier();  // notifies that this rank leaves
  FailureNotifier(const FailureNotifier&) = delete;
  FailureNotifier& operator=(const FailureNotifier&) = delete;
  // The communicator is broken: returns once the other hosts have been told, or after a short time. So a rank that ends
  // with its error has told them what broke.
  void await_notified() const noexcept;
  // Called once, when the ports of all recovery listeners are known.
  void begin_inquiries(const ShrinkSeries& series, const Secret& secret);

 private:
  using Kind = Notice::Kind;
  void send_notices();
  void notify_all(const Notice& notice, const std::string& text) noexcept;
  void notify_of_failure() noexcept;
  void receive_notices();
  void receive_from(size_t host);
  void suspect(size_t host);
  void judge(const Inquiries::Found& found);
  void lose(size_t host, const std::string& how) noexcept;

  const Roster& roster_;
  Control& local_;
  std::vector<std::optional<Line>>& lines_;
  const int64_t silence_ns_;
  const os::Fd& wake_;
  os::Fd stop_;
  std::atomic<bool> stopping_{false};
  bool is_notified_ = false;  // notify_of_failure() was called; used by the sending thread
  std::atomic<bool> all_notified_{false};
  struct Peer {
    int64_t last_ns;
    bool has_left;
    bool is_suspected = false;
  };
  std::vector<Peer> peers_;  // by host; used by the receiving thread
  std::atomic<bool> inquires_{false};
  std::optional<Inquiries> inquiries_;  // used by the receiving thread after inquires_ is set
  std::thread sending_, receiving_;
};

constexpr double kDefaultSilence = 5;  // seconds
constexpr int64_t kBeats = 5;          // heartbeats in that time, on each line in both directions
// Time without a message after which a host is suspected: GSEL_HOST_TIMEOUT, in seconds. The value of rank 0 is used by
// all ranks.
int64_t host_timeout_ns();

}  // namespace gsel::hosts
