// comm/shm/copy/single_copy.cc: large payloads in private memory of other processes, which the kernel of the operating
// system copies (process_vm_readv). Collectives that only copy do so directly from the owner's buffer to the
// destination. In a reduction, a rank reads its slice of every input, tile by tile, into its own staging memory and
// folds the tiles into recv; if all ranks want the result, each reads the slices of the others from their recv. No rank
// returns before the others are done with its buffers.
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "comm/describe.h"
#include "comm/shm/link.h"

namespace gsel::shm {

void Link::run_single_copy(const Call& call, const Plan& plan) {
  if (is_reduction(call.kind))
    reduce_single_copy(call, plan);
  else
    copy_single(call, plan);
}

void Link::read_from(int32_t rank, uint64_t address, char* to, uint64_t bytes, const Call& call, uint64_t number) {
  while (bytes > 0) {
    const iovec local{to, bytes}, remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t got = process_vm_readv(member(rank).pid, &local, 1, &remote, 1, 0);
    if (got <= 0) fail_reading(rank, got < 0 ? errno : EFAULT, call, number);
    to += got;
    address += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

void Link::fail_reading(int32_t rank, int failure, const Call& call, uint64_t number) {
  const bool gone = failure == ESRCH || (member(rank).life && os::life_ended(member(rank).life.get()));
  break_link(
      gone ? GSEL_ERR_PEER : GSEL_ERR_IO, rank,
      fmt::format("{} {} while {} read its memory in {} (call {}): {}", who(rank), gone ? kEnded : "could not be read",
                  named(rank_), text_of(call), number, errno_text(failure)));
}

// Asked once. A process is known by the random number that stands at an address it told when joining, so that another
// of the same number in another process namespace is not taken for it.
bool Link::can_read(int32_t rank) const {
  const Member& peer = member(rank);
  uint64_t token = 0;
  const iovec local{&token, sizeof token}, remote{reinterpret_cast<void*>(peer.witness), sizeof token};
  return process_vm_readv(peer.pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof token) &&
         token == peer.process;
}

bool Link::reads_all() {
  if (reads_all_ == Probe::open) {
    reads_all_ = Probe::yes;
    for (int32_t q = 0; q < world_size_; ++q)
      if (!can_read(q)) {
        reads_all_ = Probe::no;
        log(GSEL_LOG_INFO, "comm", "rank {} may not read the memory of rank {} ({}); large private buffers are staged",
            rank_, q, errno_text(errno));
        break;
      }
  }
  return reads_all_ == Probe::yes;
}

void Link::copy_single(const Call& call, const Plan& plan) {
  copy_own_part(call, plan);
  for (int32_t i = 1; i < world_size_; ++i) {
    const int32_t q = (rank_ + i) % world_size_;
    const Bytes to = plan.target(q);
    if (to.count == 0) continue;
    const Bytes from = needs_row(call) ? row_of(q)[rank_] : plan.packed(q, rank_);
    read_from(q, addresses_of(q).send_address + from.begin, call.recv + to.begin, to.count);
  }
  hit(Step::single_copy);
  throw_if_taken_back();
  post(mine().copied, ++chunks_);
  hit(Step::copied);
  for (int32_t q = 0; q < world_size_; ++q)
    if (plan.source(q).count > 0) wait(q, arena_->rank(q).copied, chunks_);
}

void Link::reduce_single_copy(const Call& call, const Plan& plan) {
  reserve_staging();
  const auto bytes_of = [&](int32_t q) {
    const gsel_range slice = plan.slice(q);
    return Bytes{static_cast<uint64_t>(slice.begin) * call.element,
                 static_cast<uint64_t>(slice.end - slice.begin) * call.element};
  };
  const Bytes own = bytes_of(rank_);
  const bool all = call.kind == GSEL_COLLECTIVE_ALLREDUCE;
  char* out = call.recv + (all ? own.begin : 0);
  double factors[kMaxRanks];
  const host::Fold fold = fold_of(call, factors);
  const uint64_t tile = block_bytes() / call.unit * call.unit;
  for (uint64_t done = 0; done < own.count; done += tile) {
    const uint64_t some = std::min(tile, own.count - done);
    const void* inputs[kMaxRanks];
    for (int32_t q = 0; q < world_size_; ++q) {
      char* scratch = arena_->staging(rank_, 0) + static_cast<size_t>(q) * block_bytes();
      inputs[q] = q == rank_ ? call.send + own.begin + done : scratch;
      if (q != rank_) read_from(q, addresses_of(q).send_address + own.begin + done, scratch, some);
    }
    host::reduce(fold, out + done, inputs, world_size_, some / call.element);
  }
  hit(Step::single_copy);
  throw_if_taken_back();
  post(mine().reduced, ++chunks_);
  hit(Step::reduced);
  for (int32_t i = 1; all && i < world_size_; ++i) {
    const int32_t q = (rank_ + i) % world_size_;
    const Bytes theirs = bytes_of(q);
    if (theirs.count == 0) continue;
    wait(q, arena_->rank(q).reduced, chunks_);
    read_from(q, addresses_of(q).recv_address + theirs.begin, call.recv + theirs.begin, theirs.count);
  }
  throw_if_taken_back();
  post(mine().copied, chunks_);
  hit(Step::copied);
  wait_all(&RankBlock::copied, chunks_);
}

}  // namespace gsel::shm
