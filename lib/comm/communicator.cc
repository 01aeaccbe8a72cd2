// comm/communicator.cc: see communicator.h.
#include "comm/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/current_error.h"
#include "base/forked.h"
#include "base/printable.h"
#include "base/text.h"
#include "comm/check.h"
#include "comm/describe.h"
#include "comm/on_device/device_link.h"
#include "comm/shm/link.h"
#include "comm/shm/transport.h"

namespace gsel {

Communicator::Communicator(std::shared_ptr<Transport> transport, const gsel_join& join, const FindAccelerator& find)
    : transport_(std::move(transport)), rank_(join.rank), world_size_(join.world_size) {
  if (world_size_ < 1 || rank_ < 0 || rank_ >= world_size_)
    fail(GSEL_ERR_ARG, "rank {} of a world of {}: the rank must be 0 to world_size - 1", rank_, world_size_);
  gsel_join complete = join;
  complete.timeout_s = checked_seconds(join.timeout_s, "timeout_s");
  complete.join_timeout_s = checked_seconds(join.join_timeout_s, "join_timeout_s");
  if (join.order != GSEL_ORDER_RANKS && join.order != GSEL_ORDER_TREE)
    fail(GSEL_ERR_ARG, "order {} is unknown; use GSEL_ORDER_RANKS or GSEL_ORDER_TREE", join.order);
  joined_ = {complete.timeout_s, complete.join_timeout_s, complete.flags};
  link_ = transport_->join(complete);
  try {
    if (find) join_devices(find_together(find));
  } catch (...) {  // the destructor does not run
    transport_->table().link_leave(link_);
    throw;
  }
}

Communicator::Communicator(const Communicator& made_from, gsel_link* link, const gsel_membership& membership)
    : transport_(made_from.transport_),
      link_(link),
      rank_(membership.rank),
      world_size_(membership.world_size),
      joined_(made_from.joined_) {
  try {
    if (made_from.device_link_) join_devices(made_from.device_link_->accelerator());
  } catch (...) {
    transport_->table().link_leave(link_);
    throw;
  }
}

// Why a rank has no accelerator, told to all before any waits for it inside of a transport. What a driver takes to
// start counts as joining.
std::shared_ptr<const Accelerator> Communicator::find_together(const FindAccelerator& find) {
  struct Outcome {
    gsel_status code;
    char text[380];
  } own{};
  std::shared_ptr<const Accelerator> found;
  std::optional<Error> failure;
  try {
    found = find();
  } catch (...) {
    failure = current_error();
    own.code = failure->code();
    failure->message().copy(own.text, sizeof own.text - 1);
  }
  std::vector<Outcome> all(static_cast<size_t>(world_size_));
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHER, &own, all.data(), sizeof own, GSEL_U8);
  call.label = {"accelerator", 11};
  call.timeout_s = joined_.join_timeout_s;
  check(call);
  try {
    shm::link_of(link_).collective(call);
  } catch (const Error&) {
    if (!failure) throw;
  }
  if (failure) throw Error(*failure);
  for (size_t q = 0; q < all.size(); ++q)
    if (all[q].code != GSEL_OK)
      throw Error(all[q].code,
                  fmt::format("rank {}: {}", q, one_line({all[q].text, strnlen(all[q].text, sizeof own.text)})))
          .about_rank(static_cast<int32_t>(q));
  return found;
}

void Communicator::join_devices(std::shared_ptr<const Accelerator> accelerator) {
  if (!accelerator) return;
  gsel_join join{};
  join.struct_size = sizeof join;
  join.rank = rank_;
  join.world_size = world_size_;
  join.timeout_s = joined_.timeout_s;
  join.join_timeout_s = joined_.join_timeout_s;
  join.flags = joined_.flags;
  device_link_ = std::make_unique<DeviceLink>(std::move(accelerator), shm::link_of(link_), join);
}

Communicator::Communicator(Communicator&& other) noexcept
    : transport_(std::move(other.transport_)),
      link_(std::exchange(other.link_, nullptr)),
      rank_(other.rank_),
      world_size_(other.world_size_),
      joined_(other.joined_),
      device_link_(std::move(other.device_link_)),
      fork_generation_(other.fork_generation_) {}

Communicator::~Communicator() {
  if (os::fork_generation() != fork_generation_)
    static_cast<void>(device_link_.release());  // its thread is the parent's
  device_link_.reset();
  if (link_) transport_->table().link_leave(link_);
}

const char* Communicator::name() const noexcept {
  return transport_->table().link_name ? transport_->table().link_name(link_) : "";
}

// A device's context does not cross a fork.
DeviceLink& Communicator::device_link_of(const char* asked) const {
  require_own_process(fork_generation_, asked);
  return *device_link_;
}

void Communicator::collective(gsel_collective& call, gsel_stream* stream) {
  check(call);
  run_checked(call, stream);
}

void Communicator::check(gsel_collective& call) const {
  check_call(call, rank_, world_size_);
}

void Communicator::run_checked(const gsel_collective& call, gsel_stream* stream) {
  if (device_link_) return device_link_of(collective_name(call.kind)).collective(call);
  gsel_error* err = nullptr;
  const gsel_status status = transport_->table().collective(link_, &call, stream, &err);
  throw_if_failed(status, err);
}

// Without an allocation, which may be what has failed.
void Communicator::abort(std::string_view reason, int32_t about) noexcept {
  char text[kMostReasonBytes + 1] = "";
  std::ranges::transform(reason.substr(0, sizeof text - 1), text,
                         [](char c) { return static_cast<unsigned char>(c) < ' ' ? ' ' : c; });  // one line
  shm::link_of(link_).abort(text, about);
}

std::optional<OtherJointCall> Communicator::begin_joint_call(int32_t kind, uint64_t argument) noexcept {
  return shm::link_of(link_).begin_joint_call(kind, argument);
}

void Communicator::break_with(const Error& error) noexcept {
  shm::link_of(link_).break_with(error);
}

void Communicator::group(std::span<const gsel_collective> checked) {
  if (!transport_->table().group) fail(GSEL_ERR_UNSUPPORTED, "the transport has no groups; make the calls one by one");
  gsel_error* err = nullptr;
  const gsel_status status = transport_->table().group(link_, checked.data(), checked.size(), &err);
  throw_if_failed(status, err);
}

std::unique_ptr<Pending> Communicator::start(const gsel_collective& checked) {
  if (device_link_) return device_link_of(collective_name(checked.kind)).start(checked);
  return std::make_unique<Works>(*this, std::span(&checked, 1));
}

void Communicator::allow_overlap() {
  if (!device_link_) shm::link_of(link_).allow_overlap();
}

Works::Works(Communicator& communicator, std::span<const gsel_collective> checked)
    : transport_(communicator.transport_) {
  if (!transport_->table().work_start)
    fail(GSEL_ERR_UNSUPPORTED, "the transport runs no asynchronous calls; make the call itself");
  gsel_error* err = nullptr;
  const gsel_status status =
      transport_->table().work_start(communicator.link_, checked.data(), checked.size(), &work_, &err);
  throw_if_failed(status, err);
}

Works::~Works() {
  transport_->table().work_free(work_);
}

bool Works::wait(double seconds) {
  int32_t done = 0;
  gsel_error* err = nullptr;
  const gsel_status status = transport_->table().work_wait(work_, seconds, &done, &err);
  throw_if_failed(status, err);
  return done != 0;
}

bool Works::cancel() {
  return shm::cancel(work_);
}

void Works::wait_or_cancel() {
  shm::wait_or_cancel(work_);
}

gsel_comm_count Communicator::counts(gsel_collective_kind kind) const {
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  gsel_error* err = nullptr;
  const gsel_status status = transport_->table().link_counts(link_, kind, &count, &err);
  throw_if_failed(status, err);
  return count;
}

template <class... Declared, class... Given>
void Communicator::run(const char* name, gsel_status (*gsel_transport_v1::*function)(gsel_link*, Declared...),
                       Given... args) {
  if (!(transport_->table().*function)) fail(GSEL_ERR_UNSUPPORTED, "{} is not supported by this transport", name);
  gsel_error* err = nullptr;
  const gsel_status status = (transport_->table().*function)(link_, args..., &err);
  throw_if_failed(status, err);
}

std::optional<Communicator> Communicator::split(int32_t colour, int32_t key) {
  gsel_membership membership{};
  gsel_link* link = nullptr;
  run("gsel_comm_split", &gsel_transport_v1::link_split, colour, key, &membership, &link);
  if (!link) return std::nullopt;
  return Communicator(*this, link, membership);
}

std::optional<Communicator> Communicator::split_inside(int32_t colour, int32_t key, const char* label) {
  gsel_membership membership{};
  gsel_link* link = nullptr;
  gsel_error* err = nullptr;
  const gsel_status status = shm::split_inside(link_, colour, key, label, &membership, &link, &err);
  throw_if_failed(status, err);
  if (!link) return std::nullopt;
  return Communicator(*this, link, membership);
}

void Communicator::check_listed(std::span<const int32_t> ranks, const char* asked) const {
  std::vector<bool> named(static_cast<size_t>(world_size_));
  for (const int32_t q : ranks) {
    if (q < 0 || q >= world_size_) fail(GSEL_ERR_ARG, "{}: {} is not a rank of a world of {}", asked, q, world_size_);
    if (named[static_cast<size_t>(q)]) fail(GSEL_ERR_ARG, "{}: rank {} is named twice; name each rank once", asked, q);
    named[static_cast<size_t>(q)] = true;
  }
}

Communicator Communicator::create_group(std::span<const int32_t> ranks) {
  const auto all = static_cast<size_t>(world_size_);
  if (ranks.empty() || ranks.size() > all)
    fail(GSEL_ERR_ARG, "gsel_comm_create_group: n is {}; use 1 to {}", ranks.size(), with_noun(all, "rank"));
  check_listed(ranks, "gsel_comm_create_group");
  if (std::ranges::find(ranks, rank_) == ranks.end())
    fail(GSEL_ERR_ARG, "gsel_comm_create_group: the list does not name rank {}, which calls it", rank_);
  gsel_membership membership{};
  gsel_link* link = nullptr;
  run("gsel_comm_create_group", &gsel_transport_v1::link_create_group, ranks.data(), uint64_t{ranks.size()},
      &membership, &link);
  return Communicator(*this, link, membership);
}

Communicator Communicator::made_by(const char* name,
                                   gsel_status (*gsel_transport_v1::*function)(gsel_link*, gsel_membership*,
                                                                               gsel_link**, gsel_error**)) {
  gsel_membership membership{};
  gsel_link* link = nullptr;
  run(name, function, &membership, &link);
  return Communicator(*this, link, membership);
}

Communicator Communicator::dup() {
  return made_by("gsel_comm_dup", &gsel_transport_v1::link_dup);
}

Communicator Communicator::shrink() {
  return made_by("gsel_comm_shrink", &gsel_transport_v1::link_shrink);
}

Communicator Communicator::shrink_without(std::span<const int32_t> ranks) {
  check_listed(ranks, "gsel_comm_shrink_without");
  if (std::ranges::find(ranks, rank_) != ranks.end())
    fail(GSEL_ERR_ARG,
         "gsel_comm_shrink_without: the list names rank {}, which calls it; a rank that is left out does not call",
         rank_);
  gsel_membership membership{};
  gsel_link* link = nullptr;
  gsel_error* err = nullptr;
  const gsel_status status = shm::shrink_without(link_, ranks.data(), ranks.size(), &membership, &link, &err);
  throw_if_failed(status, err);
  return Communicator(*this, link, membership);
}

void Communicator::resync() {
  std::shared_ptr<const Accelerator> accelerator;
  if (device_link_) accelerator = device_link_->accelerator();
  device_link_.reset();  // what it joined does not become whole again
  run("gsel_comm_resync", &gsel_transport_v1::link_resync);
  join_devices(std::move(accelerator));
}

// Old ranks find out here whether they mean the same; newcomers by the rendezvous, as everybody.
Communicator Communicator::grow(const gsel_join& given, const FindAccelerator& find) {
  gsel_join join = given;
  join.rank = rank_;
  if (join.world_size < world_size_)
    fail(GSEL_ERR_ARG, "gsel_comm_grow: world_size is {} and the communicator has {} already; it takes a larger one",
         join.world_size, with_noun(world_size_, "rank"));
  struct Plan {
    gsel_unique_id id;
    int32_t world_size;
  };
  const Plan own{join.id, join.world_size};
  std::vector<Plan> plans(static_cast<size_t>(world_size_));
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHER, &own, plans.data(), sizeof own, GSEL_U8);
  call.label = {"grow", 4};
  check(call);
  shm::link_of(link_).collective(call);
  for (size_t q = 0; q < plans.size(); ++q)
    if (std::memcmp(&plans[q], &plans[0], sizeof own) != 0)
      throw Error(GSEL_ERR_MISMATCH, fmt::format("gsel_comm_grow: rank {} grows to {}, rank 0 to {}{}; give every "
                                                 "rank the same id and world_size",
                                                 q, with_noun(plans[q].world_size, "rank"), plans[0].world_size,
                                                 plans[q].world_size == plans[0].world_size ? " by another id" : ""))
          .about_rank(static_cast<int32_t>(q));
  return Communicator(transport_, join, find);
}

void Communicator::set_timeout(double timeout_s) {
  if (!(timeout_s > 0)) fail(GSEL_ERR_ARG, "gsel_comm_set_timeout: {} seconds; use a positive time", timeout_s);
  run("gsel_comm_set_timeout", &gsel_transport_v1::link_set_timeout, checked_seconds(timeout_s, "timeout_s"));
}

void* Communicator::alloc(uint64_t bytes) {
  if (device_link_) return device_link_of("gsel_mem_alloc").alloc(bytes);
  void* memory = nullptr;
  run("gsel_mem_alloc", &gsel_transport_v1::link_alloc, bytes, &memory);
  return memory;
}

void Communicator::free(void* memory) {
  if (device_link_) return device_link_of("gsel_mem_free").free(memory);
  run("gsel_mem_free", &gsel_transport_v1::link_free, memory);
}

void Communicator::register_memory(void* memory, uint64_t bytes) {
  if (device_link_) return device_link_of("gsel_mem_register").register_memory(memory, bytes);
  run("gsel_mem_register", &gsel_transport_v1::link_register, memory, bytes);
}

void Communicator::unregister_memory(void* memory) {
  if (device_link_) return device_link_of("gsel_mem_unregister").unregister_memory(memory);
  run("gsel_mem_unregister", &gsel_transport_v1::link_unregister, memory);
}

void Communicator::set_stream(void* native) {
  if (!device_link_)
    fail(GSEL_ERR_ARG,
         "gsel_comm_set_stream: communicator {} has no accelerator; name one in gsel_comm_options.accelerator", name());
  device_link_of("gsel_comm_set_stream").set_stream(native);
}

void Communicator::synchronize() {
  if (device_link_) return device_link_of("gsel_comm_synchronize").synchronize();
  require_own_process(fork_generation_, "gsel_comm_synchronize");
  shm::link_of(link_).throw_what_broke();
}

void Communicator::throw_async_error() {
  if (device_link_) return device_link_of("gsel_comm_get_async_error").throw_async_error();
  require_own_process(fork_generation_, "gsel_comm_get_async_error");
  shm::link_of(link_).throw_what_broke();
}

std::string Communicator::trace() const {
  char* json = nullptr;
  gsel_error* err = nullptr;
  if (!transport_->table().link_trace) fail(GSEL_ERR_UNSUPPORTED, "gsel_comm_trace is not supported by this transport");
  const gsel_status status = transport_->table().link_trace(link_, &json, &err);
  throw_if_failed(status, err);
  const std::unique_ptr<char, void (*)(void*)> owned(json, std::free);
  return owned.get();
}

gsel_comm_explanation Communicator::explain(const gsel_collective& given) {
  gsel_collective call = given;
  check_call(call, rank_, world_size_);
  if (device_link_) return device_link_of("gsel_comm_explain").explain(call);
  gsel_comm_explanation out = GSEL_COMM_EXPLANATION_INIT;
  run("gsel_comm_explain", &gsel_transport_v1::link_explain, &call, &out);
  return out;
}

}  // namespace gsel
