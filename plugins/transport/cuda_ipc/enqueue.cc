// plugins/transport/cuda_ipc/enqueue.cc: what a link puts on a stream; see link.h.
#include <sched.h>
#include <unistd.h>

#include "link.h"

namespace gsel_ipc {
namespace {

using namespace gsel_between;

constexpr int kYields = 200, kLooks = 50, kRoundsOfPace = 32;
constexpr useconds_t kSleepUs = 20;

bool is_passed(const Line& line, uint32_t until) {
  const uint32_t word = std::atomic_ref(const_cast<uint32_t&>(line.word)).load(std::memory_order_acquire);
  return static_cast<int32_t>(word - until) >= 0;
}

}  // namespace

Enqueue::Enqueue(gsel_link& link, gsel_stream* stream, double timeout_s)
    : link_(link),
      stream_(stream),
      native_(link.device->stream_native(link.device_ctx, stream)),
      timeout_s_(timeout_s),
      deadline_(after(timeout_s)) {}

void Enqueue::copy(void* to, const void* from, uint64_t bytes) const {
  if (bytes == 0 || to == from) return;
  must([&](gsel_error** err) {
    return link_.device->copy(link_.device_ctx, to, from, bytes, GSEL_COPY_ON_DEVICE, stream_, err);
  });
}

void Enqueue::reduce(void* to, std::span<const void* const> from, gsel_dtype dtype, gsel_op op, uint64_t elems) const {
  if (elems == 0) return;
  must([&](gsel_error** err) {
    return link_.device->reduce(link_.device_ctx, to, from.data(), static_cast<int32_t>(from.size()), dtype, op, elems,
                                stream_, err);
  });
}

void Enqueue::hold(gsel_event* event, gsel_stream* other) const {
  must([&](gsel_error** err) { return link_.device->event_record(link_.device_ctx, event, stream_, err); });
  must([&](gsel_error** err) { return link_.device->stream_wait_event(link_.device_ctx, other, event, err); });
}

void Enqueue::await_lane(const gsel_link::Lane& lane) const {
  Enqueue(link_, lane.stream, timeout_s_).hold(lane.event, stream_);
}

void Enqueue::pace(int round) const {
  if (!link_.by_streams || link_.latest_capture != 0 || round % kRoundsOfPace != 0) return;
  const size_t which = static_cast<size_t>(round / kRoundsOfPace) % link_.paces.size();
  if (round >= 2 * kRoundsOfPace) await(link_.paces[1 - which]);
  must(
      [&](gsel_error** err) { return link_.device->event_record(link_.device_ctx, link_.paces[which], stream_, err); });
}

// ---- order ----------------------------------------------------------------------------------------------------------

void Enqueue::await_empty(Kind kind, int which, int32_t reader) const {
  wait(link_.arena->line(kind, which, link_.rank, reader), kUntilEmpty);
}

void Enqueue::await_full(Kind kind, int which, int32_t writer) const {
  wait(link_.arena->line(kind, which, writer, link_.rank), kUntilFull);
}

void Enqueue::fill(Kind kind, int which, std::span<const int32_t> readers) const {
  std::vector<LineAt> lines;
  for (const int32_t q : readers) lines.push_back(link_.arena->line(kind, which, link_.rank, q));
  set(lines, kFull);
}

void Enqueue::empty(Kind kind, int which, std::span<const int32_t> writers) const {
  std::vector<LineAt> lines;
  for (const int32_t q : writers) lines.push_back(link_.arena->line(kind, which, q, link_.rank));
  set(lines, kEmpty);
}

void Enqueue::wait(const LineAt& line, uint32_t until) const {
  if (!link_.by_streams) return wait_on_host(line, until);
  check(*link_.driver, link_.driver->wait_value(native_, line.device, until, kAtLeast), "a wait of a stream");
}

void Enqueue::set(std::span<const LineAt> lines, uint32_t word) const {
  if (lines.empty()) return;
  if (!link_.by_streams) finish_on_host();
  for (const LineAt& line : lines)
    if (link_.by_streams)
      check(*link_.driver, link_.driver->write_value(native_, line.device, word, 0), "a signal of a stream");
    else
      std::atomic_ref<uint32_t>(line.host->word).store(word, std::memory_order_release);
}

void Enqueue::wait_on_host(const LineAt& line, uint32_t until) const {
  for (int round = 0; !is_passed(*line.host, until); ++round) look(round);
}

// What the stream has so far.
void Enqueue::finish_on_host() const {
  must([&](gsel_error** err) { return link_.device->event_record(link_.device_ctx, link_.spare, stream_, err); });
  await(link_.spare);
}

void Enqueue::await(gsel_event* event) const {
  for (int round = 0;; ++round) {
    int32_t done = 0;
    must([&](gsel_error** err) { return link_.device->event_done(link_.device_ctx, event, &done, err); });
    if (done) return;
    look(round);
  }
}

bool Enqueue::is_empty(Kind kind, int which, int32_t reader) const {
  return is_passed(*link_.arena->line(kind, which, link_.rank, reader).host, kUntilEmpty);
}

bool Enqueue::is_full(Kind kind, int which, int32_t writer) const {
  return is_passed(*link_.arena->line(kind, which, writer, link_.rank).host, kUntilFull);
}

void Enqueue::look(int round) const {
  if (link_.aborting) fail(GSEL_ERR_ABORTED, "cuda_ipc: the communicator was ended");
  if (round % kLooks == kLooks - 1) {
    must([&](gsel_error** err) { return link_.control->look(link_.control->ctx, err); });
    if (Clock::now() > deadline_)
      fail(GSEL_ERR_TIMEOUT, "cuda_ipc: a call timed out before it was on its stream: another rank has not made it");
  }
  round < kYields ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(kSleepUs));
}

}  // namespace gsel_ipc

// Event number i of those of other streams.
gsel_event* gsel_link::head(size_t number) {
  if (number >= heads.size()) heads.resize(number + 1);
  if (!heads[number])
    gsel_between::must([&](gsel_error** err) { return device->event_create(device_ctx, 0, &heads[number], err); });
  return heads[number];
}
