// comm/shm/endpoint.h: one rank's end of a communicator of one host: its control and the backend for host memory, both
// over shared memory. Owns the components listed at the end of the class; each uses only components above it in the
// list. Does not know its callers.
//
// A small allreduce goes through api/comm.cc, comm/communicator.h and comm/call/check.cc (arguments); then
// through endpoint.cc and engine.h (whether anything else is under way), call.cc and plan.cc (its parameters),
// collectives.cc, headers.cc and signals.h (the header line), small.cc and reduce/kernels.cc (the sum), and
// recorder.cc.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <memory>
#include <vector>

#include "comm/interface/backend.h"
#include "comm/interface/control.h"
#include "comm/launch/join_options.h"
#include "comm/shm/announcements.h"
#include "comm/shm/regroup/maker.h"
#include "comm/shm/regroup/regroup.h"

namespace gsel::shm {

class Endpoint final : public Control, public Backend {
 public:
  explicit Endpoint(MemberPlace place);
  ~Endpoint() override;

  const char* name() const noexcept override { return members_.name(); }
  int32_t shown(int32_t rank) const override { return members_.shown(rank); }
  std::string named(int32_t rank) const override { return members_.named(rank); }
  void exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s) override;
  void announce(const gsel_collective& checked, RegisteredPlace in) override;
  void check_announced() const override { announcements_.check_announced(); }
  void abort(const char* reason, int32_t about) noexcept override { breaking_.abort(reason, about); }
  void break_with(const Error& error) const noexcept override;
  void throw_break_reason() const override { breaking_.throw_if_broken(); }
  bool is_broken() const override { return members_.is_broken(); }
  bool await_break(int64_t nanoseconds) const override { return breaking_.await(nanoseconds); }
  void stop_awaiting_break() const noexcept override { Breaking::wake(members_.mine()); }
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) noexcept override {
    return announcements_.begin_joint_call(kind, argument);
  }
  gsel_comm_count counts(gsel_collective_kind kind) const override { return recorder_.counts(kind); }
  std::string trace() const override { return recorder_.trace(); }
  // Notes for recordings that this is one part of a communicator over several hosts; parts: of all hosts.
  void note_part(uint64_t of, int32_t ranks, std::span<const PartOfHost> parts, size_t own) const noexcept;
  // A call of that communicator has failed on this rank, in which no call of this one has: writes the recording.
  void note_failure(const Error& error) noexcept;
  void set_timeout(double seconds) override;
  std::unique_ptr<Control> split(int32_t colour, int32_t key, std::string_view label) override;
  // The same; errors of the new communicator show this communicator's ranks by the numbers `shown`.
  std::unique_ptr<Endpoint> split_shown(int32_t colour, int32_t key, std::string_view label,
                                        std::span<const int32_t> shown);
  // From now on errors show ranks by these numbers. Every rank calls it with the same numbers; no rank waits.
  void show_as(std::span<const int32_t> shown) { members_.show_as(shown); }
  // A function that finishes each communicator made by shrink().
  using Finish = std::function<std::unique_ptr<Control>(std::unique_ptr<Endpoint>)>;
  void finish_shrink_with(Finish finish) { finish_shrink_ = std::move(finish); }
  std::unique_ptr<Control> create_group(std::span<const int32_t> ranks) override;
  std::unique_ptr<Control> dup() override;
  std::unique_ptr<Control> shrink(std::span<const int32_t> without) override;
  std::unique_ptr<Endpoint> shrink_here(std::span<const int32_t> without);
  void resync() override { regroup_.resync(); }
  std::unique_ptr<BackendRequest> start_making(const Making& making,
                                               std::function<void(std::unique_ptr<Control>)> take) override;
  Backend& host() override { return *this; }

  void run(const gsel_collective& checked, gsel_stream* stream) override;
  void group(std::span<const gsel_collective> checked) override;
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked, bool promptly = false) override;
  // A receive from any rank whose message may come from outside of this communicator, so that it does not time out.
  std::unique_ptr<BackendRequest> start_open(const gsel_collective& checked);
  bool is_ahead(int32_t rank) const { return mailbox_.is_ahead(rank); }
  bool all_others_left() const;
  // The calls of this rank are steps of calls of `outer`.
  void serve(Outer& outer) { engine_->serve(outer); }
  void allow_overlap() override { engine_->allow_overlap(); }
  void end_overlap() { engine_->end_overlap(); }
  bool in_operation() const override { return engine_->in_operation(); }
  gsel_comm_explanation explain(const gsel_collective& checked) override;
  void* alloc(uint64_t bytes) override { return family_for("gsel_mem_alloc").alloc(bytes); }
  void free(void* memory) override { family_for("gsel_mem_free").free(memory); }
  void register_memory(void* memory, uint64_t bytes) override {
    family_for("gsel_mem_register").register_memory(memory, bytes);
  }
  void unregister_memory(void* memory) override { family_for("gsel_mem_unregister").unregister_memory(memory); }
  void set_stream(void* native) override;
  void synchronize() override { throw_if_broken("gsel_comm_synchronize"); }
  void throw_async_error() override { throw_if_broken("gsel_comm_get_async_error"); }

 private:
  Family& family_for(const char* function) const;  // GSEL_ERR_FORKED in a child
  void throw_if_broken(const char* function) const;
  void call(const gsel_collective& checked);

  Membership members_;
  FlightRecorder recorder_;
  Breaking breaking_;
  Signals signals_;
  Announcements announcements_;
  PeerMemory memory_;
  Faults faults_;
  Collectives collectives_;
  Mailbox mailbox_;
  std::unique_ptr<Engine> engine_;
  Regroup regroup_;
  std::vector<std::shared_ptr<Maker>> makers_;
  Finish finish_shrink_;
};

// Joins the ranks of one host; see gsel_comm_init.
std::unique_ptr<Endpoint> join(const JoinOptions& join);

}  // namespace gsel::shm
