// train/execute/calls.cc: calls of the communicator. Calls that may overlap backward go to the communication stream,
// one behind the other. A call that the program must wait for runs on the calling thread, once the calls of the same
// axis on that stream have ended; calls of other axes go on.
#include "base/os.h"
#include "base/text.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// A communicator takes one call at a time: until those of this axis on the communication stream have ended.
void drain(Communication& c, gsel_axis axis) {
  if (const int32_t bucket = c.last_async[axis]; bucket >= 0) c.buckets[bucket].done.wait();
}

void count_under(Communication& c, gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster) {
  if (c.counts.is_posted_by(axis, kind, poster)) return;
  drain(c, axis);
  c.counts.set_poster(axis, kind, poster);
}

}  // namespace

// Along an axis of one rank there is none.
void note_exposed(State& s, gsel_axis axis, double seconds) {
  if (s.axis_size(axis) == 1) return;
  s.run->record.report.exposed_comm_s += seconds;
  s.run->record.exposed_s[axis] += seconds;
}

// Those of an evaluation are reported and not added up.
void record_counts(State& s) {
  StepRecord& record = s.run->record;
  const CallCounts::ByInstr& counts = s.counts.end();
  record.counts.clear();
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_instr_kind kind = 1; kind < static_cast<gsel_instr_kind>(CallCounts::kInstrKinds); ++kind) {
      const gsel_comm_count& count = counts[axis][kind];
      if (count.calls) record.counts.push_back({axis, kind, count});
      record.report.bytes_sent += count.bytes_sent;
    }
  if (!s.run->evaluates()) s.counts.add_up();
}

// ---- on the calling thread --------------------------------------------------------------------------------------

void call_now(State& s, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  if (s.axis_size(axis) == 1) return;
  const double began = os::now_seconds();
  drain(s, axis);
  count_under(s, axis, call.kind, poster);
  s.axis_comm(axis).collective(call);
  s.counts.settle(axis, call.kind);
  note_exposed(s, axis, os::now_seconds() - began);
}

void call_in(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  if (&comm == &s.axis_comm(axis)) return call_now(s, poster, axis, call);
  const double began = os::now_seconds();
  const gsel_comm_count before = comm.counts(call.kind);
  comm.collective(call);
  s.counts.add(axis, poster, difference(comm.counts(call.kind), before));
  note_exposed(s, axis, os::now_seconds() - began);
}

void allreduce_numbers(State& s, gsel_instr_kind poster, gsel_axis axis, std::span<double> numbers, gsel_op op) {
  if (s.axis_size(axis) == 1) return;
  if (numbers.size_bytes() > s.staging.bytes())
    fail(GSEL_ERR_INTERNAL, "{} are to be reduced and there is room for {}", with_noun(numbers.size(), "number"),
         s.staging.bytes() / sizeof(double));
  s.copy(s.staging.data(), numbers.data(), numbers.size_bytes(), GSEL_COPY_TO_DEVICE);
  call_now(
      s, poster, axis,
      make_collective(GSEL_COLLECTIVE_ALLREDUCE, s.staging.data(), s.staging.data(), numbers.size(), GSEL_F64, op));
  s.copy(numbers.data(), s.staging.data(), numbers.size_bytes(), GSEL_COPY_TO_HOST);
}

// ---- asynchronously ---------------------------------------------------------------------------------------------

void begin_async(State& s, const gsel_instr& instr, gsel_collective_kind kind) {
  BucketState& bucket = s.buckets[instr.bucket];
  const double began = os::now_seconds();
  count_under(s, instr.axis, kind, instr.kind);
  note_exposed(s, instr.axis, os::now_seconds() - began);
  s.compute_done.record(nullptr);
  s.device->run(&gsel_device_v1::stream_wait_event, s.comm_stream->get(), s.compute_done.get());
  bucket.began.record(s.comm_stream->get());
  bucket.under_way = instr.kind;
  bucket.posted_at = s.run->position;
  bucket.axis = instr.axis;
}

void end_async(Communication& c, const gsel_instr& instr) {
  c.buckets[instr.bucket].done.record(c.comm_stream->get());
  c.last_async[instr.axis] = instr.bucket;
}

void post(State& s, const gsel_instr& instr, gsel_collective call) {
  begin_async(s, instr, call.kind);
  s.axis_comm(instr.axis).collective(call, s.comm_stream->get());
  end_async(s, instr);
}

}  // namespace gsel::execute
