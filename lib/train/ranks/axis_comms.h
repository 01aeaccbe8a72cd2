// train/ranks/axis_comms.h: the communicators of a mesh: ranks that differ on one axis only, and pipeline ranks that
// hold the same tied parameters. Does not know what they are used for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "program/program.h"

namespace gsel {

class AxisComms {
 public:
  AxisComms(Communicator& world, const Program& program);

  // Creates the communicators other than the world. A collective of all ranks.
  void connect();

  Communicator& world() const { return world_; }
  Communicator& axis(gsel_axis axis);
  // The several pipeline ranks that hold a bucket's parameters.
  Communicator& tie(int32_t bucket);

  // The ranks of the pipeline, for nothing but the losses that the one that has them sends to the others. On memory of
  // the host.
  Communicator& losses();
  // The same ranks, for optimistic numbers; only of programs that have some.
  Communicator& validation();

  // Aborts all communicators, so that every waiting rank fails. about: the world rank that failed; -1: this one.
  void abort(std::string_view reason, int32_t about = -1) noexcept;
  // Throws the error that broke a communicator with an accelerator after its call returned.
  void throw_async_errors();
  // Ends the devices' work of broken communicators that no thread watches.
  void end_broken_work() noexcept;
  // Whether the device is in a call of one of these communicators, whose end has a timeout.
  bool are_in_call();
  // See DeviceBackend::mark_end_at.
  void mark_end_at(double* word);
  void forget_word(double* word) noexcept;
  // Why the calls of these communicators cannot be part of a graph; empty: they can.
  std::string why_not_captured();
  // See DeviceBackend::observe_waits.
  void observe_waits(WaitObserver* observer) noexcept;
  // Error of the world, for a rank that saw the failure in a group; none if only the group is broken.
  std::optional<Error> error_of_world() noexcept;

 private:
  // Empty if the group is the world, or one rank.
  using Own = std::optional<Communicator>;
  void split_axis(gsel_axis axis);
  template <class Visit>
  void visit_own(Visit&& visit);
  template <class Visit>
  void visit_devices(Visit&& visit);
  void warn_of_hosts();
  int32_t size(gsel_axis axis) const { return program_.mesh.size[axis]; }

  Communicator& world_;
  const Program& program_;
  bool connected_ = false;
  std::array<Own, kAxes> axes_;
  std::vector<Own> ties_;
  Own losses_, validation_;
  std::vector<int32_t> tie_of_bucket_;
  std::vector<bool> tie_is_axis_;  // held by every pipeline rank
};

}  // namespace gsel
