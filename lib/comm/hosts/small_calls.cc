// comm/hosts/small_calls.cc: collectives over several hosts whose payloads are sent with the assembly; see
// hosts_backend.h and assembly.h.
#include <cstring>
#include <vector>

#include "comm/call/collective.h"
#include "comm/hosts/hosts_backend.h"

namespace gsel::hosts {

// For a rank that is alone on its host: without copies.
void HostsBackend::reduce_in_frames(const Call& call) {
  assembly_.gather(head_of(call, call.payload_bytes), call.send, nullptr, static_cast<double>(call.timeout_ns) * 1e-9);
  unconfirmed_ = true;
  std::vector<const void*> inputs(roster_.ranks());
  for (int32_t q = 0; q < static_cast<int32_t>(inputs.size()); ++q)
    inputs[static_cast<size_t>(q)] = q == roster_.rank() ? call.send : assembly_.given(q);
  host::reduce(fold_of(call, nullptr), call.recv, inputs.data(), static_cast<int>(inputs.size()), call.count);
}

// Every rank gets the payloads of all ranks; at_first: the first rank does, and every rank gets what it reduces them
// to.
void HostsBackend::make_small(const Call& call, const Plan& plan, bool at_first) {
  const size_t ranks = roster_.ranks();
  const int32_t rank = roster_.rank();
  const bool scales = call.operation.op == GSEL_SCALED_SUM;
  const uint64_t factor_bytes = scales ? sizeof(double) : 0, bytes = factor_bytes + call.payload_bytes;
  char* const mine = room((at_first ? 2 : ranks + 1) * bytes);
  char* const all = mine + bytes;
  if (scales) std::memcpy(mine, &call.operation.factor, sizeof(double));
  char* const own = mine + factor_bytes;
  const bool reduces = is_reduction(call.kind);
  if (reduces && plan.scattered()) {
    for (int32_t q = 0; q < static_cast<int32_t>(ranks); ++q)
      if (const Bytes part = plan.sent(q); part.count > 0)
        std::memcpy(own + plan.packed_begin(q), call.send + part.begin, part.count);
  } else if (reduces) {
    if (call.payload_bytes > 0) std::memcpy(own, call.send, call.payload_bytes);
  } else {
    for (int32_t q = 0; q < static_cast<int32_t>(ranks); ++q) {
      const Bytes from = plan.source(q), to = plan.packed(rank, q);
      if (to.count > 0) std::memcpy(own + to.begin, call.send + from.begin, to.count);
    }
  }
  // Reduces a part of the payloads, which are at these addresses.
  const auto reduce = [&](const char* payloads, Bytes part, char* to) {
    std::vector<const void*> inputs(ranks);
    std::vector<double> factors(scales ? ranks : 0);
    for (size_t q = 0; q < ranks; ++q) {
      inputs[q] = payloads + q * bytes + factor_bytes + part.begin;
      if (scales) std::memcpy(&factors[q], payloads + q * bytes, sizeof(double));
    }
    host::reduce(fold_of(call, factors.data()), to, inputs.data(), static_cast<int>(ranks), part.count / call.element);
  };
  const Head head = head_of(call, bytes);
  const double timeout_s = static_cast<double>(call.timeout_ns) * 1e-9;
  if (at_first)
    assembly_.gather_at_first(head, mine,
                              {call.payload_bytes,
                               [&](const char* payloads, char* to) {
                                 reduce(payloads, {0, call.payload_bytes}, to);
                               }},
                              all, timeout_s);
  else
    assembly_.gather(head, mine, all, timeout_s);
  unconfirmed_ = assembly_.has_frames();  // other ranks may still wait for this call's frames
  if (!reduces) {
    for (size_t q = 0; q < ranks; ++q) {
      const Bytes from = plan.packed(static_cast<int32_t>(q), rank), to = plan.target(static_cast<int32_t>(q));
      if (to.count > 0) std::memcpy(call.recv + to.begin, all + q * bytes + factor_bytes + from.begin, to.count);
    }
    return;
  }
  if (call.payload_bytes == 0 || (call.kind == GSEL_COLLECTIVE_REDUCE && call.root != rank)) return;
  const bool whole = call.kind == GSEL_COLLECTIVE_ALLREDUCE || call.kind == GSEL_COLLECTIVE_REDUCE;
  const gsel_range slice = whole ? gsel_range{0, static_cast<int64_t>(call.count)} : plan.slice(rank);
  const uint64_t here = static_cast<uint64_t>(slice.begin) * call.element;
  const Bytes part{plan.scattered() ? plan.packed_begin(rank) : here,
                   static_cast<uint64_t>(slice.end - slice.begin) * call.element};
  if (!at_first)
    reduce(all, part, call.recv);
  else if (part.count > 0)
    std::memcpy(call.recv, all + part.begin, part.count);
}

}  // namespace gsel::hosts
