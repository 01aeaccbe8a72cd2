// comm/hosts/hosts_control.h: the control of a communicator over several hosts. The ranks of one host have a local
// communicator over shared memory, whose control works there; the first of them represents them to the other hosts.
// Does not know how large payloads travel between hosts.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/os.h"
#include "comm/hosts/agreement.h"
#include "comm/hosts/announcer.h"
#include "comm/hosts/assembly.h"
#include "comm/hosts/failure_notifier.h"
#include "comm/hosts/hosts_backend.h"
#include "comm/hosts/lines.h"
#include "comm/hosts/recovery_listener.h"
#include "comm/hosts/relay.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"
#include "comm/hosts/serial.h"
#include "comm/interface/control.h"
#include "comm/shm/endpoint.h"
#include "comm/shm/regroup/maker.h"

namespace gsel::hosts {

// Shared by the communicators of a job.
struct JobFacts {
  Secret secret;
  int64_t silence_ns;  // time after which a silent host is suspected
  int32_t order;
  std::shared_ptr<const Accelerator> between_hosts;  // transport for large payloads; nullptr: none
  std::string why_none;                              // why there is none
  bool on_devices;                                   // has an accelerator, whose transport may carry all payloads
};

// How the first ranks of the other hosts find that of the first host.
struct Founding {
  gsel_unique_id job;
  uint16_t port;
};

// What a shrink needs of its origin, which may be destroyed meanwhile.
struct Origin {
  std::shared_ptr<const JobFacts> facts;
  ShrinkSeries series;
  Roster roster;  // of the first generation; errors show the origin's ranks
  double timeout_s, join_timeout_s;
};

class HostsControl final : public Control {
 public:
  // listener: of the first rank of the first host.
  struct Place {
    std::shared_ptr<const JobFacts> facts;
    HostTable table;
    int32_t rank;
    std::unique_ptr<shm::Endpoint> local;
    std::optional<Listener> listener;
    double timeout_s, join_timeout_s;
    std::function<bool()> is_given_up = {};   // while it is made: whether another rank has given up
    std::optional<ShrinkSeries> series = {};  // of a shrink
  };
  // Waits for the other hosts. If they do not come, a communicator of a shrink is broken and can be shrunk again;
  // otherwise throws.
  explicit HostsControl(Place place);
  ~HostsControl() override;

  const char* name() const noexcept override { return local_->name(); }
  bool is_over_hosts() const override { return true; }
  int32_t shown(int32_t rank) const override { return roster_.shown(rank); }
  std::string named(int32_t rank) const override { return roster_.named(rank); }
  void exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s) override;
  void begin_announcing() override;
  void announce(const gsel_collective& checked, RegisteredPlace in) override;
  void check_announced() const override;
  int64_t detection_ns() const override { return 400'000'000; }  // over three ranks that poll every 50 ms
  void abort(const char* reason, int32_t about) noexcept override;
  void break_with(const Error& error) const noexcept override { local_->break_with(error); }
  void throw_break_reason() const override { local_->throw_break_reason(); }
  bool is_broken() const override { return local_->is_broken(); }
  bool await_break(int64_t nanoseconds) const override { return local_->await_break(nanoseconds); }
  void stop_awaiting_break() const noexcept override { local_->stop_awaiting_break(); }
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) override;
  gsel_comm_count counts(gsel_collective_kind kind) const override { return backend_.counts(kind); }
  std::string trace() const override { return local_->trace(); }
  void set_timeout(double seconds) override;
  std::unique_ptr<Control> split(int32_t colour, int32_t key, std::string_view label) override;
  std::unique_ptr<Control> create_group(std::span<const int32_t> ranks) override;
  std::unique_ptr<Control> dup() override;
  std::unique_ptr<Control> shrink(std::span<const int32_t> without) override;
  void resync() override;
  std::unique_ptr<BackendRequest> start_making(const Making& making,
                                               std::function<void(std::unique_ptr<Control>)> take) override;
  Backend& host() override { return backend_; }
  // Makes the local communicator of the living ranks of this host, after the communicator is broken.
  std::unique_ptr<shm::Endpoint> shrink_here(std::span<const int32_t> without);

 private:
  void connect(const Founding& founding, const std::optional<Listener>& listener,
               const std::function<bool()>& is_given_up);
  void open_recovery_listener();
  void close_recovery_listener();
  std::unique_ptr<Control> split_in_turn(int32_t colour, int32_t key, std::string_view label, std::string_view what);
  void end_calls(const char* purpose);
  std::unique_ptr<Control> make_shrunk(const std::vector<int32_t>& without);
  std::unique_ptr<Control> make_group(const std::vector<int32_t>& ranks);
  std::shared_ptr<const Origin> origin() const;
  std::unique_ptr<BackendRequest> create_in_background(std::function<void()> make);
  void join_transport();
  bool agree_on(std::string_view text, std::string_view label, double timeout_s);
  bool compare_transports();
  void run_in_turn(const std::function<void()>& body);
  void exchange_in_turn(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s);

  const std::shared_ptr<const JobFacts> facts_;
  const Roster roster_;
  std::unique_ptr<shm::Endpoint> local_;
  double timeout_s_;
  const double join_timeout_s_;
  os::Fd wake_;                             // readable when the communicator is broken
  std::vector<std::optional<Line>> lines_;  // on the first rank of a host; by host
  std::optional<Relay> relay_;
  std::unique_ptr<FailureNotifier> failure_notifier_;
  std::unique_ptr<Announcer> announcer_;  // nullptr: no transport of devices makes calls
  Assembly assembly_;
  std::unique_ptr<Serial> serial_ = std::make_unique<Serial>();
  HostsBackend backend_;
  ShrinkSeries series_;
  std::vector<std::shared_ptr<shm::Maker>> makers_;
  std::atomic<bool> is_shrunk_{false};
  const uint64_t fork_generation_ = os::fork_generation();
};

// An agreement for this host; its marks are not set yet. participants: by host, ranks of the first generation.
Agreement agreement_of(const Origin& from, HostRequest::Aim aim, std::vector<Participant> participants);
// Collective over `here`: its first rank holds the agreement, and all ranks get the decision.
Decision decide_here(Agreement& agreement, shm::Endpoint& here);
[[noreturn]] void fail_as(const Decision& decision, HostRequest::Aim aim, const Roster& roster);

}  // namespace gsel::hosts
