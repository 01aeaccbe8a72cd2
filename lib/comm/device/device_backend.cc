// comm/device/device_backend.cc: see device_backend.h.
#include "comm/device/device_backend.h"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "comm/device/in_call.h"

namespace gsel {
namespace {

constexpr int64_t kLookNs = 50'000'000;  // poll interval for late ranks and errors of the transport
constexpr int64_t kDrainNs = 5'000'000'000;
constexpr int kYields = 200;
constexpr useconds_t kSleepUs = 20;

}  // namespace

DeviceBackend::DeviceBackend(std::shared_ptr<const Accelerator> accelerator, Control& control, const Options& options)
    : accelerator_(std::move(accelerator)),
      control_(control),
      flags_(options.flags),
      timeout_s_(options.timeout_s),
      agreement_(agree_on_transport(*accelerator_, control, options.flags)),
      reasons_{agreement_.reason},
      clock_(accelerator_->device),
      host_(accelerator_->device, [this](Event& event, const gsel_collective& call) { wait_before(call, event); }),
      reached_(accelerator_->device) {
  if (!agreement_.transport) return;
  try {
    control_.begin_announcing();
    link_ = TransportLink::join(accelerator_, *agreement_.transport, control, options.timeout_s, options.join_timeout_s,
                                options.flags);
  } catch (...) {  // the other ranks wait for this rank in the transport, or have its error, too
    const Error error = current_error();
    if (falls_back(error)) {
      reasons_.push_back(
          fmt::format("{} cannot be joined: {}; {}", agreement_.transport->name, error.message(), reasons_.back()));
      agreement_.transport = nullptr;
      return;
    }
    control_.abort(error.what());
    throw;
  }
  note_link();
  if ((flags_ & GSEL_COMM_NO_THREAD) == 0) watching_ = quiet_thread([this] { watch(); });
}

// Whether all ranks go through host memory, since none could join a transport that gsel has chosen for their one
// device.
bool DeviceBackend::falls_back(const Error& error) const {
  const bool is_told_to_all = error.code() != GSEL_ERR_PEER && error.code() != GSEL_ERR_ABORTED &&
                              error.code() != GSEL_ERR_TIMEOUT && !control_.is_broken();
  return is_told_to_all && !agreement_.is_named && (flags_ & GSEL_COMM_NOT_THROUGH_HOST) == 0 &&
         (agreement_.transport->can.flags & GSEL_TRANSPORT_SHARED_DEVICE) != 0;
}

void DeviceBackend::note_link() {
  const std::string note = link_->note();
  std::string reason = note.empty() ? agreement_.reason : agreement_.reason + "; " + note;
  if (reason != reasons_.back()) reasons_.push_back(std::move(reason));
}

// Aborts work on a broken link first, since it may never end by itself.
DeviceBackend::~DeviceBackend() {
  if (!windows_.empty()) finish_calls();
  leaving_ = true;
  control_.stop_awaiting_break();
  if (watching_.joinable()) watching_.join();
  if (link_) {
    for (const auto& [memory, window] : windows_)
      if (!control_.is_broken()) link_->table().window_release(link_->get(), window.handle);
    if (control_.is_broken() || !accelerator_->device->answers()) end_work();
    if (link_->detach() && control_.is_broken()) drain();
  }
}

// Waits for the calls that use windows. A call that does not end breaks the communicator after its timeout.
void DeviceBackend::finish_calls() noexcept {
  try {
    while (!control_.is_broken() && !clock_.is_idle()) {
      if (!watching_.joinable()) look_for_failures();
      usleep(kSleepUs);
    }
  } catch (...) {
    control_.break_with(current_error());
  }
}

// After an abort, calls that the streams have not reached are still enqueued and use memory. They end as soon as they
// begin, so this waits for them.
void DeviceBackend::drain() noexcept {
  const int64_t end = os::now_ns() + kDrainNs;
  try {
    while (!clock_.is_idle() && os::now_ns() < end) usleep(kSleepUs);
  } catch (...) {  // the device has failed, and its work with it
  }
}

// ---- failures after a call has returned ---------------------------------------------------------------------------

// A transport reports many errors after the death of a rank. The control's error, which names that rank, has
// precedence.
void DeviceBackend::look_for_failures() {
  control_.check_announced();
  if (const auto late = clock_.late()) {
    await_cause(*late);
    control_.break_with(*late);
  }
  try {
    link_->throw_error();
  } catch (const Error& error) {
    await_cause(error);
    if (!control_.is_broken()) control_.break_with(with_device(error));
  }
}

// A transport has one result for all failures of the device, so the device itself is asked.
Error DeviceBackend::with_device(const Error& error) const {
  const std::string failure = error.code() == GSEL_ERR_DEVICE ? accelerator_->device->failure() : "";
  if (failure.empty()) return error;
  return Error(GSEL_ERR_DEVICE, fmt::format("{}; {}", error.message(), failure));
}

// Waits for the control to find the rank that caused an error of the transport.
void DeviceBackend::await_cause(const Error& error) const {
  if (error.code() == GSEL_ERR_PEER) control_.await_break(kCauseNs);
  if (error.code() != GSEL_ERR_TIMEOUT) return;
  const int64_t end = os::now_ns() + control_.detection_ns();
  while (os::now_ns() < end && !control_.await_break(kLookNs)) control_.check_announced();
}

void DeviceBackend::watch() {
  while (!leaving_ && !control_.await_break(kLookNs)) try {
      look_for_failures();
    } catch (...) {
      control_.break_with(current_error());
    }
  if (!leaving_) end_work();
}

void DeviceBackend::end_work() noexcept {
  {
    const std::lock_guard lock(words_mutex_);
    for (double* word : words_) std::atomic_ref<double>(*word).store(std::numeric_limits<double>::quiet_NaN());
  }
  link_->abort();
}

void DeviceBackend::mark_end_at(double* word) {
  const std::lock_guard lock(words_mutex_);
  words_.push_back(word);
}

void DeviceBackend::forget_word(double* word) noexcept {
  const std::lock_guard lock(words_mutex_);
  std::erase(words_, word);
}

void DeviceBackend::throw_async_error() {
  require("gsel_comm_get_async_error");
  if (link_ && !watching_.joinable()) {
    if (!control_.is_broken()) look_for_failures();
    if (control_.is_broken()) end_work();
  }
  control_.throw_break_reason();
}

void DeviceBackend::synchronize() {
  require("gsel_comm_synchronize");
  throw_async_error();
  reached_.record(stream_.get());
  wait(reached_, -1);
}

bool DeviceBackend::wait(Event& reached, double seconds, WaitObserver* observer) {
  DeviceWait own;
  own.began_ns = own.moved_ns = os::now_ns();
  const int64_t end = seconds < 0 ? INT64_MAX : own.began_ns + static_cast<int64_t>(seconds * 1e9);
  for (int looks = 0;; ++looks) {
    throw_async_error();
    int32_t done = 0;
    accelerator_->device->run(&gsel_device_v1::event_done, reached.get(), &done);
    if (done) {
      throw_async_error();  // an abort may have ended the stream's work
      return true;
    }
    if (os::now_ns() >= end) return false;
    if (observer && looks >= kYields) observer->look(own);
    looks < kYields ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(kSleepUs));
  }
}

// ---- streams ------------------------------------------------------------------------------------------------------

CallStream DeviceBackend::imported(void* native) const {
  gsel_stream* stream = nullptr;
  accelerator_->device->run(&gsel_device_v1::stream_import, native, &stream);
  return {stream, [device = accelerator_->device](gsel_stream* s) { device->table().stream_free(device->ctx(), s); }};
}

void DeviceBackend::set_stream(void* native) {
  require("gsel_comm_set_stream");
  stream_ = native ? imported(native) : nullptr;
}

// ---- memory -------------------------------------------------------------------------------------------------------

void* DeviceBackend::alloc(uint64_t bytes) {
  require("gsel_mem_alloc");
  return accelerator_->memory->alloc(bytes, link_ ? agreement_.transport->transport : nullptr);
}

void DeviceBackend::free(void* memory) {
  require("gsel_mem_free");
  accelerator_->memory->free(memory);
}

// With a transport all ranks must register together: libraries leave it undefined if only some do.
void DeviceBackend::register_memory(void* memory, uint64_t bytes) {
  require("gsel_mem_register");
  const InCall in_call(in_call_, "gsel_mem_register");
  check_device_memory(*accelerator_, agreement_.reached_by, "gsel_mem_register", memory, bytes, "memory");
  if (!link_ || !link_->table().window_register) return;
  std::vector<uint64_t> all(static_cast<size_t>(control_.world_size()));
  control_.exchange(&bytes, all.data(), sizeof bytes, "register memory");
  for (size_t q = 0; q < all.size(); ++q)
    if (all[q] != all[0])
      throw Error(
          GSEL_ERR_MISMATCH,
          fmt::format("gsel_mem_register: {} registers {} bytes, {} registers {}; register as many on every rank",
                      control_.named(static_cast<int32_t>(q)), all[q], control_.named(0), all[0]))
          .about_rank(control_.shown(static_cast<int32_t>(q)));
  gsel_window* window = nullptr;
  gsel_error* err = nullptr;
  const gsel_status status = link_->table().window_register(link_->get(), memory, bytes, &window, &err);
  try {
    throw_if_failed(status, err);
  } catch (const Error& error) {
    control_.throw_break_reason();
    if (error.code() != GSEL_ERR_ARG) control_.break_with(error);  // other ranks may wait in the transport
    throw;
  }
  windows_[memory] = {window, bytes, ++registrations_};
  note_link();
}

void DeviceBackend::unregister_memory(void* memory) {
  require("gsel_mem_unregister");
  const auto found = windows_.find(memory);
  if (found == windows_.end()) return;
  finish_calls();
  if (!control_.is_broken()) link_->table().window_release(link_->get(), found->second.handle);
  windows_.erase(found);
}

}  // namespace gsel
