// program/instruction.cc: see instruction.h.
#include "program/instruction.h"

#include <algorithm>

#include "base/error.h"

namespace gsel {
namespace {

using Work = InstrWork;
using Data = InstrData;
using Peers = InstrPeers;

// clang-format off
constexpr InstrForm kForms[] = {
    {.kind = GSEL_INPUT, .word = "input", .work = Work::input, .value = true, .microbatch = true,
     .writes_value = true},
    {.kind = GSEL_FORWARD, .word = "forward", .work = Work::forward, .layer = true, .microbatch = true,
     .peers = Peers::layer},
    {.kind = GSEL_BACKWARD_INPUT, .word = "backward_input", .work = Work::backward, .layer = true, .microbatch = true,
     .input_half = true, .peers = Peers::layer, .trains = true},
    {.kind = GSEL_BACKWARD_WEIGHT, .word = "backward_weight", .work = Work::backward, .layer = true, .microbatch = true,
     .weight_half = true, .trains = true},
    {.kind = GSEL_BACKWARD, .word = "backward", .work = Work::backward, .layer = true, .microbatch = true,
     .input_half = true, .weight_half = true, .peers = Peers::layer, .trains = true},
    {.kind = GSEL_INSTR_SEND, .word = "send", .work = Work::message, .value = true, .microbatch = true,
     .peer = "to", .flags = GSEL_INSTR_GRADIENT,
     .peers = Peers::peer, .call = GSEL_COLLECTIVE_SEND, .data = Data::value},
    {.kind = GSEL_INSTR_RECV, .word = "recv", .work = Work::message, .value = true, .microbatch = true,
     .peer = "from", .flags = GSEL_INSTR_GRADIENT, .writes_value = true,
     .peers = Peers::peer, .call = GSEL_COLLECTIVE_RECV, .data = Data::value},
    {.kind = GSEL_INSTR_BROADCAST, .word = "broadcast", .work = Work::params, .bucket = true, .axis = true,
     .peer = "root", .opens = BucketWindow::params,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_BROADCAST, .data = Data::params},
    {.kind = GSEL_INSTR_ALLREDUCE, .word = "allreduce", .work = Work::gradients, .bucket = true, .axis = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::gradients, .trains = true},
    {.kind = GSEL_INSTR_WAIT, .word = "wait", .work = Work::wait, .bucket = true, .repeats = true},
    {.kind = GSEL_INSTR_LOSS_ALLREDUCE, .word = "loss_allreduce", .work = Work::loss, .axis = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::loss},
    {.kind = GSEL_INSTR_NORM, .word = "norm", .work = Work::check, .flags = GSEL_INSTR_OPTIMISTIC,
     .peers = Peers::norm, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::number, .trains = true},
    {.kind = GSEL_INSTR_STEP, .word = "step", .work = Work::step, .bucket = true, .trains = true, .repeats = true},
    {.kind = GSEL_INSTR_ALLGATHER, .word = "allgather", .work = Work::params, .bucket = true, .axis = true,
     .opens = BucketWindow::params,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLGATHER, .data = Data::params, .repeats = true},
    {.kind = GSEL_INSTR_RELEASE, .word = "release", .work = Work::release, .bucket = true, .repeats = true},
    {.kind = GSEL_INSTR_REDUCE_SCATTER, .word = "reduce_scatter", .work = Work::gradients, .bucket = true, .axis = true,
     .opens = BucketWindow::gradient, .reduces = StateLayout::sharded,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_REDUCE_SCATTER, .data = Data::gradients, .trains = true},
    {.kind = GSEL_INSTR_REDUCE, .word = "reduce", .work = Work::gradients, .bucket = true, .axis = true,
     .peer = "root", .opens = BucketWindow::gradient, .reduces = StateLayout::owned,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_REDUCE, .data = Data::gradients, .trains = true},
    {.kind = GSEL_INSTR_RECOMPUTE, .word = "recompute", .work = Work::forward, .layer = true, .microbatch = true,
     .peers = Peers::layer, .trains = true},
    {.kind = GSEL_INSTR_SCATTER, .word = "scatter", .work = Work::parts, .value = true, .microbatch = true,
     .axis = true, .peer = "root", .flags = GSEL_INSTR_GRADIENT, .writes_value = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_SCATTER, .data = Data::value},
    {.kind = GSEL_INSTR_GATHER, .word = "gather", .work = Work::parts, .value = true, .microbatch = true,
     .axis = true, .peer = "root",
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_GATHER, .data = Data::value},
    {.kind = GSEL_INSTR_OVERFLOW, .word = "overflow", .work = Work::check, .axis = true, .flags = GSEL_INSTR_OPTIMISTIC,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::number, .trains = true},
    {.kind = GSEL_INSTR_ALLREDUCE_TIED, .word = "allreduce_tied", .work = Work::sum_stepped, .bucket = true,
     .peers = Peers::tied, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::stepped, .trains = true},
    {.kind = GSEL_INSTR_ALLREDUCE_PARTIAL, .word = "allreduce_partial", .work = Work::sum_stepped, .bucket = true,
     .axis = true,
     .peers = Peers::axis, .call = GSEL_COLLECTIVE_ALLREDUCE, .data = Data::stepped, .trains = true},
    {.kind = GSEL_INSTR_POST_VALIDATE, .word = "post_validate", .work = Work::post_validate, .trains = true},
};
// clang-format on

}  // namespace

constinit const std::array<const InstrForm*, kInstrKinds> kFormOfKind = [] {
  std::array<const InstrForm*, kInstrKinds> rows{};
  for (const InstrForm& form : kForms) rows[static_cast<size_t>(form.kind)] = &form;
  return rows;
}();

const InstrForm& reduction_for(StateLayout layout) {
  return *std::ranges::find_if(
      kForms, [&](const InstrForm& f) { return f.work == InstrWork::gradients && f.reduces == layout; });
}

const InstrForm* form_of(std::string_view word) {
  const auto* form = std::ranges::find(kForms, word, [](const InstrForm& f) { return std::string_view(f.word); });
  return form == std::end(kForms) ? nullptr : form;
}

void refuse_kind(gsel_instr_kind kind) {
  fail(GSEL_ERR_INTERNAL, "instruction kind {} has no row", kind);
}

}  // namespace gsel
