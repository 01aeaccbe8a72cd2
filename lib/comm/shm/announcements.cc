// comm/shm/announcements.cc: announces calls that a transport of devices makes on a stream. A rank announces each call
// before it is enqueued: it records the call, posts the fingerprint of a collective, and compares it with those that
// other ranks have posted, so the last rank finds any difference. No rank waits, except one that is kDeviceCalls ahead
// of another. The two ranks of a message compare in the same way, unless the earlier entry is already overwritten.
// check_announced, which a thread of the caller repeats, finds later failures: a rank that has left or is late.
#include "comm/shm/announcements.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/types.h"
#include "comm/call/collective.h"
#include "comm/shm/call/plan.h"

namespace gsel::shm {
namespace {

constexpr useconds_t kLookUs = 50;
constexpr uint64_t kCountOfWord = (uint64_t{1} << 56) - 1;

}  // namespace

void Announcements::announce(const gsel_collective& given, RegisteredPlace in) {
  at_.require_own_process(collective_name(given.kind));
  try {
    breaking_.throw_if_broken();
    complete(given, at_.world_size(), signals_.timeout_ns(), announcing_, false,
             in.is_registered ? CallOrigin::enqueued_registered : CallOrigin::enqueued);
    announcing_.detail ^= in.offsets;
    const uint64_t number = recorder_.enter(announcing_);
    if (is_point_to_point(given.kind)) {
      announce_message(announcing_, number);
      recorder_.count_call(given.kind,
                           given.kind == GSEL_COLLECTIVE_RECV ? 0 : announcing_.count * announcing_.element);
    } else {
      announce_collective(announcing_, number);
      if (given.kind == GSEL_COLLECTIVE_ALLTOALLV) announce_parts(announcing_, number);
      recorder_.count_call(given.kind,
                           at_.world_size() > 1 ? Plan(announcing_, at_.rank(), at_.world_size()).sent_bytes() : 0);
    }
    recorder_.leave(number);
  } catch (const Error& error) {
    recorder_.note_failure(error, 0);
    throw;
  }
}

void Announcements::announce_collective(const Call& call, uint64_t number) {
  RankBlock& me = at_.mine();
  const uint64_t n = me.announced.load(std::memory_order_relaxed) + 1;
  wait_until_near(n, call, number);
  const uint64_t print = fingerprint(call);
  me.device_call[n % kDeviceCalls].fingerprint.store(print, std::memory_order_relaxed);
  me.device_call[n % kDeviceCalls].number.store(number, std::memory_order_relaxed);
  announced_until_[n % kDeviceCalls].store(os::now_ns() + call.timeout_ns, std::memory_order_relaxed);
  me.announced.store(n, std::memory_order_seq_cst);  // of two ranks at least one sees the other's
  compare_announced(n, print);
}

// Reserves pages for the two channels with another rank.
void Announcements::reserve_channels(int32_t rank) {
  std::atomic<bool>& has_channels = has_channels_[static_cast<size_t>(rank)];
  if (has_channels.load(std::memory_order_relaxed)) return;
  const SharedMemory& memory = *at_.family().memory();
  for (Channel* channel : {&at_.arena().channel(at_.rank(), rank), &at_.arena().channel(rank, at_.rank())})
    memory.reserve(memory.position(channel), sizeof(Channel), "messages");
  has_channels.store(true, std::memory_order_release);
}

void Announcements::announce_message(const Call& call, uint64_t number) {
  const bool both = call.kind == GSEL_COLLECTIVE_SENDRECV;
  if (row_of(call.kind).send != Reach::none) announce_part(call.root, true, call.dtype, call.count, number);
  if (both) announce_part(call.source, false, call.dtype, call.recv_count, number);
  if (call.kind == GSEL_COLLECTIVE_RECV) announce_part(call.root, false, call.dtype, call.count, number);
}

// The counts of an alltoallv are known only to the two ranks of each pair.
void Announcements::announce_parts(const Call& call, uint64_t number) {
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    if (q == at_.rank()) continue;
    announce_part(q, true, call.dtype, call.send_counts[q], number);
    announce_part(q, false, call.dtype, call.recv_counts[q], number);
  }
}

void Announcements::announce_part(int32_t peer, bool sends, gsel_dtype dtype, uint64_t count, uint64_t number) {
  reserve_channels(peer);
  Channel& channel = sends ? at_.arena().channel(at_.rank(), peer) : at_.arena().channel(peer, at_.rank());
  DeviceMessages &own = sends ? channel.device_sends : channel.device_receives,
                 &theirs = sends ? channel.device_receives : channel.device_sends;
  const uint64_t n = own.announced.load(std::memory_order_relaxed) + 1;
  const uint64_t word = static_cast<uint64_t>(dtype) << 56 | (count & kCountOfWord);
  DeviceMessages::Entry& entry = own.entry[n % kDeviceMessages];
  entry.number.store(0, std::memory_order_release);
  entry.word.store(word, std::memory_order_release);
  entry.call.store(number, std::memory_order_release);
  entry.number.store(n, std::memory_order_release);
  own.announced.store(n, std::memory_order_seq_cst);  // of two ranks at least one sees the other's
  if (theirs.announced.load(std::memory_order_seq_cst) < n) return;
  const DeviceMessages::Entry& other = theirs.entry[n % kDeviceMessages];
  if (other.number.load(std::memory_order_acquire) != n) return;
  const uint64_t its_word = other.word.load(std::memory_order_acquire);
  const uint64_t its_call = other.call.load(std::memory_order_acquire);
  if (other.number.load(std::memory_order_relaxed) != n || its_word == word) return;
  breaking_.break_with(
      GSEL_ERR_MISMATCH, peer,
      fmt::format("{} called {} with {} of {} for {}, {} called {} with {} of {} for it; give a message "
                  "and its receive one type and one count, which a transport of devices needs",
                  at_.named(at_.rank()), recorder_.text_of(at_.rank(), number), count, dtype_name(dtype),
                  at_.named(peer), at_.named(peer), recorder_.text_of(peer, its_call), its_word & kCountOfWord,
                  dtype_name(static_cast<gsel_dtype>(its_word >> 56))));
}

// Waits until all other ranks are less than kDeviceCalls behind, so that an entry is not overwritten before it is read.
void Announcements::wait_until_near(uint64_t n, const Call& call, uint64_t number) {
  int64_t deadline_ns = 0;
  for (int32_t q = 0; q < at_.world_size(); ++q)
    while (q != at_.rank() && at_.block(q).announced.load(std::memory_order_acquire) + kDeviceCalls - 1 < n) {
      breaking_.throw_if_broken();
      check_announced();
      if (deadline_ns == 0) deadline_ns = os::now_ns() + call.timeout_ns;
      signals_.check_deadline(q, deadline_ns, call, number);
      usleep(kLookUs);
    }
}

void Announcements::compare_announced(uint64_t n, uint64_t print) const {
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const RankBlock& other = at_.block(q);
    if (q == at_.rank() || other.announced.load(std::memory_order_seq_cst) < n) continue;
    const DeviceCall& posted = other.device_call[n % kDeviceCalls];
    if (posted.fingerprint.load(std::memory_order_relaxed) == print) continue;
    const auto number = [&](int32_t r) {
      return at_.block(r).device_call[n % kDeviceCalls].number.load(std::memory_order_relaxed);
    };
    const int32_t low = std::min(q, at_.rank()), high = std::max(q, at_.rank());
    breaking_.break_with(
        GSEL_ERR_MISMATCH, q,
        fmt::format("{} called {}, {} called {}{}; make the calls alike on every rank", at_.named(low),
                    recorder_.text_of(low, number(low)), at_.named(high), recorder_.text_of(high, number(high)),
                    recorder_.difference(low, number(low), high, number(high))));
  }
}

// "rank 0 waited for it in allreduce(count 16, f32, sum) (call 3), rank 1 ...", for a call of this rank.
std::string Announcements::late_text(int32_t rank, uint64_t number) const {
  return fmt::format("{} waited for it in {} (call {}), rank {} {}", at_.named(at_.rank()),
                     recorder_.text_of(at_.rank(), number), number, at_.shown(rank), recorder_.activity_of(rank));
}

// The first remembered message to or from the rank that the rank itself has not announced.
const DeviceMessages::Entry* Announcements::unmet(int32_t rank) const {
  if (!has_channels_[static_cast<size_t>(rank)].load(std::memory_order_acquire)) return nullptr;
  const Channel &out = at_.arena().channel(at_.rank(), rank), &in = at_.arena().channel(rank, at_.rank());
  for (const auto& [mine, theirs] :
       {std::pair(&out.device_sends, &out.device_receives), std::pair(&in.device_receives, &in.device_sends)}) {
    const uint64_t made = mine->announced.load(std::memory_order_acquire);
    const uint64_t next = theirs->announced.load(std::memory_order_acquire) + 1;
    if (next <= made) return &mine->entry[std::max(next, made - std::min(made, kDeviceMessages - 1)) % kDeviceMessages];
  }
  return nullptr;
}

void Announcements::check_announced() const {
  if (!at_.family().watcher()) breaking_.look_at_all();
  const uint64_t made = at_.mine().announced.load(std::memory_order_acquire);
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const RankBlock& other = at_.block(q);
    const bool left = other.left.load(std::memory_order_acquire) != 0;
    const uint64_t next = other.announced.load(std::memory_order_acquire) + 1;
    if (const DeviceMessages::Entry* message = left ? unmet(q) : nullptr)
      breaking_.mark(
          GSEL_ERR_PEER, q,
          fmt::format("{} left while {}", at_.who(q), late_text(q, message->call.load(std::memory_order_relaxed))));
    if (next > made) continue;
    const uint64_t number = at_.mine().device_call[next % kDeviceCalls].number.load(std::memory_order_relaxed);
    if (left)
      breaking_.mark(GSEL_ERR_PEER, q, fmt::format("{} left while {}", at_.who(q), late_text(q, number)));
    else if (os::now_ns() > announced_until_[next % kDeviceCalls].load(std::memory_order_relaxed))
      breaking_.mark(GSEL_ERR_TIMEOUT, q, fmt::format("timed out: {} is late: {}", at_.who(q), late_text(q, number)));
  }
}

// ---- joint calls ----------------------------------------------------------------------------------------------------
// Each rank notes its joint call before it begins and compares it with the other ranks' of the same number. No rank
// waits: if two joint calls differ, the later rank notices before one of its collectives can match a similar one of the
// other joint call.

namespace {

constexpr int kKindBits = 8;

}  // namespace

// Stores and loads are sequentially consistent: of two ranks that note at the same time at least one sees the other's
// entry. A rank that is far ahead has overwritten its entry, but has since made collectives with this rank.
std::optional<OtherJointCall> Announcements::begin_joint_call(int32_t kind, uint64_t argument) noexcept {
  RankBlock& me = at_.mine();
  const uint64_t number = me.joint_calls.load(std::memory_order_relaxed) + 1;
  const uint64_t key = number << kKindBits | static_cast<uint64_t>(kind);
  me.joint_calls.store(number, std::memory_order_relaxed);
  JointCall& own = me.joint_call[number % kJointCalls];
  own.key.store(0, std::memory_order_release);
  own.argument.store(argument, std::memory_order_release);
  own.key.store(key, std::memory_order_seq_cst);
  for (int32_t q = 0; q < at_.world_size(); ++q) {
    const JointCall& other = at_.block(q).joint_call[number % kJointCalls];
    const uint64_t its_key = other.key.load(std::memory_order_seq_cst);
    const uint64_t its_argument = other.argument.load(std::memory_order_acquire);
    if (its_key >> kKindBits != number || (its_key == key && its_argument == argument)) continue;
    if (other.key.load(std::memory_order_relaxed) != its_key) continue;
    return OtherJointCall{q, static_cast<int32_t>(its_key & ((1u << kKindBits) - 1)), its_argument};
  }
  return std::nullopt;
}

}  // namespace gsel::shm
