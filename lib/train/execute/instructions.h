// train/execute/instructions.h: the implementation of each kind of instruction, and functions that they share.
#pragma once

#include <functional>
#include <span>

#include "train/execute/state.h"

namespace gsel::execute {

// Instructions that run to completion.
void scatter_or_gather(State& s, const gsel_instr& instr);
void send(State& s, const gsel_instr& instr);
void receive(State& s, const gsel_instr& instr);
void make_params_whole(State& s, const gsel_instr& instr);
void release_params(State& s, const gsel_instr& instr);
void reduce_gradients(State& s, const gsel_instr& instr);
void sum_stepped(State& s, const gsel_instr& instr);
void allreduce_loss(State& s, const gsel_instr& instr);
void find_overflow(State& s, const gsel_instr& instr);
void norm(State& s, const gsel_instr& instr);
void step_optimizer(State& s, const gsel_instr& instr);
// The axis over which numbers of the bucket's gradient are summed, because it is sharded or owned by one rank; -1:
// none.
gsel_axis divided_axis(const State& s, int32_t bucket);
// The part of NORM and OVERFLOW that the device does: buckets that are divided over one axis come one after the other.
void enqueue_squares(State& s, const gsel_instr& instr);

// Instructions that may hand out work (then true); take_back_* runs when the work is complete.
bool hand_out_input(State& s, const gsel_instr& instr);
void take_back_input(State& s, const gsel_instr& instr, bool no_samples);
bool hand_out_layer(State& s, const gsel_instr& instr);
void take_back_layer(State& s, const gsel_instr& instr);

// POST_VALIDATE. False: the previous step was undone and repeated, and this step has started over.
bool post_validate(State& s);

// Runs any instruction.
enum class Outcome : uint8_t {
  done,
  handed_out,    // work for the embedder
  started_over,  // POST_VALIDATE has repeated the step before, and this step is at its first instruction again
};
Outcome run_instr(State& s, const gsel_instr& instr);
// At the first instruction of a run, also when it starts over.
void begin_first_instr(State& s);

// ---- layers: layer.cc, redistribute.cc ------------------------------------------------------------------------------

// Adds a contribution to a value's gradient, unless it was the first and written in place.
void finish_contribution(State& s, const ArenaOperands::OfValue& operand, int32_t v, int32_t mb);
void redistribute_layer(State& s, const gsel_instr& instr);

// ---- buckets: collectives.cc ----------------------------------------------------------------------------------------

void close_param_window(HeldMemory& memory, const Lender& lender, int32_t bucket);
// Opens a window in the arena for a bucket's gradient, unless it is kept whole.
void open_gradient_window(State& s, int32_t bucket, uint64_t offset);
void zero_gradient(State& s, int32_t param);
// Zeroes gradients of parameters that no sample of this rank reached.
void zero_missing_gradients(State& s, int32_t bucket);
// Ends a bucket's asynchronous collective and takes its result.
void wait_bucket(State& s, int32_t bucket);

// ---- calls of the communicator: collectives.cc ----------------------------------------------------------------------

// Calls in compute order. call_now: along an axis, on the compute stream.
void call_now(State& s, gsel_instr_kind poster, gsel_axis axis, gsel_collective call);
// A message along the pipeline, in order with the calls of that axis.
void message_now(State& s, gsel_instr_kind poster, gsel_collective call);
// A call on memory of the host over any communicator, counted under the axis. Returns when the results have arrived.
void call_on_host(State& s, Communicator& comm, gsel_instr_kind poster, gsel_axis axis, gsel_collective call);
void allreduce_numbers(State& s, gsel_instr_kind poster, gsel_axis axis, std::span<double> numbers, gsel_op op);
// The instruction's collective: of the kind that its row names, from or to its peer if it has one; a reduction sums.
gsel_collective collective_of(const gsel_instr& instr, const void* send, void* recv, uint64_t count, gsel_dtype dtype);
// At the start of a run: forgets the asynchronous calls of the run before.
void forget_async(Communication& c);
// Adds time that this rank waited for communication.
void note_exposed(State& s, gsel_axis axis, double seconds);
// Stores the run's call counts in its record.
void record_counts(State& s);

// ---- messages: messages.cc ------------------------------------------------------------------------------------------

void begin_messages(State& s);
// Before an instruction: the receives that come before it in the order of launching.
void launch_receives(State& s);
void settle_messages(State& s);

// Waits until the device has finished the run, then records the times of its calls. Throws the error of a broken
// communicator.
void settle_device(State& s);

// ---- what the optimizer is given: step.cc, non_finite.cc, post_validate.cc ------------------------------------------

// One pipeline rank has the losses. It sends them to the others instead of all-reducing, so that a rank can begin its
// next step while others are still in this one. call: a SEND to that rank of the pipeline, or a RECV from it.
void pass_losses(const State& s, const std::function<void(gsel_collective_kind, int32_t peer)>& call);
// Only if the sum of loss weights is not positive and finite. agree_on_bad_weight: a collective of all ranks that finds
// the first bad weight. refuse_weight: throws the error.
void agree_on_bad_weight(State& s);
[[noreturn]] void refuse_weight(const State& s);
double clip_of(const Fixed& fixed, double gradient_norm);
bool shows_overflow(const Fixed& fixed, double squares);
// Checks the gradients that the last backward wrote; checks the loss of a micro-batch.
void check_for_non_finite(State& s, const gsel_instr& instr, const Layer& layer);
void check_loss(const Fixed& fixed, Run& run, int32_t microbatch);
// On a device: evaluates the pending checks. Call when the device has written their numbers.
void finish_pending_checks(State& s);
// Takes the loss of a micro-batch from the numbers and checks it.
void take_loss(State& s, int32_t microbatch);
// Updates loss scale and counters once all ranks know the outcome of a step. After an overflow, a collective.
void end_update(State& s, bool overflowed, int64_t step, const NonFiniteOrigin& origin);
void report_non_finite(const Progress& progress, gsel_step_report& report);
// Optimistic steps: sends this rank's NORM or OVERFLOW; reports the last validated step.
void start_optimistic(State& s, const gsel_instr& instr, double number);
void report_validated(const Run& run, const Validation& validation, gsel_step_report& report);
// Validates the open optimistic step, if any. False: it was undone and repeated with the true numbers.
bool settle_validation(State& s);

}  // namespace gsel::execute
