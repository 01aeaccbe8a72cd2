// comm/shm/collective/single_copy.cc: large payloads in private memory of other processes, copied by the kernel
// (process_vm_readv). Collectives without a reduction copy directly from the owner's buffer to the destination. In a
// reduction, a rank reads its slice of every input, tile by tile, into its own staging memory and reduces the tiles
// into recv; if all ranks want the result, each reads the slices of the others from their recv. No rank returns before
// the others are done with its buffers.
#include <sys/uio.h>

#include <algorithm>

#include "comm/call/collective.h"
#include "comm/shm/collective/collectives.h"

namespace gsel::shm {

void Collectives::run_single_copy(const Call& call, const Plan& plan) {
  if (is_reduction(call.kind))
    reduce_single_copy(call, plan);
  else
    copy_single(call, plan);
}

void Collectives::copy_single(const Call& call, const Plan& plan) {
  copy_own_part(call, plan);
  for (int32_t i = 1; i < at_.world_size(); ++i) {
    const int32_t q = (at_.rank() + i) % at_.world_size();
    const Bytes to = plan.target(q);
    if (to.count == 0) continue;
    read_from(q, addresses_of(q).send_address + sent_at(q, call, plan.packed(q, at_.rank()).begin),
              call.recv + to.begin, to.count);
  }
  hit(Step::single_copy);
  memory_.throw_if_taken_back();
  post(at_.mine().copied, ++chunks_);
  hit(Step::copied);
  for (int32_t q = 0; q < at_.world_size(); ++q)
    if (plan.source(q).count > 0) wait(q, at_.block(q).copied, chunks_);
}

void Collectives::reduce_single_copy(const Call& call, const Plan& plan) {
  reserve_staging();
  const Bytes own = plan.sent(at_.rank());
  const uint64_t usual = usual_begin(call, plan);
  const bool all = call.kind == GSEL_COLLECTIVE_ALLREDUCE;
  char* out = call.recv + (all ? own.begin : 0);
  double factors[kMaxRanks];
  const host::Fold fold = fold_of(call, factors);
  const uint64_t tile = block_bytes() / call.unit * call.unit;
  for (uint64_t done = 0; done < own.count; done += tile) {
    const uint64_t some = std::min(tile, own.count - done);
    const void* inputs[kMaxRanks];
    for (int32_t q = 0; q < at_.world_size(); ++q) {
      char* scratch = at_.arena().staging(at_.rank(), 0) + static_cast<size_t>(q) * block_bytes();
      inputs[q] = q == at_.rank() ? call.send + own.begin + done : scratch;
      if (q != at_.rank()) read_from(q, addresses_of(q).send_address + sent_at(q, call, usual) + done, scratch, some);
    }
    host::reduce(fold, out + done, inputs, at_.world_size(), some / call.element);
  }
  hit(Step::single_copy);
  memory_.throw_if_taken_back();
  post(at_.mine().reduced, ++chunks_);
  hit(Step::reduced);
  for (int32_t i = 1; all && i < at_.world_size(); ++i) {
    const int32_t q = (at_.rank() + i) % at_.world_size();
    const Bytes theirs = plan.sent(q);
    if (theirs.count == 0) continue;
    wait(q, at_.block(q).reduced, chunks_);
    read_from(q, addresses_of(q).recv_address + theirs.begin, call.recv + theirs.begin, theirs.count);
  }
  memory_.throw_if_taken_back();
  post(at_.mine().copied, chunks_);
  hit(Step::copied);
  wait_all(&RankBlock::copied, chunks_);
}

}  // namespace gsel::shm
