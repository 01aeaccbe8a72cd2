// comm/hosts/hosts_calls.cc: collectives over several hosts; see hosts_backend.h, and small_calls.cc for small ones.
#include <cstring>

#include "base/error.h"
#include "base/shard.h"
#include "base/text.h"
#include "base/types.h"
#include "comm/call/collective.h"
#include "comm/hosts/hosts_backend.h"

namespace gsel::hosts {
namespace {

constexpr uint32_t kCollectiveTag = 0;

}  // namespace

void HostsBackend::make(const gsel_collective& given) {
  Call call;
  const auto ranks = static_cast<int32_t>(roster_.ranks());
  shm::complete(given, ranks, timeout_ns(), call);
  const Plan plan(call, roster_.rank(), ranks);
  try {
    if (goes_in_frames(call, spread()))
      reduce_in_frames(call);
    else if (const Way way = way_of(call); way == Way::small || way == Way::at_first)
      make_small(call, plan, way == Way::at_first);
    else
      make_large(call, plan);
  } catch (const Error& error) {
    try {
      if (error.code() == GSEL_ERR_CALLBACK) fail_in_operation(error);
      throw;
    } catch (const Error& told) {
      local_.note_failure(told);
      throw;
    }
  }
  count(call.kind, plan.sent_bytes());
}

// Other ranks may wait for the result of this rank, so the communicator breaks.
void HostsBackend::fail_in_operation(const Error& error) const {
  const int32_t rank = roster_.rank();
  local_.break_with(
      Error(GSEL_ERR_CALLBACK, fmt::format("{}: {} in {}", roster_.named(rank), error.message(), assembly_.text()))
          .about_rank(roster_.shown(rank)));
  local_.throw_break_reason();
}

host::Fold HostsBackend::fold_of(const Call& call, const double* factors) const {
  host::Fold fold;
  fold.dtype = call.dtype;
  fold.op = call.operation.op;
  fold.order = order_;
  fold.factors = factors;
  fold.record = call.operation.record;
  fold.function = call.operation.function;
  fold.user_data = call.operation.user_data;
  return fold;
}

// ---- larger ones ----------------------------------------------------------------------------------------------------

// Whether bytes can be sent before other hosts are heard: the call needs nothing from them first.
bool HostsBackend::goes_on(const Call& call) const {
  return assembly_.has_frames() && call.kind != GSEL_COLLECTIVE_ALLTOALLV && call.operation.op != GSEL_SCALED_SUM;
}

// Scratch memory. Growing it discards the contents; otherwise they are not cleared.
char* HostsBackend::room(uint64_t bytes) {
  if (room_.size() < bytes) {
    room_ = {};
    room_.resize(bytes);
  }
  return room_.data();
}

void HostsBackend::make_large(const Call& call, const Plan& plan) {
  require_transport(call.kind);
  const double timeout_s = static_cast<double>(call.timeout_ns) * 1e-9;
  const bool scales = call.operation.op == GSEL_SCALED_SUM;
  const bool in_pairs = call.kind == GSEL_COLLECTIVE_ALLTOALLV;
  std::vector<double> factors(scales ? roster_.ranks() : 0);
  std::vector<uint64_t> counts(in_pairs ? roster_.ranks() * roster_.ranks() : 0);
  if (goes_on(call))
    assembly_.start_gather(head_of(call, 0), timeout_s);
  else if (in_pairs)
    assembly_.gather(head_of(call, roster_.ranks() * sizeof counts[0]), call.send_counts, counts.data(), timeout_s);
  else
    assembly_.gather(head_of(call, scales ? sizeof(double) : 0), &call.operation.factor, factors.data(), timeout_s);
  if (in_pairs) check_parts(call, counts);
  unconfirmed_ = true;
  move_large(call, plan, factors.data());
  assembly_.finish_gather();
}

void HostsBackend::move_large(const Call& call, const Plan& plan, const double* factors) {
  const Way way = way_of(call);
  if (way == Way::direct) return reduce_direct(call, plan, factors);
  if (way == Way::chain) return reduce_in_chain(call, plan, factors);
  if (is_reduction(call.kind) && way == Way::slices) return reduce_in_slices(call, plan, factors);
  if (is_reduction(call.kind))
    return reduce_in_two_levels(call, plan, factors, way == Way::two_levels && !spread().is_alone());
  const int32_t rank = roster_.rank();
  const Bytes from = plan.source(rank), to = plan.target(rank);
  if (to.count > 0 && call.send + from.begin != call.recv + to.begin)
    std::memmove(call.recv + to.begin, call.send + from.begin, to.count);
  if (way == Way::lanes)
    return call.kind == GSEL_COLLECTIVE_BROADCAST ? broadcast_by_lanes(call) : gather_by_lanes(call, plan);
  move({call.send, [&](int32_t q) { return plan.source(q); }, call.recv, [&](int32_t q) { return plan.target(q); }},
       static_cast<double>(call.timeout_ns) * 1e-9);
}

// counts[ranks][ranks]: elements that each rank has for each other.
void HostsBackend::check_parts(const Call& call, const std::vector<uint64_t>& counts) const {
  for (size_t q = 0; q < roster_.ranks(); ++q) {
    const uint64_t theirs = counts[q * roster_.ranks() + static_cast<size_t>(roster_.rank())];
    if (theirs == call.recv_counts[q]) continue;
    const auto rank = static_cast<int32_t>(q);
    local_.break_with(Error(GSEL_ERR_MISMATCH,
                            fmt::format("alltoallv: {} has {} of {} for {}, which expects {}; make send_counts and "
                                        "recv_counts agree",
                                        roster_.named(rank), with_noun(theirs, "element"), dtype_name(call.dtype),
                                        roster_.named(roster_.rank()), call.recv_counts[q]))
                          .about_rank(roster_.shown(rank)));
    local_.throw_break_reason();
  }
}

// For a call of which each rank gets a part: it gets that part of the inputs of all ranks.
void HostsBackend::reduce_in_slices(const Call& call, const Plan& plan, const double* factors) {
  const auto ranks = static_cast<int32_t>(roster_.ranks());
  const Bytes own = plan.sent(roster_.rank());
  char* const inputs_at = room(static_cast<size_t>(ranks) * own.count);
  const auto place = [&](int32_t q) { return Bytes{static_cast<uint64_t>(q) * own.count, own.count}; };
  move({call.send, [&](int32_t q) { return plan.sent(q); }, inputs_at, place},
       static_cast<double>(call.timeout_ns) * 1e-9);
  std::vector<const void*> inputs;
  for (int32_t q = 0; q < ranks; ++q)
    inputs.push_back(q == roster_.rank() ? call.send + own.begin : inputs_at + place(q).begin);
  host::reduce(fold_of(call, factors), call.recv, inputs.data(), ranks, own.count / call.element);
}

// ---- lanes: bytes that all ranks get go over the network to one rank of each host -----------------------------------

// Each rank sends its part to the ranks of its host and to one rank of each other host, which forwards it there. The
// ranks of a host take turns if there are more ranks elsewhere.
void HostsBackend::gather_by_lanes(const Call& call, const Plan& plan) {
  const double timeout_s = static_cast<double>(call.timeout_ns) * 1e-9;
  // Whether the rank `to` gets the part of the rank `of` from it.
  const auto takes = [&](int32_t to, int32_t of) {
    const size_t n = roster_.on(roster_.host_of(to)).size();
    return roster_.host_of(to) == roster_.host_of(of) ||
           static_cast<size_t>(roster_.local_of(of)) % n == static_cast<size_t>(roster_.local_of(to));
  };
  const int32_t rank = roster_.rank();
  move({call.send, [&](int32_t q) { return takes(q, rank) ? plan.source(q) : Bytes{}; }, call.recv,
        [&](int32_t q) { return takes(rank, q) ? plan.target(q) : Bytes{}; }},
       timeout_s);
  const size_t here = roster_.here().size();
  for (size_t h = 0; h < roster_.hosts(); ++h) {
    const std::vector<int32_t>& there = roster_.on(h);
    for (size_t turn = 0; turn < there.size() && h != roster_.own_host(); turn += here) {
      const auto part = [&](int32_t q) {
        const size_t l = turn + static_cast<size_t>(roster_.local_of(q));
        return l < there.size() ? plan.target(there[l]) : Bytes{};
      };
      const Bytes own = part(rank);
      move_here({call.recv, [&](int32_t) { return own; }, call.recv, part}, timeout_s);
    }
  }
}

// The root sends to the ranks of its host. They send the slices of each other host to its ranks, which exchange them.
void HostsBackend::broadcast_by_lanes(const Call& call) {
  const double timeout_s = static_cast<double>(call.timeout_ns) * 1e-9;
  const bool is_root = roster_.rank() == call.root, is_root_here = roster_.is_here(call.root);
  const uint64_t bytes = call.count * call.element;
  const auto slice_of = [&](int32_t q) {
    const auto parts = static_cast<int64_t>(roster_.on(roster_.host_of(q)).size());
    const gsel_range range = shard_range(static_cast<int64_t>(bytes), parts, roster_.local_of(q));
    return Bytes{static_cast<uint64_t>(range.begin), static_cast<uint64_t>(range.end - range.begin)};
  };
  // The rank of the root's host that sends its slice to rank q. A host with fewer ranks begins with a rank of its own.
  const std::vector<int32_t>& senders = roster_.on(roster_.host_of(call.root));
  const auto sender_to = [&](int32_t q) {
    const size_t h = roster_.host_of(q), first = roster_.on(h).size() < senders.size() ? h : 0;
    return senders[(first + static_cast<size_t>(roster_.local_of(q))) % senders.size()];
  };
  const char* const from = is_root ? call.send : call.recv;
  if (is_root_here)
    move_here({from,
               [&](int32_t) {
                 return is_root ? Bytes{0, bytes} : Bytes{};
               },
               call.recv,
               [&](int32_t q) {
                 return q == call.root ? Bytes{0, bytes} : Bytes{};
               }},
              timeout_s);
  const int32_t rank = roster_.rank();
  move_across({from, [&](int32_t q) { return is_root_here && sender_to(q) == rank ? slice_of(q) : Bytes{}; }, call.recv,
               [&](int32_t q) { return !is_root_here && sender_to(rank) == q ? slice_of(rank) : Bytes{}; }},
              timeout_s, false);
  if (!is_root_here) move_here({call.recv, [&](int32_t) { return slice_of(rank); }, call.recv, slice_of}, timeout_s);
}

// ---- bytes ----------------------------------------------------------------------------------------------------------

// Exchanges with all ranks except this one.
void HostsBackend::move(const Exchange& exchange, double timeout_s) {
  move_across(exchange, timeout_s, true);
}

void HostsBackend::move_across(const Exchange& exchange, double timeout_s, bool and_here) {
  const int64_t deadline = os::now_ns() + static_cast<int64_t>(timeout_s * 1e9);
  std::vector<HostTransport::Posted> posted;
  const auto ranks = static_cast<int32_t>(roster_.ranks());
  for (const bool sends : {true, false}) {
    if (!sends) assembly_.finish_gather();          // before receives, since a different call may have sent bytes
    for (int32_t step = 1; step < ranks; ++step) {  // starts with the next rank, so that not all send to the same
      const int32_t q = (roster_.rank() + (sends ? step : ranks - step)) % ranks;
      if (roster_.is_here(q)) continue;
      const Bytes bytes = sends ? exchange.sent(q) : exchange.got(q);
      if (bytes.count == 0) continue;
      gsel_transfer transfer{q, kCollectiveTag, nullptr, nullptr, bytes.count};
      if (sends)
        transfer.send = exchange.from + bytes.begin;
      else
        transfer.recv = exchange.to + bytes.begin;
      posted.emplace_back(*host_transport_, transfer);
    }
  }
  if (and_here) move_here(exchange, timeout_s);
  host_transport_->finish(posted, deadline, "a collective");
}

void HostsBackend::move_here(const Exchange& exchange, double timeout_s) {
  const std::vector<int32_t>& ranks = roster_.here();
  const size_t n = ranks.size();
  if (n == 1) return;
  std::vector<uint64_t> counts(4 * n);
  uint64_t* const send_counts = counts.data();
  uint64_t* const send_offsets = send_counts + n;
  uint64_t* const recv_counts = send_offsets + n;
  uint64_t* const recv_offsets = recv_counts + n;
  for (size_t l = 0; l < n; ++l) {
    if (ranks[l] == roster_.rank()) continue;
    const Bytes sent = exchange.sent(ranks[l]), got = exchange.got(ranks[l]);
    send_counts[l] = sent.count, send_offsets[l] = sent.begin;
    recv_counts[l] = got.count, recv_offsets[l] = got.begin;
  }
  gsel_collective call{};
  call.struct_size = sizeof call;
  call.kind = GSEL_COLLECTIVE_ALLTOALLV;
  call.dtype = GSEL_U8;
  call.root = call.source = -1;
  call.send = exchange.from;
  call.recv = exchange.to;
  call.send_counts = send_counts;
  call.send_offsets = send_offsets;
  call.recv_counts = recv_counts;
  call.recv_offsets = recv_offsets;
  call.timeout_s = timeout_s;
  local_.run(call, nullptr);
}

}  // namespace gsel::hosts
