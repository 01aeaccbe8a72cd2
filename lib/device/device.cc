// device/device.cc: see device.h.
#include "device/device.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "base/foreign.h"
#include "base/os.h"
#include "device/host/table.h"

namespace gsel {
namespace {

constexpr int64_t kSpinNs = 1'000'000;  // before sleeps, which cost a 64th of the time that was waited
constexpr int64_t kLeastSleepNs = 20'000, kMostSleepNs = 500'000;

// What is left until the process ends stays reachable, for those who look for leaks.
bool leave(const void* handle) noexcept {
  try {
    static auto* const mutex = new std::mutex;
    static auto* const all = new std::vector<const void*>;
    const std::lock_guard lock(*mutex);
    all->push_back(handle);
  } catch (...) {  // no memory to remember it
  }
  return false;
}

}  // namespace

// ---- an opened device ---------------------------------------------------------------------------------------------

DeviceContext::DeviceContext(const gsel_device_v1& table, int32_t ordinal, std::string_view uuid)
    : opened_(std::make_shared<Opened>(table)), table_(table) {
  gsel_device_options options{};
  options.struct_size = sizeof options;
  options.ordinal = ordinal;
  options.uuid = {uuid.data(), uuid.size()};
  gsel_error* err = nullptr;
  const gsel_status status = table_.open(&host_services(), &options, &opened_->ctx, &err);
  if (status) opened_->ctx = nullptr;
  throw_if_failed(status, err);
  is_synchronous_ = (describe().flags & GSEL_DEVICE_SYNCHRONOUS) != 0;
}

DeviceContext::DeviceContext(const DeviceContext& same, std::shared_ptr<WaitObserver> observer)
    : opened_(same.opened_),
      table_(same.table_),
      observer_(std::move(observer)),
      is_synchronous_(same.is_synchronous_) {}

DeviceContext::~DeviceContext() {
  if (compute_ && may_free(compute_)) table_.stream_free(ctx(), compute_);
  if (number_ && may_free(number_)) table_.free(ctx(), number_);
}

DeviceContext::Opened::~Opened() {
  if (!ctx) return;
  if (!answers()) {
    leave(ctx);
    for (const gsel_event* event : unanswered) leave(event);
    for (const gsel_event* event : spare) leave(event);
    return;
  }
  for (gsel_event* event : spare) table.event_free(ctx, event);
  table.close(ctx);
}

bool DeviceContext::Opened::is_reached(gsel_event* event) const noexcept {
  int32_t done = 0;
  return table.event_done(ctx, event, &done, nullptr) != GSEL_OK || done != 0;  // a device that has failed runs nothing
}

bool DeviceContext::Opened::answers() noexcept {
  if (!is_silent) return true;
  const std::lock_guard lock(mutex);
  std::erase_if(unanswered, [this](gsel_event* event) {
    if (!is_reached(event)) return false;
    table.event_free(ctx, event);
    return true;
  });
  is_silent = stays_silent || !unanswered.empty();
  return !is_silent;
}

bool DeviceContext::answers() const noexcept {
  return opened_->answers();
}

bool DeviceContext::may_free(const void* handle) const noexcept {
  return answers() || leave(handle);
}

void DeviceContext::leave_unanswered(gsel_stream* stream) const noexcept {
  const std::lock_guard lock(opened_->mutex);
  gsel_event* event = opened_->spare_for_silence();
  if (event && table_.event_record(ctx(), event, stream, nullptr) != GSEL_OK)
    return table_.event_free(ctx(), event);  // the device has failed, and runs nothing
  try {
    if (event) opened_->unanswered.push_back(event);
  } catch (...) {
    event = nullptr;  // it stays
  }
  if (!event) opened_->stays_silent = true;
  opened_->is_silent = true;
}

// nullptr: none is left, and the device has no memory for one.
gsel_event* DeviceContext::Opened::spare_for_silence() noexcept {
  gsel_event* event = nullptr;
  if (spare.empty()) return table.event_create(ctx, 0, &event, nullptr) == GSEL_OK ? event : nullptr;
  event = spare.back();
  spare.pop_back();
  return event;
}

// ---- waits ----------------------------------------------------------------------------------------------------------

// An event of the device's, for the length of a wait.
class DeviceContext::Reached {
 public:
  explicit Reached(const DeviceContext& device) : device_(device) {
    Opened& opened = *device.opened_;
    const std::lock_guard lock(opened.mutex);
    if (opened.spare.empty()) {
      device.run(&gsel_device_v1::event_create, uint32_t{0}, &event_);
      return;
    }
    event_ = opened.spare.back();
    opened.spare.pop_back();
  }
  ~Reached() {
    Opened& opened = *device_.opened_;
    const std::lock_guard lock(opened.mutex);
    try {
      opened.spare.push_back(event_);
    } catch (...) {
      opened.table.event_free(opened.ctx, event_);
    }
  }
  Reached(const Reached&) = delete;
  Reached& operator=(const Reached&) = delete;

  bool done() const {
    int32_t is_done = 0;
    device_.run(&gsel_device_v1::event_done, event_, &is_done);
    return is_done != 0;
  }
  gsel_event* get() const { return event_; }

 private:
  const DeviceContext& device_;
  gsel_event* event_ = nullptr;
};

void DeviceContext::wait(gsel_stream* stream, WaitObserver* observer) const {
  if (!stream) return;
  if (is_capturing_) return run(&gsel_device_v1::stream_wait, stream);  // an error, which ends the recording
  const Reached reached(*this);
  run(&gsel_device_v1::event_record, reached.get(), stream);
  DeviceWait wait;
  wait.began_ns = wait.moved_ns = os::now_ns();
  while (!reached.done()) {
    const int64_t waited = os::now_ns() - wait.began_ns;
    if (waited < kSpinNs) {
      sched_yield();
      continue;
    }
    if (observer) try {
        observer->look(wait);
      } catch (...) {
        leave_unanswered(stream);
        throw;
      }
    usleep(static_cast<useconds_t>(std::clamp(waited / 64, kLeastSleepNs, kMostSleepNs) / 1000));
  }
  if (observer) observer->end_wait();
}

// ---- computing ------------------------------------------------------------------------------------------------------

gsel_stream* DeviceContext::compute() const {
  if (is_synchronous_) return nullptr;
  std::call_once(made_, [this] {
    void* number = number_;  // of a call that then failed
    if (!number) run(&gsel_device_v1::alloc, int32_t{GSEL_MEMORY_PINNED}, uint64_t{sizeof(double)}, &number);
    number_ = static_cast<double*>(number);
    run(&gsel_device_v1::stream_create, uint32_t{0}, &compute_);
  });
  return compute_;
}

void* DeviceContext::native_compute() const {
  gsel_stream* stream = compute();
  return stream ? table_.stream_native(ctx(), stream) : nullptr;
}

void DeviceContext::copy(void* dst, const void* src, uint64_t bytes, int32_t direction) const {
  enqueue(&gsel_device_v1::copy, dst, src, bytes, direction);
  if (direction != GSEL_COPY_ON_DEVICE) wait();
}

double DeviceContext::sum_squares(const void* data, gsel_dtype dtype, uint64_t elems) const {
  double sum = 0;
  double* out = compute() ? number_ : &sum;
  enqueue(&gsel_device_v1::sum_squares, data, dtype, elems, out);
  wait();
  return *out;
}

gsel_device_description DeviceContext::describe() const {
  gsel_device_description description{};
  description.struct_size = sizeof description;
  run(&gsel_device_v1::describe, &description);
  return description;
}

std::string DeviceContext::failure() const {
  try {
    describe();
    return {};
  } catch (...) {
    return current_error().message();
  }
}

std::shared_ptr<DeviceContext> DeviceContext::open_host() {
  return std::make_shared<DeviceContext>(host_device_table(), 0);
}

Memory::Memory(std::shared_ptr<DeviceContext> device, uint64_t bytes, int32_t kind)
    : device_(std::move(device)), bytes_(bytes) {
  device_->run(&gsel_device_v1::alloc, kind, bytes, &data_);
}

void Memory::leave() noexcept {
  if (data_) gsel::leave(std::exchange(data_, nullptr));
}

}  // namespace gsel
