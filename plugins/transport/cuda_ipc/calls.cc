// plugins/transport/cuda_ipc/calls.cc: the calls of the table; see link.h.
#include <algorithm>
#include <cstdio>
#include <iterator>

#include "link.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

constexpr uint64_t kBytes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1};  // by gsel_dtype

int32_t supports(gsel_link* link, const gsel_collective* call, char* reason, size_t capacity) {
  const auto no = [&](const char* why) {
    if (reason && capacity > 0) snprintf(reason, capacity, "%s", why);
    return 0;
  };
  if (call->kind == GSEL_COLLECTIVE_PROBE || call->kind == GSEL_COLLECTIVE_IPROBE) return no("it has no probe");
  if (call->kind > GSEL_COLLECTIVE_IPROBE) return no("it does not know this call");
  const bool both = call->kind == GSEL_COLLECTIVE_SENDRECV;
  const bool is_plain = both || call->kind == GSEL_COLLECTIVE_SEND || call->kind == GSEL_COLLECTIVE_RECV;
  if (is_plain && (call->tag != 0 || call->recv_tag != 0)) return no("its messages have no tags");
  if (is_plain && (call->root < 0 || (both && call->source < 0))) return no("it receives from a named rank only");
  if (call->dtype < 0 || call->dtype >= static_cast<int32_t>(std::size(kBytes)))
    return no("it does not know this type");
  if (call->op < 0 || call->op > GSEL_BXOR) return no("it has no such operation");
  if (call->op != 0 && link && link->world_size > GSEL_REDUCE_SOURCES) return no("it reduces for at most 64 ranks");
  return 1;
}

// The calls of one link, in the order given, and their streams.
struct Batch {
  gsel_link* link;
  std::vector<gsel_stream*> streams;
  std::vector<const gsel_collective*> calls;
};

std::vector<Batch> sorted(std::span<const gsel_enqueued> calls) {
  std::vector<Batch> batches;
  for (const gsel_enqueued& c : calls) {
    auto of = std::ranges::find(batches, c.link, &Batch::link);
    if (of == batches.end()) of = batches.insert(of, {c.link, {}, {}});
    if (std::ranges::find(of->streams, c.stream) == of->streams.end()) of->streams.push_back(c.stream);
    of->calls.push_back(c.call);
  }
  return batches;
}

// The number of the capture that takes a stream's work; 0: none.
unsigned long long capture_of(const gsel_link& link, gsel_stream* stream) {
  constexpr int kActive = 1;
  int status = 0;
  unsigned long long number = 0;
  if (!link.driver->capture_info) return 0;
  const Stream native = link.device->stream_native(link.device_ctx, stream);
  if (link.driver->capture_info(native, &status, &number, nullptr, nullptr, nullptr) != kSuccess) return 0;
  return status == kActive ? number : 0;
}

// Ranks of one process would wait for each other on the one default stream of a device.
void refuse_shared_stream(const gsel_link& link, gsel_stream* stream) {
  constexpr uintptr_t kLegacy = 1;
  const auto native = reinterpret_cast<uintptr_t>(link.device->stream_native(link.device_ctx, stream));
  if (link.shares_process && native <= kLegacy)
    fail(
        GSEL_ERR_UNSUPPORTED,
        "cuda_ipc: ranks of one process share the default stream of a device and would wait for each other on it; give "
        "each a stream of its own (gsel_comm_set_stream)");
}

void wait_for_event(const gsel_link& link, gsel_stream* stream, gsel_event* event) {
  must([&](gsel_error** err) { return link.device->stream_wait_event(link.device_ctx, stream, event, err); });
}

// Notes where the link's work ends, also that of a call that failed half way.
class Noted {
 public:
  Noted(gsel_link& link, gsel_stream* stream, unsigned long long capture) : link_(link), stream_(stream) {
    link_.latest_capture = capture;
  }
  ~Noted() {
    link_.has_call = true;
    if (link_.device->event_record(link_.device_ctx, link_.last, stream_, nullptr) != GSEL_OK) link_.is_lost = true;
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  gsel_link& link_;
  gsel_stream* const stream_;
};

void make_on(gsel_link& link, gsel_stream* stream, unsigned long long capture, const Batch& batch, double timeout_s) {
  const Noted noted(link, stream, capture);
  const Enqueue on(link, stream, timeout_s);
  std::vector<Part> parts;
  for (const gsel_collective* call : batch.calls)
    if (is_message(call->kind)) add_parts(link, *call, parts);
  const bool has_others = std::ranges::any_of(batch.calls, [](const auto* call) { return !is_message(call->kind); });
  Exchange exchange(on, parts, has_others && !parts.empty());
  exchange.make_beside([&] {
    for (const gsel_collective* call : batch.calls)
      if (!is_message(call->kind)) collective(on, *call);
  });
}

// All calls of a link share its slots and boxes, so they run in the order enqueued, also on several streams: on the
// first, behind the others, which go on behind them. A captured call comes behind earlier ones of its capture; behind
// others it comes if its stream does.
void make(const Batch& batch, double timeout_s) {
  gsel_link& link = *batch.link;
  const std::lock_guard lock(link.inside);
  if (link.aborting) fail(GSEL_ERR_ABORTED, "cuda_ipc: the communicator was ended");
  const Current current(link.device, link.device_ctx);
  gsel_stream* const stream = batch.streams.front();
  for (gsel_stream* each : batch.streams) refuse_shared_stream(link, each);
  const unsigned long long capture = capture_of(link, stream);
  if (capture != 0 && !link.by_streams)
    fail(GSEL_ERR_UNSUPPORTED, "cuda_ipc: a call that is captured does not wait on the host, and here " + link.note);
  if (link.has_call && link.latest_capture == capture) wait_for_event(link, stream, link.last);
  for (size_t i = 1; i < batch.streams.size(); ++i) {
    gsel_event* const head = link.head(i);
    must([&](gsel_error** err) { return link.device->event_record(link.device_ctx, head, batch.streams[i], err); });
    wait_for_event(link, stream, head);
  }
  make_on(link, stream, capture, batch, timeout_s);
  for (size_t i = 1; i < batch.streams.size(); ++i) wait_for_event(link, batch.streams[i], link.last);
}

gsel_status enqueue(const gsel_enqueued* calls, uint64_t n, double timeout_s, gsel_error** err) {
  if (n == 0) return GSEL_OK;
  try {
    for (const Batch& batch : sorted({calls, n})) make(batch, timeout_s);
    return GSEL_OK;
  } catch (...) {
    return failed(calls[0].link->host, err);
  }
}

}  // namespace

uint64_t bytes_of(gsel_dtype dtype, uint64_t elems) {
  return kBytes[dtype] * elems;
}

uint64_t first_of(const uint64_t* counts, const uint64_t* offsets, int32_t rank) {
  if (offsets) return offsets[rank];
  uint64_t sum = 0;
  for (int32_t q = 0; q < rank; ++q) sum += counts[q];
  return sum;
}

void add_calls(gsel_transport_v2& table) {
  table.supports = supports;
  table.enqueue = enqueue;
  table.link_error = [](gsel_link*, gsel_error**) -> gsel_status { return GSEL_OK; };  // the control knows
}

}  // namespace gsel_ipc
