// comm/hosts/two_levels.cc: reductions first within each host, then over hosts. The bits are those of one host if the
// order is a tree and every host has a power of two of consecutive ranks, and for integers in any order. A lane has a
// piece for each host, which reduces that piece over all hosts. So the network carries the bytes of one rank once in
// each direction, and no host waits for a host before it. A rank that is alone on its host sends its input unchanged,
// in any order.
#include <algorithm>

#include "comm/call/collective.h"
#include "comm/hosts/lanes.h"

namespace gsel::hosts {
namespace {

constexpr size_t kLikeATree = 3;  // up to so many inputs both orders give the same bits

}  // namespace

class TwoLevels : Lanes {
 public:
  TwoLevels(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors)
      : Lanes(backend, call, plan, factors, false), parts_(roster_.hosts()) {}

  void run() {
    const uint64_t partial = is_alone() ? 0 : passed(lane_bytes_), part = passed(piece(host_)), widened = wide_bytes();
    const bool in_one = folds_in_one(), in_frames = is_alone() && goes_in_frames();
    take_room(in_one ? 0 : inputs_bytes(), partial + roster_.hosts() * part + widened);
    if (!in_one) gather();
    partial_ = more_;
    received_ = partial_ + partial;
    widened_ = received_ + roster_.hosts() * part;
    if (in_frames) add([this](size_t h) { return Frames::Came{partial_of(h), piece(h)}; });
    const auto from_each = [&](bool comes, auto&& receive_from) {
      for (size_t h = 0; h <= last_ && comes; ++h)
        if (h != host_) receive_from(h);
    };
    from_each(!in_frames, [&](size_t h) {
      in_segments(host_, [&](uint64_t at, uint64_t bytes) {
        receive(parts_[h], h, received_ + h * part + passed(at), passed(bytes));
      });
    });
    if (in_one) reduce_here(partial_);
    for (size_t step = 1; step <= last_ + 1 && !in_frames; ++step) fold_here((host_ + step) % (last_ + 1));
    finish_gather();
    from_each(goes_back() || (!is_scattered() && root_host() == host_), [&](size_t h) {
      in_segments(h,
                  [&](uint64_t at, uint64_t bytes) { receive(results_, h, result_at(h, starts_[h] + at, at), bytes); });
    });
    size_t segment = 0;
    in_segments(host_, [&](uint64_t at, uint64_t bytes) {
      from_each(!in_frames, [&](size_t h) { finish(parts_[h][segment]); });
      ++segment;
      char* const result = result_at(host_, starts_[host_] + at, at);
      fold_hosts(result, at, bytes, in_frames);
      give(result, bytes);
    });
    for (HostTransport::Posted& one : results_) finish(one);
    finish_sends();
    spread();
  }

 private:
  uint64_t piece(size_t h) const { return lanes_[own_][h].count; }
  // A piece is sent in segments, so that one is reduced while the next ones arrive: body(offset in the piece, bytes).
  template <class Body>
  void in_segments(size_t h, Body&& body) const {
    const uint64_t unit = std::max<uint64_t>(call_.unit, 1), step = std::max(kSegmentBytes / unit * unit, unit);
    for (uint64_t at = 0; at < piece(h); at += step) body(at, std::min(step, piece(h) - at));
  }
  bool widens_first() const { return is_wide_ && ranks_here_ > kLikeATree; }
  // Room for the inputs of one piece as f32.
  uint64_t wide_bytes() const {
    uint64_t most = 0;
    for (size_t h = 0; h <= last_; ++h) most = std::max(most, passed(piece(h)));
    return widens_first() ? ranks_here_ * most : 0;
  }
  bool is_alone() const { return ranks_here_ == 1; }
  char* room_of(size_t h) const { return partial_ + passed(starts_[h]); }
  const char* partial_of(size_t h) const { return is_alone() ? call_.send + lanes_[own_][h].begin : room_of(h); }

  void fold_here(size_t h) {
    const uint64_t elements = piece(h) / call_.element;
    if (elements == 0) return;
    if (!is_alone() && !folds_in_one()) fold_inputs(h, elements);
    if (h == host_) return;
    in_segments(h, [&](uint64_t at, uint64_t bytes) { send(h, partial_of(h) + passed(at), passed(bytes)); });
  }

  // Whether one reduction over the ranks here computes all lanes.
  bool folds_in_one() const { return !is_alone() && !is_wide_ && !is_scattered() && call_.operation.op < GSEL_OP_USER; }

  void fold_inputs(size_t h, uint64_t elements) {
    std::vector<const void*> inputs;
    std::vector<double> factors;
    add_inputs(h, starts_[h], 0, inputs, factors);
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
    host::reduce(fold, room_of(h), inputs.data(), static_cast<int>(inputs.size()), elements);
  }

  // For inputs that are f32 and already scaled.
  host::Fold wide_fold() const {
    host::Fold fold = fold_of(nullptr);
    fold.dtype = GSEL_F32;
    if (fold.op != GSEL_PROD) fold.op = GSEL_SUM;
    return fold;
  }

  // Whether pieces are short enough to be sent with the assembly.
  bool goes_in_frames() const {
    uint64_t most = 0;
    for (size_t h = 0; h <= last_; ++h) most = std::max(most, piece(h));
    return can_add() && most <= Frames::kShortBytes;
  }

  void fold_hosts(char* to, uint64_t at, uint64_t bytes, bool in_frames) {
    const uint64_t elements = bytes / call_.element;
    std::vector<const void*> inputs;
    for (size_t h = 0; h <= last_; ++h)
      inputs.push_back(h == host_  ? partial_of(h) + passed(at)
                       : in_frames ? given(h)
                                   : received_ + h * passed(piece(host_)) + passed(at));
    const auto hosts = static_cast<int>(inputs.size());
    if (is_alone()) return host::reduce(fold_of(factors_), to, inputs.data(), hosts, elements);
    host::Fold fold = is_wide_ ? wide_fold() : fold_of(nullptr);
    if (fold.op == GSEL_SCALED_SUM) fold.op = GSEL_SUM;
    fold.averaged = static_cast<int>(roster_.ranks());
    if (!is_wide_) return host::reduce(fold, to, inputs.data(), hosts, elements);
    auto* const whole = reinterpret_cast<float*>(room_of(host_) + passed(at));
    host::reduce(fold, whole, inputs.data(), hosts, elements);
    host::Fold rounds = fold_of(nullptr);
    if (rounds.op == GSEL_SCALED_SUM) rounds.op = GSEL_SUM;
    rounds.averaged = static_cast<int>(roster_.ranks());
    rounds.before = whole;
    host::reduce(rounds, to, nullptr, 0, elements);
  }

  void give(const char* result, uint64_t bytes) {
    if (is_scattered()) return;
    for (size_t h = 0; h <= last_; ++h)
      if (h != host_ && (goes_back() || h == root_host())) send(h, result, bytes);
  }

  char *partial_ = nullptr, *received_ = nullptr, *widened_ = nullptr;
  std::vector<std::vector<HostTransport::Posted>> parts_;  // by host, by segment
  std::vector<HostTransport::Posted> results_;
};

void HostsBackend::reduce_in_two_levels(const Call& call, const Plan& plan, const double* factors) {
  TwoLevels(*this, call, plan, factors).run();
}

}  // namespace gsel::hosts
