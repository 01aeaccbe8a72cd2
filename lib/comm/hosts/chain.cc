// comm/hosts/chain.cc: reductions from host to host, if the ranks of every host are consecutive. Each rank of a host
// has a lane (lanes.h): it gets that lane of the inputs of its host's ranks through shared memory, adds them to the
// partial result from the previous host, and sends that to the next host. At the last host the lane is complete and is
// sent to the ranks that need it. So the reduction is in rank order, and the network carries the bytes of one rank once
// to the last host and once back, however many ranks a host has. Lanes are sent in chunks, so that all hosts work at
// the same time.
#include <algorithm>

#include "comm/hosts/lanes.h"

namespace gsel::hosts {

class Chain : Lanes {
 public:
  Chain(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors)
      : Lanes(backend, call, plan, factors, Cut::in_lanes, Passed::sums) {
    for (const Piece& piece : pieces_) cut(piece);
  }

  void run() {
    const uint64_t room = passed(lane_bytes_);
    take_room(inputs_bytes(), 2 * room);
    gather();
    received_ = more_;
    folded_ = received_ + room;
    for (const Chunk& chunk : chunks_)
      if (host_ > 0)
        receive(before_, peer(host_ - 1, *chunk.piece), received_ + passed(chunk.start()), passed(chunk.bytes));
    finish_gather();
    receive_results();
    for (size_t c = 0; c < chunks_.size(); ++c) {
      if (host_ > 0) finish(before_[c]);
      pass_on(chunks_[c]);
      relay(false);
    }
    relay(true);
    finish_sends();
    spread();
  }

 private:
  struct Chunk {
    const Piece* piece;
    uint64_t at, bytes;                                   // at: offset in the piece
    uint64_t start() const { return piece->start + at; }  // in the lane
  };

  size_t goal_of(const Piece& piece) const { return is_scattered() ? piece.host : root_host(); }
  char* result_of(const Chunk& chunk) const { return result_at(*chunk.piece, chunk.at); }

  // A rank may have the pieces of several ranks of another host; chunks suit the longest lane.
  void cut(const Piece& piece) {
    const uint64_t bytes = piece.place.count, unit = std::max<uint64_t>(call_.unit, 1);
    const uint64_t longest = is_scattered() ? bytes : call_.count * call_.element / roster_.sizes().front();
    const uint64_t most = chunk_bytes(longest, roster_.hosts(), roster_.sizes().back(), is_prompt());
    const uint64_t step = std::max(most / unit * unit, unit);
    for (uint64_t at = 0; at < bytes; at += step) chunks_.push_back({&piece, at, std::min(step, bytes - at)});
  }

  void receive_results() {
    const bool is_last = host_ == last_;
    for (const Chunk& chunk : chunks_) {
      if (is_last || (!goes_back() && goal_of(*chunk.piece) != host_)) continue;
      receive(results_, peer(goes_back() ? host_ + 1 : last_, *chunk.piece), result_of(chunk), chunk.bytes);
      awaited_.push_back(&chunk);
    }
  }

  void pass_on(const Chunk& chunk) {
    const Piece& piece = *chunk.piece;
    const bool is_last = host_ == last_, stays = is_last && (goes_back() || goal_of(piece) == host_);
    char* const to = stays ? result_of(chunk) : folded_ + passed(chunk.start());
    fold(chunk, to);
    if (!is_last)
      send(peer(host_ + 1, piece), to, passed(chunk.bytes));
    else if (goes_back())
      send(peer(host_ - 1, piece), to, chunk.bytes);
    else if (!stays)
      send(peer(goal_of(piece), piece), to, chunk.bytes);
  }

  void fold(const Chunk& chunk, void* to) const {
    const bool is_last = host_ == last_, has_before = host_ > 0;
    const char* const before = received_ + passed(chunk.start());
    std::vector<const void*> inputs;
    std::vector<double> factors;
    if (has_before && !is_wide_) inputs.push_back(before), factors.push_back(1);  // as the first input
    add_inputs(*chunk.piece, chunk.at, inputs, factors);
    host::Fold fold = fold_of(factors.data());
    if (fold.op == GSEL_AVG && !is_last) fold.op = GSEL_SUM;
    if (is_last) fold.averaged = static_cast<int>(roster_.ranks());
    if (is_wide_ && has_before) fold.before = reinterpret_cast<const float*>(before);
    fold.partial = is_wide_ && !is_last;
    host::reduce(fold, to, inputs.data(), static_cast<int>(inputs.size()), chunk.bytes / call_.element);
  }

  // Forwards results that have arrived to the host before; `all`: waits for all of them.
  void relay(bool all) {
    for (; relayed_ < results_.size(); ++relayed_) {
      if (all)
        finish(results_[relayed_]);
      else if (!results_[relayed_].test(0))
        return;
      const Chunk& chunk = *awaited_[relayed_];
      if (goes_back() && host_ > 0) send(peer(host_ - 1, *chunk.piece), result_of(chunk), chunk.bytes);
    }
  }

  std::vector<Chunk> chunks_;                     // of this rank's lane
  char *received_ = nullptr, *folded_ = nullptr;  // the lane from the host before, and for the next host
  std::vector<HostTransport::Posted> before_, results_;
  std::vector<const Chunk*> awaited_;  // of results_
  size_t relayed_ = 0;
};

void HostsBackend::reduce_in_chain(const Call& call, const Plan& plan, const double* factors) {
  Chain(*this, call, plan, factors).run();
}

}  // namespace gsel::hosts
