// comm/shm/link.h: one rank's end of a shared-memory communicator. Arguments have been checked. Does not know who calls
// it. Its parts, a file each:
//   link.cc         from joining to leaving; a call from its start to its end
//   headers.cc      the header line that every collective begins with, and the choice of protocol
//   wait.cc         waiting, and what ends it
//   chain.cc        follows the chain of waits to its last rank
//   small.cc        payloads that are sent with the header line
//   direct.cc       large payloads in memory that every rank can access
//   single_copy.cc  large payloads in private memory, read across processes
//   staged.cc       large payloads in private memory, copied through staging memory
//   channel.cc      the ring buffers of messages between two ranks
//   sending.cc      a message that is sent
//   receiving.cc    a message that is received
//   matching.cc     which message a receive gets, and where other messages wait
//   transfer.cc     all messages under way
//   crossed.cc      a message and a collective that wait for each other
//   split.cc        communicators made from this one
//   reform.cc       communicators made from this one when it is broken
//   explain.cc      which protocol a call would take, and why
//   announce.cc     calls that another transport makes on the stream of a device
//   record.cc       writing and reading the flight recorder
//
// A small allreduce goes through api/collective.cc, comm/communicator.cc and comm/check.cc (arguments) and
// shm/transport.cc (the transport's table); then through link.cc, call.cc and plan.cc (its parameters), headers.cc and
// wait.cc (the header line), small.cc and reduce/kernels.cc (the sum), and record.cc (the flight recorder). All of
// these but small.cc serve every protocol.
//
// Every collective begins with one header line that each rank posts and all ranks read. The line says which call this
// is, so ranks that disagree find out before anything is written. It also carries small payloads, which then need no
// second wait. A rank posts line n + 1 only after it has read line n of all ranks, and then all ranks have finished
// call n - 1. So no rank is more than one call ahead, two lines per rank are enough, and the shared data of call n - 1
// may be overwritten once all headers of call n have been seen.
#pragma once

#include <gsel/transport.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/forked.h"
#include "comm/control.h"
#include "comm/shm/engine.h"
#include "comm/shm/fault.h"
#include "comm/shm/join/rendezvous.h"
#include "comm/shm/message/transfer.h"
#include "comm/shm/numbering.h"
#include "comm/shm/plan.h"
#include "comm/shm/tuning/tuning.h"
#include "comm/shm/wait/chain.h"
#include "comm/shm/wait/patience.h"
#include "device/host/reduce/kernels.h"

namespace gsel::shm {

// What is known of a rank whose process is no more: not whether it exited or was killed, which its parent alone learns.
inline constexpr const char* kEnded = "ended without gsel_comm_free";

enum Offer : uint64_t;  // channel.h

enum class Protocol { alone, line, slots, direct, single_copy, staged };

class Link {
 public:
  // Of a rank in a communicator: what a link begins with.
  struct Membership {
    std::shared_ptr<Family> family;
    std::shared_ptr<Arena> arena;
    int32_t rank = 0;
    int64_t timeout_ns = 0;
    bool threads_allowed = true;
    Faults faults = {};  // of the communicator that was joined; those made from it have none
    std::shared_ptr<const Numbering> numbering = {};  // of the ranks in errors; nullptr: its own
  };
  static Membership join_family(const gsel_join& join);
  explicit Link(Membership membership);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  int32_t rank() const { return rank_; }
  int32_t world_size() const { return world_size_; }

  void collective(const gsel_collective& call);
  // From now on, other threads may run requests while a call is made.
  void allow_overlap() { engine_->allow_overlap(); }
  void group(const gsel_collective* calls, uint64_t n);                   // as gsel_group_run
  std::unique_ptr<Work> start(const gsel_collective* calls, uint64_t n);  // the same asynchronously
  // about: the rank in the error, as errors of this communicator show it; -1: this one.
  void abort(const char* reason, int32_t about = -1) noexcept;
  gsel_comm_count counts(gsel_collective_kind kind) const;
  // record.cc: JSON of docs/trace.md; with the failure that is the reason to ask, if any.
  std::string trace(gsel_status code = GSEL_OK, const std::string& error = {}) const;
  // explain.cc
  gsel_comm_explanation explain(const gsel_collective& call);
  // split.cc, reform.cc
  std::optional<Membership> split(int32_t colour, int32_t key, std::string_view label);
  Membership create_group(const std::vector<int32_t>& members);
  Membership dup();
  Membership shrink(const std::vector<int32_t>& without = {});
  void resync();
  // For memory; `asked` for it. GSEL_ERR_FORKED in a child.
  Family& family(const char* asked) const;
  // A member's process has ended; from the watcher's thread or from a rank that looks for itself.
  void hear_of_death(int32_t family_rank) const noexcept;
  void set_timeout(double seconds);
  const char* name() const noexcept { return name_.c_str(); }
  // A rank as errors show it, and where that is not its rank in the communicator that was joined, that too.
  int32_t shown(int32_t rank) const { return arena_->rank(rank).shown_rank; }
  std::string named(int32_t rank) const;  // "rank 0 (rank 2 of world)"

  // joint.cc: this rank begins its next joint call. The first rank that began another one under the same number, if
  // any.
  std::optional<OtherJointCall> begin_joint_call(int32_t kind, uint64_t argument) noexcept;

  // announce.cc, for calls on the stream of a device. announce: before the call is enqueued; throws what has broken the
  // communicator, or that ranks disagree. look_after: whether somebody is late or gone, which breaks it; any thread.
  void announce(const gsel_collective& given);
  void look_after_announced() const;
  void break_with(const Error& error) const noexcept;
  void throw_what_broke() const { throw_if_broken(); }
  void throw_what_broke(const char* asked) const {
    require_own_process(asked);
    throw_if_broken();
  }
  bool is_broken() const { return arena_->header().broken.load(std::memory_order_acquire) != 0; }
  // Waits until the communicator is broken, or somebody calls stop_awaiting_break, or for so long at most.
  bool await_break(int64_t nanoseconds) const;
  void stop_awaiting_break() const noexcept { wake(mine()); }

 private:
  friend class Engine;
  struct Progress {  // what counts() tells; one writer, any reader
    std::atomic<uint64_t> calls{0};
    std::atomic<uint64_t> bytes{0};
  };

  // link.cc
  void execute(const gsel_collective& given, bool grouped = false);  // by whoever drives, see engine.h
  void execute_beside_others(const gsel_collective& given);
  void run(const Call& call);
  void run_callbacks_too(const Call& call);
  void require_room_for_records(const Call& call) const;
  void run_alone(const Call& call, const Plan& plan);
  void count_call(gsel_collective_kind kind, uint64_t bytes);
  host::Fold fold_of(const Call& call, double* factors) const;  // factors: room for one per rank
  void hit(Step step) { hit(step, number_); }
  void hit(Step step, uint64_t number) {
    if (faults_.armed()) faults_.strike(step, number);
  }

  // headers.cc
  void exchange_headers(const Call& call, const Plan& plan);
  bool next_is_posted() const;  // another rank has posted the header of the next collective
  void post_operation(const Operation& operation, uint64_t parity);
  [[noreturn]] void fail_mismatch(uint64_t parity);
  // Which way a call goes. The choice among large ones falls after the headers, alike on every rank.
  Protocol choose(const Call& call, const Plan& plan) const;
  Protocol choose_large(const Call& call, const Plan& plan) const;
  bool prefers_single_copy(const Call& call) const;
  void publish_addresses(const Call& call, const Plan& plan, HeaderLine& line);
  const BufferAddresses& addresses_of(int32_t rank) const {
    return *reinterpret_cast<const BufferAddresses*>(arena_->rank(rank).line[sequence_ & 1].payload);
  }

  // record.cc
  uint64_t enter(const Call& call);  // its number
  void leave(uint64_t number, bool failed = false);
  static std::string text_of(const Arena& arena, int32_t rank, uint64_t number);
  static std::string text_of(const Arena& arena, const Call& call);
  std::string text_of(int32_t rank, uint64_t number) const { return text_of(*arena_, rank, number); }
  std::string text_of(const Call& call) const { return text_of(*arena_, call); }
  const char* difference(int32_t rank, uint64_t number, int32_t other, uint64_t other_number) const;
  // Marks the call as failed, writes the recording to a file where that is wanted.
  void note_failure(const Error& error) noexcept;

  // wait.cc
  void wait(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) {
    if (flag.load(std::memory_order_acquire) < value) wait_long(rank, flag, value);
  }
  void wait_all(std::atomic<uint64_t> RankBlock::*flag, uint64_t value) {
    for (int32_t q = 0; q < world_size_; ++q) wait(q, arena_->rank(q).*flag, value);
  }
  void wait_long(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  bool spin(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void sleep_until_woken(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value);
  void check_peer(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value, const Call& call, uint64_t number);
  void look_at_all() const;
  void check_deadline(int32_t rank, int64_t deadline_ns, const Call& call, uint64_t number);
  std::string activity_of(int32_t rank) const;
  std::string who(int32_t rank) const;  // named, with its process: "rank 0 (pid 17, rank 2 of world)"
  // Of a rank of the family, which need not be a member.
  std::string name_in_family(int32_t family_rank, bool with_pid = false) const;
  int32_t shown_of_family(int32_t family_rank) const;  // -1: errors have no number for it
  int32_t family_of_shown(int32_t in_text) const;
  // Makes progress of this rank known; wakes who sleeps for it. One side always sees the other: either both pass a
  // barrier, or whoever goes to sleep makes everybody pass one. Orders as in tests/model; change both.
  void post(std::atomic<uint64_t>& flag, uint64_t value) {
    if (asymmetric_) {
      flag.store(value, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (mine().sleepers.load(std::memory_order_relaxed) != 0) wake(mine());
    } else {
      flag.store(value, std::memory_order_seq_cst);
      if (mine().sleepers.load(std::memory_order_seq_cst) != 0) wake(mine());
    }
  }
  static void wake(RankBlock& block) noexcept;
  void throw_if_broken() const {
    if (arena_->header().broken.load(std::memory_order_acquire) != 0) throw_broken();
  }
  [[noreturn]] void throw_broken() const;
  [[noreturn]] void throw_withdrawn(int32_t source) const;  // an offer was, before it was read
  std::string which() const;  // " (communicator ...)" to end a text with, where this process has several
  void mark_broken(gsel_status code, int32_t about, const std::string& text) const noexcept;
  void write_broken(gsel_status code, int32_t shown, int32_t family_rank, const std::string& text) const noexcept;
  [[noreturn]] void break_link(gsel_status code, int32_t about, const std::string& text) const;

  // chain.cc
  struct EndOfWait {
    explicit EndOfWait(Link& waiting) : link(waiting) {}
    ~EndOfWait() { link.end_wait(); }
    EndOfWait(const EndOfWait&) = delete;
    EndOfWait& operator=(const EndOfWait&) = delete;
    Link& link;
  };
  RankBlock& joined_block(int32_t family_rank) const;
  void publish_wait() noexcept;
  void end_wait() noexcept;
  void retract_wait() noexcept;
  std::optional<ChainEnd> next_in_chain(const ChainEnd& at, int64_t since_ns) const;
  ChainEnd end_of_chain(int32_t rank, int64_t since_ns) const;
  [[noreturn]] void fail_late(int32_t rank, int64_t since_ns, const Call& call, uint64_t number);

  // explain.cc
  struct Expectation {
    Protocol protocol;
    const char* reason;
  };
  Expectation expect(const Call& call, const Plan& plan);
  Expectation expect_message(const Call& call);
  Way expected_way(const Call& call, bool sends, uint64_t bytes);
  uint64_t staged_chunk(const Call& call, const Plan& plan) const;

  // small.cc
  bool small(const Call& call) const {
    const size_t slot = arena_->layout().small_bytes;
    return call.payload_bytes <= (gathers(call) ? std::min(slot, tuning_.gather_slots_to) : slot);
  }
  // Everybody's whole part is copied, and not folded or cut on the way: a second copy is half of the work.
  static bool gathers(const Call& call) {
    return call.kind == GSEL_COLLECTIVE_ALLGATHER || call.kind == GSEL_COLLECTIVE_ALLGATHERV ||
           call.kind == GSEL_COLLECTIVE_GATHER || call.kind == GSEL_COLLECTIVE_GATHERV;
  }
  void publish_small(const Call& call, const Plan& plan, HeaderLine& line, uint64_t parity);
  const char* small_payload(int32_t rank, const Call& call) const;
  void finish_small(const Call& call, const Plan& plan);
  uint64_t bytes_sent(const Call& call, const Plan& plan) const;
  // Where the parts stand in this rank's send, where only it knows: beside its header line, as Bytes per reader.
  // A small scatterv needs none, and its payload stands in that place.
  bool needs_row(const Call& call) const {
    return call.kind == GSEL_COLLECTIVE_ALLTOALLV || (call.kind == GSEL_COLLECTIVE_SCATTERV && !small(call));
  }
  void publish_row(const Plan& plan, uint64_t parity);
  const Bytes* row_of(int32_t rank) const { return reinterpret_cast<const Bytes*>(arena_->small(rank, sequence_ & 1)); }
  void read_rows(const Call& call, const Plan& plan);

  // direct.cc
  bool reachable(const Call& call, const Plan& plan) const;
  const char* send_of(int32_t rank) const;
  char* recv_of(int32_t rank) const;
  class Touching;
  void run_direct(const Call& call, const Plan& plan);
  void finish_direct(const Call& call, const Plan& plan);
  void take_back_buffers() noexcept;
  bool ends_touching(int32_t rank, int64_t deadline_ns) const noexcept;
  void throw_if_taken_back() const;
  char* shared(uint64_t offset) const;
  void copy_direct(const Call& call, const Plan& plan);
  void reduce_direct(const Call& call, const Plan& plan);

  // single_copy.cc
  void run_single_copy(const Call& call, const Plan& plan);
  void copy_single(const Call& call, const Plan& plan);
  void reduce_single_copy(const Call& call, const Plan& plan);
  void read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes) {
    read_from(rank, address, to, bytes, current_, number_);
  }
  void read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes, const Call& call, uint64_t number);
  [[noreturn]] void fail_reading(int32_t rank, int failure, const Call& call, uint64_t number);
  bool reads_all();
  bool can_read(int32_t rank) const;

  // staged.cc
  struct Slices;
  void run_staged(const Call& call, const Plan& plan);
  void reduce_staged(const Call& call, const Plan& plan);
  void allreduce_staged_by_both(const Call& call);
  void copy_staged(const Call& call, const Plan& plan);
  void stage_slices(const Call& call, const Slices& slices, uint64_t chunk);
  void reduce_slice(const Call& call, const host::Fold& fold, const Slices& slices, uint64_t chunk, char* out);
  void fetch_slices(const Call& call, const Slices& slices, uint64_t chunk);
  void copy_own_part(const Call& call, const Plan& plan);
  size_t block_bytes() const;
  void reserve_staging();

  // channel.cc
  void begin(Transfer& transfer, const gsel_collective& given);
  void begin_send(Transfer& transfer);
  void begin_receive(Transfer& transfer, const gsel_collective& given);
  bool advance(Transfer& transfer);  // as far as it goes without waiting; whether it has ended
  void need_channels(int32_t rank, bool slots) {
    const Peer& other = peer(rank);
    if (!other.lines_reserved || (slots && !other.slots_reserved)) reserve_channels(rank, slots);
  }
  void reserve_channels(int32_t rank, bool slots);
  void reserve_lines_with_all();
  // Makes progress on a channel known to the rank at its other end; see post.
  void notify(int32_t rank, std::atomic<uint64_t>& flag, uint64_t value) {
    if (asymmetric_)
      flag.store(value, std::memory_order_release);
    else
      flag.store(value, std::memory_order_seq_cst);
    call_up(rank);
  }
  // Behind a change of what the rank may be asleep for.
  void call_up(int32_t rank) {
    RankBlock& other = arena_->rank(rank);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (other.listening.load(asymmetric_ ? std::memory_order_relaxed : std::memory_order_seq_cst) != 0)
      wake_listener(other);
  }
  Peer& peer(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int32_t rank) const { return peers_[static_cast<size_t>(rank)]; }

  // sending.cc
  bool advance_send(Transfer& transfer);
  bool all_taken(int32_t rank, uint64_t lines);
  bool has_room(int32_t rank, uint64_t lines);
  ChannelLine& next_line(const Half& half, const Call& call);
  void send_line(const Half& half, ChannelLine& line);
  bool send_pieces(Transfer& transfer);
  bool take_place(Half& half);
  Way way_to(int32_t rank, const char* data, uint64_t bytes) const;
  bool offer(Transfer& transfer);
  bool settle_offer(Transfer& transfer);
  void withdraw(Half& half) noexcept;
  bool cancel_send(Half& half);

  // receiving.cc
  bool advance_receive(Transfer& transfer);
  ChannelLine* next_message(int32_t source, uint64_t number);
  void take_line(int32_t source, uint64_t number) {
    notify(source, arena_->channel(source, rank_).taken, ++peer(source).received);
    hit(Step::taken, number);
    ++moves_;
  }
  // The next line from a rank, or nullptr.
  ChannelLine* next_line_from(int32_t source) const {
    const uint64_t received = peer(source).received;
    ChannelLine& line = arena_->channel(source, rank_).line[received % kChannelLines];
    return line.sequence.load(std::memory_order_acquire) > received ? &line : nullptr;
  }
  bool take_plain(Transfer& transfer, ChannelLine& line);
  void take_piece(int32_t source, uint64_t number);
  bool settle(int32_t source, uint32_t place, Offer what);
  bool is_cancelled(int32_t source, uint32_t place);
  bool accept(Transfer& transfer, const Envelope& envelope, const char* here, const Route* route);
  void fetch(int32_t source, const Route& route, Stream& stream, const Call& call, uint64_t number);
  bool reads(int32_t source, const Route& route) { return route.way != Way::remote || reads_memory_of(source); }
  bool reads_memory_of(int32_t rank);
  bool refuse(Transfer& transfer, const Envelope& envelope, const Route* route);
  Error disagreement(const Envelope& sent, int32_t reader, uint64_t wanted) const;

  // matching.cc
  bool match(Transfer& transfer);
  bool match_from(int32_t source, Transfer& transfer);
  bool take(Transfer& transfer, const Envelope& envelope, ChannelLine& line);
  const Transfer* owner_of(const Envelope& envelope, const Transfer& asking) const;
  bool set_aside(const Envelope& envelope, ChannelLine& line, const Transfer& asking);
  bool keep(SetAside& kept, ChannelLine& line, const Transfer& asking);
  bool match_kept(Transfer& transfer);
  bool take_kept(Transfer& transfer, std::list<SetAside>::iterator place);
  bool is_cancelled(const SetAside& kept);
  void drop(std::list<SetAside>::iterator place);
  void drop_cancelled(int32_t source);
  void forget_messages() noexcept;

  // transfer.cc
  struct Awaited {
    const std::atomic<uint64_t>* flag;
    uint64_t value;
  };
  void message(const gsel_collective& given);
  void wait_for(Transfer& transfer);
  bool progress();  // of all that are under way; whether anything moved
  void finish(Transfer& transfer);
  bool cancel(Transfer& transfer);
  void drop_transfers(const Error* failure) noexcept;
  bool looked_long(Idle& idle, int64_t spin_ns);
  bool beside_a_peer();
  Awaited awaited_by(const Half& half, bool out) const;
  void attend_to_any(const Transfer& transfer, int64_t deadline_ns);
  int64_t attend();  // the next deadline
  void publish_awaited();
  void stop_awaiting();
  void rest();
  std::optional<Wakeup> prepare_sleep();
  int64_t longest_sleep() const { return family_->watcher() ? kWatchedSleepNs : kSleepNs; }
  void abandon_messages() noexcept;
  static void wake_listener(RankBlock& block) noexcept;
  void nudge() noexcept;
  // In a collective, between two looks: messages go on, whether any moved.
  bool go_on_beside() {
    engine_->admit();
    return !transfers_.empty() && progress();
  }

  // announce.cc
  void announce_collective(const Call& call, uint64_t number);
  void wait_until_near(uint64_t n, const Call& call, uint64_t number);
  void compare_announced(uint64_t n, uint64_t print) const;
  std::string late_text(int32_t rank, uint64_t n) const;

  // crossed.cc
  void publish_alone() noexcept;
  bool is_ahead(int32_t rank) const;
  int32_t crossed_peer(const Transfer& transfer) const;  // -1: none
  [[noreturn]] void fail_crossed(const Transfer& transfer, int32_t peer);

  // split.cc
  struct Choice {
    int32_t colour, key;
  };
  void require_own_process(const char* asked) const { gsel::require_own_process(fork_generation_, asked); }
  void exchange(Asked asked, const void* send, void* recv, uint64_t bytes);
  void pass_on(gsel_collective_kind kind, int32_t rank, uint64_t* words, uint64_t n);
  std::optional<Membership> regroup(Asked asked, Choice own, std::string_view label);
  std::string name_of_next(Asked asked, std::string_view label, int32_t colour);
  uint64_t found(const std::vector<int32_t>& members, const std::string& name, const Numbering* numbering) const;
  void keep_while_used(uint64_t offset, int32_t ranks) const;
  Membership membership_in(const std::vector<int32_t>& members, uint64_t offset, const std::string& name,
                           std::shared_ptr<const Numbering> numbering) const;
  std::shared_ptr<const Numbering> own_numbering() const;

  // reform.cc
  using Word = std::atomic<uint32_t> RankBlock::*;
  void break_for(const std::string& purpose, const char* remedy) const;
  void leave_out(const std::vector<int32_t>& without);
  Membership create_group_in_broken(const std::vector<int32_t>& members, const std::string& name);
  void await_for_group(int32_t rank, int64_t deadline_ns, std::atomic<uint64_t> RankBlock::*word, uint64_t value) const;
  std::vector<uint32_t> call_the_roll(Word word);
  uint32_t decide(Word word, int32_t rank, int64_t deadline_ns) const;
  std::string why(uint32_t word, int32_t rank) const;
  void refuse_if_shrinking() const;
  uint64_t successor(const std::vector<int32_t>& members, const std::string& name) const;
  uint64_t publish_successor(const std::vector<int32_t>& members, const std::string& name) const;
  void adopt(std::shared_ptr<Arena> next);
  void leave(const Arena& arena) const noexcept;
  void wake_all() const noexcept;
  template <class Done>
  void look_until(Done&& done) const;

  RankBlock& mine() const { return arena_->rank(rank_); }
  size_t ranks() const { return static_cast<size_t>(world_size_); }
  const Member& member(int32_t rank) const { return family_->member(arena_->rank(rank).family_rank); }

  int32_t rank_;
  int32_t world_size_;
  Faults faults_;
  std::shared_ptr<Family> family_;
  std::shared_ptr<Arena> arena_;
  mutable std::mutex arena_mutex_;  // for who looks at arena_ from another thread than the one that makes the calls
  const std::string name_;
  const std::shared_ptr<const Numbering> numbering_;
  int32_t wait_slot_ = -1;  // of this rank's waits, see chain.h
  int made_ = 0;            // communicators, by splits and dups
  bool shrunk_ = false;
  std::map<std::vector<int32_t>, uint64_t> groups_made_;  // in a broken communicator, by their ranks
  std::atomic<int64_t> timeout_ns_;
  bool crowded_;  // more ranks than cores
  int64_t spin_ns_;
  bool asymmetric_;
  bool one_process_ = true;  // all ranks are threads of this one
  uint64_t fork_generation_;
  Tuning tuning_;

  uint64_t sequence_ = 0;      // of collectives
  uint64_t entered_ = 0;       // calls of any kind
  uint64_t number_ = 0;        // of them, the collective it is in
  uint64_t chunks_ = 0;        // steps of large collectives before this one; the same on every rank
  uint64_t published_ = 0;     // bytes, in this call
  int64_t deadline_ns_ = 0;    // of this call; 0 until it waits long
  uint64_t largest_part_ = 0;  // bytes, that one rank has for one other in this call
  bool staging_reserved_ = false;
  std::shared_ptr<const void> traced_;  // the broken arena whose recording is in a file
  enum class Probe { open, yes, no } reads_all_ = Probe::open;
  Call current_{};  // collective, for messages
  Call announcing_{};
  std::array<std::atomic<int64_t>, kDeviceCalls> announced_until_{};  // deadlines of announced calls
  std::vector<Peer> peers_;
  std::vector<Transfer*> transfers_;  // under way, in the order started
  std::list<SetAside> set_aside_;     // messages that no receive has asked for, of each pair in order
  uint64_t kept_bytes_ = 0;           // of them, here
  int32_t next_source_ = 0;           // where a receive from any rank looks first
  bool all_lines_reserved_ = false;
  uint64_t moves_ = 0;  // lines sent and taken, offers settled
  bool threads_allowed_;
  std::unique_ptr<Engine> engine_;
  std::array<Progress, GSEL_COLLECTIVE_KINDS> progress_;
};

}  // namespace gsel::shm
