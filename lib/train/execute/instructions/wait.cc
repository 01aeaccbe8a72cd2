// train/execute/instructions/wait.cc: WAIT: the collective of a bucket that runs asynchronously has ended; what it
// brought is looked at, not only waited for.
#include <algorithm>

#include "base/os.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// ---- parameters that came -----------------------------------------------------------------------------------------

// Whether the first elements of a stretch are other than its master copy, rounded. Goes through memory that is free
// before the first step.
double own_params_differ(const State& s, const Stretch& own, uint64_t elems) {
  const CountedMemory& room = s.arena.bytes() > s.staging.bytes() ? s.arena : s.staging;
  const uint64_t chunk = room.bytes() / sizeof(uint16_t);
  std::vector<uint16_t> here, there;
  for (uint64_t first = 0; first < elems; first += chunk) {
    const uint64_t n = std::min(chunk, elems - first), bytes = n * sizeof(uint16_t);
    s.device->run(&gsel_device_v1::cast, room.data(), own.rounded_dtype, static_cast<const void*>(own.values + first),
                  gsel_dtype{GSEL_F32}, n, static_cast<gsel_stream*>(nullptr));
    auto to_host = [&](std::vector<uint16_t>& to, const void* from) {
      to.resize(n);
      s.copy(to.data(), from, bytes, GSEL_COPY_TO_HOST);
    };
    to_host(here, room.data());
    to_host(there, static_cast<const uint16_t*>(own.rounded) + first);
    if (here != there) return 1;
  }
  return 0;
}

// A broadcast before the first step brought the root's parameters, rounded where they are kept in 16 bits. Master
// copies that were initialised like the root's are exact and stay; else all follow what came.
void follow_params(State& s, int32_t b) {
  const BucketLayout& layout = s.params.layout(b);
  if (layout.dtype == GSEL_F32 || s.program().buckets[b].owner >= 0) return;  // an owner has the one copy
  const Stretch own = s.params.stretch(b);
  const auto elems =
      static_cast<uint64_t>(std::max<int64_t>(std::min(layout.own.end, layout.elems) - layout.own.begin, 0));
  double differs = own_params_differ(s, own, elems);
  const gsel_axis axis = s.program().buckets[b].axis;
  allreduce_numbers(s, 0, axis < 0 ? GSEL_AXIS_DATA : axis, {&differs, 1}, GSEL_MAX);
  if (differs != 0)
    s.device->run(&gsel_device_v1::cast, static_cast<void*>(own.values), gsel_dtype{GSEL_F32},
                  static_cast<const void*>(own.rounded), own.rounded_dtype, elems, static_cast<gsel_stream*>(nullptr));
  s.params.done_with(b, differs != 0);
}

// ---- gradients that came ------------------------------------------------------------------------------------------

void add_reduced(State& s, int32_t b) {
  float* reduced = std::exchange(s.buckets[b].reduced, nullptr);
  if (!reduced) return;
  s.add(s.params.own_gradient(b), reduced, GSEL_F32, static_cast<uint64_t>(s.params.layout(b).own_elems()));
}

// ---- what it took -------------------------------------------------------------------------------------------------

void note_async(State& s, const BucketState& bucket, gsel_instr_kind kind, double waited) {
  if (!s.under_way) return;
  const double seconds = bucket.began.seconds_until(bucket.done);
  const double began = s.began_event.seconds_until(bucket.began);
  s.run->record.intervals.push_back({bucket.posted_at, began, began + seconds, true});
  gsel_step_report& report = s.run->record.report;
  if (kind == GSEL_INSTR_ALLGATHER) {
    ++report.n_allgathers;
    report.allgather_s += seconds;
    report.exposed_allgather_s += waited;
  } else if (kind != GSEL_INSTR_BROADCAST) {
    ++report.n_reduces;
    const bool backward_goes_on = static_cast<int32_t>(s.run->position) < s.run->last_backward;
    report.n_overlapped += backward_goes_on || bucket.began.seconds_until(s.backward_done) > 0;
  }
}

}  // namespace

void finish_collective(State& s, int32_t b, gsel_instr_kind kind) {
  if (kind == GSEL_INSTR_BROADCAST && !s.under_way) follow_params(s, b);
  if (kind == GSEL_INSTR_REDUCE_SCATTER) add_reduced(s, b);
  if (kind == GSEL_INSTR_REDUCE_SCATTER || kind == GSEL_INSTR_REDUCE) close_gradient_window(s, b);
}

void wait_bucket(State& s, int32_t b) {
  BucketState& bucket = s.buckets[b];
  if (!bucket.under_way) return;
  const gsel_instr_kind kind = std::exchange(bucket.under_way, 0);
  const double began = os::now_seconds();
  bucket.done.wait();
  const double waited = os::now_seconds() - began;
  note_exposed(s, bucket.axis, waited);
  note_async(s, bucket, kind, waited);
  finish_collective(s, b, kind);
}

void wait(State& s, const gsel_instr& instr) {
  wait_bucket(s, instr.bucket);
}

}  // namespace gsel::execute
