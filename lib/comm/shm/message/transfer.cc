// comm/shm/message/transfer.cc: all messages under way: how they advance, how a rank waits for any of several, and what
// ends the wait. A rank that writes to a channel or takes from one wakes the rank at its other end if that rank
// listens. So a rank that sleeps for messages sleeps on one word of its own. It waits as in signals.cc: it polls, then
// yields, then sleeps.
#include <sched.h>

#include <algorithm>

#include "base/text.h"
#include "comm/call/collective.h"
#include "comm/shm/message/channel.h"
#include "comm/shm/message/mailbox.h"

namespace gsel::shm {

void Mailbox::run(const gsel_collective& given) {
  try {
    run_alone(given);
  } catch (const Error& error) {
    recorder_.note_failure(error, 0);
    throw;
  }
}

void Mailbox::run_alone(const gsel_collective& given) {
  Transfer transfer;
  transfers_.reserve(1);  // so that drop_all can withdraw an offer after any failure
  begin(transfer, given);
  try {
    if (advance(transfer))
      finish(transfer);
    else
      wait_for(transfer);
  } catch (...) {
    if (transfers_.empty()) transfers_.push_back(&transfer);
    drop_all(nullptr);
    signals_.chain().end();
    throw;
  }
  if (transfer.failure) throw Error(*transfer.failure);
}

void Mailbox::wait_for(Transfer& transfer) {
  transfers_.push_back(&transfer);
  Idle idle;
  while (!transfers_.empty()) {
    if (progress()) {
      idle = {};
    } else if (polled_long(idle, signals_.spin_ns())) {
      if (const int32_t peer = crossed_peer(transfer); peer < 0)
        rest();
      else if (!progress())  // the peer may have sent a message before its collective
        fail_crossed(transfer, peer);
    }
  }
  stop_awaiting();
}

bool Mailbox::progress() {
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

void Mailbox::finish(Transfer& transfer) {
  hit(Step::leave, transfer.number);
  if (transfer.number != 0) recorder_.leave(transfer.number, transfer.failure != nullptr);
  if (!transfer.failure) recorder_.count_call(transfer.call.kind, transfer.out.bytes);
  if (transfer.request) signals_.driver().end_call(*transfer.request, transfer.failure.get());
}

// By the driver.
bool Mailbox::cancel(Transfer& transfer) {
  const bool receives = row_of(transfer.call.kind).receives;
  const bool sends = !receives || transfer.call.kind == GSEL_COLLECTIVE_SENDRECV;
  if (receives && transfer.in.stage != Half::Stage::moving) return false;
  if (sends && !cancel_send(transfer.out)) return false;
  transfer.in.stage = Half::Stage::done;
  std::erase(transfers_, &transfer);
  if (transfer.number != 0) recorder_.leave(transfer.number);
  ++moves_;
  return true;
}

// For a broken communicator, in which no message ends by itself.
void Mailbox::drop_all(const Error* failure) noexcept {
  if (failure && !transfers_.empty()) recorder_.note_failure(*failure, 0);
  std::vector<Transfer*> dropped;
  dropped.swap(transfers_);
  for (Transfer* transfer : dropped) {
    withdraw(transfer->out);
    if (transfer->in.stage == Half::Stage::arriving && peer(transfer->in.peer).stream == &transfer->in.stream)
      peer(transfer->in.peer).stream = nullptr;
    if (transfer->request) signals_.driver().end_call(*transfer->request, failure);
  }
}

void Mailbox::abandon() noexcept {
  try {
    breaking_.throw_broken();
  } catch (const Error& e) {
    drop_all(&e);
  } catch (...) {  // no memory for the text
    const Error failure(GSEL_ERR_NOMEM, "out of memory");
    drop_all(&failure);
  }
  forget();
}

// A peer on the same processor cannot run while this rank spins, so beside one this rank yields immediately.
bool Mailbox::polled_long(Idle& idle, int64_t spin_ns) {
  constexpr int kLooksAtFirst = 256, kLooksPerClock = 16;
  if (++idle.looks < kLooksAtFirst) return false;
  pause_processor();
  if (idle.looks % kLooksPerClock != 0) return false;
  if (at_.is_broken() && !progress()) breaking_.throw_broken();  // messages sent before the failure still arrive
  const int64_t now = os::now_ns();
  if (idle.since_ns == 0) idle.since_ns = now;
  if (now - idle.since_ns < spin_ns && !shares_processor()) return false;
  if (now - idle.since_ns >= spin_ns + kYieldNs || (signals_.crowded() && idle.yields >= kCrowdedYields)) return true;
  idle.looks += kLooksPerClock - 1;
  ++idle.yields;
  sched_yield();
  return false;
}

bool Mailbox::shares_processor() {
  const int32_t here = sched_getcpu() + 1;
  if (at_.mine().processor.load(std::memory_order_relaxed) != here)
    at_.mine().processor.store(here, std::memory_order_relaxed);
  const auto sits_here = [&](int32_t q) { return at_.block(q).processor.load(std::memory_order_relaxed) == here; };
  const auto is_here = [&](const Half& half) {
    if (half.stage == Half::Stage::done) return false;
    if (half.peer != GSEL_ANY_RANK) return sits_here(half.peer);
    for (int32_t q = 0; q < at_.world_size(); ++q)
      if (q != at_.rank() && sits_here(q)) return true;
    return false;
  };
  return std::ranges::any_of(transfers_, [&](const Transfer* t) { return is_here(t->out) || is_here(t->in); });
}

// What a half waits for, as a flag and the value that ends the wait.
Mailbox::Awaited Mailbox::awaited_by(const Half& half, bool out) const {
  const Peer& other = peer(half.peer);
  if (!out) {
    const Channel& channel = at_.arena().channel(half.peer, at_.rank());
    return {&channel.line[other.received % kChannelLines].sequence, other.received + 1};
  }
  const Channel& channel = at_.arena().channel(at_.rank(), half.peer);
  if (half.stage != Half::Stage::offered) return {&channel.taken, other.taken + 1};
  return {&channel.offer[half.offer].state, other.send_turn == half.turn ? kSeen : kTaken};
}

// Between sleeps: checks that the awaited ranks live and that there is time left.
int64_t Mailbox::attend() {
  const int64_t now = os::now_ns();
  int64_t next = INT64_MAX;
  if (!at_.family().watcher()) breaking_.look_at_all();
  for (Transfer* transfer : transfers_) {
    const bool awaited = !transfer->request || transfer->request->awaited.load(std::memory_order_relaxed);
    if (transfer->deadline_ns == 0 && awaited) transfer->deadline_ns = now + transfer->call.timeout_ns;
    const int64_t deadline = awaited ? transfer->deadline_ns : INT64_MAX;
    next = std::min(next, deadline);
    for (const Half* half : {&transfer->out, &transfer->in}) {
      if (half->stage == Half::Stage::done) continue;
      if (half->peer == GSEL_ANY_RANK) {
        if (!transfer->is_open) attend_to_any(*transfer, deadline);
        continue;
      }
      const Awaited until = awaited_by(*half, half == &transfer->out);
      signals_.check_peer(half->peer, *until.flag, until.value, transfer->call, transfer->number);
      signals_.check_deadline(half->peer, deadline, transfer->call, transfer->number);
    }
  }
  return next;
}

// A message that a rank sent before it left still counts, so the channel is checked after `left`.
void Mailbox::attend_to_any(const Transfer& transfer, int64_t deadline_ns) {
  const auto may_send = [&](int32_t q) {
    const uint64_t received = peer(q).received;
    return at_.block(q).left.load(std::memory_order_acquire) == 0 ||
           at_.arena().channel(q, at_.rank()).line[received % kChannelLines].sequence.load(std::memory_order_acquire) >
               received;
  };
  int32_t sender = 0;
  while (sender < at_.world_size() && (sender == at_.rank() || !may_send(sender))) ++sender;
  if (sender == at_.world_size())
    breaking_.break_with(GSEL_ERR_PEER, at_.rank() == 0 ? 1 : 0,
                         fmt::format("every other rank left while {} waited in {} (call {})", at_.named(at_.rank()),
                                     recorder_.text_of(transfer.call), transfer.number));
  if (os::now_ns() >= deadline_ns)
    breaking_.break_with(
        GSEL_ERR_TIMEOUT, -1,
        fmt::format("timed out: no rank sent what {} waited for: {} in {} (call {})", at_.named(at_.rank()),
                    seconds_text(static_cast<double>(transfer.call.timeout_ns) * 1e-9),
                    recorder_.text_of(transfer.call), transfer.number));
}

// Publishes the first half that waits, for the chain of waits of other ranks.
void Mailbox::publish_awaited() {
  if (transfers_.empty()) return;
  const Transfer& first = *transfers_.front();
  const bool out = first.out.stage != Half::Stage::done;
  const Half& half = out ? first.out : first.in;
  if (half.peer == GSEL_ANY_RANK) return;  // no particular rank
  const Awaited awaited = awaited_by(half, out);
  signals_.chain().await(half.peer, *awaited.flag, awaited.value);
  signals_.chain().publish(signals_.driver().blocks_caller());
}

void Mailbox::stop_awaiting() {
  WaitChain& chain = signals_.chain();
  if (!chain.awaits()) return;
  chain.stop_awaiting();
  chain.end();
}

void Mailbox::rest() {
  publish_awaited();
  if (const auto wakeup = prepare_sleep()) wakeup->sleep();
}

// Listens, makes the other ranks see that, and checks once more. nullopt: there is something to do, so do not sleep.
std::optional<Wakeup> Mailbox::prepare_sleep() {
  const int64_t left = attend() - os::now_ns();
  RankBlock& me = at_.mine();
  me.listening.fetch_add(1, std::memory_order_seq_cst);
  const uint32_t wakeup = me.wakeups.load(std::memory_order_seq_cst);
  try {
    if (signals_.asymmetric()) os::pass_barriers_everywhere();
    if (!progress() && !signals_.driver().has_news())
      return Wakeup{&me, wakeup, std::clamp<int64_t>(left, 1, signals_.longest_sleep())};
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

}  // namespace gsel::shm
