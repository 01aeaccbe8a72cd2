// train/execute/executor_collectives.cc: calls of the communicator. What may run beside backward goes to the
// communication stream, one call behind the other; what the program must wait for runs on the calling thread once the
// calls of its own axis on that stream have ended, while those of other axes go on. Bytes are counted under the kind of
// instruction that posted a call: between two looks at the communicator's count of one kind of call, only one kind of
// instruction makes such calls.
#include "base/dtype.h"
#include "base/os.h"
#include "train/execute/executor.h"

namespace gsel {
namespace {

gsel_comm_count minus(gsel_comm_count a, gsel_comm_count b) {
  a.calls -= b.calls;
  a.bytes_sent -= b.bytes_sent;
  return a;
}
void add_to(gsel_comm_count& sum, gsel_comm_count more) {
  sum.calls += more.calls;
  sum.bytes_sent += more.bytes_sent;
}

}  // namespace

int32_t Executor::axis_size(gsel_axis axis) const {
  return axis < 0 ? 1 : training_.program.mesh.size[axis];
}
gsel_axis Executor::sharing_axis() const {
  return training_.program.mesh.sharing_axis();
}
int32_t Executor::axis_place(gsel_axis axis) const {
  return axis < 0 ? 0 : training_.program.mesh.coordinate(training_.program.rank, axis);
}

// ---- counts ---------------------------------------------------------------------------------------------------

// Messages go over the world and belong to the pipeline.
gsel_comm_count Executor::counted(gsel_axis axis, gsel_collective_kind kind) {
  const bool is_message = kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV;
  if (is_message) return axis == GSEL_AXIS_PIPELINE ? comms_.world().counts(kind) : gsel_comm_count{};
  return axis_size(axis) > 1 ? axis_comm(axis).counts(kind) : gsel_comm_count{};
}

void Executor::settle(gsel_axis axis, gsel_collective_kind kind) {
  Meter& meter = meters_[axis][kind];
  const gsel_comm_count now = counted(axis, kind);
  add_to(counts_now_[axis][meter.poster], minus(now, meter.seen));
  meter.seen = now;
}

void Executor::count_under(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster) {
  Meter& meter = meters_[axis][kind];
  if (meter.poster == poster) return;
  drain(axis);
  settle(axis, kind);
  meter.poster = poster;
}

// What was counted so far is nobody's.
void Executor::forget_counts() {
  counts_now_ = {};
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_KINDS; ++kind)
      meters_[axis][kind].seen = counted(axis, kind);
  meters_[GSEL_AXIS_PIPELINE][GSEL_COLLECTIVE_SEND].poster = GSEL_INSTR_SEND;
  meters_[GSEL_AXIS_PIPELINE][GSEL_COLLECTIVE_RECV].poster = GSEL_INSTR_RECV;
}

// At the end of a step, when no call is under way. Kind 0 is what no instruction asked for. An evaluation is told and
// not added up.
void Executor::keep_counts() {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_KINDS; ++kind) settle(axis, kind);
  now_.counts.clear();
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_instr_kind kind = 1; kind < static_cast<gsel_instr_kind>(kInstrKinds); ++kind) {
      const gsel_comm_count& count = counts_now_[axis][kind];
      if (count.calls) now_.counts.push_back({axis, kind, count});
      now_.report.bytes_sent += count.bytes_sent;
      if (!evaluating_) add_to(counts_[axis][kind], count);
    }
}

gsel_comm_count Executor::counts(gsel_instr_kind kind, gsel_axis axis) const {
  const bool known = kind >= 0 && kind < static_cast<gsel_instr_kind>(kInstrKinds) && axis >= 0 && axis < kAxes;
  return known ? counts_[axis][kind] : gsel_comm_count{};
}

// ---- on the calling thread --------------------------------------------------------------------------------------

// A communicator takes one call at a time: until those of this axis beside the calling thread have ended.
void Executor::drain(gsel_axis axis) {
  if (const int32_t bucket = last_beside_[axis]; bucket >= 0) buckets_[bucket].done.wait();
}

// Communication that this rank waited for; along an axis of one place there is none.
void Executor::note_exposed(gsel_axis axis, double seconds) {
  if (axis_size(axis) == 1) return;
  now_.report.exposed_comm_s += seconds;
  now_.exposed_s[axis] += seconds;
}

void Executor::call_now(gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  if (axis_size(axis) == 1) return;
  const double began = os::now_seconds();
  drain(axis);
  count_under(axis, call.kind, poster);
  axis_comm(axis).collective(call);
  settle(axis, call.kind);
  note_exposed(axis, os::now_seconds() - began);
}

// In a group that no axis is of its own: counted by itself, and with no calls beside the calling thread.
void Executor::call_in(Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  if (&comm == &axis_comm(axis)) return call_now(poster, axis, call);
  const double began = os::now_seconds();
  const gsel_comm_count before = comm.counts(call.kind);
  comm.collective(call);
  add_to(counts_now_[axis][poster], minus(comm.counts(call.kind), before));
  note_exposed(axis, os::now_seconds() - began);
}

void Executor::combine_now(gsel_instr_kind poster, gsel_axis axis, std::span<double> numbers, gsel_op op) {
  if (axis_size(axis) == 1) return;
  auto* none = static_cast<gsel_stream*>(nullptr);
  if (numbers.size_bytes() > staging_.bytes())
    fail(GSEL_ERR_INTERNAL, "{} numbers are told to other ranks and there is room for {}", numbers.size(),
         staging_.bytes() / sizeof(double));
  backend_->run(&gsel_backend_v1::copy, staging_.data(), static_cast<const void*>(numbers.data()),
                uint64_t{numbers.size_bytes()}, int32_t{GSEL_COPY_TO_DEVICE}, none);
  call_now(poster, axis,
           make_collective(GSEL_COLLECTIVE_ALLREDUCE, staging_.data(), staging_.data(), numbers.size(), GSEL_F64, op));
  backend_->run(&gsel_backend_v1::copy, static_cast<void*>(numbers.data()), static_cast<const void*>(staging_.data()),
                uint64_t{numbers.size_bytes()}, int32_t{GSEL_COPY_TO_HOST}, none);
}

// ---- beside it --------------------------------------------------------------------------------------------------

// Opens what runs beside, calls of one kind: on the communication stream, after all that was computed so far.
// begin_beside, calls, then end_beside; WAIT finishes it.
void Executor::begin_beside(const gsel_instr& instr, gsel_collective_kind kind) {
  BucketState& bucket = buckets_[instr.bucket];
  const double began = os::now_seconds();
  count_under(instr.axis, kind, instr.kind);
  note_exposed(instr.axis, os::now_seconds() - began);
  compute_done_.record(nullptr);
  backend_->run(&gsel_backend_v1::stream_wait_event, comm_stream_->get(), compute_done_.get());
  bucket.begun.record(comm_stream_->get());
  bucket.under_way = instr.kind;
  bucket.posted_at = position_;
  bucket.axis = instr.axis;
}

void Executor::end_beside(const gsel_instr& instr) {
  buckets_[instr.bucket].done.record(comm_stream_->get());
  last_beside_[instr.axis] = instr.bucket;
}

void Executor::post(const gsel_instr& instr, gsel_collective call) {
  begin_beside(instr, call.kind);
  axis_comm(instr.axis).collective(call, comm_stream_->get());
  end_beside(instr);
}

// Until the collective of a bucket has finished: what it did is then looked at, not only waited for.
void Executor::wait_bucket(int32_t b) {
  BucketState& bucket = buckets_[b];
  if (!bucket.under_way) return;
  const gsel_instr_kind kind = std::exchange(bucket.under_way, 0);
  const double began = os::now_seconds();
  bucket.done.wait();
  const double waited = os::now_seconds() - began;
  note_exposed(bucket.axis, waited);
  note_beside(bucket, kind, waited);
  finish_collective(b, kind);
}

void Executor::note_beside(const BucketState& bucket, gsel_instr_kind kind, double waited) {
  if (!under_way_) return;
  const double seconds = bucket.begun.seconds_until(bucket.done);
  const double begun = began_event_.seconds_until(bucket.begun);
  now_.intervals.push_back({bucket.posted_at, begun, begun + seconds, true});
  gsel_step_report& report = now_.report;
  if (kind == GSEL_INSTR_ALLGATHER) {
    ++report.n_gathers;
    report.gather_s += seconds;
    report.exposed_gather_s += waited;
  } else if (kind != GSEL_INSTR_BROADCAST) {
    ++report.n_reduces;
    const bool backward_goes_on = static_cast<int32_t>(position_) < run_plan_->last_backward;
    report.n_overlapped += backward_goes_on || bucket.begun.seconds_until(backward_done_) > 0;
  }
}

}  // namespace gsel
