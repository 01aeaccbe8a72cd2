// comm/interface/control.h: the control of a communicator. The control tracks whether the ranks live and make the same
// calls, and which error broke the communicator; it creates further communicators. It keeps the promises of gsel/comm.h
// whichever backend moves the bytes. Does not know the backends, except that of the host, which it contains.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace gsel {

class Backend;
class BackendRequest;

// How to make a communicator from another one; see gsel/comm.h.
struct Making {
  enum class Kind { split, dup, group, shrink } kind;
  int32_t colour = 0, key = 0;      // of a split
  std::vector<int32_t> ranks = {};  // members of a group; ranks that a shrink leaves out
};

// A joint call of another rank that differs from this rank's, see Control::begin_joint_call.
struct OtherJointCall {
  int32_t rank, kind;
  uint64_t argument;
};

// Where the buffers of a call are in memory that all ranks have registered.
struct RegisteredPlace {
  bool is_registered = false;  // all buffers
  uint64_t offsets = 0;        // hash of the registrations and offsets that must agree; 0: none must
};

class Control {
 public:
  Control(int32_t rank, int32_t world_size) : rank_(rank), world_size_(world_size) {}
  virtual ~Control() = default;  // leaves
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }
  virtual const char* name() const noexcept = 0;
  virtual bool is_over_hosts() const { return false; }
  // The number of a rank in errors, and its text in errors: "rank 0 (rank 2 of world)".
  virtual int32_t shown(int32_t rank) const = 0;
  virtual std::string named(int32_t rank) const = 0;

  // An allgather: all[world_size][bytes] receives mine[bytes] of each rank. label: its name in errors and recordings.
  // timeout_s: 0: the communicator's timeout.
  virtual void exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s = 0) = 0;

  // For calls that a backend enqueues on the stream of a device. begin_announcing: collective, once before the first
  // announce. announce: before a call is enqueued; throws if the communicator is broken or ranks disagree. in:
  // whether the call's buffers are registered, and where, which must be the same on all ranks. check_announced: breaks
  // the communicator if a rank is late or gone; any thread.
  virtual void begin_announcing() {}
  virtual void announce(const gsel_collective& checked, RegisteredPlace in = {}) = 0;
  virtual void check_announced() const = 0;
  // How long after a call's timeout check_announced may take to detect the late rank.
  virtual int64_t detection_ns() const { return 0; }

  // Any thread. about: the rank that caused the error, numbered as in errors; -1: this rank.
  virtual void abort(const char* reason, int32_t about = -1) noexcept = 0;
  virtual void break_with(const Error& error) const noexcept = 0;
  virtual void throw_break_reason() const = 0;
  virtual bool is_broken() const = 0;
  // Waits until the communicator is broken, stop_awaiting_break is called or the time has passed. Returns is_broken().
  virtual bool await_break(int64_t nanoseconds) const = 0;
  virtual void stop_awaiting_break() const noexcept = 0;

  // This rank begins its next joint call, such as a step of a trainer. kind: 1 to 255, chosen by the caller. On one
  // host it does not wait; over several hosts it waits until all ranks have begun. Returns the first rank known to have
  // begun a different joint call under the same number.
  virtual std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) = 0;

  virtual gsel_comm_count counts(gsel_collective_kind kind) const = 0;
  virtual std::string trace() const = 0;  // JSON of docs/trace.md
  virtual void set_timeout(double seconds) = 0;

  // Make communicators from this one; see gsel/comm.h. label: empty for a communicator of the caller's. Otherwise the
  // communicator is internal: its name contains the label, and its errors show the ranks of this communicator.
  virtual std::unique_ptr<Control> split(int32_t colour, int32_t key, std::string_view label) = 0;  // nullptr: in none
  virtual std::unique_ptr<Control> create_group(std::span<const int32_t> ranks) = 0;
  virtual std::unique_ptr<Control> dup() = 0;
  virtual std::unique_ptr<Control> shrink(std::span<const int32_t> without) = 0;
  virtual void resync() = 0;
  // The same asynchronously; a split or dup keeps its place in the order of collectives. Before the request ends,
  // `take` gets the control, or nullptr if the rank is in none, on the thread that makes the communicator.
  virtual std::unique_ptr<BackendRequest> start_making(const Making& making,
                                                       std::function<void(std::unique_ptr<Control>)> take) = 0;

  // The backend for memory of the host.
  virtual Backend& host() = 0;

 private:
  const int32_t rank_;
  const int32_t world_size_;
};

}  // namespace gsel
