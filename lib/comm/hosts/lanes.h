// comm/hosts/lanes.h: what reductions have in common whose ranks each take care of a lane, a part of what is reduced,
// with those that have their place on the other hosts: the lane of the inputs of their host, and who gets what it comes
// to. Hosts have as many ranks in a row. Does not know how lanes are folded.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "base/os.h"
#include "comm/hosts/hosts_backend.h"

namespace gsel::hosts {

class Lanes {
 protected:
  using Bytes = shm::Bytes;
  // in_one: a lane that ends up everywhere, or at the root, is one piece rather than one for each host.
  Lanes(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors, bool in_one);

  // A piece for each host, which ends up there, or a lane that ends up everywhere or at the root.
  bool is_scattered() const { return call_.kind != GSEL_COLLECTIVE_ALLREDUCE && call_.kind != GSEL_COLLECTIVE_REDUCE; }
  bool goes_back() const { return call_.kind == GSEL_COLLECTIVE_ALLREDUCE; }
  size_t root_host() const { return roster_.host_of(call_.root); }
  int32_t rank_of_lane(size_t host) const { return roster_.on(host)[own_]; }
  uint64_t passed(uint64_t bytes) const { return bytes / call_.element * passed_element_; }

  Bytes whole(size_t l) const;
  uint64_t inputs_bytes() const { return ranks_here_ > 1 ? ranks_here_ * lane_bytes_ : 0; }
  void take_room(uint64_t for_inputs, uint64_t more);
  // This rank's lane of the inputs of the others here.
  void gather();
  // That of all ranks of all hosts, one after the other by rank, where a lane is one piece.
  void gather_from_all();
  // What it comes to, where the lane stands in one piece.
  void reduce_here(char* to);
  // What each rank here gave of piece k from in_piece on, which is `at` of the lane, and the factors, if there are any,
  // behind those that are there.
  void add_inputs(size_t k, uint64_t at, uint64_t in_piece, std::vector<const void*>& inputs,
                  std::vector<double>& factors) const;
  // Where piece k belongs from in_piece on; at: the same in the lane.
  char* result_at(size_t k, uint64_t at, uint64_t in_piece) const;
  // The lane to the ranks of this host, where they get it.
  void spread();

  void send(size_t host, const void* from, uint64_t bytes);
  void receive(std::vector<Carrier::Posted>& posted, size_t host, void* to, uint64_t bytes);
  bool is_prompt() const { return backend_.carrier_->is_prompt(); }
  void hear() { backend_.assembly_.hear(); }  // before anything of other hosts goes where the caller sees it
  bool can_add() const { return backend_.assembly_.can_add(); }
  void add(std::function<Frames::Came(size_t host)> bytes_for) { backend_.assembly_.add(std::move(bytes_for)); }
  const char* given(size_t host) const { return backend_.assembly_.given(rank_of_lane(host)); }
  void finish(Carrier::Posted& posted) { backend_.carrier_->finish(posted, deadline_ns_, "a reduction over hosts"); }
  void finish_sends();
  host::Fold fold_of(const double* factors) const { return backend_.fold_of(call_, factors); }

  HostsBackend& backend_;
  const Roster& roster_;
  const shm::Call& call_;
  const shm::Plan& plan_;
  const double* const factors_;  // by rank
  const size_t ranks_here_, own_, host_, last_;
  const bool is_wide_;  // what is passed on is f32, and rounded at the end
  const uint64_t passed_element_;
  const double timeout_s_;
  const int64_t deadline_ns_;
  std::vector<std::vector<Bytes>> lanes_;  // by local rank, by piece: where in the space that is reduced
  std::vector<uint64_t> starts_;           // of the pieces in the own lane
  uint64_t lane_bytes_ = 0;
  char *inputs_ = nullptr, *given_ = nullptr, *more_ = nullptr;  // lanes of the ranks here; the result for others; room
  std::vector<Carrier::Posted> sent_;
};

}  // namespace gsel::hosts
