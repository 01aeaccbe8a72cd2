// comm/shm/link.cc: a link from joining to leaving, and its calls; see link.h.
#include "comm/shm/link.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/dtype.h"
#include "base/text.h"
#include "comm/describe.h"
#include "comm/shm/name.h"
#include "comm/shm/wait/watcher.h"

namespace gsel::shm {
namespace {

constexpr int64_t kSpinOwnCoreNs = 50'000;
constexpr int64_t kSpinSharedNs = 200;

}  // namespace

Link::Membership Link::join_family(const gsel_join& join) {
  Faults faults = Faults::of_environment(join.rank, join.world_size);
  Joined joined = rendezvous(join);
  joined.family->name = joined.arena->header().name;
  if (join.trace.len > 0) joined.family->trace_folder = std::filesystem::absolute(text(join.trace)).string();
  if ((join.flags & GSEL_COMM_NO_THREAD) == 0) joined.family->watch();
  return {std::move(joined.family),
          std::move(joined.arena),
          join.rank,
          static_cast<int64_t>(join.timeout_s * 1e9),
          (join.flags & GSEL_COMM_NO_THREAD) == 0,
          std::move(faults)};
}

Link::Link(Membership membership)
    : rank_(membership.rank),
      world_size_(membership.arena->layout().world_size),
      faults_(std::move(membership.faults)),
      family_(std::move(membership.family)),
      arena_(std::move(membership.arena)),
      name_(arena_->header().name),
      numbering_(std::move(membership.numbering)),
      timeout_ns_(membership.timeout_ns),
      crowded_(arena_->header().cores < world_size_),
      spin_ns_(crowded_ ? kSpinSharedNs : kSpinOwnCoreNs),
      asymmetric_(arena_->header().asymmetric != 0),
      fork_generation_(os::fork_generation()),
      tuning_(arena_->header().tuning),
      peers_(ranks()),
      threads_allowed_(membership.threads_allowed),
      engine_(std::make_unique<Engine>(*this)) {
  for (int32_t q = 0; q < world_size_; ++q)
    one_process_ = one_process_ && member(q).process == family_->member(family_->rank()).process;
  enter_communicator(*arena_);
  if (family_->watcher()) family_->watcher()->add(*family_, *this);
}

Link::~Link() {
  if (os::fork_generation() != fork_generation_) {  // the parent's communicator goes on without us
    static_cast<void>(engine_.release());           // its locks may be held by a thread that is not here
    return;
  }
  if (engine_->under_way()) abort("destroyed with requests under way");
  engine_->stop();
  if (family_->watcher()) family_->watcher()->remove(*family_, *this);
  retract_wait();
  leave(*arena_);
  leave_communicator(*arena_);
}

void Link::set_timeout(double seconds) {
  require_own_process("gsel_comm_set_timeout");
  timeout_ns_.store(static_cast<int64_t>(seconds * 1e9));
}

gsel_comm_count Link::counts(gsel_collective_kind kind) const {
  require_own_process("gsel_comm_counts");
  gsel_comm_count count = GSEL_COMM_COUNT_INIT;
  if (kind < 0 || kind >= GSEL_COLLECTIVE_KINDS) return count;
  const Progress& p = progress_[static_cast<size_t>(kind)];
  count.calls = p.calls.load(std::memory_order_relaxed);
  count.bytes_sent = p.bytes.load(std::memory_order_relaxed);
  return count;
}

void Link::collective(const gsel_collective& given) {
  require_own_process(collective_name(given.kind));
  if (engine_->busy()) return execute_beside_others(given);
  execute(given);
}

// A message lets go of the link while collectives wait for it, so it is the engine's.
void Link::execute_beside_others(const gsel_collective& given) {
  if (is_point_to_point(given.kind)) return group(&given, 1);
  const Engine::Turn turn(*engine_, Engine::Thread::may_sleep);
  execute(given);
}

void Link::execute(const gsel_collective& given, bool grouped) {
  try {
    throw_if_broken();
    if (is_point_to_point(given.kind)) return message(given);
    complete(given, world_size_, timeout_ns_.load(), current_);
    current_.grouped = grouped;
    deadline_ns_ = 0;
    published_ = 0;
    number_ = enter(current_);
    hit(Step::enter);
    try {
      run_callbacks_too(current_);
    } catch (const Error&) {
      take_back_buffers();
      throw;
    }
    hit(Step::leave);
    leave(number_);
    count_call(current_.kind, published_);
  } catch (const Error& error) {
    note_failure(error);
    throw;
  }
}

// A caller's operation that fails here leaves the others waiting for results, so it fails for all.
void Link::run_callbacks_too(const Call& call) {
  try {
    run(call);
  } catch (const Error& e) {
    if (e.code() != GSEL_ERR_CALLBACK) throw;
    break_link(GSEL_ERR_CALLBACK, rank_,
               fmt::format("{}: {} in {} (call {})", named(rank_), e.what(), text_of(call), number_));
  }
}

void Link::run(const Call& call) {
  require_room_for_records(call);
  const Plan plan(call, rank_, world_size_);
  largest_part_ = plan.largest_part();
  exchange_headers(call, plan);
  if (call.kind == GSEL_COLLECTIVE_ALLTOALLV) read_rows(call, plan);
  switch (choose(call, plan)) {
    case Protocol::alone:
      run_alone(call, plan);
      break;
    case Protocol::line:
    case Protocol::slots:
      finish_small(call, plan);
      break;
    case Protocol::direct:
      run_direct(call, plan);
      break;
    case Protocol::single_copy:
      run_single_copy(call, plan);
      break;
    case Protocol::staged:
      run_staged(call, plan);
  }
  published_ = bytes_sent(call, plan);
}

// Alike on every rank, before anything is posted.
void Link::require_room_for_records(const Call& call) const {
  if (call.operation.record == 1 || world_size_ == 1 || call.unit <= block_bytes()) return;
  fail(GSEL_ERR_UNSUPPORTED, "{} with records of {} bytes on {}; the most there is {} bytes",
       collective_name(call.kind), call.unit, with_noun(world_size_, "rank"), block_bytes());
}

void Link::run_alone(const Call& call, const Plan& plan) {
  if (!is_reduction(call.kind)) return copy_own_part(call, plan);
  const void* input = call.send + static_cast<size_t>(plan.slice(0).begin) * call.element;
  double factor = 1;
  if (call.count > 0) host::reduce(fold_of(call, &factor), call.recv, &input, 1, call.count);
}

host::Fold Link::fold_of(const Call& call, double* factors) const {
  host::Fold fold;
  fold.dtype = call.dtype;
  fold.op = call.operation.op;
  fold.order = arena_->header().order;
  fold.record = call.operation.record;
  fold.function = call.operation.function;
  fold.user_data = call.operation.user_data;
  if (fold.op == GSEL_SCALED_SUM) {
    for (int32_t q = 0; q < world_size_; ++q) factors[q] = arena_->rank(q).factor[sequence_ & 1];
    fold.factors = factors;
  }
  return fold;
}

}  // namespace gsel::shm
