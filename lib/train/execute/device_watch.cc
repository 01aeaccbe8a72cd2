// train/execute/device_watch.cc: see device_watch.h.
#include "train/execute/device_watch.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"

namespace gsel::execute {
namespace {

constexpr size_t kMostMarks = 32;
constexpr int kLooksInTimeout = 8;
constexpr double kMostPatience = 30;  // seconds

struct NoAnswer {};

int64_t ns_of(double seconds) {
  return static_cast<int64_t>(seconds * 1e9);
}

double seconds_since(int64_t ns) {
  return static_cast<double>(os::now_ns() - ns) * 1e-9;
}

}  // namespace

DeviceWatch::DeviceWatch(const Communicator& world)
    : DeviceWatch(world.device_context(), world.accelerator() ? world.accelerator()->name : "cpu", world.rank(),
                  world.timeout_s()) {}

DeviceWatch::DeviceWatch(std::shared_ptr<DeviceContext> device, std::string name, int32_t rank, double timeout_s)
    : base_(std::move(device)), name_(std::move(name)), rank_(rank), timeout_s_(timeout_s) {
  if (!base_->has_streams()) return;
  word_ = Memory(base_, sizeof(double), GSEL_MEMORY_PINNED);
  *static_cast<double*>(word_.data()) = 0;
}

std::shared_ptr<DeviceContext> DeviceWatch::watched(const std::shared_ptr<DeviceWatch>& watch) {
  return watch->word_.data() ? std::make_shared<DeviceContext>(*watch->base_, watch) : watch->base_;
}

void DeviceWatch::attach(AxisComms& comms) {
  const std::lock_guard lock(mutex_);
  comms_ = &comms;
  if (word_.data()) comms.mark_end_at(static_cast<double*>(word_.data()));
}

void DeviceWatch::detach() noexcept {
  const std::lock_guard lock(mutex_);
  if (comms_ && in_run_) comms_->observe_waits(nullptr);
  if (comms_ && word_.data()) comms_->forget_word(static_cast<double*>(word_.data()));
  comms_ = nullptr;
  marks_.clear();
  n_marks_ = n_passed_ = 0;
}

void DeviceWatch::mark_end() noexcept {
  if (word_.data())
    std::atomic_ref<double>(*static_cast<double*>(word_.data())).store(std::numeric_limits<double>::quiet_NaN());
}

// ---- marks ----------------------------------------------------------------------------------------------------------

void DeviceWatch::begin_run(const std::string& name, size_t n_instrs) {
  const std::lock_guard lock(mutex_);
  run_ = name;
  in_run_ = true;
  every_ = n_instrs / kMostMarks + 1;
  n_marks_ = n_passed_ = 0;
  if (comms_ && word_.data()) comms_->observe_waits(this);
}

void DeviceWatch::end_run() noexcept {
  const std::lock_guard lock(mutex_);
  in_run_ = false;
  if (comms_) comms_->observe_waits(nullptr);
}

void DeviceWatch::mark(gsel_stream* compute) {
  const std::lock_guard lock(mutex_);
  if (n_marks_ == marks_.size()) marks_.emplace_back(base_);
  marks_[n_marks_++].record(compute);
}

// Once in a gap: notes whether the device has passed a mark since the last look, or is in a call. False: it is not
// time.
bool DeviceWatch::look_at_device(DeviceWait& wait, double gap_s) {
  const int64_t now = os::now_ns();
  if (wait.look_ns == 0) wait.look_ns = wait.began_ns + ns_of(gap_s);
  if (now < wait.look_ns) return false;
  wait.look_ns = now + ns_of(gap_s);
  for (; n_passed_ < n_marks_ && marks_[n_passed_].is_reached(); ++n_passed_) wait.moved_ns = now;
  if (in_run_ && comms_ && comms_->are_in_call()) wait.moved_ns = now;
  return true;
}

// ---- waits ----------------------------------------------------------------------------------------------------------

void DeviceWatch::look(DeviceWait& wait) {
  const std::lock_guard lock(mutex_);
  if (in_run_ && comms_) comms_->throw_async_errors();
  if (!look_at_device(wait, timeout_s_ / kLooksInTimeout) || seconds_since(wait.moved_ns) < timeout_s_) return;
  throw Error(
      GSEL_ERR_TIMEOUT,
      fmt::format("timed out: rank {} waited {} for {} on {}, which has not gone on for {}: a kernel does not end, or "
                  "waits for what is not enqueued; if one kernel or one graph may take as long, set a longer "
                  "timeout_s of the communicator",
                  rank_, seconds_text(seconds_since(wait.began_ns)),
                  in_run_ ? "the end of " + run_ : std::string("work"), name_,
                  seconds_text(seconds_since(wait.moved_ns))))
      .about_rank(rank_);
}

void DeviceWatch::end_wait() {
  const std::lock_guard lock(mutex_);
  if (in_run_ && comms_) comms_->throw_async_errors();
}

double DeviceWatch::patience_s() const {
  return std::min(timeout_s_, kMostPatience);
}

bool DeviceWatch::settle(const DeviceContext& device, std::span<gsel_stream* const> streams,
                         double patience_s) noexcept {
  struct Patience : WaitObserver {
    Patience(DeviceWatch& w, double s) : watch(w), most_s(s) {}
    void look(DeviceWait& wait) override {
      const std::lock_guard lock(watch.mutex_);
      if (!has_ended &&
          (!watch.look_at_device(wait, most_s / kLooksInTimeout) || seconds_since(wait.moved_ns) < most_s))
        return;
      has_ended = true;
      throw NoAnswer();
    }
    DeviceWatch& watch;
    const double most_s;
    bool has_ended = false;
  } patience(*this, patience_s);
  for (gsel_stream* stream : streams) try {
      if (device.has_streams())
        device.wait(stream, &patience);
      else
        device.run(&gsel_device_v1::stream_wait, stream);  // threads of the host's, which an abort ends
    } catch (const NoAnswer&) {
    } catch (...) {  // why its calls failed is known
    }
  if (patience.has_ended) try {
      log(GSEL_LOG_WARN, "train",
          "{} of rank {} did not answer within {}: its memory stays allocated until it does, or the process ends",
          name_, rank_, seconds_text(patience_s));
    } catch (...) {  // no memory for a text
    }
  return !patience.has_ended;
}

}  // namespace gsel::execute
