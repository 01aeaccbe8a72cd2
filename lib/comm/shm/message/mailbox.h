// comm/shm/message/mailbox.h: the messages of one rank: all messages under way, and its channels with every other rank.
// Arguments have been checked. Does not know who starts them. Its files:
//   channel.cc    how a message begins; the ring buffers between two ranks
//   sending.cc    a message that is sent
//   receiving.cc  a message that is received
//   matching.cc   which message a receive gets, and where other messages wait
//   transfer.cc   all messages under way: how they advance, and how a rank waits for any of several
//   crossed.cc    a message and a collective that wait for each other
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "comm/shm/call/fault.h"
#include "comm/shm/call/plan.h"
#include "comm/shm/message/peer_memory.h"
#include "comm/shm/message/transfer.h"
#include "comm/shm/wait/signals.h"

namespace gsel::shm {

enum Offer : uint64_t;  // channel.h

class Mailbox {
 public:
  Mailbox(const Membership& members, FlightRecorder& recorder, const Breaking& breaking, Signals& signals,
          PeerMemory& memory, Faults& faults);

  // A message with nothing else under way: from its start to its end.
  void run(const gsel_collective& given);
  gsel_comm_explanation explain(const Call& call);

  // For the driver. begin: throws if the message cannot start. adopt: the message is under way from now on;
  // room_for_one before it makes sure that it cannot fail.
  void begin(Transfer& transfer, const gsel_collective& given);
  void room_for_one() { transfers_.reserve(transfers_.size() + 1); }
  void adopt(Transfer& transfer) { transfers_.push_back(&transfer); }
  bool is_empty() const { return transfers_.empty(); }
  bool progress();  // advances all messages under way; whether anything moved
  // Cancels a message that no peer has matched, and returns whether it did.
  bool cancel(Transfer& transfer);
  void drop_all(const Error* failure) noexcept;

  // For a rank that waits for messages only. polled_long: spins for a while, then yields the processor; true when it is
  // time to sleep.
  bool polled_long(Idle& idle, int64_t spin_ns);
  void rest();
  void publish_awaited();
  std::optional<Wakeup> prepare_sleep();
  int64_t attend();  // between sleeps; the next deadline
  void stop_awaiting();

  // Drops all messages, before the rank leaves a broken arena.
  void abandon() noexcept;

  // crossed.cc: the rank is in a collective that this rank has not begun, and in nothing else.
  bool is_ahead(int32_t rank) const;

 private:
  // channel.cc
  void begin_send(Transfer& transfer);
  void begin_receive(Transfer& transfer, const gsel_collective& given);
  bool advance(Transfer& transfer);  // as far as it goes without waiting; whether it has ended
  void need_channels(int32_t rank, bool slots) {
    const Peer& other = peer(rank);
    if (!other.lines_reserved || (slots && !other.slots_reserved)) reserve_channels(rank, slots);
  }
  void reserve_channels(int32_t rank, bool slots);
  void reserve_lines_with_all();
  Peer& peer(int32_t rank) { return peers_[static_cast<size_t>(rank)]; }
  const Peer& peer(int32_t rank) const { return peers_[static_cast<size_t>(rank)]; }
  Choice choose(const Call& call);
  Way expected_way(const Call& call, bool sends, uint64_t bytes);

  // sending.cc
  bool advance_send(Transfer& transfer);
  bool all_taken(int32_t rank, uint64_t lines);
  bool has_room(int32_t rank, uint64_t lines);
  ChannelLine& next_line(const Half& half, const Call& call);
  void send_line(const Half& half, ChannelLine& line);
  bool send_chunks(Transfer& transfer);
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
    signals_.notify(source, at_.arena().channel(source, at_.rank()).taken, ++peer(source).received);
    hit(Step::taken, number);
    ++moves_;
  }
  // The next line from a rank, or nullptr.
  ChannelLine* next_line_from(int32_t source) const {
    const uint64_t received = peer(source).received;
    ChannelLine& line = at_.arena().channel(source, at_.rank()).line[received % kChannelLines];
    return line.sequence.load(std::memory_order_acquire) > received ? &line : nullptr;
  }
  bool take_plain(Transfer& transfer, ChannelLine& line);
  void take_chunk(int32_t source, uint64_t number);
  bool settle(int32_t source, uint32_t place, Offer what);
  bool is_cancelled(int32_t source, uint32_t place);
  bool accept(Transfer& transfer, const Envelope& envelope, const char* here, const Route* route);
  [[noreturn]] void throw_withdrawn(int32_t source) const;  // the sender withdrew an offer before it was read
  void fetch(int32_t source, const Route& route, Stream& stream, const Call& call, uint64_t number);
  bool reads(int32_t source, const Route& route) { return route.way != Way::remote || reads_memory_of(source); }
  bool reads_memory_of(int32_t rank);
  bool is_read_by(int32_t rank);
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
  void forget() noexcept;

  // transfer.cc
  struct Awaited {
    const std::atomic<uint64_t>* flag;
    uint64_t value;
  };
  void run_alone(const gsel_collective& given);
  void wait_for(Transfer& transfer);
  void finish(Transfer& transfer);
  bool shares_processor();
  Awaited awaited_by(const Half& half, bool out) const;
  void attend_to_any(const Transfer& transfer, int64_t deadline_ns);

  // crossed.cc
  int32_t crossed_peer(const Transfer& transfer) const;  // -1: none
  std::string collective_of(int32_t rank) const;
  [[noreturn]] void fail_crossed(const Transfer& transfer, int32_t peer);

  void hit(Step step, uint64_t number) {
    if (faults_.armed()) faults_.strike(step, number);
  }

  const Membership& at_;
  FlightRecorder& recorder_;
  const Breaking& breaking_;
  Signals& signals_;
  PeerMemory& memory_;
  Faults& faults_;
  const Tuning& tuning_;

  std::vector<Peer> peers_;
  std::vector<Transfer*> transfers_;  // under way, in the order started
  std::list<SetAside> set_aside_;     // messages that no receive has matched, in order for each pair
  uint64_t kept_bytes_ = 0;           // bytes of set_aside_ copied here
  int32_t next_source_ = 0;           // the rank that a receive from any rank tries first
  bool all_lines_reserved_ = false;
  uint64_t moves_ = 0;  // lines sent and taken, offers settled
};

}  // namespace gsel::shm
