// comm/device/transport.cc: see transport.h.
#include "comm/device/transport.h"

#include <chrono>

#include "base/error.h"
#include "base/foreign.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/threads.h"
#include "comm/device/accelerator.h"

namespace gsel {
namespace {

constexpr std::chrono::seconds kAbortPatience{5};
constexpr size_t kReasonBytes = 256;

}  // namespace

Transport::Transport(const gsel_transport_v2& table) : table_(table) {
  gsel_error* err = nullptr;
  const gsel_status status = table_.open(&host_services(), &ctx_, &err);
  throw_if_failed(status, err);
}

Transport::~Transport() {
  table_.close(ctx_);
}

// ---- the control as a transport sees it ---------------------------------------------------------------------------

Control& TransportLink::control() const {
  Control* control = control_.load(std::memory_order_acquire);
  if (!control) fail(GSEL_ERR_STATE, "the communicator is being freed");
  return *control;
}

gsel_status TransportLink::exchange(void* self, const void* mine, void* all, uint64_t bytes, gsel_error** err) {
  return guard(
      err, [&] { static_cast<const TransportLink*>(self)->control().exchange(mine, all, bytes, "join transport"); });
}

gsel_status TransportLink::announce(void* self, const gsel_collective* call, gsel_error** err) {
  return guard(err, [&] { static_cast<const TransportLink*>(self)->control().announce(*call); });
}

gsel_status TransportLink::look(void* self, gsel_error** err) {
  return guard(err, [&] {
    const Control& control = static_cast<const TransportLink*>(self)->control();
    control.check_announced();  // needed if no thread watches
    control.throw_break_reason();
  });
}

int32_t TransportLink::await_break(void* self, double seconds) {
  const Control* control = static_cast<const TransportLink*>(self)->control_.load(std::memory_order_acquire);
  return !control || control->await_break(static_cast<int64_t>(seconds * 1e9));
}

// ---- a link -------------------------------------------------------------------------------------------------------

TransportLink::TransportLink(std::shared_ptr<const Accelerator> accelerator, const Offered& offered, Control& control)
    : accelerator_(std::move(accelerator)), offered_(offered), table_(offered.transport->table()), control_(&control) {
  control_table_ = {sizeof control_table_, 0, this, exchange, announce, look, await_break};
}

std::shared_ptr<TransportLink> TransportLink::join(std::shared_ptr<const Accelerator> accelerator,
                                                   const Offered& offered, Control& control, double timeout_s,
                                                   double join_timeout_s, uint32_t flags, std::string_view address) {
  const std::shared_ptr<TransportLink> link(new TransportLink(std::move(accelerator), offered, control));
  const DeviceContext& device = *link->accelerator_->device;
  const gsel_join join{
      sizeof join,    flags,           control.rank(), control.world_size(),  timeout_s,
      join_timeout_s, &device.table(), device.ctx(),   &link->control_table_, {address.data(), address.size()}};
  gsel_error* err = nullptr;
  const gsel_status status = link->table_.link_join(link->offered_.transport->ctx(), &join, &link->link_, &err);
  throw_if_failed(status, err);
  return link;
}

// To leave frees memory of the device, which waits for the device.
TransportLink::~TransportLink() {
  if (link_ && accelerator_->device->may_free(link_)) table_.link_leave(link_);
}

bool TransportLink::supports(const gsel_collective& call, std::string* reason) const {
  char why[kReasonBytes] = "";
  if (table_.supports(link_, &call, why, sizeof why)) return true;
  if (reason) *reason = why;
  return false;
}

std::string TransportLink::note() const {
  const char* text = table_.link_note ? table_.link_note(link_) : nullptr;
  return text ? text : "";
}

void TransportLink::throw_error() const {
  gsel_error* err = nullptr;
  const gsel_status status = table_.link_error(link_, &err);
  throw_if_failed(status, err);
}

void TransportLink::abort() noexcept {
  if (aborting_.exchange(true)) return;
  {
    const std::lock_guard lock(mutex_);
    abort_under_way_ = true;
  }
  try {
    quiet_thread([link = shared_from_this()] { link->end_work(); }).detach();
  } catch (const std::exception&) {  // no thread: run it on this one
    end_work();
  }
}

void TransportLink::end_work() {
  table_.link_abort(link_, "the communicator is broken");
  const std::lock_guard lock(mutex_);
  abort_under_way_ = false;
  changed_.notify_all();
}

bool TransportLink::detach() noexcept {
  std::unique_lock lock(mutex_);
  const bool ended = changed_.wait_for(lock, kAbortPatience, [&] { return !abort_under_way_; });
  if (!ended)
    log(GSEL_LOG_WARN, "comm", "{} did not end the work of a broken communicator on {} in {} s; its memory stays",
        offered_.name, accelerator_->name, kAbortPatience.count());
  if (!ended || aborting_) control_.store(nullptr, std::memory_order_release);
  return ended;
}

}  // namespace gsel
