// train/query/mirror.cc: see mirror.h.
#include "train/query/mirror.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/random.h"
#include "comm/hosts/place.h"
#include "train/ranks/agree.h"

namespace gsel {

// Ranks in the order of their hosts, the largest host first: a rotation by the ranks of the largest host takes every
// rank to another host, if that host has at most half of the ranks.
std::vector<size_t> keepers(const std::vector<uint64_t>& hosts) {
  const size_t n = hosts.size();
  std::map<uint64_t, std::pair<size_t, size_t>> of_host;  // by number: ranks, and the first of these
  for (size_t rank = 0; rank < n; ++rank) ++of_host.try_emplace(hosts[rank], 0, rank).first->second.first;
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const auto [a_ranks, a_first] = of_host[hosts[a]];
    const auto [b_ranks, b_first] = of_host[hosts[b]];
    return a_ranks != b_ranks ? a_ranks > b_ranks : a_first < b_first;
  });
  const size_t largest = of_host[hosts[order.front()]].first, shift = largest == n ? 1 : largest;
  std::vector<size_t> keeper(n);
  for (size_t i = 0; i < n; ++i) keeper[order[i]] = order[(i + shift) % n];
  return keeper;
}

Mirror::Pair Mirror::pair_of(Communicator& comm) {
  const auto me = static_cast<size_t>(comm.rank());
  const std::vector<size_t> keeper = keepers(gather_numbers(comm, {derive_key(0, hosts::host_identity())}));
  return {keeper[me], static_cast<size_t>(std::ranges::find(keeper, me) - keeper.begin())};
}

uint64_t Mirror::forecast(Communicator& comm, const StateDict& dict) {
  uint64_t mine = 0;
  for (const StatePiece& piece : dict.own()) mine += static_cast<uint64_t>(piece.region.count());
  const Pair pair = pair_of(comm);
  return bytes_of(mine + gather_numbers(comm, {mine})[pair.kept]);
}

Mirror::Mirror(Communicator& comm, StateDict dict) : dict_(std::move(dict)), own_pieces_(dict_->own()) {
  comm_.emplace(*comm.split_inside(0, comm.rank(), "mirror", true));
  pair_ = pair_of(*comm_);
  std::vector<int64_t> mine;
  for (const StatePiece& piece : own_pieces_) {
    mine.push_back(piece.tensor);
    put_region(mine, piece.region);
  }
  own_ = pieces_of(mine);
  other_ = pieces_of(gather_lists(*comm_, mine)[pair_.kept]);
  on_all_ranks(*comm_, "mirror of the state", [&] {
    for (Copy& copy : copies_) {
      copy.own.resize(own_.elems);
      copy.other.resize(other_.elems);
    }
  });
}

Mirror::OfferedPieces Mirror::pieces_of(const std::vector<int64_t>& list) {
  OfferedPieces offered;
  for (const int64_t* at = list.data(); at < list.data() + list.size();) {
    const auto tensor = static_cast<int32_t>(*at++);
    offered.pieces.push_back({tensor, take_region(at)});
    offered.first.push_back(offered.elems);
    offered.elems += static_cast<uint64_t>(offered.pieces.back().region.count());
  }
  return offered;
}

// A rank can begin to overwrite a step only after another whole step, so that the older copies are there on all ranks
// as long as the newer are not.
void Mirror::keep(const TrainingNumbers& numbers) {
  Copy& copy = copies_[next_];
  copy.numbers.reset();
  float* to = copy.own.data();
  for (const StatePiece& piece : own_pieces_) {
    dict_->read(piece, to);
    to += piece.region.count();
  }
  const auto n = static_cast<size_t>(comm_->world_size());
  std::vector<uint64_t> send(n), recv(n);
  send[pair_.keeper] = own_.elems;
  recv[pair_.kept] = other_.elems;
  gsel_collective call =
      make_collective(GSEL_COLLECTIVE_ALLTOALLV, copy.own.data(), copy.other.data(), 0, GSEL_F32, 0, 0);
  call.send_counts = send.data();
  call.recv_counts = recv.data();
  comm_->collective_on_host(call);
  copy.numbers = numbers;
  next_ = 1 - next_;
}

void Mirror::set_learning_rate(int64_t step, double rate) {
  std::optional<TrainingNumbers>& newest = copies_[1 - next_].numbers;
  if (newest && newest->step == step) newest->learning_rate = rate;
}

void Mirror::close() {
  comm_.reset();
  dict_.reset();
}

HeldState Mirror::held_of(const OfferedPieces& offered, const std::vector<float>& values,
                          const TrainingNumbers& numbers) {
  HeldState held{numbers, offered.pieces, {}};
  held.read = [&offered, &values](size_t piece, int64_t first, int64_t count, float* dst) {
    std::memcpy(dst, values.data() + offered.first[piece] + first, static_cast<size_t>(count) * sizeof(float));
  };
  return held;
}

std::vector<HeldState> Mirror::held() const {
  std::vector<HeldState> held;
  for (const Copy& copy : copies_) {
    if (!copy.numbers) continue;
    held.push_back(held_of(own_, copy.own, *copy.numbers));
    held.push_back(held_of(other_, copy.other, *copy.numbers));
  }
  return held;
}

uint64_t Mirror::bytes() const {
  return bytes_of(own_.elems + other_.elems);
}

}  // namespace gsel
