// comm/communicator.cc: see communicator.h.
#include "comm/communicator.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "comm/call/check.h"
#include "comm/call/collective.h"
#include "comm/device/device_backend.h"

namespace gsel {
namespace {

// Replaces a device backend that a resync could not make again.
class Unjoined final : public Backend {
 public:
  void run(const gsel_collective&, gsel_stream*) override { refuse(); }
  void group(std::span<const gsel_collective>) override { refuse(); }
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective>, bool) override { refuse(); }
  void allow_overlap() override {}
  gsel_comm_explanation explain(const gsel_collective&) override { refuse(); }
  void* alloc(uint64_t) override { refuse(); }
  void free(void*) override { refuse(); }
  void register_memory(void*, uint64_t) override { refuse(); }
  void unregister_memory(void*) override { refuse(); }
  void set_stream(void*) override { refuse(); }
  void synchronize() override { refuse(); }
  void throw_async_error() override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    fail(GSEL_ERR_STATE,
         "gsel_comm_resync did not join the accelerator again; call gsel_comm_resync again on every rank, or "
         "gsel_comm_shrink");
  }
};

Backend& unjoined() {
  static Unjoined the_unjoined;
  return the_unjoined;
}

}  // namespace

Communicator::Communicator(const Communicator& made_from, std::unique_ptr<Control> control, bool on_host)
    : joined_(made_from.joined_),
      accelerator_(on_host ? nullptr : made_from.accelerator_),
      host_reason_(made_from.host_reason_),
      control_(std::move(control)),
      backend_(&control_->host()) {
  prepare();
}

void Communicator::prepare() {
  if ((joined_.flags & GSEL_COMM_THREAD_MULTIPLE) != 0) backend_->allow_overlap();
  join_devices();
}

void Communicator::join_devices() {
  if (!accelerator_) return;
  device_ = std::make_unique<DeviceBackend>(
      accelerator_, *control_, DeviceBackend::Options{joined_.timeout_s, joined_.join_timeout_s, joined_.flags});
  backend_ = device_.get();
}

Communicator::Communicator(Communicator&& other) noexcept = default;

Communicator::~Communicator() {
  if (os::fork_generation() != fork_generation_) static_cast<void>(device_.release());  // its thread is in the parent
}

void Communicator::collective(gsel_collective& call, gsel_stream* stream) {
  check(call);
  run_checked(call, stream);
}

void Communicator::collectives(std::span<gsel_collective> calls, gsel_stream* stream) {
  for (gsel_collective& call : calls) check(call);
  device_->run_together(calls, stream);
}

void Communicator::collective_on_host(gsel_collective call) {
  check_call(call, rank(), world_size());
  host().run(call, nullptr);
}

std::shared_ptr<DeviceContext> Communicator::device_context() const {
  return accelerator_ ? accelerator_->device : DeviceContext::open_host();
}

void Communicator::check(gsel_collective& call) const {
  check_call(call, rank(), world_size());
  if (call.stream && !accelerator_)
    fail(GSEL_ERR_ARG, "{}: gsel_collective.stream is given and the communicator has no accelerator; leave it NULL",
         collective_name(call.kind));
  if (accelerator_ && (call.send_parts || call.recv_parts))
    fail(GSEL_ERR_UNSUPPORTED, "{}: parts of memory of a device are not taken one by one; give one buffer",
         collective_name(call.kind));
}

// Does not allocate, since out of memory may be the reason.
void Communicator::abort(std::string_view reason, int32_t about) noexcept {
  char text[kMostReasonBytes + 1] = "";
  std::ranges::transform(reason.substr(0, sizeof text - 1), text,
                         [](char c) { return static_cast<unsigned char>(c) < ' ' ? ' ' : c; });  // one line
  control_->abort(text, about);
}

std::optional<Communicator> Communicator::split(int32_t colour, int32_t key) {
  return split_inside(colour, key, "");
}

std::optional<Communicator> Communicator::split_inside(int32_t colour, int32_t key, const char* label, bool on_host) {
  auto made = control_->split(colour, key, label);
  if (!made) return std::nullopt;
  return Communicator(*this, std::move(made), on_host);
}

void Communicator::check_listed(std::span<const int32_t> ranks, const char* function) const {
  std::vector<bool> named(static_cast<size_t>(world_size()));
  for (const int32_t q : ranks) {
    if (q < 0 || q >= world_size())
      fail(GSEL_ERR_ARG, "{}: {} is not a rank of a world of {}", function, q, world_size());
    if (named[static_cast<size_t>(q)])
      fail(GSEL_ERR_ARG, "{}: rank {} is named twice; name each rank once", function, q);
    named[static_cast<size_t>(q)] = true;
  }
}

void Communicator::check_group(std::span<const int32_t> ranks) const {
  const auto all = static_cast<size_t>(world_size());
  if (ranks.empty() || ranks.size() > all)
    fail(GSEL_ERR_ARG, "gsel_comm_create_group: n is {}; use 1 to {}", ranks.size(), with_noun(all, "rank"));
  check_listed(ranks, "gsel_comm_create_group");
  if (std::ranges::find(ranks, rank()) == ranks.end())
    fail(GSEL_ERR_ARG, "gsel_comm_create_group: the list does not name rank {}, which calls it", rank());
}

Communicator Communicator::create_group(std::span<const int32_t> ranks) {
  check_group(ranks);
  return Communicator(*this, control_->create_group(ranks));
}

Communicator Communicator::dup() {
  return Communicator(*this, control_->dup());
}

Communicator Communicator::shrink() {
  return Communicator(*this, control_->shrink({}));
}

void Communicator::check_left_out(std::span<const int32_t> ranks) const {
  check_listed(ranks, "gsel_comm_shrink_without");
  if (std::ranges::find(ranks, rank()) != ranks.end())
    fail(GSEL_ERR_ARG,
         "gsel_comm_shrink_without: the list names rank {}, which calls it; a rank that is left out does not call",
         rank());
}

Communicator Communicator::shrink_without(std::span<const int32_t> ranks) {
  check_left_out(ranks);
  return Communicator(*this, control_->shrink(ranks));
}

std::unique_ptr<BackendRequest> Communicator::start_making(const Making& making,
                                                           std::shared_ptr<std::optional<Communicator>> made) {
  if (making.kind == Making::Kind::group) check_group(making.ranks);
  if (making.kind == Making::Kind::shrink) check_left_out(making.ranks);
  return control_->start_making(making, [this, made](std::unique_ptr<Control> control) {
    if (control) made->emplace(Communicator(*this, std::move(control)));
  });
}

// The link of a device backend cannot be repaired, so a new backend is made. Until then unjoined() refuses calls: the
// host backend would treat device memory as host memory.
void Communicator::resync() {
  backend_ = accelerator_ ? &unjoined() : &control_->host();
  device_.reset();
  control_->resync();
  join_devices();
  if (device_ && stream_) device_->set_stream(stream_);
}

void Communicator::set_timeout(double timeout_s) {
  if (!(timeout_s > 0)) fail(GSEL_ERR_ARG, "gsel_comm_set_timeout: {} seconds; use a positive time", timeout_s);
  joined_.timeout_s = checked_seconds(timeout_s, "timeout_s");
  control_->set_timeout(joined_.timeout_s);
  if (device_) device_->set_timeout(joined_.timeout_s);
}

gsel_comm_explanation Communicator::explain(const gsel_collective& given) {
  gsel_collective call = given;
  check(call);
  gsel_comm_explanation out = backend_->explain(call);
  if (!host_reason_.empty()) out.transport_reason = host_reason_.c_str();
  return out;
}

}  // namespace gsel
