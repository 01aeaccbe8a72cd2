// comm/shm/message/transfer.cc: all messages under way: how they advance, how a rank waits for any of several, and what
// ends the wait. A rank that writes to a channel of another rank, or takes from one, wakes that rank if it listens. So
// a rank that sleeps for messages sleeps on one word of its own. It waits as in wait.cc: it polls, then yields, then
// sleeps for at most a millisecond at a time.
#include <sched.h>

#include <algorithm>

#include "base/text.h"
#include "comm/describe.h"
#include "comm/shm/link.h"
#include "comm/shm/message/channel.h"

namespace gsel::shm {

// A message with nothing else under way.
void Link::message(const gsel_collective& given) {
  Transfer transfer;
  transfers_.reserve(1);  // an offer that is made is taken back whatever fails, so that is made possible first
  begin(transfer, given);
  try {
    if (advance(transfer))
      finish(transfer);
    else
      wait_for(transfer);
  } catch (...) {
    if (transfers_.empty()) transfers_.push_back(&transfer);
    drop_transfers(nullptr);
    throw;
  }
  if (transfer.failure) throw Error(*transfer.failure);
}

void Link::wait_for(Transfer& transfer) {
  transfers_.push_back(&transfer);
  Idle idle;
  while (!transfers_.empty()) {
    if (progress()) {
      idle = {};
    } else if (looked_long(idle, spin_ns_)) {
      if (const int32_t peer = crossed_peer(transfer); peer < 0)
        rest();
      else if (!progress())  // what came before the peer's collective counts
        fail_crossed(transfer, peer);
    }
  }
  stop_awaiting();
}

bool Link::progress() {
  const uint64_t before = moves_;
  for (size_t i = 0; i < transfers_.size();) {
    Transfer* transfer = transfers_[i];
    if (!advance(*transfer)) {
      ++i;
      continue;
    }
    transfers_.erase(transfers_.begin() + static_cast<std::ptrdiff_t>(i));
    finish(*transfer);
  }
  return moves_ != before;
}

void Link::finish(Transfer& transfer) {
  hit(Step::leave, transfer.number);
  if (transfer.number != 0) leave(transfer.number, transfer.failure != nullptr);
  if (!transfer.failure) count_call(transfer.call.kind, transfer.out.bytes);
  if (transfer.work) engine_->end_call(*transfer.work, transfer.failure.get());
}

// Whether nobody had met the message, and it is under way no more. By the driver.
bool Link::cancel(Transfer& transfer) {
  const bool receives = receives_message(transfer.call.kind);
  const bool sends = !receives || transfer.call.kind == GSEL_COLLECTIVE_SENDRECV;
  if (receives && transfer.in.stage != Half::Stage::moving) return false;
  if (sends && !cancel_send(transfer.out)) return false;
  transfer.in.stage = Half::Stage::done;
  std::erase(transfers_, &transfer);
  if (transfer.number != 0) leave(transfer.number);
  ++moves_;
  return true;
}

// The communicator is broken: none of them will end by itself.
void Link::drop_transfers(const Error* failure) noexcept {
  if (failure && !transfers_.empty()) note_failure(*failure);
  std::vector<Transfer*> dropped;
  dropped.swap(transfers_);
  for (Transfer* transfer : dropped) {
    withdraw(transfer->out);
    if (transfer->in.stage == Half::Stage::arriving && peer(transfer->in.peer).stream == &transfer->in.stream)
      peer(transfer->in.peer).stream = nullptr;
    if (transfer->work) engine_->end_call(*transfer->work, failure);
  }
}

// Before the link leaves its arena, which is broken.
void Link::abandon_messages() noexcept {
  try {
    throw_broken();
  } catch (const Error& e) {
    drop_transfers(&e);
  } catch (...) {  // no memory to say why
    const Error failure(GSEL_ERR_NOMEM, "out of memory");
    drop_transfers(&failure);
  }
  forget_messages();
}

// Spins for a while, then yields the processor; true once it is time to sleep. A rank that sits on our own processor
// cannot go on while we spin.
bool Link::looked_long(Idle& idle, int64_t spin_ns) {
  constexpr int kLooksAtFirst = 256, kLooksPerClock = 16;
  if (++idle.looks < kLooksAtFirst) return false;
  pause_processor();
  if (idle.looks % kLooksPerClock != 0) return false;
  throw_if_broken();
  const int64_t now = os::now_ns();
  if (idle.since_ns == 0) idle.since_ns = now;
  if (now - idle.since_ns < spin_ns && !beside_a_peer()) return false;
  if (now - idle.since_ns >= spin_ns + kYieldNs || (crowded_ && idle.yields >= kCrowdedYields)) return true;
  idle.looks += kLooksPerClock - 1;
  ++idle.yields;
  sched_yield();
  return false;
}

bool Link::beside_a_peer() {
  const int32_t here = sched_getcpu() + 1;
  if (mine().processor.load(std::memory_order_relaxed) != here) mine().processor.store(here, std::memory_order_relaxed);
  const auto sits_here = [&](int32_t q) { return arena_->rank(q).processor.load(std::memory_order_relaxed) == here; };
  const auto is_here = [&](const Half& half) {
    if (half.stage == Half::Stage::done) return false;
    if (half.peer != GSEL_ANY_RANK) return sits_here(half.peer);
    for (int32_t q = 0; q < world_size_; ++q)
      if (q != rank_ && sits_here(q)) return true;
    return false;
  };
  return std::ranges::any_of(transfers_, [&](const Transfer* t) { return is_here(t->out) || is_here(t->in); });
}

// What a half waits for, as a flag and the value that ends the wait.
Link::Awaited Link::awaited_by(const Half& half, bool out) const {
  const Peer& other = peer(half.peer);
  if (!out) {
    const Channel& channel = arena_->channel(half.peer, rank_);
    return {&channel.line[other.received % kChannelLines].sequence, other.received + 1};
  }
  const Channel& channel = arena_->channel(rank_, half.peer);
  if (half.stage != Half::Stage::offered) return {&channel.taken, other.taken + 1};
  return {&channel.offer[half.offer].state, other.send_turn == half.turn ? kSeen : kTaken};
}

// Between sleeps: are those alive that the messages wait for, and is there time left.
int64_t Link::attend() {
  const int64_t now = os::now_ns();
  int64_t next = INT64_MAX;
  if (!family_->watcher()) look_at_all();
  for (Transfer* transfer : transfers_) {
    const bool awaited = !transfer->work || transfer->work->awaited.load(std::memory_order_relaxed);
    if (transfer->deadline_ns == 0 && awaited) transfer->deadline_ns = now + transfer->call.timeout_ns;
    const int64_t deadline = awaited ? transfer->deadline_ns : INT64_MAX;
    next = std::min(next, deadline);
    for (const Half* half : {&transfer->out, &transfer->in}) {
      if (half->stage == Half::Stage::done) continue;
      if (half->peer == GSEL_ANY_RANK) {
        attend_to_any(*transfer, deadline);
        continue;
      }
      const Awaited until = awaited_by(*half, half == &transfer->out);
      check_peer(half->peer, *until.flag, until.value, transfer->call, transfer->number);
      check_deadline(half->peer, deadline, transfer->call, transfer->number);
    }
  }
  return next;
}

// What was sent before its sender left counts, hence the look behind.
void Link::attend_to_any(const Transfer& transfer, int64_t deadline_ns) {
  const auto may_send = [&](int32_t q) {
    const uint64_t received = peer(q).received;
    return arena_->rank(q).left.load(std::memory_order_acquire) == 0 ||
           arena_->channel(q, rank_).line[received % kChannelLines].sequence.load(std::memory_order_acquire) > received;
  };
  int32_t sender = 0;
  while (sender < world_size_ && (sender == rank_ || !may_send(sender))) ++sender;
  if (sender == world_size_)
    break_link(GSEL_ERR_PEER, rank_ == 0 ? 1 : 0,
               fmt::format("every other rank left while {} waited in {} (call {})", named(rank_),
                           text_of(transfer.call), transfer.number));
  if (os::now_ns() >= deadline_ns)
    break_link(GSEL_ERR_TIMEOUT, -1,
               fmt::format("no rank sent what {} waited for: {} in {} (call {})", named(rank_),
                           seconds_text(static_cast<double>(transfer.call.timeout_ns) * 1e-9), text_of(transfer.call),
                           transfer.number));
}

// For others that ask who holds us up: the first half that waits.
void Link::publish_awaited() {
  if (transfers_.empty()) return;
  const Transfer& first = *transfers_.front();
  const bool out = first.out.stage != Half::Stage::done;
  const Half& half = out ? first.out : first.in;
  if (half.peer == GSEL_ANY_RANK) return;  // nobody in particular
  const Awaited awaited = awaited_by(half, out);
  RankBlock& me = mine();
  me.awaited_flag.store(arena_->offset_of(*awaited.flag), std::memory_order_relaxed);
  me.awaited_value.store(awaited.value, std::memory_order_relaxed);
  me.awaited_rank.store(half.peer + 1, std::memory_order_release);
  publish_wait();
}

void Link::stop_awaiting() {
  if (mine().awaited_rank.load(std::memory_order_relaxed) == 0) return;
  mine().awaited_rank.store(0, std::memory_order_release);
  end_wait();
}

void Link::rest() {
  publish_awaited();
  if (const auto wakeup = prepare_sleep()) wakeup->sleep();
}

// The count of wakeups now, unless a look after others have been made to see that we listen finds something.
std::optional<Wakeup> Link::prepare_sleep() {
  const int64_t left = attend() - os::now_ns();
  RankBlock& me = mine();
  me.listening.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t wakeup = me.wakeups.load(std::memory_order_seq_cst);
  try {
    if (asymmetric_) os::pass_barriers_everywhere();
    if (!progress() && !engine_->has_news()) return Wakeup{&me, wakeup, std::clamp<int64_t>(left, 1, longest_sleep())};
  } catch (...) {
    me.listening.fetch_sub(1, std::memory_order_seq_cst);
    throw;
  }
  me.listening.fetch_sub(1, std::memory_order_seq_cst);
  return std::nullopt;
}

void Wakeup::sleep() const noexcept {
  os::futex_wait(block->wakeups, word, most_ns);
  block->listening.fetch_sub(1, std::memory_order_seq_cst);
}

void Link::wake_listener(RankBlock& block) noexcept {
  block.wakeups.fetch_add(1, std::memory_order_seq_cst);
  os::futex_wake_all(block.wakeups);
}

// Calls the driver of this rank back from sleep: from that for messages, and from that in a collective.
void Link::nudge() noexcept {
  if (mine().listening.load(std::memory_order_seq_cst) != 0) wake_listener(mine());
  const int32_t awaited = mine().awaited_rank.load(std::memory_order_seq_cst) - 1;
  if (awaited >= 0) wake(arena_->rank(awaited));
}

}  // namespace gsel::shm
