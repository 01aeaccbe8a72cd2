// comm/shm/collective/collectives.cc: a collective from its start to its end; see collectives.h.
#include "comm/shm/collective/collectives.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "comm/call/collective.h"

namespace gsel::shm {

Collectives::Collectives(const Membership& members, FlightRecorder& recorder, const Breaking& breaking,
                         Signals& signals, PeerMemory& memory, Faults& faults)
    : at_(members),
      recorder_(recorder),
      breaking_(breaking),
      signals_(signals),
      memory_(memory),
      faults_(faults),
      tuning_(members.tuning()) {}

void Collectives::reset_count() {
  sequence_ = chunks_ = 0;
  staging_reserved_ = false;
}

void Collectives::enter(const gsel_collective& given, bool grouped) {
  complete(given, at_.world_size(), signals_.timeout_ns(), current_, grouped);
  number_ = recorder_.enter(current_);
  signals_.begin(current_, number_);
  hit(Step::enter);
  if (current_.operation.record != 1) require_room_for_records(current_);
}

void Collectives::begin(const gsel_collective& given, bool grouped) noexcept {
  begun_ = true;
  try {
    breaking_.throw_if_broken();
    enter(given, grouped);
    plan_.emplace(current_, at_.rank(), at_.world_size());
    post_header(current_, *plan_);
  } catch (...) {
    not_begun_ = current_error();
  }
}

bool Collectives::is_ready() const {
  if (not_begun_) return true;
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (at_.block(q).line[sequence_ & 1].sequence.load(std::memory_order_acquire) < sequence_) return false;
  return true;
}

void Collectives::run(const gsel_collective& given, bool grouped) {
  const bool begun = std::exchange(begun_, false);
  if (begun && not_begun_) {
    recorder_.note_failure(*not_begun_, number_);
    throw Error(*std::exchange(not_begun_, std::nullopt));
  }
  if (!begun && at_.is_broken()) fail_before();
  try {
    uint64_t sent = 0;
    if (begun) {
      sent = run_call(current_, *plan_);
    } else {
      enter(given, grouped);
      const Plan plan(current_, at_.rank(), at_.world_size());
      post_header(current_, plan);
      sent = run_call(current_, plan);
    }
    hit(Step::leave);
    recorder_.leave(number_);
    recorder_.count_call(current_.kind, sent);
  } catch (const Error& error) {
    fail(error);
  }
}

// The communicator was broken before the call.
void Collectives::fail_before() {
  try {
    breaking_.throw_broken();
  } catch (const Error& error) {
    recorder_.note_failure(error, number_);
    throw;
  }
}

// If a caller's operation fails, other ranks wait for its results, so the communicator breaks.
void Collectives::fail(const Error& error) {
  try {
    if (error.code() != GSEL_ERR_CALLBACK) throw Error(error);
    breaking_.break_with(GSEL_ERR_CALLBACK, at_.rank(),
                         fmt::format("{}: {} in {} (call {})", at_.named(at_.rank()), error.what(),
                                     recorder_.text_of(current_), number_));
  } catch (const Error& told) {
    take_back_buffers();
    recorder_.note_failure(told, number_);
    throw;
  }
}

void Collectives::exchange(CallOrigin origin, const void* send, void* recv, uint64_t bytes) {
  gsel_collective call{};
  call.kind = GSEL_COLLECTIVE_ALLGATHER;
  call.dtype = GSEL_U8;
  call.root = call.source = -1;
  call.send = send;
  call.recv = recv;
  call.count = bytes;
  breaking_.throw_if_broken();
  complete(call, at_.world_size(), signals_.timeout_ns(), current_, false, origin);
  number_ = recorder_.enter(current_);
  signals_.begin(current_, number_);
  const Plan plan(current_, at_.rank(), at_.world_size());
  post_header(current_, plan);
  run_call(current_, plan);
  recorder_.leave(number_);
}

// The call after its header is posted.
uint64_t Collectives::run_call(const Call& call, const Plan& plan) {
  largest_part_ = plan.largest_part();
  read_headers();
  if (call.kind == GSEL_COLLECTIVE_ALLTOALLV) read_rows(call, plan);
  switch (choose_by_lines(call, plan).protocol) {
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
  return plan.sent_bytes();
}

// The result is the same on every rank, and nothing is posted yet.
void Collectives::require_room_for_records(const Call& call) const {
  if (at_.world_size() == 1 || call.unit <= block_bytes()) return;
  gsel::fail(GSEL_ERR_UNSUPPORTED, "{} with records of {} bytes on {}; the most there is {} bytes",
             collective_name(call.kind), call.unit, with_noun(at_.world_size(), "rank"), block_bytes());
}

void Collectives::run_alone(const Call& call, const Plan& plan) {
  if (!is_reduction(call.kind)) return copy_own_part(call, plan);
  const void* input = call.send + static_cast<size_t>(plan.slice(0).begin) * call.element;
  double factor = 1;
  if (call.count > 0) host::reduce(fold_of(call, &factor), call.recv, &input, 1, call.count);
}

host::Fold Collectives::fold_of(const Call& call, double* factors) const {
  host::Fold fold;
  fold.dtype = call.dtype;
  fold.op = call.operation.op;
  fold.order = at_.header().order;
  fold.record = call.operation.record;
  fold.function = call.operation.function;
  fold.user_data = call.operation.user_data;
  if (fold.op == GSEL_SCALED_SUM) {
    for (int32_t q = 0; q < at_.world_size(); ++q) factors[q] = at_.block(q).factor[sequence_ & 1];
    fold.factors = factors;
  }
  return fold;
}

void Collectives::copy_own_part(const Call& call, const Plan& plan) {
  const Bytes from = plan.source(at_.rank()), to = plan.target(at_.rank());
  if (to.count > 0 && call.send + from.begin != call.recv + to.begin)
    std::memcpy(call.recv + to.begin, call.send + from.begin, to.count);
}

}  // namespace gsel::shm
