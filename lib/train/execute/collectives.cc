// train/execute/collectives.cc: calls of the communicator, and the life of a bucket in a step. Calls that may overlap
// backward go to the stream of their axis, one after the other; calls of different axes are not ordered. A call whose
// result the next computation needs runs on the compute stream, which is the calling thread on the host. It first waits
// for the axis's calls on the axis's stream; calls of other axes go on.
//
// A device may have no room for two calls at a time, so that ranks whose devices begin calls of two communicators in
// opposite orders would wait for each other. Every rank launches its calls in the order of the job's programs, which is
// the same on all ranks of a call: collectives at their positions, receives as messages.h says. The device begins them
// in this order: the transport has it so (NCCL_LAUNCH_ORDER_IMPLICIT), or comm/device/launch_order.h. What a call waits
// for on its own device was launched before it.
//
// BROADCAST and ALLGATHER make a bucket's parameters whole, RELEASE drops them; ALLREDUCE, REDUCE, REDUCE_SCATTER,
// ALLREDUCE_PARTIAL and ALLREDUCE_TIED sum its gradients; WAIT ends an asynchronous collective and takes its result.
// What is whole only temporarily is in a window of the arena. On an axis of one rank nothing is sent, but windows open,
// fill and close as usual.
#include <algorithm>

#include "base/os.h"
#include "base/types.h"
#include "comm/call/collective.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// A communicator runs one call at a time, so later computation waits for this axis's calls on its stream.
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

// On a communicator whose calls of this kind are not counted under the axis.
template <class Make>
void make_apart(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective_kind kind,
                Make&& make) {
  const double began = os::now_seconds();
  const gsel_comm_count before = comm.counts(kind);
  make(comm);
  s.counts.add(axis, poster, difference(comm.counts(kind), before));
  note_exposed(s, axis, os::now_seconds() - began);
}

template <class Make>
void make_in(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective_kind kind,
             Make&& make) {
  if (&comm == &s.axis_comm(axis)) return make_now(s, poster, axis, kind, std::forward<Make>(make));
  make_apart(s, comm, poster, axis, kind, std::forward<Make>(make));
}

// Makes the call on another communicator, and counts it under `axis`.
void call_in(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  make_in(s, comm, poster, axis, call.kind, [&](Communicator& c) { c.collective(call, s.device->compute()); });
}

}  // namespace

void call_now(State& s, gsel_instr_kind poster, gsel_axis axis, gsel_collective call) {
  make_now(s, poster, axis, call.kind, [&](Communicator& comm) { comm.collective(call, s.device->compute()); });
}

// Messages are counted on the world's communicator.
void message_now(State& s, gsel_instr_kind poster, gsel_collective call) {
  Communicator& comm = s.axis_comm(GSEL_AXIS_PIPELINE);
  if (&comm == &s.comms.world()) return call_now(s, poster, GSEL_AXIS_PIPELINE, call);
  make_apart(s, comm, poster, GSEL_AXIS_PIPELINE, call.kind,
             [&](Communicator& c) { c.collective(call, s.device->compute()); });
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
  const InstrRow& row = instr_row(instr.kind);
  return make_collective(row.call, send, recv, count, dtype, is_reduction(row.call) ? GSEL_SUM : 0,
                         row.peer ? instr.peer : -1);
}

// ---- asynchronous calls -----------------------------------------------------------------------------------------

namespace {

// Asynchronous calls, on the stream of their axis, after everything computed so far: begin_async, calls of one kind,
// end_async; the bucket's WAIT ends them.
void begin_async(State& s, const gsel_instr& instr, gsel_collective_kind kind) {
  BucketState& bucket = s.buckets[instr.bucket];
  const double began = os::now_seconds();
  count_under(s, instr.axis, kind, instr.kind);
  note_exposed(s, instr.axis, os::now_seconds() - began);
  s.compute_done.record_compute();
  gsel_stream* const stream = s.streams[instr.axis]->get();
  s.device->run(&gsel_device_v1::stream_wait_event, stream, s.compute_done.get());
  bucket.call = s.n_async++;
  if (bucket.call == s.async_calls.size()) s.async_calls.emplace_back(s.device);
  AsyncCall& call = s.async_calls[bucket.call];
  call.began.record(stream);
  call.kind = bucket.under_way = instr.kind;
  call.posted_at = s.run->position;
  call.ended = false;
  bucket.axis = instr.axis;
}

void end_async(Communication& c, const gsel_instr& instr) {
  const size_t call = c.buckets[instr.bucket].call;
  c.async_calls[call].done.record(c.streams[instr.axis]->get());
  c.last_async[instr.axis] = static_cast<int64_t>(call);
}

}  // namespace

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
  const InstrRow& row = instr_row(call.kind);
  if (row.call == GSEL_COLLECTIVE_ALLGATHER) {
    ++report.n_allgathers;
    report.allgather_s += seconds;
    report.exposed_allgather_s += call.waited_s;
  } else if (row.task == InstrTask::gradients) {
    ++report.n_reduces;
    report.n_overlapped += call.backward_went_on || call.began.seconds_until(c.backward_done) > 0;
  }
}

}  // namespace

void settle_device(State& s) {
  if (s.device->compute()) {
    s.device->wait();
    s.wait_for_streams(*s.device);
    s.comms.throw_async_errors();
  }
  for (size_t i = 0; i < s.n_async; ++i)
    if (std::exchange(s.async_calls[i].ended, false)) note_async(s, s.async_calls[i], s.run->record);
}

// ---- buckets: windows -----------------------------------------------------------------------------------------------

namespace {

void open_param_window(State& s, int32_t bucket) {
  if (s.params.whole_params(bucket)) return;
  void* memory = s.at(s.operands().window);
  if (!memory)
    fail(GSEL_ERR_INTERNAL, "the parameters of bucket {} have no memory at step instruction {}", bucket,
         s.run->position);
  s.params.open_params(bucket, memory);
}

void forget_contributions(Run& run, int32_t bucket) {
  for (int32_t p : run.program.buckets[bucket].params) run.weight_begun[p] = false;
}

void close_gradient_window(State& s, int32_t b) {
  const BucketLayout& layout = s.params.layout(b);
  if (layout.whole_gradient) return;
  if (s.lent.lender.moves()) s.lent.lender.poison(s.params.whole_gradient(b), layout.gradient_window_bytes);
  s.params.close_gradient(b);
  forget_contributions(*s.run, b);
}

// ---- results taken by WAIT -----------------------------------------------------------------------------------------

// Whether the first `elems` 16-bit parameters of a shard differ from its rounded master copy. Uses memory that is free
// before the first step.
double own_params_differ(const State& s, const BucketShard& own, uint64_t elems) {
  const CountedMemory& room = s.arena.bytes() > s.staging.bytes() ? s.arena : s.staging;
  const uint64_t chunk = room.bytes() / sizeof(uint16_t);
  std::vector<uint16_t> here, there;
  for (uint64_t first = 0; first < elems; first += chunk) {
    const uint64_t n = std::min(chunk, elems - first), bytes = n * sizeof(uint16_t);
    s.device->enqueue(&gsel_device_v1::cast, room.data(), own.rounded_dtype,
                      static_cast<const void*>(own.values + first), gsel_dtype{GSEL_F32}, n);
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

// A broadcast before the first step gave all ranks the root's parameters, rounded if they are kept in 16 bits. If all
// ranks' master copies round to these, they are exact and stay; else all ranks set them from the rounded ones.
void update_master_copies(State& s, int32_t b) {
  const BucketLayout& layout = s.params.layout(b);
  if (layout.dtype == GSEL_F32 || s.program().buckets[b].owner >= 0) return;  // only the owner has a copy
  const BucketShard own = s.params.shard(b);
  const auto elems =
      static_cast<uint64_t>(std::max<int64_t>(std::min(layout.own.end, layout.elems) - layout.own.begin, 0));
  double differs = own_params_differ(s, own, elems);
  const gsel_axis axis = s.program().buckets[b].axis;
  allreduce_numbers(s, 0, axis < 0 ? GSEL_AXIS_DATA : axis, {&differs, 1}, GSEL_MAX);
  if (differs != 0)
    s.device->enqueue(&gsel_device_v1::cast, static_cast<void*>(own.values), gsel_dtype{GSEL_F32},
                      static_cast<const void*>(own.rounded), own.rounded_dtype, elems);
  s.params.done_with(b, differs != 0);
}

void add_reduced(State& s, int32_t b) {
  float* reduced = std::exchange(s.buckets[b].reduced, nullptr);
  if (!reduced) return;
  s.add(s.params.own_gradient(b), reduced, GSEL_F32, static_cast<uint64_t>(s.params.layout(b).own_elems()));
}

void finish_collective(State& s, int32_t b, const InstrRow& row) {
  if (row.call == GSEL_COLLECTIVE_BROADCAST && !s.under_way) update_master_copies(s, b);
  if (row.opens != BucketWindow::gradient) return;
  add_reduced(s, b);
  close_gradient_window(s, b);
}

}  // namespace

void open_gradient_window(State& s, int32_t bucket, uint64_t offset) {
  if (s.params.whole_gradient(bucket)) return;
  if (offset == ArenaOperands::kNone)
    fail(GSEL_ERR_INTERNAL, "the gradient of bucket {} has no memory at step instruction {}", bucket, s.run->position);
  s.params.open_gradient(bucket, s.at(offset));
  forget_contributions(*s.run, bucket);
}

void zero_gradient(State& s, int32_t p) {
  s.device->enqueue(&gsel_device_v1::zero, static_cast<void*>(s.params.gradient(p)),
                    sizeof(float) * static_cast<uint64_t>(s.model.params()[p].n_elems));
  s.run->weight_begun[p] = true;
}

void zero_missing_gradients(State& s, int32_t bucket) {
  for (int32_t p : s.program().buckets[bucket].params)
    if (!s.run->weight_begun[p]) zero_gradient(s, p);
}

// ---- parameters ----------------------------------------------------------------------------------------------------

namespace {

// The instruction's collective, with counts if the shards differ in size.
gsel_collective collective_of_bucket(const State& s, const gsel_instr& instr, const void* send, void* recv,
                                     uint64_t count, gsel_dtype dtype) {
  gsel_collective call = collective_of(instr, send, recv, count, dtype);
  const std::vector<uint64_t>& counts = s.buckets[instr.bucket].shard_counts;
  const gsel_collective_kind with_counts = row_of(call.kind).with_counts;
  if (counts.empty() || with_counts < 0) return call;
  call.kind = with_counts;
  call.recv_counts = counts.data();
  return call;
}

}  // namespace

// BROADCAST from the root, ALLGATHER in place: each rank's shard is already, or is put, at its position in the whole.
void make_params_whole(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  const BucketLayout& layout = s.params.layout(b);
  const bool gathers = !instr_row(instr.kind).peer;
  open_param_window(s, b);
  if (s.axis_size(instr.axis) == 1) {
    if (gathers) s.params.place_shard(b, s.device->compute());
    return;
  }
  auto* whole = static_cast<char*>(s.params.whole_params(b));
  const char* own = gathers ? whole + static_cast<uint64_t>(layout.own.begin) * dtype_bytes(layout.dtype) : whole;
  const auto elems = static_cast<uint64_t>(gathers ? layout.own_elems() : layout.elems);
  gsel_collective call = collective_of_bucket(s, instr, own, whole, elems, layout.dtype);
  begin_async(s, instr, call.kind);
  if (gathers) s.params.place_shard(b, s.streams[instr.axis]->get());
  s.axis_comm(instr.axis).collective(call, s.streams[instr.axis]->get());
  end_async(s, instr);
}

void close_param_window(HeldMemory& memory, const Lender& lender, int32_t bucket) {
  const BucketLayout& layout = memory.params.layout(bucket);
  if (layout.whole_params) return;
  if (lender.moves() && memory.params.whole_params(bucket))
    lender.poison(memory.params.whole_params(bucket), layout.param_window_bytes);
  memory.params.close_params(bucket);
}

void release_params(State& s, const gsel_instr& instr) {
  close_param_window(s, s.lent.lender, instr.bucket);
}

// ---- gradients over the data axis ----------------------------------------------------------------------------------

// ALLREDUCE and REDUCE work in place. REDUCE_SCATTER writes into the rank's shard of the whole gradient if that is
// kept, else into the stored shard, or, if that already holds the sum of earlier micro-batches, into memory of the
// plan.
void reduce_gradients(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  const InstrRow& row = instr_row(instr.kind);
  const bool scatters = row.reduces == StateLayout::sharded;
  BucketState& bucket = s.buckets[b];
  const BucketLayout& layout = s.params.layout(b);
  open_gradient_window(s, b, s.operands().window);
  zero_missing_gradients(s, b);
  float* whole = s.params.whole_gradient(b);
  float* result = scatters ? s.params.own_gradient(b) : whole;
  if (void* apart = scatters ? s.at(s.operands().reduced) : nullptr)
    result = bucket.reduced = static_cast<float*>(apart);
  if (s.axis_size(instr.axis) == 1) {
    const float* own = whole + layout.own.begin;
    if (scatters && result != own)
      s.copy(result, own, sizeof(float) * static_cast<uint64_t>(layout.own_elems()), GSEL_COPY_ON_DEVICE);
    return finish_collective(s, b, row);
  }
  const auto elems = static_cast<uint64_t>(scatters ? layout.own_elems() : layout.elems);
  gsel_collective call = collective_of_bucket(s, instr, whole, result, elems, GSEL_F32);
  begin_async(s, instr, call.kind);
  if (bucket.compressor)
    bucket.compressor->begin(s.axis_comm(instr.axis), whole, s.step, s.loss_scale.value(),
                             s.streams[instr.axis]->get());
  else
    s.axis_comm(instr.axis).collective(call, s.streams[instr.axis]->get());
  end_async(s, instr);
}

// ---- gradients over other axes -------------------------------------------------------------------------------------

// In place, on what this rank steps of a bucket; each rank has one summand. ALLREDUCE_TIED is over the pipeline ranks
// that hold the bucket's parameters.
void sum_stepped(State& s, const gsel_instr& instr) {
  const int32_t b = instr.bucket;
  const bool tied = instr_row(instr.kind).peers == InstrPeers::tied;
  const gsel_axis axis = tied ? GSEL_AXIS_PIPELINE : instr.axis;
  if (s.axis_size(axis) == 1 || !s.params.layout(b).steps) return;
  if (s.params.whole_gradient(b)) zero_missing_gradients(s, b);
  float* own = s.params.own_gradient(b);
  const auto elems = static_cast<uint64_t>(s.params.layout(b).own_elems());
  call_in(s, tied ? s.comms.tie(b) : s.axis_comm(axis), instr.kind, axis,
          collective_of(instr, own, own, elems, GSEL_F32));
}

// ---- the end of asynchronous collectives ---------------------------------------------------------------------------

void wait_bucket(State& s, int32_t b) {
  BucketState& bucket = s.buckets[b];
  if (!bucket.under_way) return;
  const gsel_instr_kind kind = std::exchange(bucket.under_way, 0);
  AsyncCall& call = s.async_calls[bucket.call];
  const double began = os::now_seconds();
  call.done.hold_compute();
  call.waited_s = os::now_seconds() - began;
  call.ended = true;
  call.backward_went_on = static_cast<int32_t>(s.run->position) < s.run->last_backward;
  note_exposed(s, bucket.axis, call.waited_s);
  finish_collective(s, b, instr_row(kind));
}

}  // namespace gsel::execute
