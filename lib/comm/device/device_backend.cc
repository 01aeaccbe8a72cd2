// comm/device/device_backend.cc: see device_backend.h.
#include "comm/device/device_backend.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "base/current_error.h"
#include "base/forked.h"
#include "base/guard.h"
#include "base/os.h"
#include "base/quiet_thread.h"
#include "comm/check.h"
#include "comm/collective.h"
#include "comm/communicator.h"

namespace gsel {
namespace {

constexpr int64_t kLookNs = 50'000'000;  // for what nobody is woken for: late ranks, errors of the transport
constexpr const char* kHost = "host";
constexpr int kYields = 200;
constexpr useconds_t kSleepUs = 20;

// The allgather of gsel_join.
gsel_status exchange(void* control, const void* mine, void* all, uint64_t bytes, gsel_error** err) {
  return guard(err, [&] { static_cast<Control*>(control)->exchange(mine, all, bytes, "join transport"); });
}

gsel_status look(void* control, gsel_error** err) {
  return guard(err, [&] { static_cast<Control*>(control)->throw_what_broke(); });
}

void copy_text(std::span<char> to, std::string_view text) {
  to[text.copy(to.data(), to.size() - 1)] = '\0';
}

}  // namespace

// What each rank says of itself before any transport is joined.
struct DeviceBackend::Choice {
  char transport[32], uuid[64], why[160];
  int32_t version, named;
};

DeviceBackend::DeviceBackend(std::shared_ptr<const Accelerator> accelerator, Control& control, const gsel_join& join)
    : accelerator_(std::move(accelerator)),
      control_(control),
      memory_(*accelerator_),
      host_(accelerator_->device),
      reached_(accelerator_->device) {
  choose(join);
  if (!table_) return;
  join_transport(join);
  if ((join.flags & GSEL_COMM_NO_THREAD) == 0) watching_ = quiet_thread([this] { watch(); });
}

// Work on a broken link is ended first, or it would wait for ever.
DeviceBackend::~DeviceBackend() {
  leaving_ = true;
  if (watching_.joinable()) {
    while (!watching_done_) control_.stop_awaiting_break(), sched_yield();
    watching_.join();
  }
  if (link_ && control_.is_broken()) end_transport();
  if (link_) table_->link_leave(link_);
  accelerator_->device->table().stream_free(accelerator_->device->ctx(), stream_);
}

// ---- joining ----------------------------------------------------------------------------------------------------

void DeviceBackend::choose(const gsel_join& join) {
  Choice own{};
  copy_text(own.transport, accelerator_->transport_name);
  copy_text(own.uuid, accelerator_->uuid);
  copy_text(own.why, accelerator_->others);
  own.version = accelerator_->can.version;
  own.named = accelerator_->is_named;
  std::vector<Choice> all(static_cast<size_t>(join.world_size));
  control_.exchange(&own, all.data(), sizeof own, "join transport");
  const auto named = std::ranges::find_if(all, [](const Choice& c) { return c.named != 0; });
  const Choice& wanted = named == all.end() ? all[0] : *named;
  std::optional<Error> problem = why_not(all, wanted);
  if (problem && named != all.end()) throw Error(*problem);
  if (problem)
    reason_ = problem->message();
  else if (std::strcmp(wanted.transport, kHost) == 0)
    reason_ = wanted.named    ? "it was asked for"
              : wanted.why[0] ? wanted.why
                              : "no transport takes memory of this device";
  else
    table_ = &accelerator_->transport->table();
}

// Why the ranks cannot use a transport together, the same on every rank; nullopt: they can.
std::optional<Error> DeviceBackend::why_not(std::span<const Choice> all, const Choice& wanted) const {
  const bool through_host = std::strcmp(wanted.transport, kHost) == 0;
  const auto named = [&](size_t q) { return control_.named(static_cast<int32_t>(q)); };
  for (size_t q = 0; q < all.size(); ++q) {
    if (all[q].named && std::strcmp(all[q].transport, wanted.transport) != 0)
      return Error(GSEL_ERR_MISMATCH,
                   fmt::format("{} asks for the transport \"{}\", another rank for \"{}\"; name one on all ranks, or "
                               "\"auto\"",
                               named(q), all[q].transport, wanted.transport))
          .about_rank(control_.shown(static_cast<int32_t>(q)));
    if (through_host) continue;
    if (std::strcmp(all[q].transport, wanted.transport) != 0)
      return Error(GSEL_ERR_UNSUPPORTED, fmt::format("{} cannot use {}: {}", named(q), wanted.transport,
                                                     all[q].why[0] ? all[q].why : "it has another transport"))
          .about_rank(control_.shown(static_cast<int32_t>(q)));
    if (all[q].version != all[0].version)
      return Error(GSEL_ERR_VERSION, fmt::format("{} has {} {}, {} has {}; use one version on all ranks", named(q),
                                                 wanted.transport, all[q].version, named(0), all[0].version))
          .about_rank(control_.shown(static_cast<int32_t>(q)));
    if ((accelerator_->can.flags & GSEL_TRANSPORT_OWN_DEVICE) == 0) continue;
    for (size_t before = 0; before < q; ++before)
      if (std::strcmp(all[before].uuid, all[q].uuid) == 0)
        return Error(GSEL_ERR_DUPLICATE,
                     fmt::format("{} and {} share the device {}, and {} needs one for each rank; give each rank its "
                                 "own, or use the transport \"host\"",
                                 named(before), named(q), all[q].uuid, wanted.transport))
            .about_rank(control_.shown(static_cast<int32_t>(q)));
  }
  return {};
}

void DeviceBackend::join_transport(const gsel_join& given) {
  gsel_join join = given;
  join.device_table = &accelerator_->device->table();
  join.device_ctx = accelerator_->device->ctx();
  join.exchange = exchange;
  join.look = look;
  join.control = &control_;
  try {
    link_ = accelerator_->transport->join(join);
  } catch (...) {  // the others wait for this rank inside of the transport
    control_.abort(current_error().what());
    throw;
  }
  reason_ = fmt::format("{}{}", accelerator_->is_named ? "it was asked for" : "all ranks have it",
                        accelerator_->others.empty() ? "" : "; " + accelerator_->others);
}

// ---- what goes wrong later ----------------------------------------------------------------------------------------

void DeviceBackend::watch() {
  while (!leaving_) {
    try {
      if (control_.await_break(kLookNs)) break;
      control_.look_after_announced();
      gsel_error* err = nullptr;
      const gsel_status status = table_->link_error ? table_->link_error(link_, &err) : GSEL_OK;
      throw_if_failed(status, err);
    } catch (...) {
      control_.break_with(current_error());
    }
  }
  if (!leaving_) end_transport();
  watching_done_ = true;
}

// Kernels of this device that wait for other ranks would wait for ever.
void DeviceBackend::end_transport() noexcept {
  table_->link_abort(link_, "the communicator is broken");
}

void DeviceBackend::throw_async_error() {
  require_own_process(fork_generation_, "gsel_comm_get_async_error");
  if (table_ && !watching_.joinable()) {
    control_.look_after_announced();
    if (control_.is_broken()) end_transport();
  }
  control_.throw_what_broke();
}

void DeviceBackend::synchronize() {
  require_own_process(fork_generation_, "gsel_comm_synchronize");
  throw_async_error();
  reached_.record(stream_);
  wait(reached_, -1);
}

bool DeviceBackend::wait(Event& reached, double seconds) {
  const int64_t end = seconds < 0 ? INT64_MAX : os::now_ns() + static_cast<int64_t>(seconds * 1e9);
  for (int looks = 0;; ++looks) {
    throw_async_error();
    int32_t done = 0;
    accelerator_->device->run(&gsel_device_v1::event_done, reached.get(), &done);
    if (done) {
      throw_async_error();  // what ended the stream's work
      return true;
    }
    if (os::now_ns() >= end) return false;
    looks < kYields ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(kSleepUs));
  }
}

// ---- calls --------------------------------------------------------------------------------------------------------

void DeviceBackend::set_stream(void* native) {
  require_own_process(fork_generation_, "gsel_comm_set_stream");
  gsel_stream* stream = nullptr;
  if (native) accelerator_->device->run(&gsel_device_v1::stream_import, native, &stream);
  accelerator_->device->table().stream_free(accelerator_->device->ctx(), std::exchange(stream_, stream));
}

void DeviceBackend::check_memory(const gsel_collective& call) {
  const BufferBytes bytes = buffer_bytes(call, control_.rank(), control_.world_size());
  const char* name = collective_name(call.kind);
  memory_.check(name, call.send, bytes.send, "send");
  memory_.check(name, call.recv, bytes.recv, "recv");
}

bool DeviceBackend::takes(const gsel_collective& call) const {
  if (!table_) return false;
  const gsel_transport_description& can = accelerator_->can;
  const auto has = [](uint64_t set, int32_t bit) { return bit >= 0 && bit < 64 && (set >> bit & 1) != 0; };
  if (is_point_to_point(call.kind)) return refuse_untransported_message(call), true;
  return has(can.kinds, call.kind) &&
         (!is_reduction(call.kind) || (has(can.dtypes, call.dtype) && has(can.ops, call.op)));
}

// The other side cannot know which way a message goes, so all messages go one way.
void DeviceBackend::refuse_untransported_message(const gsel_collective& call) const {
  const bool is_plain = !row_of(call.kind).probes && call.tag == 0 && call.recv_tag == 0 && call.root >= 0 &&
                        (call.kind != GSEL_COLLECTIVE_SENDRECV || call.source >= 0);
  if (is_plain) return;
  fail(GSEL_ERR_UNSUPPORTED,
       "{}: the transport {} has no tags, no probes and no receive from any rank; name the rank and use tag 0, or join "
       "with the transport \"host\"",
       collective_name(call.kind), accelerator_->transport_name);
}

gsel_collective DeviceBackend::stage(const gsel_collective& call) {
  return host_.stage(call, control_.rank(), control_.world_size(), stream_);
}

namespace {

// One thread at a time, also where it runs a request: what is enqueued has one order.
class InCall {
 public:
  InCall(std::atomic_flag& flag, const gsel_collective& call) : flag_(flag) {
    if (flag.test_and_set(std::memory_order_acquire))
      fail(GSEL_ERR_STATE,
           "{}: another thread is in a call; with an accelerator, one thread at a time makes calls and runs requests",
           collective_name(call.kind));
  }
  ~InCall() { flag_.clear(std::memory_order_release); }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

 private:
  std::atomic_flag& flag_;
};

}  // namespace

void DeviceBackend::run(const gsel_collective& call, gsel_stream*) {
  require_own_process(fork_generation_, collective_name(call.kind));
  const InCall in_call(in_call_, call);
  check_memory(call);
  if (takes(call)) {
    const Enqueued one{this, call};
    return enqueue({&one, 1});
  }
  const gsel_collective staged = stage(call);
  try {
    control_.host().run(staged, nullptr);
  } catch (...) {
    host_.drop();
    throw;
  }
  host_.fetch(stream_);
}

namespace {

// A call that has been enqueued.
class PassedBy : public Pending {
 public:
  PassedBy(DeviceBackend& link, gsel_stream* stream) : link_(link), reached_(link.accelerator()->device) {
    reached_.record(stream);
  }
  bool wait(double seconds) override { return link_.wait(reached_, seconds); }

 private:
  DeviceBackend& link_;
  Event reached_;
};

}  // namespace

void DeviceBackend::group(std::span<const gsel_collective> calls) {
  for (const gsel_collective& call : calls) run(call, nullptr);
}

std::unique_ptr<Pending> DeviceBackend::start(std::span<const gsel_collective> calls) {
  group(calls);
  return std::make_unique<PassedBy>(*this, stream_);
}

// The first call of each link, then the second, ...: ranks that this thread holds do not wait for one another.
void DeviceBackend::announce(std::span<const Enqueued> calls) {
  if (calls.size() == 1) return calls[0].link->control_.announce(calls[0].call);
  std::map<const DeviceBackend*, size_t> seen;
  std::multimap<size_t, const Enqueued*> order;
  for (const Enqueued& c : calls) order.emplace(seen[c.link]++, &c);
  for (const auto& [turn, c] : order) c->link->control_.announce(c->call);
}

void DeviceBackend::enqueue(std::span<const Enqueued> calls) {
  announce(calls);
  const gsel_transport_v1* table = calls[0].link->table_;
  if (std::ranges::all_of(calls, [&](const Enqueued& c) { return c.link->table_ == table; }))
    enqueue_together(calls);
  else
    for (const Enqueued& c : calls) enqueue_together({&c, 1});
}

// Over one transport.
void DeviceBackend::enqueue_together(std::span<const Enqueued> calls) {
  const gsel_transport_v1& table = *calls[0].link->table_;
  gsel_error* err = nullptr;
  gsel_status status = GSEL_OK;
  if (calls.size() == 1) {
    status = table.collective(calls[0].link->link_, &calls[0].call, calls[0].link->stream_, &err);
  } else {
    std::vector<gsel_link*> links;
    std::vector<gsel_stream*> streams;
    std::vector<gsel_collective> all;
    for (const Enqueued& c : calls) {
      links.push_back(c.link->link_);
      streams.push_back(c.link->stream_);
      all.push_back(c.call);
    }
    status = table.enqueue(links.data(), all.data(), streams.data(), all.size(), &err);
  }
  try {
    throw_if_failed(status, err);
  } catch (...) {  // the other ranks have this call or wait for it
    const Error error = current_error();
    for (const Enqueued& c : calls) c.link->control_.throw_what_broke();
    for (const Enqueued& c : calls) c.link->control_.break_with(error);
    throw;
  }
  for (const Enqueued& c : calls) describe_received(c.call);
}

// As the call says, since the transport has no messages of another length.
void DeviceBackend::describe_received(const gsel_collective& call) {
  if (!call.received) return;
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  gsel_message& message = *call.received;
  message.source = both ? call.source : call.root;
  message.tag = 0;
  message.dtype = call.dtype;
  message.count = both ? call.recv_count : call.count;
}

gsel_comm_explanation DeviceBackend::explain(const gsel_collective& call) {
  require_own_process(fork_generation_, "gsel_comm_explain");
  gsel_comm_explanation out = control_.host().explain(call);
  out.transport = "host";
  out.transport_reason = reason_.c_str();
  if (!table_) return out;
  if (takes(call)) {
    out.transport = accelerator_->transport_name.c_str();
    out.protocol = "stream";
    out.reason = "the transport enqueues it";
    out.chunk_bytes = 0;
    out.seconds = 0;
  } else {
    out.transport_reason = "the transport has no such call, type or operation";
  }
  return out;
}

// ---- memory -------------------------------------------------------------------------------------------------------

template <class... Declared, class... Given>
void DeviceBackend::call_table(gsel_status (*gsel_transport_v1::*function)(gsel_link*, Declared...), Given... args) {
  gsel_error* err = nullptr;
  const gsel_status status = (table_->*function)(link_, args..., &err);
  throw_if_failed(status, err);
}

void* DeviceBackend::alloc(uint64_t bytes) {
  require_own_process(fork_generation_, "gsel_mem_alloc");
  void* memory = nullptr;
  if (table_ && table_->link_alloc)
    call_table(&gsel_transport_v1::link_alloc, bytes, &memory);
  else
    accelerator_->device->run(&gsel_device_v1::alloc, int32_t{GSEL_MEMORY_DEVICE}, bytes, &memory);
  return memory;
}

void DeviceBackend::free(void* memory) {
  require_own_process(fork_generation_, "gsel_mem_free");
  if (table_ && table_->link_free)
    call_table(&gsel_transport_v1::link_free, memory);
  else
    accelerator_->device->table().free(accelerator_->device->ctx(), memory);
}

void DeviceBackend::register_memory(void* memory, uint64_t bytes) {
  require_own_process(fork_generation_, "gsel_mem_register");
  memory_.check("gsel_mem_register", memory, bytes, "memory");
  if (table_ && table_->link_register) call_table(&gsel_transport_v1::link_register, memory, bytes);
}

void DeviceBackend::unregister_memory(void* memory) {
  require_own_process(fork_generation_, "gsel_mem_unregister");
  if (table_ && table_->link_unregister) call_table(&gsel_transport_v1::link_unregister, memory);
}

}  // namespace gsel
