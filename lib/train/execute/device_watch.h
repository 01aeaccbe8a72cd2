// train/execute/device_watch.h: bounds the host's waits for the device of a trainer. A wait ends with an error when a
// communicator of the trainer is broken, or when the device has not gone on for the communicator's timeout. That a
// device goes on is seen by marks, events between the instructions of a run; while it is in a call of a communicator,
// the call's own timeout counts. After a failure the wait for the device's work is bounded too: a device that does not
// answer keeps its memory, since its kernels may still write there.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "device/device.h"
#include "train/ranks/axis_comms.h"

namespace gsel::execute {

class DeviceWatch : public WaitObserver {
 public:
  explicit DeviceWatch(const Communicator& world);
  // timeout_s: how long the device may not go on. name, rank: for errors.
  DeviceWatch(std::shared_ptr<DeviceContext> device, std::string name, int32_t rank, double timeout_s);

  // The world's device, whose waits this watches. Of the host: the host.
  static std::shared_ptr<DeviceContext> watched(const std::shared_ptr<DeviceWatch>& watch);
  // Between these the communicators are looked at.
  void attach(AxisComms& comms);
  void detach() noexcept;

  // A run begins: its name for errors, and how many instructions it has. end_run: its failures are others' to tell.
  void begin_run(const std::string& name, size_t n_instrs);
  void end_run() noexcept;
  // The run has enqueued the instruction at a position.
  void pass(const DeviceContext& device, size_t position) {
    if (device.compute() && position % every_ == 0) mark(device.compute());
  }
  void look(DeviceWait& wait) override;
  void end_wait() override;  // work that an abort has ended is void

  // After a failure, or before memory is freed: waits until the streams are empty, as long as the device goes on, and
  // else for patience_s. False: it does not go on, and keeps its memory.
  bool settle(const DeviceContext& device, std::span<gsel_stream* const> streams, double patience_s) noexcept;
  // As long as a device is waited for, and shortly for one that has not answered before.
  double patience_s() const;
  static constexpr double kShortly = 0.5;
  const std::string& device_name() const { return name_; }

  // 0 in memory that kernels read; NaN from before the work of a broken communicator is ended.
  const double* end_word() const { return static_cast<const double*>(word_.data()); }
  void mark_end() noexcept;

 private:
  void mark(gsel_stream* compute);
  bool look_at_device(DeviceWait& wait, double gap_s);

  const std::shared_ptr<DeviceContext> base_;
  const std::string name_;
  const int32_t rank_;
  const double timeout_s_;
  Memory word_;
  std::mutex mutex_;  // a checkpoint may be read on another thread
  AxisComms* comms_ = nullptr;
  bool in_run_ = false;
  std::string run_;
  size_t every_ = 1;
  std::deque<Event> marks_;
  size_t n_marks_ = 0, n_passed_ = 0;  // of the run
};

}  // namespace gsel::execute
