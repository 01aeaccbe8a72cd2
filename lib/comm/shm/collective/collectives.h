// comm/shm/collective/collectives.h: the collectives of one rank. Arguments have been checked. Does not know which
// thread runs them. Its files:
//   collectives.cc  a call from its start to its end
//   headers.cc      the header line that every collective begins with
//   choose.cc       which protocol a call takes, and why
//   small.cc        payloads that are sent with the header line
//   direct.cc       large payloads in memory that every rank can access
//   single_copy.cc  large payloads in private memory, read across processes
//   staged.cc       large payloads in private memory, copied through staging memory
//
// Every collective begins with a header line that each rank posts and all ranks read. The line has a fingerprint of the
// call, so ranks that disagree find out before anything is written. It also carries small payloads, which then need no
// second wait. A rank posts line n + 1 only after it has read line n of all ranks, and then all ranks have finished
// call n - 1. So no rank is more than one call ahead, two lines per rank are enough, and the shared data of call n - 1
// may be overwritten after all headers of call n have been read.
#pragma once

#include <gsel/comm.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "comm/shm/call/fault.h"
#include "comm/shm/call/plan.h"
#include "comm/shm/message/peer_memory.h"
#include "comm/shm/wait/signals.h"
#include "device/host/reduce/kernels.h"

namespace gsel::shm {

class Collectives {
 public:
  Collectives(const Membership& members, FlightRecorder& recorder, const Breaking& breaking, Signals& signals,
              PeerMemory& memory, Faults& faults);

  void run(const gsel_collective& given, bool grouped = false);  // by the driver, see engine.h
  // The first part of the next run, which does not wait; the run reports its failure.
  void begin(const gsel_collective& given, bool grouped) noexcept;
  bool has_begun() const { return begun_; }
  // After begin(): whether run() waits only for headers, and whether all headers are posted.
  bool ends_with_headers() const { return not_begun_ || small(current_) || at_.world_size() == 1; }
  bool is_ready() const;
  // An allgather that never matches a call of the caller's.
  void exchange(CallOrigin origin, const void* send, void* recv, uint64_t bytes);
  gsel_comm_explanation explain(const Call& call);
  bool next_is_posted() const;  // another rank has posted the header of the next collective
  void reset_count();           // in a new arena

 private:
  // collectives.cc
  void enter(const gsel_collective& given, bool grouped);
  uint64_t run_call(const Call& call, const Plan& plan);  // bytes that this rank sent
  [[noreturn]] void fail(const Error& error);
  [[noreturn]] void fail_before();
  void require_room_for_records(const Call& call) const;
  void run_alone(const Call& call, const Plan& plan);
  host::Fold fold_of(const Call& call, double* factors) const;  // factors: room for one per rank
  void copy_own_part(const Call& call, const Plan& plan);
  void hit(Step step) {
    if (faults_.armed()) faults_.strike(step, number_);
  }
  void post(std::atomic<uint64_t>& flag, uint64_t value) { signals_.post(flag, value); }
  void wait(int32_t rank, const std::atomic<uint64_t>& flag, uint64_t value) { signals_.wait(rank, flag, value); }
  void wait_all(std::atomic<uint64_t> RankBlock::*flag, uint64_t value) { signals_.wait_all(flag, value); }

  // headers.cc
  void post_header(const Call& call, const Plan& plan);
  void read_headers();
  void post_operation(const Operation& operation, uint64_t parity);
  [[noreturn]] void fail_mismatch(uint64_t parity);
  void publish_addresses(const Call& call, const Plan& plan, HeaderLine& line);
  const BufferAddresses& addresses_of(int32_t rank) const {
    return *reinterpret_cast<const BufferAddresses*>(at_.block(rank).line[sequence_ & 1].payload);
  }
  // Whether a rank publishes the layout of its send, which only it knows, as a row of Bytes, one per reader, in its
  // small slot. A small scatterv needs no row: its payload is in that slot.
  bool needs_row(const Call& call) const {
    return call.kind == GSEL_COLLECTIVE_ALLTOALLV || (call.kind == GSEL_COLLECTIVE_SCATTERV && !small(call));
  }
  void publish_row(const Plan& plan, uint64_t parity);
  const Bytes* parts_of(int32_t rank) const {
    return reinterpret_cast<const Bytes*>(at_.arena().small(rank, sequence_ & 1));
  }
  // For a large call: where this rank's part begins in the send of `rank`. usual: the place in a contiguous send.
  uint64_t sent_at(int32_t rank, const Call& call, uint64_t usual) const {
    return needs_row(call) || addresses_of(rank).in_parts ? parts_of(rank)[at_.rank()].begin : usual;
  }
  uint64_t usual_begin(const Call& call, const Plan& plan) const {  // of the slice that this rank reduces
    return call.send_parts ? plan.packed_begin(at_.rank()) : plan.sent(at_.rank()).begin;
  }
  void read_rows(const Call& call, const Plan& plan);

  // choose.cc
  struct Buffers;
  template <class Look>
  Choice choose(const Call& call, Look&& buffers) const;
  Choice choose_by_lines(const Call& call, const Plan& plan) const;  // the same on every rank
  Choice choose_by_own(const Call& call, const Plan& plan);
  bool small(const Call& call) const {
    const size_t slot = at_.arena().layout().small_bytes;
    return call.payload_bytes <= (gathers(call) ? std::min(slot, tuning_.gather_slots_to) : slot);
  }
  // Every rank copies every other rank's whole part, without reduction, so a second copy is half of the work.
  static bool gathers(const Call& call) {
    const CollectiveRow& row = row_of(call.kind);
    return !row.reduces && (row.recv == Reach::all || row.recv == Reach::parts) && !row.parts_differ();
  }
  bool prefers_single_copy(const Call& call) const;
  uint64_t staged_chunk(const Call& call, const Plan& plan) const;

  // small.cc
  void publish_small(const Call& call, const Plan& plan, HeaderLine& line, uint64_t parity);
  const char* small_payload(int32_t rank, const Call& call) const;
  void finish_small(const Call& call, const Plan& plan);

  // direct.cc
  const char* send_of(int32_t rank) const;
  char* recv_of(int32_t rank) const;
  class Touching;
  void run_direct(const Call& call, const Plan& plan);
  void finish_direct(const Call& call, const Plan& plan);
  void take_back_buffers() noexcept;
  bool ends_touching(int32_t rank, int64_t deadline_ns) const noexcept;
  void copy_direct(const Call& call, const Plan& plan);
  void reduce_direct(const Call& call, const Plan& plan);

  // single_copy.cc
  void run_single_copy(const Call& call, const Plan& plan);
  void copy_single(const Call& call, const Plan& plan);
  void reduce_single_copy(const Call& call, const Plan& plan);
  void read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes) const {
    memory_.read_from(rank, address, to, bytes, current_, number_);
  }

  // staged.cc
  struct Slices;
  void run_staged(const Call& call, const Plan& plan);
  void reduce_staged(const Call& call, const Plan& plan);
  void allreduce_staged_by_both(const Call& call);
  void copy_staged(const Call& call, const Plan& plan);
  void stage_slices(const Call& call, const Slices& slices, uint64_t chunk);
  void reduce_slice(const Call& call, const host::Fold& fold, const Slices& slices, uint64_t chunk, char* out);
  void fetch_slices(const Call& call, const Slices& slices, uint64_t chunk);
  size_t block_bytes() const { return at_.arena().layout().staging_bytes / at_.ranks() / 64 * 64; }
  void reserve_staging();

  const Membership& at_;
  FlightRecorder& recorder_;
  const Breaking& breaking_;
  Signals& signals_;
  PeerMemory& memory_;
  Faults& faults_;
  const Tuning& tuning_;

  uint64_t sequence_ = 0;      // of header lines
  uint64_t number_ = 0;        // of the current call in the recorder
  uint64_t chunks_ = 0;        // chunks of all large collectives before this one; the same on every rank
  uint64_t largest_part_ = 0;  // most bytes that one rank has for another in this call
  bool staging_reserved_ = false;
  Call current_{};
  uint64_t fingerprint_ = 0;        // of current_
  std::optional<Plan> plan_;        // of a call that has begun
  std::optional<Error> not_begun_;  // failure of begin()
  bool begun_ = false;
};

}  // namespace gsel::shm
