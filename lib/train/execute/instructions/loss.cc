// train/execute/instructions/loss.cc: LOSS_ALLREDUCE: sums the loss over all ranks.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "program/stages.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

// One pipeline rank has the losses. It sends them to the others instead of all-reducing, so that a rank can begin its
// next step while others are still in this one.
void send_losses(State& s, std::span<double, 2> parts) {
  const int32_t own = s.axis_coordinate(GSEL_AXIS_PIPELINE);
  const int32_t from = pipeline_rank_of_layer(s.program(), s.model.loss_layer());
  auto call = [&](gsel_collective_kind kind, int32_t peer) {
    const bool sends = kind == GSEL_COLLECTIVE_SEND;
    call_on_host(s, s.comms.losses(), GSEL_INSTR_LOSS_ALLREDUCE, GSEL_AXIS_PIPELINE,
                 make_collective(kind, sends ? parts.data() : nullptr, sends ? nullptr : parts.data(), parts.size(),
                                 GSEL_F64, 0, peer));
  };
  if (s.axis_size(GSEL_AXIS_PIPELINE) == 1) return;
  if (own != from) return call(GSEL_COLLECTIVE_RECV, from);
  for (int32_t peer = 0; peer < s.axis_size(GSEL_AXIS_PIPELINE); ++peer)
    if (peer != from) call(GSEL_COLLECTIVE_SEND, peer);
}

// Finds the first bad loss weight. All ranks call it, since all know that the weight sum is not positive and finite.
void agree_on_odd_weight(State& s) {
  const int32_t n = s.mesh.world_size();
  double first = s.run->odd_weight_microbatch < 0
                     ? std::numeric_limits<double>::infinity()
                     : static_cast<double>(int64_t{s.run->odd_weight_microbatch} * n + s.rank);
  for (gsel_axis axis : {s.sharing_axis(), GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA})
    allreduce_numbers(s, 0, axis, {&first, 1}, GSEL_MIN);
  if (!std::isfinite(first)) return;
  s.run->odd_weight_rank = static_cast<int32_t>(static_cast<int64_t>(first) % n);
  s.run->odd_weight_microbatch = static_cast<int32_t>(static_cast<int64_t>(first) / n);
}

}  // namespace

void refuse_weight(const State& s) {
  const Run& run = *s.run;
  const std::string odd =
      run.odd_weight_rank < 0
          ? ""
          : fmt::format("that of layer \"{}\" on rank {}, micro-batch {}, is negative or not finite; ",
                        s.model.layers()[static_cast<size_t>(s.model.loss_layer())].name, run.odd_weight_rank,
                        run.odd_weight_microbatch);
  throw Error(GSEL_ERR_MODEL,
              fmt::format("the loss weights of {} {} sum to {}; {}the sum over all ranks must be positive and finite",
                          run.evaluates() ? "the evaluation before step" : "step", s.step, run.weight, odd))
      .about_rank(run.odd_weight_rank);
}

void take_loss(State& s, int32_t microbatch) {
  const int64_t first = std::exchange(s.run->fetched[microbatch], -1);
  if (first < 0) return;
  for (size_t i = 0; i < 2; ++i) s.run->losses[microbatch][i] = s.numbers[static_cast<size_t>(first) + i];
  look_at_loss(s, *s.run, microbatch);
}

// The only place that normalises the loss: sums over all ranks, axis by axis, then one division.
void allreduce_loss(State& s, const gsel_instr& instr) {
  if (instr.axis == GSEL_AXIS_DATA) settle_messages(s);
  double parts[2] = {s.run->loss_sum, s.run->weight};
  if (std::ranges::any_of(s.run->fetched, [](int64_t i) { return i >= 0; })) {
    s.numbers.wait();
    for (size_t m = 0; m < s.run->fetched.size(); ++m) take_loss(s, static_cast<int32_t>(m));
  }
  for (std::array<double, 2>& loss : s.run->losses)
    for (size_t i = 0; i < 2; ++i) parts[i] += std::exchange(loss[i], 0);
  if (instr.axis == GSEL_AXIS_PIPELINE)
    send_losses(s, parts);
  else
    allreduce_numbers(s, instr.kind, instr.axis, parts, GSEL_SUM);
  s.run->loss_sum = parts[0];
  s.run->weight = parts[1];
  if (static_cast<int32_t>(s.run->position) != s.run->last_loss_allreduce || s.run->has_weight()) return;
  agree_on_odd_weight(s);
  if (!s.run->evaluates()) refuse_weight(s);
}

}  // namespace gsel::execute
