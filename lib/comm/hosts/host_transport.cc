// comm/hosts/host_transport.cc: see host_transport.h.
#include "comm/hosts/host_transport.h"

#include "base/error.h"
#include "base/os.h"

namespace gsel::hosts {
namespace {

constexpr double kLookS = 0.02;  // interval of checks for a broken communicator

// No other rank is to blame: this program has shut down a library that the transport needs.
bool is_own(const Error& error) {
  return error.code() == GSEL_ERR_STATE;
}

}  // namespace

HostTransport::HostTransport(std::shared_ptr<const Accelerator> transport, Control& control, double timeout_s,
                             double join_timeout_s, std::string_view address)
    : transport_(std::move(transport)),
      control_(control),
      link_(TransportLink::join(transport_, transport_->offers.front(), control, timeout_s, join_timeout_s, 0,
                                address)) {}

HostTransport::~HostTransport() {
  if (control_.is_broken()) link_->abort();
  link_->detach();
}

// Prefers an error that the control knows, which may be the cause.
void HostTransport::fail_broken(const Error& error, int32_t peer) const {
  const int32_t about = is_own(error) ? control_.rank() : peer;
  if (!is_own(error)) control_.await_break(kCauseNs);
  control_.throw_break_reason();
  control_.break_with(Error(error.code(), fmt::format("{}: {}", control_.named(about), error.message()))
                          .about_rank(control_.shown(about)));
  control_.throw_break_reason();
  throw Error(error);
}

HostTransport::Posted::Posted(const HostTransport& host_transport, const gsel_transfer& transfer,
                              std::optional<Error>* failure)
    : host_transport_(host_transport), peer_(transfer.peer) {
  gsel_error* err = nullptr;
  const gsel_status status = host_transport.link_->table().post(host_transport.link_->get(), &transfer, &handle_, &err);
  try {
    throw_if_failed(status, err);
  } catch (const Error& error) {
    if (!failure || is_own(error)) host_transport.fail_broken(error, peer_);
    *failure = error;
  }
}

HostTransport::Posted::~Posted() {
  if (!handle_) return;
  host_transport_.link_->table().link_abort(host_transport_.link_->get(), "a transfer is given up");
  host_transport_.link_->table().release(handle_);
}

bool HostTransport::Posted::test(double seconds, std::optional<Error>* failure) {
  int32_t done = 0;
  gsel_error* err = nullptr;
  const gsel_status status = host_transport_.link_->table().test(handle_, seconds, &done, &err);
  try {
    throw_if_failed(status, err);
  } catch (const Error& error) {
    if (!failure || is_own(error)) host_transport_.fail_broken(error, peer_);
    *failure = error;
    return false;
  }
  if (done) host_transport_.link_->table().release(std::exchange(handle_, nullptr));
  return done;
}

void HostTransport::finish(Posted& posted, int64_t deadline_ns, std::string_view what) {
  while (!posted.has_ended() && !posted.test(kLookS)) {
    control_.throw_break_reason();
    attend_();
    if (os::now_ns() < deadline_ns) continue;
    control_.break_with(
        Error(GSEL_ERR_TIMEOUT, fmt::format("timed out: {} waited for bytes of {} in {}",
                                            control_.named(control_.rank()), control_.named(posted.peer()), what))
            .about_rank(control_.shown(posted.peer())));
    control_.throw_break_reason();
  }
}

void HostTransport::finish(std::vector<Posted>& posted, int64_t deadline_ns, std::string_view what) {
  for (Posted& one : posted) finish(one, deadline_ns, what);
  posted.clear();
}

}  // namespace gsel::hosts
