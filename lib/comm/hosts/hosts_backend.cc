// comm/hosts/hosts_backend.cc: see hosts_backend.h.
#include "comm/hosts/hosts_backend.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/types.h"
#include "comm/call/collective.h"
#include "device/host/stream.h"

namespace gsel::hosts {
void HostsBackend::take(std::unique_ptr<HostTransport> host_transport) {
  if (messages_) messages_->close();
  messages_.reset();
  assembly_.take(nullptr);
  frames_.reset();
  host_transport_ = std::move(host_transport);
  if (!host_transport_) return;
  note_transport();
  assembly_.reset_count();
  messages_ = std::make_shared<Messages>(roster_, local_, *host_transport_, static_cast<Messages::Rank&>(*this));
  const auto attends = [this] { attend(); };
  host_transport_->attend_with(attends);
  if (assembly_.relay()) assembly_.relay()->attend_with(attends);
  if (!host_transport_->is_prompt() || !roster_.is_in_blocks() || roster_.hosts() > Frames::kMostHosts) return;
  frames_ = std::make_unique<Frames>(roster_, *host_transport_, assembly_.relay());
  assembly_.take(frames_.get());
}

// Appends only, since explanations point to the text and stay valid after the transport is joined again.
void HostsBackend::note_transport() {
  const std::string note = host_transport_->note();
  if (note.empty() || reason_.ends_with(note)) return;
  reason_ += "; " + note;
  if (roster_.rank() == 0) log(GSEL_LOG_INFO, "comm", "between hosts: {}", note);
}

void HostsBackend::leave() noexcept {
  if (messages_) messages_->leave(unconfirmed_ || messages_->has_sent());
}

int64_t HostsBackend::timeout_ns() const {
  return static_cast<int64_t>(timeout_s_.load(std::memory_order_relaxed) * 1e9);
}

// ---- calls --------------------------------------------------------------------------------------------------------

void HostsBackend::run(const gsel_collective& checked, gsel_stream* stream) {
  if (stream) return stream->enqueue([this, copy = checked] { run(copy, nullptr); });
  try {
    run_now(checked);
  } catch (...) {
    await_notified();
    throw;
  }
}

void HostsBackend::run_now(const gsel_collective& checked) {
  if (!is_point_to_point(checked.kind)) return serial_.run([&] { make(checked); });
  if (is_here(checked)) {
    local_.run(here(checked), nullptr);
    if (checked.received && checked.received->source >= 0)
      checked.received->source = roster_.here()[static_cast<size_t>(checked.received->source)];
    return;
  }
  require_transport(checked.kind);
  try {
    messages_->run({&checked, 1}, timeout_ns());
  } catch (const Error& error) {
    local_.note_failure(error);
    throw;
  }
}

void HostsBackend::group(std::span<const gsel_collective> checked) {
  start(checked, true)->wait(-1);
}

namespace {

// The messages and the collectives of a group.
class Group final : public BackendRequest {
 public:
  Group(std::unique_ptr<BackendRequest> one, std::unique_ptr<BackendRequest> other)
      : parts_{std::move(one), std::move(other)} {}
  bool wait(double seconds) override {
    bool all = true;
    for (auto& part : parts_) {
      if (part && part->wait(seconds)) part.reset();
      all = all && !part;
    }
    return all;
  }
  bool waits_for_itself() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part && part->waits_for_itself(); });
  }

 private:
  std::array<std::unique_ptr<BackendRequest>, 2> parts_;
};

constexpr const char* kReasons[kWays] = {
    "the payload is small: it goes with the call over the first rank of each host",
    "the payload is small for many hosts: it goes with the call to the first rank, which folds it and returns the "
    "result",
    "each rank gets its part of what every rank has, adds it, and passes it on to the ranks of its host",
    "each host reduces its own inputs, then one rank for each slice reduces the results of the hosts, in rank order",
    "each host adds its ranks to what the host before sends, in rank order",
    "each host sends its inputs for a slice to one rank, which reduces them in the requested order",
    "one rank of each host gets what all of its ranks need, and passes it on there",
    "each rank gets what it needs from every other"};

}  // namespace

std::unique_ptr<BackendRequest> HostsBackend::start(std::span<const gsel_collective> checked, bool) {
  std::vector<gsel_collective> messages, collectives;
  for (const gsel_collective& call : checked) (is_point_to_point(call.kind) ? messages : collectives).push_back(call);
  std::unique_ptr<BackendRequest> moves;
  if (!messages.empty()) {
    require_transport(messages.front().kind);
    moves = messages_->start(messages, timeout_ns());
  }
  if (collectives.empty()) return moves;
  auto makes = start_in_turn([this, calls = std::move(collectives)] {
    for (const gsel_collective& call : calls) make(call);
  });
  if (!moves) return makes;
  return std::make_unique<Group>(std::move(moves), std::move(makes));
}

// Allows overlap, since the steps on this host run at the same time as the caller's messages there.
std::unique_ptr<BackendRequest> HostsBackend::start_in_turn(std::function<void()> task) {
  struct End {
    shm::Endpoint& local;
    ~End() { local.end_overlap(); }
  };
  local_.allow_overlap();
  return serial_.start([this, task = std::move(task)] {
    const End end{local_};
    try {
      task();
    } catch (...) {
      await_notified();
      throw;
    }
  });
}

void HostsBackend::require_transport(gsel_collective_kind kind) const {
  if (!host_transport_)
    fail(GSEL_ERR_UNSUPPORTED, "{}: no transport moves memory of the host between hosts, and {}", collective_name(kind),
         why_none_);
}

bool HostsBackend::is_here(const gsel_collective& message) const {
  const auto is = [&](int32_t rank) { return rank >= 0 && roster_.is_here(rank); };
  return is(message.root) && (message.kind != GSEL_COLLECTIVE_SENDRECV || is(message.source));
}

// A message between two ranks of this host, with their local ranks.
gsel_collective HostsBackend::here(const gsel_collective& message) const {
  gsel_collective local = message;
  local.root = roster_.local_of(local.root);
  if (message.kind == GSEL_COLLECTIVE_SENDRECV) local.source = roster_.local_of(local.source);
  return local;
}

// ---- counts and explanations ----------------------------------------------------------------------------------------

void HostsBackend::count(gsel_collective_kind kind, uint64_t bytes) {
  counts_[static_cast<size_t>(kind)].add(bytes);
}

gsel_comm_count HostsBackend::counts(gsel_collective_kind kind) const {
  gsel_comm_count out = GSEL_COMM_COUNT_INIT;
  if (!is_known(kind)) return out;
  if (is_point_to_point(kind)) out = local_.counts(kind);  // messages between ranks of this host
  const Count& count = counts_[static_cast<size_t>(kind)];
  out.calls += count.calls.load(std::memory_order_relaxed);
  out.bytes_sent += count.bytes.load(std::memory_order_relaxed);
  if (kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV) {
    const Count& halves = halves_here_[kind == GSEL_COLLECTIVE_SEND ? 0 : 1];
    out.calls -= halves.calls.load(std::memory_order_relaxed);
    out.bytes_sent -= halves.bytes.load(std::memory_order_relaxed);
  }
  return out;
}

Spread HostsBackend::spread() const {
  return {
      roster_.ranks(),        roster_.hosts(), roster_.sizes().back(), roster_.is_in_blocks(), roster_.is_consecutive(),
      assembly_.has_frames(), order_};
}

gsel_comm_explanation HostsBackend::explain_message(const gsel_collective& message) const {
  if (is_here(message)) return local_.explain(here(message));
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  const bool sends = row_of(message.kind).send != Reach::none;
  const uint64_t bytes = std::max(message.count, message.kind == GSEL_COLLECTIVE_SENDRECV ? message.recv_count : 0) *
                         dtype_bytes(message.dtype);
  const bool is_short = bytes <= kBufferedBytes;
  out.protocol = is_short ? "frame" : "transfer";
  out.reason = is_short ? "the message is sent in the frame that announces it"
                        : "the message is sent when its receiver asks for it";
  if (sends) out.sent_bytes = message.count * dtype_bytes(message.dtype);
  out.transport = host_transport_ ? host_transport_->name() : "none";
  out.transport_reason = reason_.c_str();
  return out;
}

gsel_comm_explanation HostsBackend::explain(const gsel_collective& checked) {
  if (is_point_to_point(checked.kind)) return explain_message(checked);
  Call call;
  const auto ranks = static_cast<int32_t>(roster_.ranks());
  shm::complete(checked, ranks, 0, call);
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  out.sent_bytes = Plan(call, roster_.rank(), ranks).sent_bytes();
  const Way way = way_of(call);
  out.protocol = way_name(way);
  out.reason = kReasons[static_cast<size_t>(way)];
  const bool goes_with_call = way == Way::small || way == Way::at_first;
  out.transport = goes_with_call && !assembly_.has_frames() ? "control"
                  : host_transport_                         ? host_transport_->name()
                                                            : "none";
  out.transport_reason = reason_.c_str();
  return out;
}

}  // namespace gsel::hosts
