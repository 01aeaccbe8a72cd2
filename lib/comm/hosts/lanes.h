// comm/hosts/lanes.h: common parts of reductions in lanes. A lane is a part of the reduced elements; each rank reduces
// one lane together with the ranks with the same local rank on the other hosts. Gathers the lane of the inputs of a
// host, and spreads the result. Every host has the same number of consecutive ranks. Does not know how lanes are
// reduced.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "comm/hosts/hosts_backend.h"

namespace gsel::hosts {

class Lanes {
 protected:
  using Bytes = shm::Bytes;
  // in_one: a lane that is not scattered is one piece, instead of one piece for each host.
  Lanes(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors, bool in_one);

  // true: each host gets one piece of a lane; false: all ranks, or the root, get the whole lane.
  bool is_scattered() const { return call_.kind != GSEL_COLLECTIVE_ALLREDUCE && call_.kind != GSEL_COLLECTIVE_REDUCE; }
  bool goes_back() const { return call_.kind == GSEL_COLLECTIVE_ALLREDUCE; }
  size_t root_host() const { return roster_.host_of(call_.root); }
  int32_t rank_of_lane(size_t host) const { return roster_.on(host)[own_]; }
  uint64_t passed(uint64_t bytes) const { return bytes / call_.element * passed_element_; }

  Bytes whole(size_t l) const;
  uint64_t inputs_bytes() const { return ranks_here_ > 1 ? ranks_here_ * lane_bytes_ : 0; }
  void take_room(uint64_t for_inputs, uint64_t more);
  // Gets this rank's lane of the inputs of the other ranks here.
  void gather();
  // Gets this rank's lane of the inputs of all ranks, in rank order, for a lane of one piece.
  void gather_from_all();
  // Reduces this rank's lane over the ranks here, for a lane that is not scattered.
  void reduce_here(char* to);
  // Appends the inputs of the ranks here for piece k from offset in_piece, which is offset `at` in the lane, and their
  // factors, if any.
  void add_inputs(size_t k, uint64_t at, uint64_t in_piece, std::vector<const void*>& inputs,
                  std::vector<double>& factors) const;
  // Where the result of piece k from offset in_piece belongs; at: the offset in the lane.
  char* result_at(size_t k, uint64_t at, uint64_t in_piece) const;
  // Sends the lane to the ranks of this host that get it.
  void spread();

  void send(size_t host, const void* from, uint64_t bytes);
  void receive(std::vector<HostTransport::Posted>& posted, size_t host, void* to, uint64_t bytes);
  bool is_prompt() const { return backend_.host_transport_->is_prompt(); }
  void finish_gather() {
    backend_.assembly_.finish_gather();
  }  // before bytes of other hosts are written to the caller's memory
  bool can_add() const { return backend_.assembly_.can_add(); }
  void add(std::function<Frames::Came(size_t host)> bytes_for) { backend_.assembly_.add(std::move(bytes_for)); }
  const char* given(size_t host) const { return backend_.assembly_.given(rank_of_lane(host)); }
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
  std::vector<std::vector<Bytes>> lanes_;  // by local rank, by piece: place among the reduced elements
  std::vector<uint64_t> starts_;           // of the pieces in this rank's lane
  uint64_t lane_bytes_ = 0;
  // The lane of the inputs of the ranks here, the result for other ranks, and room of the derived class.
  char *inputs_ = nullptr, *given_ = nullptr, *more_ = nullptr;
  std::vector<HostTransport::Posted> sent_;
};

}  // namespace gsel::hosts
