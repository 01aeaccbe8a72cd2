// comm/hosts/lanes.h: what all reductions in lanes share. The ranks of each host divide the reduced elements, so that
// each reduces a range together with the ranks that have the same range on the other hosts. Gathers the range of the
// inputs of a host, and spreads the result. Hosts may have different numbers of ranks, in any places. Does not know how
// ranges are reduced.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "comm/hosts/hosts_backend.h"

namespace gsel::hosts {

class Lanes {
 protected:
  using Bytes = shm::Bytes;
  // Consecutive reduced elements that one rank of each host has. start: its offset in this rank's lane, in which pieces
  // are contiguous. key: determines the rank that has it on a host (peer). host: where it is reduced, or its goal.
  struct Piece {
    Bytes place;
    uint64_t start, key;
    size_t host;
  };
  enum class Cut { for_hosts, in_lanes };  // a lane that is not scattered: one piece for each host, or one piece
  enum class Passed { inputs, sums };      // between hosts; sums may have a wider type
  Lanes(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors, Cut cut,
        Passed passed);

  // true: each rank gets its part of the result; false: all ranks, or the root, get all of it.
  bool is_scattered() const { return call_.kind != GSEL_COLLECTIVE_ALLREDUCE && call_.kind != GSEL_COLLECTIVE_REDUCE; }
  bool goes_back() const { return call_.kind == GSEL_COLLECTIVE_ALLREDUCE; }
  size_t root_host() const { return roster_.host_of(call_.root); }
  int32_t peer(size_t host, const Piece& piece) const;
  uint64_t passed(uint64_t bytes) const { return bytes / call_.element * passed_element_; }

  // For calls that are not scattered: the elements of local rank l of a host.
  Bytes range(size_t host, size_t l) const;
  Bytes range(int32_t q) const { return range(roster_.host_of(q), static_cast<size_t>(roster_.local_of(q))); }
  uint64_t inputs_bytes() const { return ranks_here_ > 1 ? ranks_here_ * lane_bytes_ : 0; }
  void take_room(uint64_t for_inputs, uint64_t more);
  // Gets this rank's lane of the inputs of the other ranks here.
  void gather();
  // Gets this rank's range of the inputs of all ranks, in rank order.
  void gather_from_all();
  // Reduces this rank's lane over the ranks here, for a lane that is not scattered.
  void reduce_here(char* to);
  // The input of local rank l for a piece.
  const char* input(size_t l, const Piece& piece) const {
    return l == own_ ? call_.send + piece.place.begin : inputs_ + l * lane_bytes_ + piece.start;
  }
  // Appends the inputs of the ranks here for a piece from an offset in it, and their factors, if any.
  void add_inputs(const Piece& piece, uint64_t at, std::vector<const void*>& inputs,
                  std::vector<double>& factors) const;
  // Where the result of a piece belongs, from an offset in it.
  char* result_at(const Piece& piece, uint64_t at) const;
  // Sends the lane to the ranks of this host that get it.
  void spread();

  void send(int32_t to, const void* from, uint64_t bytes);
  void receive(std::vector<HostTransport::Posted>& posted, int32_t from, void* to, uint64_t bytes);
  bool is_prompt() const { return backend_.host_transport_->is_prompt(); }
  void finish_gather() {
    backend_.assembly_.finish_gather();
  }  // before bytes of other hosts are written to the caller's memory
  bool can_add() const { return backend_.assembly_.can_add(); }
  void add(std::function<Frames::Came(size_t host)> bytes_for) { backend_.assembly_.add(std::move(bytes_for)); }
  const char* given(size_t host) const { return backend_.assembly_.given(roster_.on(host)[own_]); }
  void finish(HostTransport::Posted& posted) {
    backend_.host_transport_->finish(posted, deadline_ns_, "a reduction over hosts");
  }
  void finish_sends();
  host::Fold fold_of(const double* factors) const { return backend_.fold_of(call_, factors); }

  HostsBackend& backend_;
  const Roster& roster_;
  const shm::Call& call_;
  const shm::Plan& plan_;
  const double* const factors_;  // by rank
  const size_t ranks_here_, own_, host_, last_;
  const bool is_wide_;  // partial results are f32, and rounded at the end
  const uint64_t passed_element_;
  const double timeout_s_;
  const int64_t deadline_ns_;
  std::vector<Piece> pieces_;  // of this rank's lane; in the same order on all ranks that have them
  uint64_t lane_bytes_ = 0;
  // The lane of the inputs of the ranks here, the result for other ranks, and room of the derived class.
  char *inputs_ = nullptr, *given_ = nullptr, *more_ = nullptr;
  std::vector<HostTransport::Posted> sent_;

 private:
  void cut_parts();
  void cut_range(Cut cut);
  void add_piece(Bytes place, uint64_t key, size_t host);

  const uint64_t unit_, records_;               // bytes that are never split, and their number
  std::vector<std::vector<Bytes>> parts_here_;  // by local rank: its pieces, of a call that is scattered
};

}  // namespace gsel::hosts
