// comm/hosts/two_levels.cc: reductions over hosts in pieces, each of which one rank reduces. A lane (lanes.h) has a
// piece for each host. Two ways:
//   folded    Each host reduces its inputs first, and sends one partial result for each piece. So the network carries
//             the bytes of one rank once in each direction. Where the bits do not depend on which inputs are reduced
//             first.
//   gathered  Each host sends the inputs of all its ranks for a piece, which are reduced in any order that is asked
//             for. One rank of each host sends them, in one message if they are short, so the number of messages grows
//             with that of hosts and not of ranks.
// No host waits for a host before it. Hosts may have different numbers of ranks, in any places.
#include <algorithm>
#include <cstring>

#include "comm/call/collective.h"
#include "comm/hosts/lanes.h"

namespace gsel::hosts {
namespace {

constexpr size_t kLikeATree = 3;  // up to so many inputs both orders give the same bits

}  // namespace

class TwoLevels : Lanes {
 public:
  TwoLevels(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors, bool is_folded)
      : Lanes(backend, call, plan, factors, Cut::for_hosts, is_folded ? Passed::sums : Passed::inputs),
        is_folded_(is_folded),
        by_host_(roster_.hosts()) {
    for (const Piece& piece : pieces_) by_host_[piece.host].push_back(&piece);
  }

  void run() {
    const bool in_one = folds_in_one(), in_frames = goes_in_frames();
    const uint64_t partial = is_folded_ ? passed(lane_bytes_) : 0, packed = packed_bytes();
    take_room(in_one ? 0 : inputs_bytes(), partial + packed + received_bytes() + wide_bytes());
    if (!in_one) gather();
    partial_ = more_;
    packed_ = partial_ + partial;
    received_ = packed_ + packed;
    widened_ = received_ + received_bytes();
    if (in_frames)
      add([this](size_t h) { return Frames::Came{by_host_[h].empty() ? nullptr : input_of(h), bytes_of(h)}; });
    receive_pieces(in_frames);
    if (in_one) reduce_here(partial_);
    for (size_t step = 1; step <= last_ + 1; ++step) give_pieces((host_ + step) % (last_ + 1), in_frames);
    finish_gather();
    receive_results();
    auto chunk = chunks_.begin();
    for (const Piece* piece : by_host_[host_])
      in_chunks(*piece, [&](uint64_t at, uint64_t bytes) {
        for (HostTransport::Posted& one : chunk->posted) finish(one);
        char* const result = result_at(*piece, at);
        fold_hosts(*piece, *chunk, result, at, bytes, in_frames);
        give_result(*piece, result, bytes);
        ++chunk;
      });
    for (HostTransport::Posted& one : results_) finish(one);
    finish_sends();
    spread();
  }

 private:
  // A chunk of a piece that this rank reduces. begins: by host, of what it sends.
  struct Chunk {
    std::vector<HostTransport::Posted> posted = {};
    std::vector<char*> begins = {};
  };

  size_t inputs_of(size_t h) const { return is_folded_ ? 1 : roster_.on(h).size(); }
  bool is_packed(size_t h, const Piece& piece) const {
    const size_t n = inputs_of(h);
    return n > 1 && n * piece.place.count <= kPackedBytes;
  }
  // A piece is sent in chunks, so that one is reduced while the next ones arrive: body(offset in the piece, bytes).
  template <class Body>
  void in_chunks(const Piece& piece, Body&& body) const {
    const uint64_t unit = std::max<uint64_t>(call_.unit, 1), step = std::max(kPieceChunkBytes / unit * unit, unit);
    const uint64_t n = piece.place.count;
    for (uint64_t at = 0; at < n; at += step) body(at, std::min(step, n - at));
  }

  uint64_t packed_bytes() const {
    uint64_t sum = 0;
    for (const Piece& piece : pieces_)
      if (piece.host != host_ && is_packed(host_, piece)) sum += inputs_of(host_) * piece.place.count;
    return sum;
  }
  uint64_t received_bytes() const {
    uint64_t sum = 0;
    for (const Piece* piece : by_host_[host_]) sum += received_of(*piece);
    return sum;
  }
  uint64_t received_of(const Piece& piece) const {
    const uint64_t inputs = is_folded_ ? last_ : roster_.ranks() - ranks_here_;
    return inputs * passed(piece.place.count);
  }
  bool widens_first() const { return is_wide_ && ranks_here_ > kLikeATree; }
  // Room for the inputs of one piece as f32.
  uint64_t wide_bytes() const {
    uint64_t most = 0;
    for (const Piece& piece : pieces_) most = std::max(most, passed(piece.place.count));
    return widens_first() ? ranks_here_ * most : 0;
  }

  // Whether each rank is alone on its host, and all pieces are short enough to be sent with the assembly.
  bool goes_in_frames() const {
    uint64_t most = 0;
    for (size_t h = 0; h <= last_; ++h) most = std::max(most, bytes_of(h));
    return !is_folded_ && can_add() && most <= Frames::kShortBytes;
  }
  // For frames: the one piece of a host.
  uint64_t bytes_of(size_t h) const { return by_host_[h].empty() ? 0 : by_host_[h].front()->place.count; }
  const char* input_of(size_t h) const { return input(own_, *by_host_[h].front()); }

  // Whether one reduction over the ranks here computes all pieces.
  bool folds_in_one() const { return is_folded_ && !is_wide_ && !is_scattered() && call_.operation.op < GSEL_OP_USER; }

  // What hosts send is in `received_` by piece, chunk, host and input.
  void receive_pieces(bool in_frames) {
    char* to = received_;
    for (const Piece* piece : by_host_[host_]) {
      in_chunks(*piece, [&](uint64_t, uint64_t bytes) {
        Chunk& chunk = chunks_.emplace_back();
        chunk.begins.resize(last_ + 1);
        for (size_t h = 0; h <= last_; ++h) {
          if (h == host_ || in_frames) continue;
          chunk.begins[h] = to;
          const int32_t from = peer(h, *piece);
          const size_t n = is_packed(h, *piece) ? 1 : inputs_of(h);
          const uint64_t each = passed(bytes) * (is_packed(h, *piece) ? inputs_of(h) : 1);
          for (size_t i = 0; i < n; ++i, to += each) receive(chunk.posted, from, to, each);
        }
      });
    }
  }

  void give_pieces(size_t h, bool in_frames) {
    for (const Piece* piece : by_host_[h]) {
      if (is_folded_ && !folds_in_one()) fold_inputs(*piece);
      if (h == host_ || in_frames) continue;
      const int32_t to = peer(h, *piece);
      if (is_folded_) {
        const char* const from = partial_ + passed(piece->start);
        in_chunks(*piece, [&](uint64_t at, uint64_t bytes) { send(to, from + passed(at), passed(bytes)); });
      } else if (is_packed(host_, *piece)) {
        const uint64_t bytes = piece->place.count;
        for (size_t l = 0; l < ranks_here_; ++l) std::memcpy(packed_ + l * bytes, input(l, *piece), bytes);
        send(to, packed_, ranks_here_ * bytes);
        packed_ += ranks_here_ * bytes;
      } else {
        in_chunks(*piece, [&](uint64_t at, uint64_t bytes) {
          for (size_t l = 0; l < ranks_here_; ++l) send(to, input(l, *piece) + at, bytes);
        });
      }
    }
  }

  void receive_results() {
    if (is_scattered() || (!goes_back() && root_host() != host_)) return;
    for (const Piece& piece : pieces_)
      if (piece.host != host_)
        in_chunks(piece, [&](uint64_t at, uint64_t bytes) {
          receive(results_, peer(piece.host, piece), result_at(piece, at), bytes);
        });
  }

  void give_result(const Piece& piece, const char* result, uint64_t bytes) {
    if (is_scattered()) return;
    for (size_t h = 0; h <= last_; ++h)
      if (h != host_ && (goes_back() || h == root_host())) send(peer(h, piece), result, bytes);
  }

  void fold_inputs(const Piece& piece) {
    const uint64_t elements = piece.place.count / call_.element;
    std::vector<const void*> inputs;
    std::vector<double> factors;
    add_inputs(piece, 0, inputs, factors);
    host::Fold fold = fold_of(factors.data());
    if (fold.op == GSEL_AVG) fold.op = GSEL_SUM;
    fold.partial = is_wide_;
    if (widens_first()) {
      for (size_t i = 0; i < inputs.size(); ++i) {
        host::Fold one = fold;
        if (!factors.empty()) one.factors = &factors[i];
        float* const wide = reinterpret_cast<float*>(widened_) + i * elements;
        host::reduce(one, wide, &inputs[i], 1, elements);
        inputs[i] = wide;
      }
      fold = wide_fold();
    }
    host::reduce(fold, partial_ + passed(piece.start), inputs.data(), static_cast<int>(inputs.size()), elements);
  }

  // For inputs that are f32 and already scaled.
  host::Fold wide_fold() const {
    host::Fold fold = fold_of(nullptr);
    fold.dtype = GSEL_F32;
    if (fold.op != GSEL_PROD) fold.op = GSEL_SUM;
    return fold;
  }

  void fold_hosts(const Piece& piece, const Chunk& chunk, char* to, uint64_t at, uint64_t bytes, bool in_frames) {
    if (!is_folded_) return fold_ranks(piece, chunk, to, at, bytes, in_frames);
    const uint64_t elements = bytes / call_.element;
    char* const own = partial_ + passed(piece.start + at);
    std::vector<const void*> inputs;
    for (size_t h = 0; h <= last_; ++h) inputs.push_back(h == host_ ? own : chunk.begins[h]);
    const auto hosts = static_cast<int>(inputs.size());
    host::Fold fold = is_wide_ ? wide_fold() : fold_of(nullptr);
    if (fold.op == GSEL_SCALED_SUM) fold.op = GSEL_SUM;
    fold.averaged = static_cast<int>(roster_.ranks());
    if (!is_wide_) return host::reduce(fold, to, inputs.data(), hosts, elements);
    auto* const whole = reinterpret_cast<float*>(own);
    host::reduce(fold, whole, inputs.data(), hosts, elements);
    host::Fold rounds = fold_of(nullptr);
    if (rounds.op == GSEL_SCALED_SUM) rounds.op = GSEL_SUM;
    rounds.averaged = static_cast<int>(roster_.ranks());
    rounds.before = whole;
    host::reduce(rounds, to, nullptr, 0, elements);
  }

  void fold_ranks(const Piece& piece, const Chunk& chunk, char* to, uint64_t at, uint64_t bytes, bool in_frames) const {
    std::vector<const void*> inputs;
    for (int32_t q = 0; q < static_cast<int32_t>(roster_.ranks()); ++q) {
      const size_t h = roster_.host_of(q);
      const auto l = static_cast<size_t>(roster_.local_of(q));
      inputs.push_back(h == host_ ? input(l, piece) + at : in_frames ? given(h) : chunk.begins[h] + l * bytes);
    }
    host::reduce(fold_of(factors_), to, inputs.data(), static_cast<int>(inputs.size()), bytes / call_.element);
  }

  const bool is_folded_;
  std::vector<std::vector<const Piece*>> by_host_;  // by the host that reduces them
  char *partial_ = nullptr, *packed_ = nullptr, *received_ = nullptr, *widened_ = nullptr;
  std::vector<Chunk> chunks_;  // of the pieces that this rank reduces
  std::vector<HostTransport::Posted> results_;
};

void HostsBackend::reduce_in_two_levels(const Call& call, const Plan& plan, const double* factors, bool is_folded) {
  TwoLevels(*this, call, plan, factors, is_folded).run();
}

}  // namespace gsel::hosts
