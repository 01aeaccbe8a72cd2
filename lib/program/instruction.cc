// program/instruction.cc: see instruction.h.
#include "program/instruction.h"

#include <algorithm>

#include "base/error.h"

namespace gsel {
namespace {

using Task = InstrTask;
using Data = InstrData;
using Peers = InstrPeers;

// clang-format off
constexpr InstrRow kRows[] = {
    {.kind = GSEL_INPUT, .word = "input", .task = Task::input, .value = true, .microbatch = true,
     .writes_value = true},
    {.kind = GSEL_FORWARD, .word = "forward", .task = Task::forward, .layer = true, .microbatch = true,
     .peers = Peers::layer, .counted_under = GSEL_FORWARD, .callback = GSEL_FORWARD, .in_graph = InGraph::yes},
    {.kind = GSEL_BACKWARD_INPUT, .word = "backward_input", .task = Task::backward, .layer = true, .microbatch = true,
     .input_half = true, .peers = Peers::layer, .counted_under = GSEL_BACKWARD_INPUT,
     .callback = GSEL_BACKWARD_INPUT, .trains = true, .in_graph = InGraph::yes},
    {.kind = GSEL_BACKWARD_WEIGHT, .word = "backward_weight", .task = Task::backward, .layer = true, .microbatch = true,
     .weight_half = true, .counted_under = GSEL_BACKWARD_INPUT, .callback = GSEL_BACKWARD_WEIGHT, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_BACKWARD, .word = "backward", .task = Task::backward, .layer = true, .microbatch = true,
     .input_half = true, .weight_half = true, .peers = Peers::layer, .counted_under = GSEL_BACKWARD_INPUT,
     .callback = GSEL_BACKWARD, .trains = true, .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_SEND, .word = "send", .task = Task::message, .value = true, .microbatch = true,
     .peer = "to", .flags = GSEL_INSTR_GRADIENT,
     .peers = Peers::peer, .call = GSEL_COLLECTIVE_SEND, .data = Data::value},
    {.kind = GSEL_INSTR_RECV, .word = "recv", .task = Task::message, .value = true, .microbatch = true,
     .peer = "from", .flags = GSEL_INSTR_GRADIENT, .writes_value = true,
     .peers = Peers::peer, .call = GSEL_COLLECTIVE_RECV, .data = Data::value},
    {.kind = GSEL_INSTR_BROADCAST, .word = "broadcast", .task = Task::params, .bucket = true, .axis = true,
     .peer = "root", .opens = BucketWindow::params,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_BROADCAST, .data = Data::params, .in_setup = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_ALLREDUCE, .word = "allreduce", .task = Task::gradients, .bucket = true, .axis = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::gradients, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_WAIT, .word = "wait", .task = Task::wait, .bucket = true, .in_setup = true, .repeats = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_LOSS_ALLREDUCE, .word = "loss_allreduce", .task = Task::loss, .axis = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::loss, .in_graph = InGraph::at_end},
    {.kind = GSEL_INSTR_NORM, .word = "norm", .task = Task::check, .flags = GSEL_INSTR_OPTIMISTIC,
     .peers = Peers::norm, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::number, .trains = true,
     .in_graph = InGraph::at_end},
    {.kind = GSEL_INSTR_STEP, .word = "step", .task = Task::step, .bucket = true, .trains = true, .repeats = true,
     .in_graph = InGraph::at_end},
    {.kind = GSEL_INSTR_ALLGATHER, .word = "allgather", .task = Task::params, .bucket = true, .axis = true,
     .opens = BucketWindow::params,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLGATHER, .data = Data::params, .repeats = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_RELEASE, .word = "release", .task = Task::release, .bucket = true, .repeats = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_REDUCE_SCATTER, .word = "reduce_scatter", .task = Task::gradients, .bucket = true, .axis = true,
     .opens = BucketWindow::gradient, .reduces = StateLayout::sharded,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_REDUCE_SCATTER, .data = Data::gradients, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_REDUCE, .word = "reduce", .task = Task::gradients, .bucket = true, .axis = true,
     .peer = "root", .opens = BucketWindow::gradient, .reduces = StateLayout::owned,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_REDUCE, .data = Data::gradients, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_RECOMPUTE, .word = "recompute", .task = Task::forward, .layer = true, .microbatch = true,
     .peers = Peers::layer, .counted_under = GSEL_FORWARD, .callback = GSEL_FORWARD, .recomputes = true, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_SCATTER, .word = "scatter", .task = Task::scatter_gather, .value = true, .microbatch = true,
     .axis = true, .peer = "root", .flags = GSEL_INSTR_GRADIENT, .writes_value = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_SCATTER, .data = Data::value},
    {.kind = GSEL_INSTR_GATHER, .word = "gather", .task = Task::scatter_gather, .value = true, .microbatch = true,
     .axis = true, .peer = "root",
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_GATHER, .data = Data::value},
    {.kind = GSEL_INSTR_OVERFLOW, .word = "overflow", .task = Task::check, .axis = true, .flags = GSEL_INSTR_OPTIMISTIC,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::number, .trains = true,
     .in_graph = InGraph::at_end},
    {.kind = GSEL_INSTR_ALLREDUCE_TIED, .word = "allreduce_tied", .task = Task::sum_stepped, .bucket = true,
     .peers = Peers::tied, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::stepped, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_ALLREDUCE_PARTIAL, .word = "allreduce_partial", .task = Task::sum_stepped, .bucket = true,
     .axis = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::stepped, .trains = true,
     .in_graph = InGraph::yes},
    {.kind = GSEL_INSTR_POST_VALIDATE, .word = "post_validate", .task = Task::post_validate, .trains = true},
};
// clang-format on

}  // namespace

constinit const std::array<const InstrRow*, kInstrKinds> kRowOfKind = [] {
  std::array<const InstrRow*, kInstrKinds> rows{};
  for (const InstrRow& row : kRows) rows[static_cast<size_t>(row.kind)] = &row;
  return rows;
}();

const InstrRow& reduction_for(StateLayout layout) {
  return *std::ranges::find_if(
      kRows, [&](const InstrRow& r) { return r.task == InstrTask::gradients && r.reduces == layout; });
}

const InstrRow* find_instr_row(std::string_view word) {
  const auto* row = std::ranges::find(kRows, word, [](const InstrRow& r) { return std::string_view(r.word); });
  return row == std::end(kRows) ? nullptr : row;
}

void refuse_kind(gsel_instr_kind kind) {
  fail(GSEL_ERR_INTERNAL, "instruction kind {} has no row", kind);
}

}  // namespace gsel
