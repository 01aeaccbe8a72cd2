// train/execute/call_counts.cc: see call_counts.h.
#include "train/execute/call_counts.h"

namespace gsel::execute {
namespace {

void add_to(gsel_comm_count& sum, gsel_comm_count more) {
  sum.calls += more.calls;
  sum.bytes_sent += more.bytes_sent;
}

}  // namespace

gsel_comm_count difference(gsel_comm_count a, gsel_comm_count b) {
  a.calls -= b.calls;
  a.bytes_sent -= b.bytes_sent;
  return a;
}

CallCounts::ByInstr difference(CallCounts::ByInstr a, const CallCounts::ByInstr& b) {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (size_t kind = 0; kind < kInstrKinds; ++kind) a[axis][kind] = difference(a[axis][kind], b[axis][kind]);
  return a;
}

// Messages use the world's communicator and count under the pipeline.
gsel_comm_count CallCounts::counted(gsel_axis axis, gsel_collective_kind kind) {
  const bool is_message = kind == GSEL_COLLECTIVE_SEND || kind == GSEL_COLLECTIVE_RECV;
  if (is_message) return axis == GSEL_AXIS_PIPELINE ? comms_.world().counts(kind) : gsel_comm_count{};
  return mesh_.size[axis] > 1 ? comms_.axis(axis).counts(kind) : gsel_comm_count{};
}

void CallCounts::settle(gsel_axis axis, gsel_collective_kind kind) {
  Meter& meter = meters_[axis][kind];
  const gsel_comm_count now = counted(axis, kind);
  add_to(now_[axis][meter.poster], difference(now, meter.seen));
  meter.seen = now;
}

void CallCounts::set_poster(gsel_axis axis, gsel_collective_kind kind, gsel_instr_kind poster) {
  settle(axis, kind);
  meters_[axis][kind].poster = poster;
}

void CallCounts::add(gsel_axis axis, gsel_instr_kind poster, gsel_comm_count more) {
  add_to(now_[axis][poster], more);
}

void CallCounts::add(const ByInstr& more) {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (size_t kind = 0; kind < kInstrKinds; ++kind) add_to(now_[axis][kind], more[axis][kind]);
}

void CallCounts::begin() {
  now_ = {};
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_KINDS; ++kind)
      meters_[axis][kind].seen = counted(axis, kind);
  meters_[GSEL_AXIS_PIPELINE][GSEL_COLLECTIVE_SEND].poster = GSEL_INSTR_SEND;
  meters_[GSEL_AXIS_PIPELINE][GSEL_COLLECTIVE_RECV].poster = GSEL_INSTR_RECV;
}

const CallCounts::ByInstr& CallCounts::end() {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (gsel_collective_kind kind = 0; kind < GSEL_COLLECTIVE_KINDS; ++kind) settle(axis, kind);
  return now_;
}

void CallCounts::add_up() {
  for (gsel_axis axis = 0; axis < kAxes; ++axis)
    for (size_t kind = 1; kind < kInstrKinds; ++kind) add_to(all_[axis][kind], now_[axis][kind]);
}

gsel_comm_count CallCounts::of(gsel_instr_kind kind, gsel_axis axis) const {
  const bool known = kind >= 0 && kind < static_cast<gsel_instr_kind>(kInstrKinds) && axis >= 0 && axis < kAxes;
  return known ? all_[axis][kind] : gsel_comm_count{};
}

}  // namespace gsel::execute
