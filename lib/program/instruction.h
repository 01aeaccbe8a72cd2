// program/instruction.h: one row for each kind of instruction: its word, its operands, what it works on, whom it meets.
// The text form, the verifier, traffic, the memory plan, the simulator and the executor read it. A new kind is a row
// here, and a function where a room does more than its row says.
#pragma once

#include <gsel/comm.h>
#include <gsel/program.h>

#include <string_view>

namespace gsel {

enum class InstrWork : uint8_t {
  input,          // a value is read from the data
  forward,        // of a layer, also when it is recomputed
  backward,       // of a layer, or half of it
  message,        // a value, or its gradient, to or from a pipeline rank
  parts,          // a value, or its gradient, between a micro-batch and its parts
  params,         // a bucket's whole parameters come; asynchronous
  gradients,      // a bucket's gradients are reduced; asynchronous
  wait,           // the end of a bucket's asynchronous collective
  release,        // of a bucket's whole parameters
  sum_stepped,    // what this rank steps of a bucket, summed over another axis than the data axis
  numbers,        // a few numbers are summed over ranks
  step,           // the optimizer
  post_validate,  // see program/optimistic.h
};

// The ranks that an instruction blocks with, once or for each exchange.
enum class InstrPeers : uint8_t {
  nobody,
  axis,   // those along its axis
  tied,   // the pipeline ranks that hold the bucket's parameters
  layer,  // for each phase of the layer those along the phase's axis, or those of the sharing axis to redistribute
  norm,   // those along each axis that norm_sums_over
};

// Memory of the arena that a bucket's whole parameters or whole gradient stand in, opened by the instruction.
enum class BucketWindow : uint8_t { none, params, gradient };

struct InstrForm {
  gsel_instr_kind kind;
  const char* word;
  bool layer, value, microbatch, bucket, axis;
  const char* peer;  // word before the peer's rank, or nullptr
  InstrWork work;
  InstrPeers meets;
  gsel_collective_kind call;  // GSEL_COLLECTIVE_SEND: messages; BARRIER: none, or as the layer says
  BucketWindow opens;
  bool trains;     // no evaluation has it
  uint32_t flags;  // GSEL_INSTR_* that it may have

  bool is_bucket_collective() const { return work == InstrWork::params || work == InstrWork::gradients; }
};
const InstrForm* form_of(gsel_instr_kind kind);  // nullptr when unknown
const InstrForm* form_of(std::string_view word);

// The work of a kind that exists.
InstrWork work_of(gsel_instr_kind kind);

}  // namespace gsel
