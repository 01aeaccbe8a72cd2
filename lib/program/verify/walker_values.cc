// program/verify/walker_values.cc: rules of inputs and callbacks: nothing is read before it is written, and no gradient
// is used before all its contributions have arrived.
#include <algorithm>

#include "program/stages.h"
#include "program/verify/walker.h"

namespace gsel {

void Walker::input(const gsel_instr& instr) {
  if (!program_.values[instr.value].is_input) refuse("the value is not an input");
  if (program_.mesh.size[GSEL_AXIS_PIPELINE] > 1 &&
      !std::ranges::count(chain(program_, instr.value), coordinate(GSEL_AXIS_PIPELINE)))
    refuse("no layer of this rank's stages reads the input");
  ValueFacts& v = value(instr.value, instr.microbatch);
  if (v.written) refuse("the value is already written");
  v.written = true;
}

void Walker::need_here(const gsel_instr& instr) const {
  if (is_here(program_, instr.layer)) return;
  refuse(fmt::format("the layer is of stage {}, which is on pipeline rank {}; this is pipeline rank {}",
                     program_.layers[instr.layer].stage, pipeline_rank_of_layer(program_, instr.layer),
                     coordinate(GSEL_AXIS_PIPELINE)));
}

void Walker::forward(const gsel_instr& instr) {
  need_here(instr);
  const ProgramLayer& l = program_.layers[instr.layer];
  const int32_t mb = instr.microbatch;
  LayerFacts& facts = layer(instr.layer, mb);
  if (facts.forward) refuse("this forward has run already");
  if (l.is_loss && std::ranges::count(loss_reduced_, true))
    refuse("the loss is already reduced; this part of it would be lost");
  facts.forward = true;
  for (int32_t v : l.inputs) {
    ValueFacts& in = value(v, mb);
    if (!in.written) refuse(fmt::format("it reads value \"{}\" before it is written", name(v)));
    if (in.gradient_used) refuse(fmt::format("it reads value \"{}\" after its gradient was used", name(v)));
    if (program_.values[v].needs_gradient && l.needs_backward_input) ++in.expected;
  }
  for (int32_t v : l.outputs) {
    ValueFacts& out = value(v, mb);
    if (out.written) refuse(fmt::format("it writes value \"{}\", which is already written", name(v)));
    out.written = true;
  }
  need_params(l, 0);
  for (int32_t p : l.params) {
    if (bucket_of_[p] < 0 || purpose_ == Purpose::evaluation) continue;
    if (buckets_[bucket_of_[p]].closed)
      refuse(
          fmt::format("it uses parameter \"{}\" after its gradient was reduced or stepped", program_.params[p].name));
    if (l.needs_backward_weight) ++pending_[p];
  }
}

// Its outputs were written before and may have been freed since. Another recomputation may have read the first copy
// already, if a value skips a layer that is not recomputed.
void Walker::recompute(const gsel_instr& instr) {
  const ProgramLayer& l = program_.layers[instr.layer];
  LayerFacts& facts = layer(instr.layer, instr.microbatch);
  if (l.is_loss) refuse("a loss is never recomputed; it would be counted twice");
  if (!facts.forward) refuse("its forward has not run");
  if (facts.recomputed) refuse("it is already recomputed");
  if (facts.backward_input || facts.backward_weight) refuse("its backward has run already");
  facts.recomputed = true;
  need_params(l, 0);
}

void Walker::need_output_gradients(const ProgramLayer& l, int32_t mb) {
  for (int32_t v : l.outputs) {
    if (!program_.values[v].needs_gradient) continue;
    ValueFacts& out = value(v, mb);
    if (out.expected == 0 || out.arrived < out.expected)
      refuse(
          fmt::format("the gradient of value \"{}\" has {} of {} contributions", name(v), out.arrived, out.expected));
    out.gradient_used = true;
  }
}

void Walker::backward(const gsel_instr& instr) {
  need_here(instr);
  const ProgramLayer& l = program_.layers[instr.layer];
  const int32_t mb = instr.microbatch;
  const InstrForm& form = known_form_of(instr.kind);
  const bool input_half = form.input_half && l.needs_backward_input;
  const bool weight_half = form.weight_half && l.needs_backward_weight;
  LayerFacts& facts = layer(instr.layer, mb);
  if (!input_half && !weight_half) refuse("the layer has no such gradient to produce");
  if (!facts.forward) refuse("its forward has not run");
  need_output_gradients(l, mb);
  if (form.input_half || l.weight_reads_params) need_params(l, l.backward_unread_params);
  if (input_half) {
    if (facts.backward_input) refuse("the gradient of its inputs is already produced");
    facts.backward_input = true;
    for (int32_t v : l.inputs)
      if (program_.values[v].needs_gradient) ++value(v, mb).arrived;
  }
  if (weight_half) {
    if (facts.backward_weight) refuse("the gradient of its parameters is already produced");
    facts.backward_weight = true;
    produce_weights(instr);
  }
}

void Walker::produce_weights(const gsel_instr& instr) {
  for (int32_t p : program_.layers[instr.layer].params) {
    if (bucket_of_[p] < 0) continue;
    BucketFacts& bucket = buckets_[bucket_of_[p]];
    if (bucket.under_way && work_of(bucket.under_way) == InstrWork::gradients)
      refuse(fmt::format("it writes the gradient of parameter \"{}\", whose {} was not waited for",
                         program_.params[p].name, form_of(bucket.under_way)->word));
    --pending_[p];
    ++bucket.uncovered;
  }
}

}  // namespace gsel
