// comm/communicator.h: ranks joined over a transport. Checks arguments once, for every transport. Does not know how
// bytes travel and what they mean.
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
#include "comm/on_device/accelerator.h"
#include "comm/transport.h"

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

constexpr size_t kMostNameBytes = 31;      // of a communicator's name that the caller gives
constexpr size_t kMostReasonBytes = 1900;  // of why it is aborted; what says who did has room beside it

class DeviceLink;
class Pending;

class Communicator {
 public:
  // Joins; see gsel_comm_init. find: opens the accelerator once all ranks have joined, so that a rank that cannot tells
  // the others; empty for memory of the host.
  using FindAccelerator = std::function<std::shared_ptr<const Accelerator>()>;
  Communicator(std::shared_ptr<Transport> transport, const gsel_join& join, const FindAccelerator& find = {});
  Communicator(Communicator&& other) noexcept;
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }
  const char* name() const noexcept;
  uint64_t fork_generation() const { return fork_generation_; }

  // One call; a NULL stream means on the calling thread. Throws what gsel/comm.h lists.
  // `call` is checked and put in order in place: a copy at this point would cost a small call a tenth of its time.
  void collective(gsel_collective& call, gsel_stream* stream = nullptr);
  void collective(gsel_collective&& call, gsel_stream* stream = nullptr) { collective(call, stream); }
  // The same in two steps; and several at once, as gsel_group_run makes those of one communicator.
  void check(gsel_collective& call) const;
  void run_checked(const gsel_collective& call, gsel_stream* stream = nullptr);
  void group(std::span<const gsel_collective> checked);  // over the control link
  std::unique_ptr<Pending> start(const gsel_collective& checked);
  // From now on, other threads may run requests while a call is made.
  void allow_overlap();
  // about: the rank that the error is about; -1: this one.
  void abort(std::string_view reason, int32_t about = -1) noexcept;
  // Notes what this rank's program begins with all ranks, such as a step of a trainer; kind: 1 to 255, of the caller's.
  // Nobody waits. The first rank that began another one as its n-th, if one is known. break_with: then every call on
  // every rank fails with the error.
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) noexcept;
  void break_with(const Error& error) noexcept;
  gsel_comm_count counts(gsel_collective_kind kind) const;
  std::string trace() const;  // JSON of docs/trace.md
  gsel_comm_explanation explain(const gsel_collective& call);

  // Of one with an accelerator; see gsel/comm.h.
  DeviceLink* device_link() const { return device_link_.get(); }
  void set_stream(void* native);
  void synchronize();
  void throw_async_error();

  // Communicators from this one; see gsel/comm.h. nullopt: none for this rank.
  std::optional<Communicator> split(int32_t colour, int32_t key);
  // For the library's own use: its errors show the ranks of this communicator, or of the one that this one shows.
  // label: what its name says.
  std::optional<Communicator> split_inside(int32_t colour, int32_t key, const char* label);
  Communicator create_group(std::span<const int32_t> ranks);
  Communicator dup();
  Communicator shrink();
  Communicator shrink_without(std::span<const int32_t> ranks);
  void resync();
  Communicator grow(const gsel_join& join, const FindAccelerator& find);
  void set_timeout(double timeout_s);

  // Memory that the ranks reach.
  void* alloc(uint64_t bytes);
  void free(void* memory);
  void register_memory(void* memory, uint64_t bytes);
  void unregister_memory(void* memory);

 private:
  friend class Works;
  Communicator(const Communicator& made_from, gsel_link* link, const gsel_membership& membership);
  void join_devices(std::shared_ptr<const Accelerator> accelerator);
  std::shared_ptr<const Accelerator> find_together(const FindAccelerator& find);
  void check_listed(std::span<const int32_t> ranks, const char* asked) const;
  DeviceLink& device_link_of(const char* asked) const;
  Communicator made_by(const char* name, gsel_status (*gsel_transport_v1::*function)(gsel_link*, gsel_membership*,
                                                                                     gsel_link**, gsel_error**));
  // A function of the table that works on the link; `name` is that of the public function.
  template <class... Declared, class... Given>
  void run(const char* name, gsel_status (*gsel_transport_v1::*function)(gsel_link*, Declared...), Given... args);

  std::shared_ptr<Transport> transport_;
  gsel_link* link_ = nullptr;
  int32_t rank_ = 0;
  int32_t world_size_ = 1;
  struct Joined {  // how, for the transport of devices
    double timeout_s, join_timeout_s;
    uint32_t flags;
  } joined_{};
  std::unique_ptr<DeviceLink> device_link_;
  uint64_t fork_generation_ = os::fork_generation();
};

// Asynchronous calls; released once they have ended.
class Pending {
 public:
  Pending() = default;
  virtual ~Pending() = default;
  Pending(const Pending&) = delete;
  Pending& operator=(const Pending&) = delete;
  // Whether they have ended, after at most so long; negative: to the end. Throws what failed.
  virtual bool wait(double seconds) = 0;
  // Whether nobody had met the call; it has ended then. false where it goes on.
  virtual bool cancel() { return false; }
  // To the end, without its result; a message that nobody has met in its time is cancelled.
  virtual void wait_or_cancel() { wait(-1); }
};

// Of the control link, which is the only one without an accelerator.
class Works : public Pending {
 public:
  Works(Communicator& communicator, std::span<const gsel_collective> checked);
  ~Works() override;
  bool wait(double seconds) override;
  bool cancel() override;
  void wait_or_cancel() override;

 private:
  std::shared_ptr<Transport> transport_;
  gsel_pending* work_ = nullptr;
};

// Fills what `config` leaves open from the environment and from defaults; see gsel_comm_init.
gsel_join complete_join(const gsel_comm_options& options);
// The token of the job that `gsel run` started, when those who join are its ranks; else empty.
std::string job_of_launcher(const gsel_join& join);

}  // namespace gsel
