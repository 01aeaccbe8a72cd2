// train/execute/instructions/input.cc: INPUT: the embedder fills a value.
#include "base/text.h"
#include "train/execute/instructions.h"

namespace gsel::execute {

bool hand_out_input(State& s, const gsel_instr& instr) {
  if (s.is_empty(instr.microbatch) || s.run->is_without_callbacks()) return false;
  const Microbatch& mb = s.program().microbatches[instr.microbatch];
  list_samples(s.lent, *s.run, mb);
  const gsel_tensor dst = value_view(s, instr.value, instr.microbatch, s.at(s.operands().inputs[0].value));
  s.lent.request = {};
  s.lent.request.struct_size = sizeof s.lent.request;
  s.lent.request.value = instr.value;
  s.lent.request.microbatch = s.run->microbatch_number[instr.microbatch];
  s.lent.request.n_samples = mb.count;
  s.lent.request.sample_ids = s.lent.sample_ids.data();
  s.lent.request.dst = s.lent.lender.lend(dst, Lender::Access::write);
  s.lent.request.message = s.lent.message.data();
  s.lent.request.message_capacity = s.lent.message.size();
  s.lent.request.stream = s.device->native_compute();
  hand_out(s.lent, GSEL_INPUT);
  return true;
}

void take_back_input(State& s, const gsel_instr& instr, bool no_samples) {
  s.lent.lender.take_back();
  if (!no_samples) return;
  if (s.axis_size(GSEL_AXIS_PIPELINE) > 1)
    throw Error(
        GSEL_ERR_CALLBACK,
        fmt::format("input \"{}\" had no samples {}, micro-batch {}; other stages of this pipeline of {} "
                    "would wait for them, so every batch must be complete",
                    s.model.values()[instr.value].name, s.where_in_step(), s.run->microbatch_number[instr.microbatch],
                    with_noun(s.axis_size(GSEL_AXIS_PIPELINE), "rank")))
        .about_rank(s.rank);
  for (const gsel_instr& other : s.program().step)
    if (other.kind == GSEL_INSTR_SCATTER)
      throw Error(GSEL_ERR_CALLBACK,
                  fmt::format("input \"{}\" had no samples {}, micro-batch {}; this strategy divides the batch of one "
                              "rank among all (\"{}\"), so every batch must be complete",
                              s.model.values()[instr.value].name, s.where_in_step(),
                              s.run->microbatch_number[instr.microbatch], to_text(s.program(), other)))
          .about_rank(s.rank);
  s.run->empty[instr.microbatch] = true;
  s.run->losses[instr.microbatch] = {};
}

}  // namespace gsel::execute
