// bench_call.cc: see bench_call.h.
#include "bench_call.h"

#include <numeric>

namespace gsel::cli {

const std::vector<BenchKind>& bench_kinds() {
  static const std::vector<BenchKind> kinds = {
      {"allreduce", GSEL_COLLECTIVE_ALLREDUCE, true, false, true},
      {"reduce", GSEL_COLLECTIVE_REDUCE, true, true, true},
      {"reduce_scatter", GSEL_COLLECTIVE_REDUCE_SCATTER, true, false, true},
      {"reduce_scatterv", GSEL_COLLECTIVE_REDUCE_SCATTERV, true, false, true},
      {"allgather", GSEL_COLLECTIVE_ALLGATHER, false, false, true},
      {"allgatherv", GSEL_COLLECTIVE_ALLGATHERV, false, false, true},
      {"broadcast", GSEL_COLLECTIVE_BROADCAST, false, true, true},
      {"gather", GSEL_COLLECTIVE_GATHER, false, true, true},
      {"gatherv", GSEL_COLLECTIVE_GATHERV, false, true, true},
      {"scatter", GSEL_COLLECTIVE_SCATTER, false, true, true},
      {"scatterv", GSEL_COLLECTIVE_SCATTERV, false, true, true},
      {"alltoall", GSEL_COLLECTIVE_ALLTOALL, false, false, false},
      {"alltoallv", GSEL_COLLECTIVE_ALLTOALLV, false, false, false},
      {"sendrecv", GSEL_COLLECTIVE_SENDRECV, false, false, false},
      {"barrier", GSEL_COLLECTIVE_BARRIER, false, false, false},
  };
  return kinds;
}

const BenchKind* find_bench_kind(const std::string& name) {
  for (const BenchKind& kind : bench_kinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

BenchCall::BenchCall(const BenchKind& kind, uint64_t bytes, gsel_dtype dtype, gsel_op op, int32_t root, int32_t rank,
                     int32_t ranks)
    : kind_(kind), root_(root), rank_(rank), ranks_(ranks), element_(gsel_dtype_bytes(dtype)) {
  const auto n = static_cast<uint64_t>(ranks);
  call_.kind = kind.kind;
  call_.dtype = dtype;
  call_.op = kind.reduces ? op : 0;
  call_.root = kind.rooted ? root : -1;
  call_.label = gsel_str_from(kind.name);
  total_ = bytes / element_;
  each_ = total_ / n;
  plan_even();
  plan_uneven();
  if (rank_ != root_ && (kind.kind == GSEL_COLLECTIVE_SCATTER || kind.kind == GSEL_COLLECTIVE_SCATTERV)) sent_ = 0;
  const bool at_root_only = kind.kind == GSEL_COLLECTIVE_REDUCE || kind.kind == GSEL_COLLECTIVE_GATHER ||
                            kind.kind == GSEL_COLLECTIVE_GATHERV;
  if (rank_ != root_ && at_root_only) {
    received_ = 0;
    segments_.clear();
  }
}

void BenchCall::plan_even() {
  const auto n = static_cast<uint64_t>(ranks_), r = static_cast<uint64_t>(rank_);
  switch (kind_.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
    case GSEL_COLLECTIVE_REDUCE:
    case GSEL_COLLECTIVE_BROADCAST:
      sent_ = received_ = call_.count = total_;
      segments_ = {part(kind_.reduces ? -1 : root_, 0, total_, 0)};
      return;
    case GSEL_COLLECTIVE_SENDRECV: {
      const int32_t next = (rank_ + 1) % ranks_, previous = (rank_ + ranks_ - 1) % ranks_;
      sent_ = received_ = call_.count = call_.recv_count = total_;
      call_.root = next;
      call_.source = previous;
      segments_ = {part(previous, 0, total_, 0)};
      return;
    }
    case GSEL_COLLECTIVE_BARRIER:
      total_ = 0;
      return;
    default:
      break;
  }
  total_ = each_ * n;
  call_.count = each_;
  switch (kind_.kind) {
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
    case GSEL_COLLECTIVE_SCATTER:
      sent_ = total_;
      received_ = each_;
      segments_ = {part(kind_.reduces ? -1 : root_, 0, each_, r * each_)};
      return;
    case GSEL_COLLECTIVE_ALLGATHER:
    case GSEL_COLLECTIVE_GATHER:
    case GSEL_COLLECTIVE_ALLTOALL:
      received_ = total_;
      sent_ = kind_.kind == GSEL_COLLECTIVE_ALLTOALL ? total_ : each_;
      for (int32_t q = 0; q < ranks_; ++q)
        segments_.push_back(part(q, static_cast<uint64_t>(q) * each_, each_, sent_ == total_ ? r * each_ : 0));
      return;
    default:
      return;
  }
}

// Shards grow with the rank, since even ones would hide mistakes: rank q has q + 1 of 1 + 2 + ... + n units; in an
// alltoallv the shards of each rank are rotated by its number.
void BenchCall::plan_uneven() {
  if (kind_.kind < GSEL_COLLECTIVE_REDUCE_SCATTERV || kind_.kind > GSEL_COLLECTIVE_ALLTOALLV) return;
  const auto n = static_cast<uint64_t>(ranks_), r = static_cast<uint64_t>(rank_);
  const uint64_t share = bytes() / element_ / (n * (n + 1) / 2);
  total_ = share * (n * (n + 1) / 2);
  for (uint64_t q = 0; q < n; ++q) counts_.push_back(share * (q + 1));
  const bool scatters = kind_.kind == GSEL_COLLECTIVE_SCATTERV;
  call_.count = 0;
  if (kind_.kind == GSEL_COLLECTIVE_ALLTOALLV) {
    const auto between = [&](uint64_t from, uint64_t to) { return share * ((from + to) % n + 1); };
    for (uint64_t q = 0; q < n; ++q) counts_[q] = between(r, q);
    sent_ = received_ = total_;
    uint64_t at = 0;
    for (uint64_t q = 0; q < n; ++q) {
      uint64_t begin = 0;
      for (uint64_t before = 0; before < r; ++before) begin += between(q, before);
      receive_counts_.push_back(between(q, r));
      segments_.push_back(part(static_cast<int32_t>(q), at, between(q, r), begin));
      at += between(q, r);
    }
    call_.send_counts = counts_.data();
    call_.recv_counts = receive_counts_.data();
  } else if (scatters || kind_.reduces) {
    sent_ = total_;
    received_ = counts_[r];
    segments_ = {part(kind_.reduces ? -1 : root_, 0, received_, begin_of(rank_))};
    (scatters ? call_.send_counts : call_.recv_counts) = counts_.data();
  } else {
    sent_ = counts_[r];
    received_ = total_;
    for (int32_t q = 0; q < ranks_; ++q) segments_.push_back(part(q, begin_of(q), counts_[static_cast<size_t>(q)], 0));
    call_.recv_counts = counts_.data();
  }
}

uint64_t BenchCall::begin_of(int32_t rank) const {
  return counts_.empty() ? static_cast<uint64_t>(rank) * each_
                         : std::accumulate(counts_.begin(), counts_.begin() + rank, uint64_t{0});
}

bool BenchCall::send_is_larger() const {
  return kind_.kind == GSEL_COLLECTIVE_REDUCE_SCATTER || kind_.kind == GSEL_COLLECTIVE_REDUCE_SCATTERV ||
         kind_.kind == GSEL_COLLECTIVE_SCATTER || kind_.kind == GSEL_COLLECTIVE_SCATTERV;
}

uint64_t BenchCall::in_place_offset() const {
  switch (kind_.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
    case GSEL_COLLECTIVE_REDUCE:
    case GSEL_COLLECTIVE_BROADCAST:
      return 0;
    default:
      return begin_of(rank_);
  }
}

gsel_collective BenchCall::on(void* send, void* recv) const {
  gsel_collective call = call_;
  call.send = send;
  call.recv = recv;
  return call;
}

// Every input is read once and every output written once, as listed in docs/bench.md.
double BenchCall::byte_floor(bool in_place) const {
  const auto size = static_cast<double>(bytes());
  const double n = ranks_;
  switch (kind_.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
    case GSEL_COLLECTIVE_ALLTOALL:
    case GSEL_COLLECTIVE_ALLTOALLV:
    case GSEL_COLLECTIVE_SENDRECV:
      return 2 * n * size;
    case GSEL_COLLECTIVE_REDUCE:
    case GSEL_COLLECTIVE_REDUCE_SCATTER:
    case GSEL_COLLECTIVE_REDUCE_SCATTERV:
      return (n + 1) * size;
    case GSEL_COLLECTIVE_ALLGATHER:
    case GSEL_COLLECTIVE_ALLGATHERV:
    case GSEL_COLLECTIVE_BROADCAST:
      return in_place ? n * size : (n + 1) * size;
    case GSEL_COLLECTIVE_GATHER:
    case GSEL_COLLECTIVE_GATHERV:
    case GSEL_COLLECTIVE_SCATTER:
    case GSEL_COLLECTIVE_SCATTERV:
      return in_place ? 2 * size * (n - 1) / n : 2 * size;
    default:
      return 0;
  }
}

double BenchCall::bus_factor() const {
  const double n = ranks_;
  switch (kind_.kind) {
    case GSEL_COLLECTIVE_ALLREDUCE:
      return 2 * (n - 1) / n;
    case GSEL_COLLECTIVE_REDUCE:
    case GSEL_COLLECTIVE_BROADCAST:
    case GSEL_COLLECTIVE_SENDRECV:
    case GSEL_COLLECTIVE_BARRIER:
      return 1;
    default:
      return (n - 1) / n;
  }
}

}  // namespace gsel::cli
