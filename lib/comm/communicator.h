// comm/communicator.h: implements gsel_comm_*. A communicator has one control and one backend, for host memory or for
// the memory of a device. Checks arguments once, for every backend. Does not know how bytes travel or what they mean.
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

// `root`: the root of a broadcast or the peer of a message, else -1; `op`: 0 if nothing is reduced.
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

constexpr size_t kMostReasonBytes = 1900;  // of an abort's reason; leaves room for the rank that aborted

class DeviceBackend;

class Communicator {
 public:
  // Joins with options that are complete.
  explicit Communicator(const JoinOptions& join, const OpenTransports& open = {});
  // See gsel_comm_init. settings: give what the options leave open. joining.cc
  static Communicator join(const gsel_comm_options& given, const Config& settings);
  // A single rank, on the device that train.device names. joining.cc
  static Communicator alone(const Config& settings);
  Communicator(Communicator&& other) noexcept;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return control_->rank(); }
  int32_t world_size() const { return control_->world_size(); }
  const char* name() const noexcept { return control_->name(); }
  bool is_over_hosts() const { return control_->is_over_hosts(); }
  uint64_t fork_generation() const { return fork_generation_; }

  // Makes one call, on the calling thread if the stream is NULL. Throws the errors that gsel/comm.h lists. Checks and
  // normalizes `call` in place: a copy would cost a small call a tenth of its time.
  void collective(gsel_collective& call, gsel_stream* stream = nullptr);
  void collective(gsel_collective&& call, gsel_stream* stream = nullptr) { collective(call, stream); }
  // Several calls together, on a stream of the communicator's device.
  void collectives(std::span<gsel_collective> calls, gsel_stream* stream);
  // The same in two steps. start(): several calls together, as gsel_group_run does for one communicator.
  void check(gsel_collective& call) const;
  void run_checked(const gsel_collective& call, gsel_stream* stream = nullptr) { backend_->run(call, stream); }
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> checked) { return backend_->start(checked); }
  // From now on other threads may run requests during a call.
  void allow_overlap() { backend_->allow_overlap(); }
  // Whether this thread runs a caller's operation inside a call of this communicator: a wait for that call would hang.
  bool in_operation() const { return backend_->in_operation(); }
  // about: the rank that caused the error; -1: this rank.
  void abort(std::string_view reason, int32_t about = -1) noexcept;
  // If the joint calls differ, break_with makes every call on every rank fail with the error.
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

  // Make communicators from this one; see gsel/comm.h. nullopt: this rank is in none.
  std::optional<Communicator> split(int32_t colour, int32_t key);
  // For the library's own use: its errors show the ranks of this communicator, or of the one that this one shows.
  // label: what its name says. on_host: its calls take memory of the host, also where this one has an accelerator.
  std::optional<Communicator> split_inside(int32_t colour, int32_t key, const char* label, bool on_host = false);
  Communicator create_group(std::span<const int32_t> ranks);
  Communicator dup();
  Communicator shrink();
  Communicator shrink_without(std::span<const int32_t> ranks);
  // The same asynchronously. Sets *made before the request ends, unless this rank is in no new communicator.
  std::unique_ptr<BackendRequest> start_making(const Making& making, std::shared_ptr<std::optional<Communicator>> made);
  void resync();
  Communicator grow(const gsel_comm_options& given, const Config& settings);
  Communicator merge(const gsel_comm_options& given, bool high, const Config& settings);
  void set_timeout(double timeout_s);
  double timeout_s() const { return joined_.timeout_s; }

  // Memory that all ranks can access.
  void* alloc(uint64_t bytes) { return backend_->alloc(bytes); }
  void free(void* memory) { backend_->free(memory); }
  void register_memory(void* memory, uint64_t bytes) { backend_->register_memory(memory, bytes); }
  void unregister_memory(void* memory) { backend_->unregister_memory(memory); }

 private:
  Communicator join_larger(std::string_view name, gsel_comm_options given, bool high, const Config& settings);
  Communicator(const Communicator& made_from, std::unique_ptr<Control> control, bool on_host = false);
  void prepare();
  void join_devices();
  std::shared_ptr<const Accelerator> open_together(const OpenTransports& open);
  void check_listed(std::span<const int32_t> ranks, const char* function) const;
  void check_group(std::span<const int32_t> ranks) const;
  void check_left_out(std::span<const int32_t> ranks) const;

  struct Joined {  // join options, for the transport of a device
    double timeout_s, join_timeout_s;
    uint32_t flags;
  } joined_{};
  std::shared_ptr<const Accelerator> accelerator_;  // nullptr: host memory
  std::string host_reason_;                         // why it is not there although it was asked for; empty: it was not
  std::unique_ptr<Control> control_;                // the destructor waits for communicators that are being made
  void* stream_ = nullptr;                          // the caller's
  std::unique_ptr<DeviceBackend> device_;
  Backend* backend_ = nullptr;  // the host's or device_.get()
  uint64_t fork_generation_ = os::fork_generation();
};

// One call of a group; the calls may be on several communicators. group.cc
struct GroupCall {
  Communicator* communicator;
  gsel_collective call;
};
// Checks all, then runs all; throws the first failure.
void run_group(std::span<GroupCall> calls);

}  // namespace gsel
