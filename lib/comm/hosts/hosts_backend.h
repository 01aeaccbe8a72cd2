// comm/hosts/hosts_backend.h: the backend for host memory of a communicator over several hosts. Every collective begins
// with an assembly (assembly.h), which carries small payloads. For larger ones each rank gets what it needs from the
// ranks of its host through shared memory and from others over a transport. A reduction takes the inputs of all ranks
// in rank order, so that its bits are the same as on one host: from host to host (chain.cc), or by one rank for each
// slice, first within hosts if the order allows it (two_levels.cc). Does not know how the transport moves bytes.
#pragma once

#include <gsel/comm.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/hosts/assembly.h"
#include "comm/hosts/frames.h"
#include "comm/hosts/host_transport.h"
#include "comm/hosts/messages.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/serial.h"
#include "comm/hosts/ways.h"
#include "comm/interface/backend.h"
#include "comm/shm/call/call.h"
#include "comm/shm/call/plan.h"
#include "comm/shm/endpoint.h"
#include "device/host/reduce/kernels.h"

namespace gsel::hosts {

class HostsBackend final : public Backend, private Messages::Rank, private shm::Outer {
 public:
  HostsBackend(const Roster& roster, shm::Endpoint& local, Assembly& assembly, Serial& serial, int32_t order,
               double timeout_s)
      : roster_(roster), local_(local), assembly_(assembly), serial_(serial), order_(order), timeout_s_(timeout_s) {
    local_.serve(*this);
  }

  // Sets the transport of large payloads, before the first of them; nullptr: after the last.
  void take(std::unique_ptr<HostTransport> host_transport);
  // There is no transport between hosts: refuses large payloads and messages between hosts.
  void go_without(std::string why) { why_none_ = std::move(why); }
  void leave() noexcept;  // before take(nullptr)
  bool messages_under_way() const { return messages_ && messages_->under_way(); }
  // In a forked child: leaks what belongs to the parent.
  void abandon() noexcept {
    static_cast<void>(new std::shared_ptr(messages_));
    static_cast<void>(frames_.release());
    static_cast<void>(host_transport_.release());
  }
  void set_timeout(double seconds) { timeout_s_.store(seconds, std::memory_order_relaxed); }
  gsel_comm_count counts(gsel_collective_kind kind) const;
  void count(gsel_collective_kind kind, uint64_t bytes) override;  // a call, and the bytes that it sends

  void run(const gsel_collective& checked, gsel_stream* stream) override;
  // On the first rank of a host: returns once the other hosts know what broke the communicator. Called before a call
  // returns that error, since the process may end then.
  void notify_failures_with(std::function<void()> await_notified) { await_notified_ = std::move(await_notified); }
  void group(std::span<const gsel_collective> checked) override;
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked, bool promptly = false) override;
  std::unique_ptr<BackendRequest> start_in_turn(std::function<void()> task);  // among the collectives
  void allow_overlap() override {
    overlaps_ = true;
    local_.allow_overlap();
  }
  void await_notified() noexcept override {
    if (await_notified_ && local_.is_broken()) await_notified_();
  }
  bool in_operation() const override { return serial_.on_this_thread() || local_.in_operation(); }
  gsel_comm_explanation explain(const gsel_collective& checked) override;
  void* alloc(uint64_t bytes) override { return local_.alloc(bytes); }
  void free(void* memory) override { local_.free(memory); }
  void register_memory(void* memory, uint64_t bytes) override { local_.register_memory(memory, bytes); }
  void unregister_memory(void* memory) override { local_.unregister_memory(memory); }
  void set_stream(void* native) override { local_.set_stream(native); }
  void synchronize() override { local_.synchronize(); }
  void throw_async_error() override { local_.throw_async_error(); }

 private:
  void run_now(const gsel_collective& checked);
  using Call = shm::Call;
  using Plan = shm::Plan;
  using Bytes = shm::Bytes;
  void make(const gsel_collective& given);
  void fail_in_operation(const Error& error) const;
  Spread spread() const;
  Way way_of(const Call& call) const { return hosts::way_of(call, spread()); }
  bool goes_on(const Call& call) const;
  char* room(uint64_t bytes);
  void reduce_in_frames(const Call& call);
  void make_small(const Call& call, const Plan& plan, bool at_first);
  void make_large(const Call& call, const Plan& plan);
  void move_large(const Call& call, const Plan& plan, const double* factors);
  host::Fold fold_of(const Call& call, const double* factors) const;
  void check_parts(const Call& call, const std::vector<uint64_t>& counts) const;
  void reduce_in_slices(const Call& call, const Plan& plan, const double* factors);
  void reduce_direct(const Call& call, const Plan& plan, const double* factors);
  void reduce_in_chain(const Call& call, const Plan& plan, const double* factors);
  void reduce_in_two_levels(const Call& call, const Plan& plan, const double* factors, bool is_folded);
  // The bytes of `from` that are sent to a rank, and the place in `to` of those from a rank.
  struct Exchange {
    const char* from;
    std::function<Bytes(int32_t)> sent;
    char* to;
    std::function<Bytes(int32_t)> got;
  };
  void gather_by_lanes(const Call& call, const Plan& plan);
  void broadcast_by_lanes(const Call& call);
  void move(const Exchange& exchange, double timeout_s);
  void move_across(const Exchange& exchange, double timeout_s, bool and_here);
  void move_here(const Exchange& exchange, double timeout_s);
  friend class Lanes;
  bool is_here(const gsel_collective& message) const;
  gsel_comm_explanation explain_message(const gsel_collective& message) const;
  gsel_collective here(const gsel_collective& message) const;
  void require_transport(gsel_collective_kind kind) const;
  void note_transport();
  int64_t timeout_ns() const;

  uint64_t begun() const override { return assembly_.begun(); }
  bool is_idle() const override { return !overlaps_ && !serial_.under_way(); }
  bool waits_alone() const override { return !overlaps_ && serial_.is_alone_here(); }
  std::string asked() const override { return assembly_.text(); }
  void count_half_here(bool sent, uint64_t bytes) override { halves_here_[sent ? 0 : 1].add(bytes); }
  void attend() noexcept override {
    if (messages_) messages_->attend();
  }
  std::string call_text() const override { return serial_.on_this_thread() ? assembly_.text() : std::string(); }

  const Roster& roster_;
  shm::Endpoint& local_;
  Assembly& assembly_;
  Serial& serial_;
  const int32_t order_;
  std::atomic<double> timeout_s_;
  std::unique_ptr<HostTransport> host_transport_;
  std::string why_none_;
  std::string reason_ = "the ranks are on several hosts";  // of the transport, for explanations
  std::shared_ptr<Messages> messages_;                     // over the transport
  std::unique_ptr<Frames> frames_;                         // over the transport, if it is prompt; used by the assembly
  struct Count {
    void add(uint64_t more) {
      calls.fetch_add(1, std::memory_order_relaxed);
      bytes.fetch_add(more, std::memory_order_relaxed);
    }
    std::atomic<uint64_t> calls{0}, bytes{0};
  };
  std::array<Count, GSEL_COLLECTIVE_KINDS> counts_;
  std::array<Count, 2> halves_here_;   // halves of sendrecvs that the local endpoint counts as sends and receives
  std::atomic<bool> overlaps_{false};  // other threads may run requests during a call
  bool unconfirmed_ = false;  // bytes of a collective were sent, and no later call shows that they have arrived
  std::vector<char> room_;    // for small payloads and inputs, see room(); both used by collectives, one at a time
  std::function<void()> await_notified_;
};

}  // namespace gsel::hosts
