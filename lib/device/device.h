// device/device.h: an opened device: the table of gsel/device.h with its context, and RAII owners for the objects that
// it returns. A trainer uses memory, streams and kernels only through this file. Does not know which device it is.
#pragma once

#include <gsel/device.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace gsel {

// A wait of the host for a stream.
struct DeviceWait {
  int64_t began_ns = 0;
  int64_t moved_ns = 0;  // when the device was last seen to go on; an observer's
  int64_t look_ns = 0;   // when the observer looks again; an observer's
};

// Looks at the rest of the job while the host waits for a device. Called again and again from the thread that waits.
class WaitObserver {
 public:
  virtual ~WaitObserver() = default;
  // Throws what ends the wait.
  virtual void look(DeviceWait& wait) = 0;
  // The stream has become empty; throws if what it did is void.
  virtual void end_wait() {}
};

class DeviceContext {
 public:
  // uuid: the expected device; empty: any.
  DeviceContext(const gsel_device_v1& table, int32_t ordinal, std::string_view uuid = {});
  // The same opened device, with a compute stream of its own and an observer of its waits.
  DeviceContext(const DeviceContext& same, std::shared_ptr<WaitObserver> observer);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  static std::shared_ptr<DeviceContext> open_host();

  gsel_device_description describe() const;
  // What the device answers when it is asked for something small, for errors of others that used it. Empty: it works.
  std::string failure() const;

  const gsel_device_v1& table() const { return table_; }
  void* ctx() const { return opened_->ctx; }

  // False: the device works before a call returns.
  bool has_streams() const { return !is_synchronous_; }
  // The compute stream, created when it is first asked for. nullptr: the device works before a call returns.
  gsel_stream* compute() const;
  // The same as the device's own handle, for callbacks and for gsel_collective; nullptr: there is none.
  void* native_compute() const;
  // Waits until the compute stream is empty; throws what failed on it, or what ends the wait for the observer.
  void wait() const { wait(compute()); }
  void wait(gsel_stream* stream) const { wait(stream, observer_.get()); }
  void wait(gsel_stream* stream, WaitObserver* observer) const;

  // The stream has not become empty in the time that it was given, as after a wait that its observer has ended. Until
  // it has, nothing is freed on this device, since its work may use it, and the device is not closed; what is not freed
  // then stays until the process ends.
  void leave_unanswered(gsel_stream* stream) const noexcept;
  // Whether all streams have become empty. Does not wait.
  bool answers() const noexcept;
  // Whether memory, a stream or the like can be freed; else it is left as it is.
  bool may_free(const void* handle) const noexcept;
  // Between these, work of the compute stream is recorded, and no wait is possible.
  void set_capturing(bool is_capturing) const { is_capturing_ = is_capturing; }

  // device.run(&gsel_device_v1::zero, ptr, bytes, stream): calls table.zero(ctx, ..., &err), throws on failure.
  template <class... Declared, class... Given>
  void run(gsel_status (*gsel_device_v1::*function)(void*, Declared...), Given... args) const {
    gsel_error* err = nullptr;
    const gsel_status status = (table_.*function)(ctx(), args..., &err);
    throw_if_failed(status, err);
  }
  // The same on the compute stream, which is the last argument: device.enqueue(&gsel_device_v1::zero, ptr, bytes).
  template <class... Declared, class... Given>
  void enqueue(gsel_status (*gsel_device_v1::*function)(void*, Declared...), Given... args) const {
    run(function, args..., compute());
  }
  // direction: GSEL_COPY_*. On the compute stream; a copy from or to the host has ended when it returns.
  void copy(void* dst, const void* src, uint64_t bytes, int32_t direction) const;
  // Waits for the number. One thread at a time.
  double sum_squares(const void* data, gsel_dtype dtype, uint64_t elems) const;

 private:
  // Shared by all contexts of one opened device.
  struct Opened {
    explicit Opened(const gsel_device_v1& t) : table(t) {}
    ~Opened();
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
    bool is_reached(gsel_event* event) const noexcept;
    bool answers() noexcept;
    gsel_event* spare_for_silence() noexcept;  // with the mutex held

    const gsel_device_v1& table;
    void* ctx = nullptr;
    std::atomic<bool> is_silent{false};
    std::atomic<bool> stays_silent{false};  // no event could be put behind the work of a stream
    std::mutex mutex;
    std::vector<gsel_event*> unanswered;  // behind the work of streams that have not become empty
    std::vector<gsel_event*> spare;       // for waits
  };
  class Reached;

  const std::shared_ptr<Opened> opened_;
  const gsel_device_v1& table_;
  const std::shared_ptr<WaitObserver> observer_;
  bool is_synchronous_ = false;
  mutable bool is_capturing_ = false;
  mutable std::once_flag made_;
  mutable gsel_stream* compute_ = nullptr;
  mutable double* number_ = nullptr;  // page-locked, where the device writes what is waited for
};

// Device memory, or host memory for copies to and from the device.
class Memory {
 public:
  Memory() = default;
  Memory(std::shared_ptr<DeviceContext> device, uint64_t bytes, int32_t kind = GSEL_MEMORY_DEVICE);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory() {
    if (data_ && device_->may_free(data_)) device_->table().free(device_->ctx(), data_);
  }

  void* data() const { return data_; }
  char* at(uint64_t offset) const { return static_cast<char*>(data_) + offset; }
  uint64_t bytes() const { return bytes_; }
  // Stays allocated until the process ends, since work that does not end uses it.
  void leave() noexcept;

 private:
  void swap(Memory& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<DeviceContext> device_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Stream {
 public:
  explicit Stream(std::shared_ptr<DeviceContext> device) : device_(std::move(device)) {
    device_->run(&gsel_device_v1::stream_create, uint32_t{0}, &stream_);
  }
  ~Stream() {
    if (device_->may_free(stream_)) device_->table().stream_free(device_->ctx(), stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  gsel_stream* get() const { return stream_; }

 private:
  std::shared_ptr<DeviceContext> device_;
  gsel_stream* stream_ = nullptr;
};

class Event {
 public:
  // flags: GSEL_EVENT_*
  explicit Event(std::shared_ptr<DeviceContext> device, uint32_t flags = 0) : device_(std::move(device)) {
    device_->run(&gsel_device_v1::event_create, flags, &event_);
  }
  ~Event() {
    if (event_) device_->table().event_free(device_->ctx(), event_);
  }
  Event(Event&& other) noexcept : device_(std::move(other.device_)), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(const Event&) = delete;

  void record(gsel_stream* stream) { device_->run(&gsel_device_v1::event_record, event_, stream); }
  void wait() { device_->run(&gsel_device_v1::event_wait, event_); }
  bool is_reached() const {
    int32_t done = 0;
    device_->run(&gsel_device_v1::event_done, event_, &done);
    return done != 0;
  }
  // Makes the compute stream wait for the event; without a stream, the caller waits.
  void hold_compute() {
    gsel_stream* stream = device_->compute();
    stream ? device_->run(&gsel_device_v1::stream_wait_event, stream, event_) : wait();
  }
  void record_compute() { record(device_->compute()); }
  gsel_event* get() const { return event_; }
  // Seconds from this event to a later one, both of GSEL_EVENT_TIMING.
  double seconds_until(const Event& later) const {
    return device_->table().event_seconds(device_->ctx(), event_, later.event_);
  }

 private:
  std::shared_ptr<DeviceContext> device_;
  gsel_event* event_ = nullptr;
};

}  // namespace gsel
