// comm/interface/control.h: the control of a communicator. It knows the ranks: whether they live, whether they make the
// same calls, what has ended the communicator, and which communicators come of it. Every promise of gsel/comm.h is kept
// here, whatever moves the bytes. Does not know which backends there are, but for the one of the host, which comes with
// it.
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

// A communicator that is to come of another one; see gsel/comm.h.
struct Making {
  enum class Kind { split, dup, group, shrink } kind;
  int32_t colour = 0, key = 0;      // of a split
  std::vector<int32_t> ranks = {};  // of a group; that a shrink leaves out
};

// What another rank began while this one began something else, see Control::begin_joint_call.
struct OtherJointCall {
  int32_t rank, kind;
  uint64_t argument;
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
  // A rank as errors show it, and as a text of them: "rank 0 (rank 2 of world)".
  virtual int32_t shown(int32_t rank) const = 0;
  virtual std::string named(int32_t rank) const = 0;

  // all[world_size][bytes]: mine[bytes] of each rank. label: what errors and recordings call it. timeout_s: 0: that of
  // the communicator.
  virtual void exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s = 0) = 0;

  // For calls that a backend enqueues on the stream of a device. begin_announcing: all ranks at the same time, before
  // the first of the others. announce: before the call is enqueued; throws what has
  // broken the communicator, or that ranks disagree; registered: its buffers are, which ranks must agree on, too.
  // look_after_announced: whether somebody is late or gone, which breaks the communicator; any thread.
  virtual void begin_announcing() {}
  virtual void announce(const gsel_collective& checked, bool registered = false) = 0;
  virtual void look_after_announced() const = 0;
  // How much later than a call's own time those who look may find who is late for it.
  virtual int64_t news_ns() const { return 0; }

  // Any thread. about: the rank that the error is about, as errors show it; -1: this one.
  virtual void abort(const char* reason, int32_t about = -1) noexcept = 0;
  virtual void break_with(const Error& error) const noexcept = 0;
  virtual void throw_what_broke() const = 0;
  virtual bool is_broken() const = 0;
  // Waits until the communicator is broken, or somebody calls stop_awaiting_break, or for so long at most.
  virtual bool await_break(int64_t nanoseconds) const = 0;
  virtual void stop_awaiting_break() const noexcept = 0;

  // This rank begins its next joint call, such as a step of a trainer; kind: 1 to 255, of the caller's. On one host
  // nobody waits; over several all ranks do, until all have begun. The first rank that began another one under the same
  // number, if one is known.
  virtual std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) = 0;

  virtual gsel_comm_count counts(gsel_collective_kind kind) const = 0;
  virtual std::string trace() const = 0;  // JSON of docs/trace.md
  virtual void set_timeout(double seconds) = 0;

  // Communicators from this one; see gsel/comm.h. label: empty for one that the caller gets; else what its name says,
  // and its errors show the ranks of this communicator.
  virtual std::unique_ptr<Control> split(int32_t colour, int32_t key, std::string_view label) = 0;  // nullptr: in none
  virtual std::unique_ptr<Control> create_group(std::span<const int32_t> ranks) = 0;
  virtual std::unique_ptr<Control> dup() = 0;
  virtual std::unique_ptr<Control> shrink(std::span<const int32_t> without) = 0;
  virtual void resync() = 0;
  // The same while the caller goes on: a split and a dup at their place among its collectives. take gets the control,
  // nullptr where the rank is in none, before the end, on whichever thread makes it.
  virtual std::unique_ptr<BackendRequest> start_making(const Making& making,
                                                       std::function<void(std::unique_ptr<Control>)> take) = 0;

  // The backend for memory of the host.
  virtual Backend& host() = 0;

 private:
  const int32_t rank_;
  const int32_t world_size_;
};

}  // namespace gsel
