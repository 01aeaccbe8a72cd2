// comm/hosts/chain.cc: reductions that go from host to host, where every host has as many ranks in a row. Each rank of
// a host has a lane, a part of what is reduced: it gets that part of the inputs of its host's ranks through shared
// memory, folds them behind what the rank with its lane at the host before sends, and passes that on. At the last host
// the lane is whole and goes to who needs it. So the order is that of ranks, and the network carries what one rank
// gives, once to the last host and once back, whatever the number of ranks a host has. Lanes go in chunks, so that all
// hosts work at the same time.
#include <algorithm>
#include <cstring>

#include "base/os.h"
#include "comm/collective.h"
#include "comm/hosts/hosts_backend.h"

namespace gsel::hosts {
namespace {

constexpr size_t kMostHosts = 32;  // behind one another
constexpr uint64_t kLeastChunkBytes = 65536, kMostChunkBytes = 524288, kChunksOfLane = 8;
constexpr uint32_t kChainTag = 0;

// Of numbers that are computed in f32 and rounded at the end, hosts pass on f32.
bool is_passed_wide(const gsel_dtype dtype, gsel_op op) {
  const bool is_small = dtype == GSEL_F16 || dtype == GSEL_BF16 || dtype == GSEL_F8E4M3 || dtype == GSEL_F8E5M2;
  return is_small && (op == GSEL_SUM || op == GSEL_PROD || op == GSEL_AVG || op == GSEL_SCALED_SUM);
}

}  // namespace

class Chain {
 public:
  Chain(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors)
      : backend_(backend),
        roster_(backend.roster_),
        call_(call),
        plan_(plan),
        factors_(factors),
        ranks_here_(roster_.here().size()),
        own_(static_cast<size_t>(roster_.local_rank())),
        host_(roster_.own_host()),
        last_(roster_.hosts() - 1),
        is_wide_(is_passed_wide(call.dtype, call.operation.op)),
        passed_element_(is_wide_ ? sizeof(float) : call.element),
        timeout_s_(static_cast<double>(call.timeout_ns) * 1e-9),
        deadline_ns_(os::now_ns() + call.timeout_ns) {
    for (size_t l = 0; l < ranks_here_; ++l) lanes_.push_back(lane_of(l));
    for (size_t k = 0; k < lanes_[own_].size(); ++k) cut(k);
  }

  void run() {
    gather();
    receive_ahead();
    for (size_t c = 0; c < chunks_.size(); ++c) {
      if (host_ > 0) backend_.carrier_->finish(before_[c], deadline_ns_, kWhat);
      pass_on(chunks_[c]);
      relay(false);
    }
    relay(true);
    backend_.carrier_->finish(sent_, deadline_ns_, kWhat);
    spread();
  }

 private:
  using Bytes = shm::Bytes;
  static constexpr const char* kWhat = "a reduction from host to host";
  // at: in the lane, whose pieces stand behind one another there.
  struct Chunk {
    size_t piece;
    uint64_t at, in_piece, bytes;
  };

  // A piece for each host, which ends up there, or one that ends up everywhere or at the root.
  bool is_scattered() const { return call_.kind != GSEL_COLLECTIVE_ALLREDUCE && call_.kind != GSEL_COLLECTIVE_REDUCE; }
  bool goes_back() const { return call_.kind == GSEL_COLLECTIVE_ALLREDUCE; }
  size_t goal_of(size_t piece) const { return is_scattered() ? piece : roster_.host_of(call_.root); }
  int32_t rank_of_lane(size_t host) const { return roster_.on(host)[own_]; }

  // Where in the space that is reduced.
  std::vector<Bytes> lane_of(size_t l) const {
    std::vector<Bytes> pieces;
    const size_t hosts = roster_.hosts();
    if (is_scattered()) {
      for (size_t h = 0; h < hosts; ++h) pieces.push_back(plan_.sent(roster_.on(h)[l]));
      return pieces;
    }
    const Bytes first = plan_.sent(static_cast<int32_t>(l * hosts));
    const Bytes end = plan_.sent(static_cast<int32_t>(l * hosts + hosts - 1));
    return {Bytes{first.begin, end.begin + end.count - first.begin}};
  }

  void cut(size_t piece) {
    const uint64_t bytes = lanes_[own_][piece].count, unit = std::max<uint64_t>(call_.unit, 1);
    const uint64_t most = std::clamp(bytes / kChunksOfLane, kLeastChunkBytes, kMostChunkBytes);
    const uint64_t step = std::max(most / unit * unit, unit);
    for (uint64_t begin = 0; begin < bytes; begin += step)
      chunks_.push_back({piece, lane_bytes_ + begin, begin, std::min(step, bytes - begin)});
    lane_bytes_ += bytes;
  }

  uint64_t passed(uint64_t bytes) const { return bytes / call_.element * passed_element_; }

  // This rank's lane of the inputs of the others here.
  void gather() {
    const uint64_t inputs = ranks_here_ * lane_bytes_, room = passed(lane_bytes_);
    backend_.room_.resize(inputs + 2 * room + lane_bytes_);
    received_ = backend_.room_.data() + inputs;
    folded_ = received_ + room;
    given_ = folded_ + room;
    uint64_t at = 0;
    for (size_t k = 0; k < lanes_[own_].size(); ++k) {
      const auto lane = [&](int32_t q) { return static_cast<size_t>(roster_.local_of(q)); };
      const uint64_t count = lanes_[own_][k].count;
      backend_.move_here({call_.send, [&](int32_t q) { return lanes_[lane(q)][k]; }, backend_.room_.data(),
                          [&](int32_t q) {
                            return Bytes{lane(q) * lane_bytes_ + at, count};
                          }},
                         timeout_s_);
      at += count;
    }
  }

  char* result_at(const Chunk& chunk) const {
    if (is_scattered()) return call_.recv + chunk.in_piece;
    if (goes_back() || roster_.rank() == call_.root) return call_.recv + lanes_[own_][0].begin + chunk.at;
    return given_ + chunk.at;
  }

  void receive_ahead() {
    const bool is_last = host_ == last_;
    const auto receive = [&](std::vector<Carrier::Posted>& posted, size_t host, void* to, uint64_t bytes) {
      posted.emplace_back(*backend_.carrier_, gsel_transfer{rank_of_lane(host), kChainTag, nullptr, to, bytes});
    };
    for (const Chunk& chunk : chunks_) {
      if (host_ > 0) receive(before_, host_ - 1, received_ + passed(chunk.at), passed(chunk.bytes));
      if (is_last || (!goes_back() && goal_of(chunk.piece) != host_)) continue;
      receive(results_, goes_back() ? host_ + 1 : last_, result_at(chunk), chunk.bytes);
      awaited_.push_back(&chunk);
    }
  }

  void send(size_t host, const void* from, uint64_t bytes) {
    sent_.emplace_back(*backend_.carrier_, gsel_transfer{rank_of_lane(host), kChainTag, from, nullptr, bytes});
  }

  void pass_on(const Chunk& chunk) {
    const bool is_last = host_ == last_, stays = is_last && (goes_back() || goal_of(chunk.piece) == host_);
    char* const to = stays ? result_at(chunk) : folded_ + passed(chunk.at);
    fold(chunk, to);
    if (!is_last)
      send(host_ + 1, to, passed(chunk.bytes));
    else if (goes_back())
      send(host_ - 1, to, chunk.bytes);
    else if (!stays)
      send(goal_of(chunk.piece), to, chunk.bytes);
  }

  void fold(const Chunk& chunk, void* to) const {
    const bool is_last = host_ == last_, has_before = host_ > 0, scales = call_.operation.op == GSEL_SCALED_SUM;
    const char* const before = received_ + passed(chunk.at);
    const bool joins = has_before && !is_wide_;  // as if it were an input
    std::vector<const void*> inputs;
    std::vector<double> factors;
    if (joins) inputs.push_back(before), factors.push_back(1);
    for (const int32_t q : roster_.here()) {
      const auto l = static_cast<size_t>(roster_.local_of(q));
      inputs.push_back(l == own_ ? call_.send + lanes_[own_][chunk.piece].begin + chunk.in_piece
                                 : backend_.room_.data() + l * lane_bytes_ + chunk.at);
      if (scales) factors.push_back(factors_[q]);
    }
    host::Fold fold = backend_.fold_of(call_, factors.data());
    if (fold.op == GSEL_AVG && !is_last) fold.op = GSEL_SUM;
    if (is_last) fold.averaged = static_cast<int>(roster_.ranks());
    if (is_wide_ && has_before) fold.before = reinterpret_cast<const float*>(before);
    fold.partial = is_wide_ && !is_last;
    host::reduce(fold, to, inputs.data(), static_cast<int>(inputs.size()), chunk.bytes / call_.element);
  }

  // Results that have come, or all: further back.
  void relay(bool all) {
    for (; relayed_ < results_.size(); ++relayed_) {
      if (all)
        backend_.carrier_->finish(results_[relayed_], deadline_ns_, kWhat);
      else if (!results_[relayed_].test(0))
        return;
      const Chunk& chunk = *awaited_[relayed_];
      if (goes_back() && host_ > 0) send(host_ - 1, result_at(chunk), chunk.bytes);
    }
  }

  // To the ranks of this host.
  void spread() {
    if (is_scattered() || (!goes_back() && goal_of(0) != host_)) return;
    const bool gets = goes_back() || roster_.rank() == call_.root;
    const Bytes own = lanes_[own_][0];
    const auto sent = [&](int32_t q) {
      if (!goes_back() && q != call_.root) return Bytes{};
      return gets ? own : Bytes{0, own.count};
    };
    const auto got = [&](int32_t q) { return gets ? lanes_[static_cast<size_t>(roster_.local_of(q))][0] : Bytes{}; };
    const char* const from = gets ? call_.recv : given_;
    backend_.move_here({from, sent, call_.recv, got}, timeout_s_);
  }

  HostsBackend& backend_;
  const Roster& roster_;
  const shm::Call& call_;
  const shm::Plan& plan_;
  const double* const factors_;  // by rank
  const size_t ranks_here_, own_, host_, last_;
  const bool is_wide_;
  const uint64_t passed_element_;
  const double timeout_s_;
  const int64_t deadline_ns_;
  std::vector<std::vector<Bytes>> lanes_;  // by local rank, by piece
  std::vector<Chunk> chunks_;              // of the own lane
  uint64_t lane_bytes_ = 0;
  char *received_ = nullptr, *folded_ = nullptr, *given_ = nullptr;  // lanes: from the host before, for the next, whole
  std::vector<Carrier::Posted> before_, results_, sent_;
  std::vector<const Chunk*> awaited_;  // of results_
  size_t relayed_ = 0;
};

bool HostsBackend::goes_in_chain(const Call& call) const {
  return is_reduction(call.kind) && order_ == GSEL_ORDER_RANKS && roster_.is_in_blocks() && roster_.here().size() > 1 &&
         roster_.hosts() <= kMostHosts;
}

void HostsBackend::reduce_in_chain(const Call& call, const Plan& plan, const double* factors) {
  Chain(*this, call, plan, factors).run();
}

}  // namespace gsel::hosts
