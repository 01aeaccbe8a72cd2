// program/instruction.cc: see instruction.h.
#include "program/instruction.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace gsel {
namespace {

constexpr gsel_collective_kind kNoCall = GSEL_COLLECTIVE_BARRIER;

// clang-format off
constexpr InstrForm kForms[] = {
    // kind, word, layer, value, micro-batch, bucket, axis, peer
    //  work, meeting, call, opens, trains, flags
    {GSEL_INPUT, "input", false, true, true, false, false, nullptr,
     InstrWork::input, InstrPeers::nobody, kNoCall, BucketWindow::none, false, 0},
    {GSEL_FORWARD, "forward", true, false, true, false, false, nullptr,
     InstrWork::forward, InstrPeers::layer, kNoCall, BucketWindow::none, false, 0},
    {GSEL_BACKWARD_INPUT, "backward_input", true, false, true, false, false, nullptr,
     InstrWork::backward, InstrPeers::layer, kNoCall, BucketWindow::none, true, 0},
    {GSEL_BACKWARD_WEIGHT, "backward_weight", true, false, true, false, false, nullptr,
     InstrWork::backward, InstrPeers::nobody, kNoCall, BucketWindow::none, true, 0},
    {GSEL_BACKWARD, "backward", true, false, true, false, false, nullptr,
     InstrWork::backward, InstrPeers::layer, kNoCall, BucketWindow::none, true, 0},
    {GSEL_INSTR_SEND, "send", false, true, true, false, false, "to",
     InstrWork::message, InstrPeers::nobody, GSEL_COLLECTIVE_SEND, BucketWindow::none, false, GSEL_INSTR_GRADIENT},
    {GSEL_INSTR_RECV, "recv", false, true, true, false, false, "from",
     InstrWork::message, InstrPeers::nobody, GSEL_COLLECTIVE_SEND, BucketWindow::none, false, GSEL_INSTR_GRADIENT},
    {GSEL_INSTR_BROADCAST, "broadcast", false, false, false, true, true, "root",
     InstrWork::params, InstrPeers::nobody, GSEL_COLLECTIVE_BROADCAST, BucketWindow::params, false, 0},
    {GSEL_INSTR_ALLREDUCE, "allreduce", false, false, false, true, true, nullptr,
     InstrWork::gradients, InstrPeers::nobody, GSEL_COLLECTIVE_ALLREDUCE, BucketWindow::none, true, 0},
    {GSEL_INSTR_WAIT, "wait", false, false, false, true, false, nullptr,
     InstrWork::wait, InstrPeers::nobody, kNoCall, BucketWindow::none, false, 0},
    {GSEL_INSTR_LOSS_ALLREDUCE, "loss_allreduce", false, false, false, false, true, nullptr,
     InstrWork::numbers, InstrPeers::axis, GSEL_COLLECTIVE_ALLREDUCE, BucketWindow::none, false, 0},
    {GSEL_INSTR_NORM, "norm", false, false, false, false, false, nullptr,
     InstrWork::numbers, InstrPeers::norm, GSEL_COLLECTIVE_ALLREDUCE, BucketWindow::none, true, GSEL_INSTR_OPTIMISTIC},
    {GSEL_INSTR_STEP, "step", false, false, false, true, false, nullptr,
     InstrWork::step, InstrPeers::nobody, kNoCall, BucketWindow::none, true, 0},
    {GSEL_INSTR_ALLGATHER, "allgather", false, false, false, true, true, nullptr,
     InstrWork::params, InstrPeers::nobody, GSEL_COLLECTIVE_ALLGATHER, BucketWindow::params, false, 0},
    {GSEL_INSTR_RELEASE, "release", false, false, false, true, false, nullptr,
     InstrWork::release, InstrPeers::nobody, kNoCall, BucketWindow::none, false, 0},
    {GSEL_INSTR_REDUCE_SCATTER, "reduce_scatter", false, false, false, true, true, nullptr,
     InstrWork::gradients, InstrPeers::nobody, GSEL_COLLECTIVE_REDUCE_SCATTER, BucketWindow::gradient, true, 0},
    {GSEL_INSTR_REDUCE, "reduce", false, false, false, true, true, "root",
     InstrWork::gradients, InstrPeers::nobody, GSEL_COLLECTIVE_REDUCE, BucketWindow::gradient, true, 0},
    {GSEL_INSTR_RECOMPUTE, "recompute", true, false, true, false, false, nullptr,
     InstrWork::forward, InstrPeers::layer, kNoCall, BucketWindow::none, true, 0},
    {GSEL_INSTR_SCATTER, "scatter", false, true, true, false, true, "root",
     InstrWork::parts, InstrPeers::axis, GSEL_COLLECTIVE_SEND, BucketWindow::none, false, GSEL_INSTR_GRADIENT},
    {GSEL_INSTR_GATHER, "gather", false, true, true, false, true, "root",
     InstrWork::parts, InstrPeers::axis, GSEL_COLLECTIVE_SEND, BucketWindow::none, false, 0},
    {GSEL_INSTR_OVERFLOW, "overflow", false, false, false, false, true, nullptr,
     InstrWork::numbers, InstrPeers::axis, GSEL_COLLECTIVE_ALLREDUCE, BucketWindow::none, true, GSEL_INSTR_OPTIMISTIC},
    {GSEL_INSTR_ALLREDUCE_TIED, "allreduce_tied", false, false, false, true, false, nullptr,
     InstrWork::sum_stepped, InstrPeers::tied, GSEL_COLLECTIVE_ALLREDUCE, BucketWindow::none, true, 0},
    {GSEL_INSTR_ALLREDUCE_PARTIAL, "allreduce_partial", false, false, false, true, true, nullptr,
     InstrWork::sum_stepped, InstrPeers::axis, GSEL_COLLECTIVE_ALLREDUCE, BucketWindow::none, true, 0},
    {GSEL_INSTR_POST_VALIDATE, "post_validate", false, false, false, false, false, nullptr,
     InstrWork::post_validate, InstrPeers::nobody, kNoCall, BucketWindow::none, true, 0},
};
// clang-format on

constexpr auto kByKind = [] {
  std::array<const InstrForm*, GSEL_INSTR_POST_VALIDATE + 1> rows{};
  for (const InstrForm& form : kForms) rows[static_cast<size_t>(form.kind)] = &form;
  return rows;
}();

}  // namespace

const InstrForm* form_of(gsel_instr_kind kind) {
  return kind >= 0 && static_cast<size_t>(kind) < kByKind.size() ? kByKind[static_cast<size_t>(kind)] : nullptr;
}

const InstrForm* form_of(std::string_view word) {
  const auto* form = std::ranges::find(kForms, word, [](const InstrForm& f) { return std::string_view(f.word); });
  return form == std::end(kForms) ? nullptr : form;
}

InstrWork work_of(gsel_instr_kind kind) {
  const InstrForm* form = form_of(kind);
  if (!form) fail(GSEL_ERR_INTERNAL, "instruction kind {} has no row", kind);
  return form->work;
}

}  // namespace gsel
