// comm/shm/endpoint.cc: see endpoint.h.
#include "comm/shm/endpoint.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/text.h"
#include "comm/call/collective.h"
#include "comm/shm/join/rendezvous.h"
#include "comm/shm/members/membership.h"
#include "comm/shm/memory/watcher.h"
#include "device/host/stream.h"

namespace gsel::shm {
namespace {

std::unique_ptr<Control> made(MemberPlace place) {
  return std::make_unique<Endpoint>(std::move(place));
}

}  // namespace

std::unique_ptr<Endpoint> join(const JoinOptions& join) {
  const int32_t most = join.known_ranks > 0 ? join.known_ranks : join.world_size;
  Faults faults = Faults::of_environment(shown_rank(join, join.rank), most);
  Joined joined = rendezvous(join);
  joined.family->name = joined.arena->header().name;
  joined.family->shown_ranks = join.shown_ranks;
  if (join.trace.len > 0) joined.family->trace_folder = std::filesystem::absolute(text(join.trace)).string();
  const bool threads_allowed = (join.flags & GSEL_COMM_NO_THREAD) == 0;
  if (threads_allowed) Watcher::watch(*joined.family);
  return std::make_unique<Endpoint>(MemberPlace{std::move(joined.family), std::move(joined.arena), join.rank,
                                                static_cast<int64_t>(join.timeout_s * 1e9), threads_allowed,
                                                std::move(faults)});
}

Endpoint::Endpoint(MemberPlace place)
    : Control(place.rank, place.arena->layout().world_size),
      members_(place),
      recorder_(members_),
      breaking_(members_, recorder_),
      signals_(members_, recorder_, breaking_, place.timeout_ns),
      announcements_(members_, recorder_, breaking_, signals_),
      memory_(members_, recorder_, breaking_),
      faults_(std::move(place.faults)),
      collectives_(members_, recorder_, breaking_, signals_, memory_, faults_),
      mailbox_(members_, recorder_, breaking_, signals_, memory_, faults_),
      engine_(std::make_unique<Engine>(members_, signals_, collectives_, mailbox_, place.threads_allowed)),
      regroup_(members_, recorder_, breaking_, signals_, collectives_, mailbox_, *engine_, place.threads_allowed) {
  signals_.attach(*engine_);
  enter_communicator(members_.arena());
  if (Watcher* watcher = members_.family().watcher()) watcher->add(members_.family(), breaking_);
}

Endpoint::~Endpoint() {
  if (!members_.is_own_process()) {        // in a forked child; the parent's communicator goes on
    static_cast<void>(engine_.release());  // its locks may be held by a thread that the child does not have
    return;
  }
  const bool makes = std::ranges::any_of(makers_, [](const auto& maker) { return !maker->has_ended(); });
  if (makes || engine_->under_way()) abort("destroyed with requests under way", -1);
  for (const auto& maker : makers_) maker->join();
  engine_->stop();
  if (Watcher* watcher = members_.family().watcher()) watcher->remove(members_.family(), breaking_);
  signals_.chain().retract();
  breaking_.leave(members_.arena());
  leave_communicator(members_.arena());
}

Family& Endpoint::family_for(const char* function) const {
  members_.require_own_process(function);
  return members_.family();
}

void Endpoint::throw_if_broken(const char* function) const {
  members_.require_own_process(function);
  breaking_.throw_if_broken();
}

void Endpoint::set_timeout(double seconds) {
  members_.require_own_process("gsel_comm_set_timeout");
  signals_.set_timeout(static_cast<int64_t>(seconds * 1e9));
}

void Endpoint::break_with(const Error& error) const noexcept {
  const int32_t about = error.rank();
  if (about < 0)
    breaking_.mark(error.code(), rank(), error.message());
  else
    breaking_.write(error.code(), about, members_.family_of_shown(about), error.message());
}

void Endpoint::announce(const gsel_collective& checked, RegisteredPlace in) {
  members_.require_own_process(collective_name(checked.kind));
  if (!engine_->busy()) return announcements_.announce(checked, in);
  const Engine::Turn turn(*engine_, Engine::Thread::may_sleep);  // another thread may be making a communicator
  announcements_.announce(checked, in);
}

// ---- communicators made from this one -----------------------------------------------------------------------------

std::unique_ptr<Control> Endpoint::split(int32_t colour, int32_t key, std::string_view label) {
  auto place = regroup_.split(colour, key, label);
  return place ? made(std::move(*place)) : nullptr;
}

void Endpoint::note_part(uint64_t of, int32_t ranks, std::span<const PartOfHost> parts, size_t own) const noexcept {
  ArenaHeader& header = members_.arena().header();
  header.part_ranks = ranks;
  header.part_hosts = static_cast<int32_t>(parts.size());
  std::ranges::copy(parts[own].host, header.part_host);
  std::ranges::copy(parts.first(std::min(parts.size(), kPartsNamed)), header.parts);
  header.part_of.store(of, std::memory_order_release);
}

void Endpoint::note_failure(const Error& error) noexcept {
  if (!members_.is_own_process()) return;
  try {
    const Engine::Turn turn(*engine_, Engine::Thread::may_sleep);  // its thread may note a failure as well
    recorder_.note_failure(error, 0);
  } catch (const std::exception&) {  // the failure itself is reported
  }
}

std::unique_ptr<Endpoint> Endpoint::split_shown(int32_t colour, int32_t key, std::string_view label,
                                                std::span<const int32_t> shown) {
  auto numbering = std::make_shared<Numbering>();
  numbering->of_family.assign(static_cast<size_t>(members_.family().size()), -1);
  for (size_t q = 0; q < shown.size(); ++q)
    numbering->of_family[static_cast<size_t>(members_.block(static_cast<int32_t>(q)).family_rank)] = shown[q];
  auto place = regroup_.split(colour, key, label, std::move(numbering));
  return place ? std::make_unique<Endpoint>(std::move(*place)) : nullptr;
}

std::unique_ptr<Control> Endpoint::create_group(std::span<const int32_t> ranks) {
  return made(regroup_.create_group({ranks.begin(), ranks.end()}));
}

std::unique_ptr<Control> Endpoint::dup() {
  return made(regroup_.dup());
}

std::unique_ptr<Endpoint> Endpoint::shrink_here(std::span<const int32_t> without) {
  return std::make_unique<Endpoint>(regroup_.shrink({without.begin(), without.end()}));
}

std::unique_ptr<Control> Endpoint::shrink(std::span<const int32_t> without) {
  auto shrunk = shrink_here(without);
  if (finish_shrink_) return finish_shrink_(std::move(shrunk));
  return shrunk;
}

std::unique_ptr<BackendRequest> Endpoint::start_making(const Making& making,
                                                       std::function<void(std::unique_ptr<Control>)> take) {
  members_.require_own_process("request");
  engine_->require_threads();
  const auto place = [this, making]() -> std::optional<MemberPlace> {
    switch (making.kind) {
      case Making::Kind::split:
        return regroup_.split_in_turn(making.colour, making.key);
      case Making::Kind::dup:
        return regroup_.dup_in_turn();
      case Making::Kind::group:
        return regroup_.create_group(making.ranks);
      case Making::Kind::shrink:
        break;
    }
    return std::nullopt;
  };
  const auto make = [this, making, place, take = std::move(take)] {
    if (making.kind == Making::Kind::shrink) return take(shrink(making.ranks));
    auto found = place();
    take(found ? made(std::move(*found)) : nullptr);
  };
  if (making.kind == Making::Kind::split || making.kind == Making::Kind::dup) return engine_->start(make);
  engine_->allow_overlap();
  std::erase_if(makers_, [](const auto& maker) { return maker->has_ended(); });
  makers_.push_back(std::make_shared<Maker>(make));
  return std::make_unique<BackgroundCreation>(makers_.back());
}

// ---- calls --------------------------------------------------------------------------------------------------------

inline void Endpoint::call(const gsel_collective& checked) {
  if (!members_.is_own_process()) members_.require_own_process(collective_name(checked.kind));
  engine_->call(checked);
}

void Endpoint::run(const gsel_collective& checked, gsel_stream* stream) {
  if (!stream) return call(checked);
  stream->enqueue([this, copy = checked] { call(copy); });
}

void Endpoint::exchange(const void* mine, void* all, uint64_t bytes, std::string_view label, double timeout_s) {
  gsel_collective collective{};
  collective.struct_size = sizeof collective;
  collective.kind = GSEL_COLLECTIVE_ALLGATHER;
  collective.dtype = GSEL_U8;
  collective.root = collective.source = -1;
  collective.send = mine;
  collective.recv = all;
  collective.count = bytes;
  collective.label = {label.data(), label.size()};
  collective.timeout_s = timeout_s;
  call(collective);
}

void Endpoint::group(std::span<const gsel_collective> checked) {
  members_.require_own_process("gsel_group_run");
  engine_->group(checked);
}

std::unique_ptr<BackendRequest> Endpoint::start(std::span<const gsel_collective> checked, bool promptly) {
  members_.require_own_process("request");
  return engine_->start(checked, promptly);
}

std::unique_ptr<BackendRequest> Endpoint::start_open(const gsel_collective& checked) {
  members_.require_own_process("request");
  return engine_->start({&checked, 1}, false, true);
}

bool Endpoint::all_others_left() const {
  for (int32_t q = 0; q < world_size(); ++q)
    if (q != rank() && members_.block(q).left.load(std::memory_order_acquire) == 0) return false;
  return true;
}

gsel_comm_explanation Endpoint::explain(const gsel_collective& checked) {
  members_.require_own_process("gsel_comm_explain");
  Call call;
  complete(checked, world_size(), signals_.timeout_ns(), call);
  gsel_comm_explanation out = is_point_to_point(call.kind) ? mailbox_.explain(call) : collectives_.explain(call);
  out.transport = "shm";
  out.transport_reason = "the ranks are of one host";
  return out;
}

void Endpoint::set_stream(void*) {
  fail(GSEL_ERR_ARG,
       "gsel_comm_set_stream: communicator {} has no accelerator; name one in gsel_comm_options.accelerator", name());
}

}  // namespace gsel::shm
