// comm/hosts/lanes.cc: see lanes.h.
#include "comm/hosts/lanes.h"

#include <algorithm>

#include "base/shard.h"

namespace gsel::hosts {
namespace {

constexpr uint32_t kLaneTag = 0;
constexpr uint64_t kAlign = 16;

// Small floating-point types are computed in f32 and rounded at the end, so hosts pass on f32.
bool is_passed_wide(gsel_dtype dtype, gsel_op op) {
  const bool is_small = dtype == GSEL_F16 || dtype == GSEL_BF16 || dtype == GSEL_F8E4M3 || dtype == GSEL_F8E5M2;
  return is_small && (op == GSEL_SUM || op == GSEL_PROD || op == GSEL_AVG || op == GSEL_SCALED_SUM);
}

uint64_t shard_begin(uint64_t n, size_t parts, size_t index) {
  return static_cast<uint64_t>(
      shard_range(static_cast<int64_t>(n), static_cast<int64_t>(parts), static_cast<int64_t>(index)).begin);
}

// The shard that has an item, as shard_range divides n items.
size_t shard_of(uint64_t n, size_t parts, uint64_t item) {
  const uint64_t base = n / parts, extra = n % parts, longer = extra * (base + 1);
  return static_cast<size_t>(item < longer ? item / (base + 1) : extra + (item - longer) / base);
}

}  // namespace

Lanes::Lanes(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors, Cut cut,
             Passed passed)
    : backend_(backend),
      roster_(backend.roster_),
      call_(call),
      plan_(plan),
      factors_(factors),
      ranks_here_(roster_.here().size()),
      own_(static_cast<size_t>(roster_.local_rank())),
      host_(roster_.own_host()),
      last_(roster_.hosts() - 1),
      is_wide_(passed == Passed::sums && is_passed_wide(call.dtype, call.operation.op)),
      passed_element_(is_wide_ ? sizeof(float) : call.element),
      timeout_s_(static_cast<double>(call.timeout_ns) * 1e-9),
      deadline_ns_(os::now_ns() + call.timeout_ns),
      unit_(std::max<uint64_t>(call.unit, 1)),
      records_(is_scattered() ? 0 : call.count * call.element / unit_) {
  if (is_scattered())
    cut_parts();
  else
    cut_range(cut);
}

void Lanes::add_piece(Bytes place, uint64_t key, size_t host) {
  if (place.count == 0) return;
  pieces_.push_back({place, lane_bytes_, key, host});
  lane_bytes_ += place.count;
}

// A piece is the part of a rank. That rank has it on its host.
void Lanes::cut_parts() {
  parts_here_.resize(ranks_here_);
  for (int32_t q = 0; q < static_cast<int32_t>(roster_.ranks()); ++q) {
    const Bytes place = plan_.sent(q);
    const auto key = static_cast<uint64_t>(roster_.local_of(q));
    const size_t l = key % ranks_here_;
    if (place.count > 0) parts_here_[l].push_back(place);
    if (l == own_) add_piece(place, key, roster_.host_of(q));
  }
}

// Cut wherever the range of a rank of any host begins, so that each piece is in one range of each host.
void Lanes::cut_range(Cut cut) {
  const uint64_t begin = range(host_, own_).begin / unit_, end = begin + range(host_, own_).count / unit_;
  std::vector<uint64_t> cuts{begin, end};
  for (const size_t n : roster_.sizes())
    for (size_t l = n; begin < end && l-- > 0;) {
      const uint64_t at = shard_begin(records_, n, l);
      if (at <= begin) break;
      if (at < end) cuts.push_back(at);
    }
  std::ranges::sort(cuts);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const uint64_t from = cuts[i], n = cuts[i + 1] - from;
    const size_t parts = cut == Cut::in_lanes ? 1 : roster_.hosts();
    for (size_t h = 0; h < parts; ++h) {
      const uint64_t at = shard_begin(n, parts, h), to = h + 1 < parts ? shard_begin(n, parts, h + 1) : n;
      add_piece({(from + at) * unit_, (to - at) * unit_}, from, h);
    }
  }
}

int32_t Lanes::peer(size_t host, const Piece& piece) const {
  const std::vector<int32_t>& there = roster_.on(host);
  return there[is_scattered() ? piece.key % there.size() : shard_of(records_, there.size(), piece.key)];
}

shm::Bytes Lanes::range(size_t host, size_t l) const {
  const size_t n = roster_.on(host).size();
  const uint64_t begin = shard_begin(records_, n, l), end = l + 1 < n ? shard_begin(records_, n, l + 1) : records_;
  return {begin * unit_, (end - begin) * unit_};
}

void Lanes::take_room(uint64_t for_inputs, uint64_t more) {
  const uint64_t own_room = (for_inputs + lane_bytes_ + kAlign - 1) / kAlign * kAlign;
  inputs_ = backend_.room(own_room + more);
  given_ = inputs_ + for_inputs;
  more_ = inputs_ + own_room;
}

void Lanes::reduce_here(char* to) {
  std::vector<uint64_t> counts, offsets;
  for (size_t l = 0; l < ranks_here_; ++l) {
    counts.push_back(range(host_, l).count / call_.element);
    offsets.push_back(range(host_, l).begin / call_.element);
  }
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = GSEL_COLLECTIVE_REDUCE_SCATTERV;
  call.dtype = call_.dtype;
  call.op = call_.operation.op == GSEL_AVG ? GSEL_SUM : call_.operation.op;
  call.factor = call_.operation.factor;
  call.root = call.source = -1;
  call.send = call_.send;
  call.recv = to;
  call.recv_counts = counts.data();
  call.send_offsets = offsets.data();
  call.timeout_s = timeout_s_;
  backend_.local_.run(call, nullptr);
}

void Lanes::gather() {
  size_t moves = is_scattered() ? 0 : 1;
  for (const auto& parts : parts_here_) moves = std::max(moves, parts.size());
  for (size_t k = 0; k < moves; ++k) {
    const auto lane = [&](int32_t q) { return static_cast<size_t>(roster_.local_of(q)); };
    const auto sent = [&](size_t l) {
      if (!is_scattered()) return range(host_, l);
      return k < parts_here_[l].size() ? parts_here_[l][k] : Bytes{};
    };
    const Bytes own = sent(own_);
    const uint64_t start = is_scattered() && own.count > 0 ? pieces_[k].start : 0;
    backend_.move_here({call_.send, [&](int32_t q) { return sent(lane(q)); }, inputs_,
                        [&](int32_t q) {
                          return Bytes{lane(q) * lane_bytes_ + start, own.count};
                        }},
                       timeout_s_);
  }
}

void Lanes::gather_from_all() {
  const Bytes own = range(host_, own_);
  const auto place = [&](int32_t q) { return Bytes{static_cast<uint64_t>(q) * own.count, own.count}; };
  backend_.move({call_.send, [&](int32_t q) { return range(q); }, inputs_, place}, timeout_s_);
}

void Lanes::add_inputs(const Piece& piece, uint64_t at, std::vector<const void*>& inputs,
                       std::vector<double>& factors) const {
  for (size_t l = 0; l < ranks_here_; ++l) {
    inputs.push_back(input(l, piece) + at);
    if (call_.operation.op == GSEL_SCALED_SUM) factors.push_back(factors_[roster_.here()[l]]);
  }
}

char* Lanes::result_at(const Piece& piece, uint64_t at) const {
  if (is_scattered()) return call_.recv + at;
  if (goes_back() || roster_.rank() == call_.root) return call_.recv + piece.place.begin + at;
  return given_ + piece.start + at;
}

void Lanes::spread() {
  if (is_scattered() || (!goes_back() && root_host() != host_)) return;
  const bool gets = goes_back() || roster_.rank() == call_.root;
  const Bytes own = range(host_, own_);
  const auto sent = [&](int32_t q) {
    if (!goes_back() && q != call_.root) return Bytes{};
    return gets ? own : Bytes{0, own.count};
  };
  const auto got = [&](int32_t q) { return gets ? range(q) : Bytes{}; };
  backend_.move_here({gets ? call_.recv : given_, sent, call_.recv, got}, timeout_s_);
}

void Lanes::send(int32_t to, const void* from, uint64_t bytes) {
  sent_.emplace_back(*backend_.host_transport_, gsel_transfer{to, kLaneTag, from, nullptr, bytes});
}

void Lanes::receive(std::vector<HostTransport::Posted>& posted, int32_t from, void* to, uint64_t bytes) {
  posted.emplace_back(*backend_.host_transport_, gsel_transfer{from, kLaneTag, nullptr, to, bytes});
}

void Lanes::finish_sends() {
  for (HostTransport::Posted& one : sent_) finish(one);
  sent_.clear();
}

}  // namespace gsel::hosts
