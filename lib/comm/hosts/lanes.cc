// comm/hosts/lanes.cc: see lanes.h.
#include "comm/hosts/lanes.h"

namespace gsel::hosts {
namespace {

constexpr uint32_t kLaneTag = 0;
constexpr uint64_t kAlign = 16;

// Small floating-point types are computed in f32 and rounded at the end, so hosts pass on f32.
bool is_passed_wide(gsel_dtype dtype, gsel_op op) {
  const bool is_small = dtype == GSEL_F16 || dtype == GSEL_BF16 || dtype == GSEL_F8E4M3 || dtype == GSEL_F8E5M2;
  return is_small && (op == GSEL_SUM || op == GSEL_PROD || op == GSEL_AVG || op == GSEL_SCALED_SUM);
}

}  // namespace

Lanes::Lanes(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors, bool in_one)
    : backend_(backend),
      roster_(backend.roster_),
      call_(call),
      plan_(plan),
      factors_(factors),
      ranks_here_(roster_.here().size()),
      own_(static_cast<size_t>(roster_.local_rank())),
      host_(roster_.own_host()),
      last_(roster_.hosts() - 1),
      is_wide_(ranks_here_ > 1 && is_passed_wide(call.dtype, call.operation.op)),
      passed_element_(is_wide_ ? sizeof(float) : call.element),
      timeout_s_(static_cast<double>(call.timeout_ns) * 1e-9),
      deadline_ns_(os::now_ns() + call.timeout_ns) {
  const size_t hosts = roster_.hosts();
  for (size_t l = 0; l < ranks_here_; ++l) {
    std::vector<Bytes>& pieces = lanes_.emplace_back();
    for (size_t h = 0; h < hosts; ++h) {
      const Bytes piece = plan_.sent(is_scattered() ? roster_.on(h)[l] : static_cast<int32_t>(l * hosts + h));
      if (in_one && !is_scattered() && h > 0)
        pieces[0].count += piece.count;
      else
        pieces.push_back(piece);
    }
  }
  for (const Bytes& piece : lanes_[own_]) {
    starts_.push_back(lane_bytes_);
    lane_bytes_ += piece.count;
  }
}

// The pieces of a lane that is not scattered are contiguous.
shm::Bytes Lanes::whole(size_t l) const {
  const Bytes first = lanes_[l].front(), end = lanes_[l].back();
  return {first.begin, end.begin + end.count - first.begin};
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
    counts.push_back(whole(l).count / call_.element);
    offsets.push_back(whole(l).begin / call_.element);
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
  const size_t moves = is_scattered() ? lanes_[own_].size() : 1;
  for (size_t k = 0; k < moves; ++k) {
    const auto lane = [&](int32_t q) { return static_cast<size_t>(roster_.local_of(q)); };
    const auto sent = [&](size_t l) { return is_scattered() ? lanes_[l][k] : whole(l); };
    backend_.move_here({call_.send, [&](int32_t q) { return sent(lane(q)); }, inputs_,
                        [&](int32_t q) {
                          return Bytes{lane(q) * lane_bytes_ + starts_[k], sent(own_).count};
                        }},
                       timeout_s_);
  }
}

void Lanes::gather_from_all() {
  const auto lane_of = [&](int32_t q) { return whole(static_cast<size_t>(roster_.local_of(q))); };
  const auto place = [&](int32_t q) { return Bytes{static_cast<uint64_t>(q) * lane_bytes_, lane_bytes_}; };
  backend_.move({call_.send, lane_of, inputs_, place}, timeout_s_);
}

void Lanes::add_inputs(size_t k, uint64_t at, uint64_t in_piece, std::vector<const void*>& inputs,
                       std::vector<double>& factors) const {
  for (const int32_t q : roster_.here()) {
    const auto l = static_cast<size_t>(roster_.local_of(q));
    inputs.push_back(l == own_ ? call_.send + lanes_[own_][k].begin + in_piece : inputs_ + l * lane_bytes_ + at);
    if (call_.operation.op == GSEL_SCALED_SUM) factors.push_back(factors_[q]);
  }
}

char* Lanes::result_at(size_t k, uint64_t at, uint64_t in_piece) const {
  if (is_scattered()) return call_.recv + in_piece;
  if (goes_back() || roster_.rank() == call_.root) return call_.recv + lanes_[own_][k].begin + in_piece;
  return given_ + at;
}

void Lanes::spread() {
  if (is_scattered() || (!goes_back() && root_host() != host_)) return;
  const bool gets = goes_back() || roster_.rank() == call_.root;
  const Bytes own = whole(own_);
  const auto sent = [&](int32_t q) {
    if (!goes_back() && q != call_.root) return Bytes{};
    return gets ? own : Bytes{0, own.count};
  };
  const auto got = [&](int32_t q) { return gets ? whole(static_cast<size_t>(roster_.local_of(q))) : Bytes{}; };
  backend_.move_here({gets ? call_.recv : given_, sent, call_.recv, got}, timeout_s_);
}

void Lanes::send(size_t host, const void* from, uint64_t bytes) {
  sent_.emplace_back(*backend_.host_transport_, gsel_transfer{rank_of_lane(host), kLaneTag, from, nullptr, bytes});
}

void Lanes::receive(std::vector<HostTransport::Posted>& posted, size_t host, void* to, uint64_t bytes) {
  posted.emplace_back(*backend_.host_transport_, gsel_transfer{rank_of_lane(host), kLaneTag, nullptr, to, bytes});
}

void Lanes::finish_sends() {
  for (HostTransport::Posted& one : sent_) finish(one);
  sent_.clear();
}

}  // namespace gsel::hosts
