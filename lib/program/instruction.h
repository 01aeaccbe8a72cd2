// program/instruction.h: one row per kind of instruction: its word, operands, what it works on, and the ranks it meets.
// The text form, the verifier, traffic, the memory plan, the simulator and the executor read the row. A new kind needs
// a row here, and a function in each of these that does more than the row says.
#pragma once

#include <gsel/comm.h>
#include <gsel/program.h>

#include <string_view>

namespace gsel {

enum class InstrWork : uint8_t {
  input,          // reads a value from the data
  forward,        // a layer's forward, also when recomputed
  backward,       // a layer's backward, or half of it
  message,        // a value, or its gradient, to or from a pipeline rank
  parts,          // a value, or its gradient, between a micro-batch and its parts
  params,         // makes a bucket's parameters whole; asynchronous
  gradients,      // reduces a bucket's gradients; asynchronous
  wait,           // ends a bucket's asynchronous collective
  release,        // drops a bucket's whole parameters
  sum_stepped,    // sums what this rank steps of a bucket, over another axis than data
  numbers,        // sums a few numbers over ranks
  step,           // the optimizer
  post_validate,  // see program/optimistic.h
};

// The ranks that an instruction synchronises with, once or per exchange.
enum class InstrPeers : uint8_t {
  nobody,
  axis,   // of its axis
  tied,   // the pipeline ranks that hold the bucket's parameters
  layer,  // per phase of the layer, ranks of the phase's axis; or, to redistribute, ranks of the sharing axis
  norm,   // of each axis for which norm_sums_over
};

// The window in the arena that the instruction opens: a bucket's whole parameters or whole gradient.
enum class BucketWindow : uint8_t { none, params, gradient };

struct InstrForm {
  gsel_instr_kind kind;
  const char* word;
  bool layer, value, microbatch, bucket, axis;
  const char* peer;  // word before the peer's rank, or nullptr
  InstrWork work;
  InstrPeers meets;
  gsel_collective_kind call;  // SEND stands for messages; BARRIER: none, or the layer's
  BucketWindow opens;
  bool trains;     // in training only
  uint32_t flags;  // permitted GSEL_INSTR_* flags

  bool is_bucket_collective() const { return work == InstrWork::params || work == InstrWork::gradients; }
};
const InstrForm* form_of(gsel_instr_kind kind);  // nullptr when unknown
const InstrForm* form_of(std::string_view word);

// kind: must exist.
InstrWork work_of(gsel_instr_kind kind);

}  // namespace gsel
