// comm/backend.h: an opened backend: the table of gsel/plugin.h with its context, and RAII owners for the objects that
// it returns. All memory, streams and communication go through here. Does not know which device is behind the table.
#pragma once

#include <gsel/plugin.h>

#include <memory>
#include <string>

#include "base/error.h"

namespace gsel {

// The built-in backend: host memory, threads as streams, shared memory between ranks.
const gsel_backend_v1& host_backend_table();

class Backend {
 public:
  Backend(const gsel_backend_v1& table, int32_t device);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  static std::shared_ptr<Backend> open_host();

  const gsel_backend_v1& table() const { return table_; }
  void* ctx() const { return ctx_; }

  // backend.run(&gsel_backend_v1::zero, ptr, bytes, stream): calls table.zero(ctx, ..., &err), throws on failure.
  template <class... Declared, class... Given>
  void run(gsel_status (*gsel_backend_v1::*function)(void*, Declared...), Given... args) const {
    gsel_error* err = nullptr;
    const gsel_status status = (table_.*function)(ctx_, args..., &err);
    throw_if_failed(status, err);
  }

 private:
  const gsel_backend_v1& table_;
  void* ctx_ = nullptr;
};

// Memory of a backend.
class Memory {
 public:
  Memory() = default;
  Memory(std::shared_ptr<Backend> backend, uint64_t bytes);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory() {
    if (data_) backend_->table().free(backend_->ctx(), data_);
  }

  void* data() const { return data_; }
  char* at(uint64_t offset) const { return static_cast<char*>(data_) + offset; }
  uint64_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::shared_ptr<Backend> backend_;
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Stream {
 public:
  explicit Stream(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {
    backend_->run(&gsel_backend_v1::stream_create, &stream_);
  }
  ~Stream() { backend_->table().stream_destroy(backend_->ctx(), stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  gsel_stream* get() const { return stream_; }

 private:
  std::shared_ptr<Backend> backend_;
  gsel_stream* stream_ = nullptr;
};

class Event {
 public:
  explicit Event(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {
    backend_->run(&gsel_backend_v1::event_create, &event_);
  }
  ~Event() {
    if (event_) backend_->table().event_destroy(backend_->ctx(), event_);
  }
  Event(Event&& other) noexcept : backend_(other.backend_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(const Event&) = delete;

  void record(gsel_stream* stream) { backend_->run(&gsel_backend_v1::event_record, event_, stream); }
  void wait() { backend_->run(&gsel_backend_v1::event_wait, event_); }
  gsel_event* get() const { return event_; }
  // Seconds from this event to a later one.
  double seconds_until(const Event& later) const {
    return backend_->table().event_seconds(backend_->ctx(), event_, later.event_);
  }

 private:
  std::shared_ptr<Backend> backend_;
  gsel_event* event_ = nullptr;
};

}  // namespace gsel
