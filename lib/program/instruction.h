// program/instruction.h: one row per kind of instruction: its word and operands, what it does, what it writes, and
// which data it sends by which collective to which ranks. The text form, the verifier, traffic, the memory plan, the
// simulator and the executor read the row. A new kind needs a row here, and rules in the verifier and a function in the
// executor if no other kind does the same work.
#pragma once

#include <gsel/comm.h>
#include <gsel/program.h>

#include <array>
#include <string_view>

namespace gsel {

enum class InstrTask : uint8_t {
  input,           // reads a value from the data
  forward,         // a layer's forward, also when recomputed
  backward,        // a layer's backward, or half of it
  message,         // a value, or its gradient, to or from a pipeline rank
  scatter_gather,  // a value, or its gradient, between a whole micro-batch and its shards
  params,          // makes a bucket's parameters whole; asynchronous
  gradients,       // reduces a bucket's gradients; asynchronous
  wait,            // ends a bucket's asynchronous collective
  release,         // drops a bucket's whole parameters
  sum_stepped,     // sums what this rank steps of a bucket, over another axis than data
  loss,            // sums the loss
  check,           // computes a number from all gradients
  step,            // the optimizer
  post_validate,   // see program/optimistic.h
};

// The data of an instruction's collective.
enum class InstrData : uint8_t {
  none,       // or that of the layer
  value,      // the value, or its gradient
  params,     // of the bucket
  gradients,  // of the bucket, or what it is compressed to
  stepped,    // what this rank steps of the bucket: its gradients
  number,     // one f64
  loss,       // two: the sums of losses and weights
};

// The ranks among which the data is sent.
enum class InstrPeers : uint8_t {
  nobody,
  peer,   // the peer, along the pipeline
  axis,   // of its axis
  tied,   // the pipeline ranks that hold the bucket's parameters
  layer,  // per phase of the layer, ranks of the phase's axis; or, to redistribute, ranks of the sharing axis
  norm,   // of each axis for which norm_sums_over
};

// The window in the arena that the instruction opens: a bucket's whole parameters or whole gradient.
enum class BucketWindow : uint8_t { none, params, gradient };

// Where in a segment of a step (README) the instruction can be: nowhere, since the host fills an input or moves a
// value; anywhere; or at the end of the step, where a plain step has numbers on the host.
enum class InGraph : uint8_t { no, yes, at_end };

// How a bucket's optimizer state lies on the ranks of the data axis: whole on each, in shards, or on the owner alone.
enum class StateLayout : uint8_t { replicated, sharded, owned };

struct InstrRow {
  gsel_instr_kind kind = 0;
  const char* word = nullptr;
  InstrTask task = InstrTask::input;
  // Operands.
  bool layer = false, value = false, microbatch = false, bucket = false, axis = false;
  const char* peer = nullptr;  // word before the peer's rank, or nullptr
  uint32_t flags = 0;          // permitted GSEL_INSTR_* flags
  // Memory.
  bool writes_value =
      false;  // else it reads its value; for scatter_gather, the root does the opposite with the whole one
  bool input_half = false;   // of a backward: writes the gradients of the layer's inputs
  bool weight_half = false;  // of a backward: writes the gradients of the layer's parameters
  BucketWindow opens = BucketWindow::none;
  StateLayout reduces = StateLayout::replicated;  // of a reduction of gradients: the buckets that it is for
  // Communication.
  InstrPeers peers = InstrPeers::nobody;
  gsel_collective_kind call = GSEL_COLLECTIVE_BARRIER;  // BARRIER: none, or the layer's
  InstrData data = InstrData::none;
  gsel_instr_kind counted_under = 0;  // of a layer: the kind that counts its collectives
  // Callbacks.
  int32_t callback = 0;     // GSEL_WORK_* of a layer: the work that the embedder gets
  bool recomputes = false;  // a forward whose outputs were written before
  // Order.
  bool in_setup = false;  // permitted in setup
  bool trains = false;    // in training only
  bool repeats = false;   // may follow an optimistic number; repeated with the true one if that differs
  InGraph in_graph = InGraph::no;

  bool is_bucket_collective() const { return task == InstrTask::params || task == InstrTask::gradients; }
  bool is_send() const { return task == InstrTask::message && !writes_value; }
  bool is_receive() const { return task == InstrTask::message && writes_value; }
  bool is_scatter() const { return task == InstrTask::scatter_gather && writes_value; }
};

inline constexpr size_t kInstrKinds = GSEL_INSTR_POST_VALIDATE + 1;
extern const std::array<const InstrRow*, kInstrKinds> kRowOfKind;
[[noreturn]] void refuse_kind(gsel_instr_kind kind);

// The reduction of gradients for such buckets.
const InstrRow& reduction_for(StateLayout layout);
// nullptr when unknown.
const InstrRow* find_instr_row(std::string_view word);
inline const InstrRow* find_instr_row(gsel_instr_kind kind) {
  return kind >= 0 && static_cast<size_t>(kind) < kInstrKinds ? kRowOfKind[static_cast<size_t>(kind)] : nullptr;
}
// kind: must exist.
inline const InstrRow& instr_row(gsel_instr_kind kind) {
  const InstrRow* row = find_instr_row(kind);
  if (!row) refuse_kind(kind);
  return *row;
}
inline InstrTask task_of(gsel_instr_kind kind) {
  return instr_row(kind).task;
}

// Whether an evaluation has no such instruction. kind: must exist.
inline bool trains(const gsel_instr& instr) {
  return instr_row(instr.kind).trains || (instr.flags & GSEL_INSTR_GRADIENT);
}

}  // namespace gsel
