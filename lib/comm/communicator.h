// comm/communicator.h: what gsel_comm_* means. A communicator is one control and the backend that its memory needs:
// that of the host, or that of a device. Checks arguments once, for every backend. Does not know how bytes travel and
// what they mean.
#pragma once

#include <gsel/comm.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os.h"
#include "comm/device/accelerator.h"
#include "comm/interface/backend.h"
#include "comm/interface/control.h"
#include "comm/launch/join_options.h"

namespace gsel {

// A call as data. `root` is the root of a broadcast or the peer of a message, else -1; `op` is 0 where nothing is
// reduced.
inline gsel_collective make_collective(gsel_collective_kind kind, const void* send, void* recv, uint64_t count,
                                       gsel_dtype dtype, gsel_op op = 0, int32_t root = -1) {
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = kind;
  call.dtype = dtype;
  call.op = op;
  call.root = root;
  call.send = send;
  call.recv = recv;
  call.count = count;
  return call;
}

constexpr size_t kMostReasonBytes = 1900;  // of why it is aborted; what says who did has room beside it

class DeviceBackend;

class Communicator {
 public:
  // Joins; see gsel_comm_init. find: opens the accelerator once all ranks have joined, so that a rank that cannot tells
  // the others; empty for memory of the host.
  using FindAccelerator = std::function<std::shared_ptr<const Accelerator>()>;
  explicit Communicator(const JoinOptions& join, const FindAccelerator& find = {});
  Communicator(Communicator&& other) noexcept;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return control_->rank(); }
  int32_t world_size() const { return control_->world_size(); }
  const char* name() const noexcept { return control_->name(); }
  bool is_over_hosts() const { return control_->is_over_hosts(); }
  uint64_t fork_generation() const { return fork_generation_; }

  // One call; a NULL stream means on the calling thread. Throws what gsel/comm.h lists.
  // `call` is checked and put in order in place: a copy at this point would cost a small call a tenth of its time.
  void collective(gsel_collective& call, gsel_stream* stream = nullptr);
  void collective(gsel_collective&& call, gsel_stream* stream = nullptr) { collective(call, stream); }
  // The same in two steps; and several at once, as gsel_group_run makes those of one communicator.
  void check(gsel_collective& call) const;
  void run_checked(const gsel_collective& call, gsel_stream* stream = nullptr) { backend_->run(call, stream); }
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked) { return backend_->start(checked); }
  // From now on, other threads may run requests while a call is made.
  void allow_overlap() { backend_->allow_overlap(); }
  // An operation of the caller's runs on this thread, in a call of this communicator: what waited for it would hang.
  bool in_operation() const { return backend_->in_operation(); }
  // about: the rank that the error is about; -1: this one.
  void abort(std::string_view reason, int32_t about = -1) noexcept;
  // Behind one that differs, break_with lets every call on every rank fail with the error.
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) {
    return control_->begin_joint_call(kind, argument);
  }
  void break_with(const Error& error) noexcept { control_->break_with(error); }
  gsel_comm_count counts(gsel_collective_kind kind) const { return control_->counts(kind); }
  std::string trace() const { return control_->trace(); }
  gsel_comm_explanation explain(const gsel_collective& call);

  Backend& host() { return control_->host(); }  // also of one with an accelerator: its control moves bytes, too
  DeviceBackend* device() const { return device_.get(); }                // nullptr: without an accelerator
  const Accelerator* accelerator() const { return accelerator_.get(); }  // the same
  // The accelerator's device, or the host.
  std::shared_ptr<DeviceContext> device_context() const;
  // A call on memory of the host, also with an accelerator.
  void collective_on_host(gsel_collective call);
  // See gsel/comm.h.
  void set_stream(void* native) {
    backend_->set_stream(native);
    stream_ = native;
  }
  void synchronize() { backend_->synchronize(); }
  void throw_async_error() { backend_->throw_async_error(); }

  // Communicators from this one; see gsel/comm.h. nullopt: none for this rank.
  std::optional<Communicator> split(int32_t colour, int32_t key);
  // For the library's own use: its errors show the ranks of this communicator, or of the one that this one shows.
  // label: what its name says. on_host: its calls take memory of the host, also where this one has an accelerator.
  std::optional<Communicator> split_inside(int32_t colour, int32_t key, const char* label, bool on_host = false);
  Communicator create_group(std::span<const int32_t> ranks);
  Communicator dup();
  Communicator shrink();
  Communicator shrink_without(std::span<const int32_t> ranks);
  // The same while the caller goes on. *made: before the end, unless there is none for this rank.
  std::unique_ptr<BackendRequest> start_making(const Making& making, std::shared_ptr<std::optional<Communicator>> made);
  void resync();
  Communicator grow(const JoinOptions& join, const FindAccelerator& find);
  void set_timeout(double timeout_s);

  // Memory that the ranks reach.
  void* alloc(uint64_t bytes) { return backend_->alloc(bytes); }
  void free(void* memory) { backend_->free(memory); }
  void register_memory(void* memory, uint64_t bytes) { backend_->register_memory(memory, bytes); }
  void unregister_memory(void* memory) { backend_->unregister_memory(memory); }

 private:
  Communicator(const Communicator& made_from, std::unique_ptr<Control> control, bool on_host = false);
  void prepare();
  void join_devices();
  std::shared_ptr<const Accelerator> find_together(const FindAccelerator& find);
  void check_listed(std::span<const int32_t> ranks, const char* asked) const;
  void check_group(std::span<const int32_t> ranks) const;
  void check_left_out(std::span<const int32_t> ranks) const;

  struct Joined {  // how, for the transport of devices
    double timeout_s, join_timeout_s;
    uint32_t flags;
  } joined_{};
  std::shared_ptr<const Accelerator> accelerator_;  // nullptr: memory of the host
  std::unique_ptr<Control> control_;                // its end waits for communicators that are being made
  void* stream_ = nullptr;                          // the caller's
  std::unique_ptr<DeviceBackend> device_;
  Backend* backend_ = nullptr;  // one of the two: for the memory of its calls
  uint64_t fork_generation_ = os::fork_generation();
};

// Calls that run together: those of one communicator, and those of several at the same time. group.cc
struct GroupCall {
  Communicator* communicator;
  gsel_collective call;
};
// Checks all, then runs all; throws the first failure.
void run_group(std::span<GroupCall> calls);

}  // namespace gsel
