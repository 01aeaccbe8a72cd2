// train/execute/calls.cc: calls of the communicator. Calls that may overlap backward go to the communication stream,
// one after the other. A call whose result the next computation needs runs on the compute stream, which is the calling
// thread on the host. It first waits for the axis's calls on the communication stream; calls of other axes go on.
#include <algorithm>

#include "base/os.h"
#include "comm/call/collective.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// A communicator runs one call at a time, so later computation waits for this axis's calls on the communication stream.
void drain(Communication& c, gsel_axis axis) {
  if (const int64_t call = c.last_async[axis]; call >= 0) c.async_calls[static_cast<size_t>(call)].done.hold_compute();
}

void count_under(Communication& c, gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster) {
  if (c.counts.is_posted_by(axis, kind, poster)) return;
  drain(c, axis);
  c.counts.set_poster(axis, kind, poster);
}

}  // namespace

// An axis of one rank has no communication.
void note_exposed(State& s, gsel_axis axis, double seconds) {
  if (s.axis_size(axis) == 1) return;
  s.run->record.report.exposed_comm_s += seconds;
  s.run->record.exposed_s[axis] += seconds;
}

// Counts of an evaluation are reported, but not added to the totals.
void record_counts(State& s) {
  StepRecord& record = s.run->record;
  const CallCounts::ByInstr& counts = s.counts.end();
  record.counts.clear();
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_instr_kind kind = 1; kind < static_cast<gsel_instr_kind>(kInstrKinds); ++kind) {
      const gsel_comm_count& count = counts[axis][kind];
      if (count.calls) record.counts.push_back({axis, kind, count});
      record.report.bytes_sent += count.bytes_sent;
    }
  if (!s.run->evaluates()) s.counts.add_up();
}

// ---- in the order of computing ----------------------------------------------------------------------------------

namespace {

// Counted under the instruction, along an axis of several ranks.
template <class Make>
void make_now(State& s, gsel_instr_kind poster, gsel_axis axis, gsel_collective_kind kind, Make&& make) {
  if (s.axis_size(axis) == 1) return;
  const double began = os::now_seconds();
  drain(s, axis);
  count_under(s, axis, kind, poster);
  make(s.axis_comm(axis));
  s.counts.settle(axis, kind);
  note_exposed(s, axis, os::now_seconds() - began);
}

template <class Make>
void make_in(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective_kind kind,
             Make&& make) {
  if (&comm == &s.axis_comm(axis)) return make_now(s, poster, axis, kind, std::forward<Make>(make));
  const double began = os::now_seconds();
  const gsel_comm_count before = comm.counts(kind);
  make(comm);
  s.counts.add(axis, poster, difference(comm.counts(kind), before));
  note_exposed(s, axis, os::now_seconds() - began);
}

}  // namespace

void call_now(State& s, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  make_now(s, poster, axis, call.kind, [&](Communicator& comm) { comm.collective(call, s.device->compute()); });
}

void call_in(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  make_in(s, comm, poster, axis, call.kind, [&](Communicator& c) { c.collective(call, s.device->compute()); });
}

void call_on_host(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  make_in(s, comm, poster, axis, call.kind, [&](Communicator& c) { c.collective_on_host(call); });
}

void allreduce_numbers(State& s, gsel_instr_kind poster, gsel_axis axis, std::span<double> numbers, gsel_op op) {
  const gsel_collective call =
      make_collective(GSEL_COLLECTIVE_ALLREDUCE, numbers.data(), numbers.data(), numbers.size(), GSEL_F64, op);
  if (s.axis_size(axis) > 1) call_on_host(s, s.axis_comm(axis), poster, axis, call);
}

gsel_collective collective_of(const gsel_instr& instr, const void* send, void* recv, uint64_t count, gsel_dtype dtype) {
  const InstrForm& form = known_form_of(instr.kind);
  return make_collective(form.call, send, recv, count, dtype, is_reduction(form.call) ? GSEL_SUM : 0,
                         form.peer ? instr.peer : -1);
}

// ---- asynchronous calls -----------------------------------------------------------------------------------------

void begin_async(State& s, const gsel_instr& instr, gsel_collective_kind kind) {
  BucketState& bucket = s.buckets[instr.bucket];
  const double began = os::now_seconds();
  count_under(s, instr.axis, kind, instr.kind);
  note_exposed(s, instr.axis, os::now_seconds() - began);
  s.compute_done.record_compute();
  s.device->run(&gsel_device_v1::stream_wait_event, s.comm_stream->get(), s.compute_done.get());
  bucket.call = s.n_async++;
  if (bucket.call == s.async_calls.size()) s.async_calls.emplace_back(s.device);
  AsyncCall& call = s.async_calls[bucket.call];
  call.began.record(s.comm_stream->get());
  call.kind = bucket.under_way = instr.kind;
  call.posted_at = s.run->position;
  call.ended = false;
  bucket.axis = instr.axis;
}

void end_async(Communication& c, const gsel_instr& instr) {
  const size_t call = c.buckets[instr.bucket].call;
  c.async_calls[call].done.record(c.comm_stream->get());
  c.last_async[instr.axis] = static_cast<int64_t>(call);
}

// Asynchronous calls that have not ended keep their slots.
void forget_async(Communication& c) {
  if (std::ranges::any_of(c.buckets, &BucketState::under_way)) return;
  c.n_async = 0;
  c.last_async.fill(-1);
}

namespace {

void note_async(const Communication& c, const AsyncCall& call, StepRecord& record) {
  const double seconds = call.began.seconds_until(call.done);
  const double began = c.began_event.seconds_until(call.began);
  record.intervals.push_back({call.posted_at, began, began + seconds, true});
  gsel_step_report& report = record.report;
  const InstrForm& form = known_form_of(call.kind);
  if (form.call == GSEL_COLLECTIVE_ALLGATHER) {
    ++report.n_allgathers;
    report.allgather_s += seconds;
    report.exposed_allgather_s += call.waited_s;
  } else if (form.work == InstrWork::gradients) {
    ++report.n_reduces;
    report.n_overlapped += call.backward_went_on || call.began.seconds_until(c.backward_done) > 0;
  }
}

}  // namespace

void settle_device(State& s) {
  if (s.device->compute()) {
    s.device->wait();
    if (s.comm_stream) s.device->run(&gsel_device_v1::stream_wait, s.comm_stream->get());
    s.comms.throw_async_errors();
  }
  for (size_t i = 0; i < s.n_async; ++i)
    if (std::exchange(s.async_calls[i].ended, false)) note_async(s, s.async_calls[i], s.run->record);
}

}  // namespace gsel::execute
