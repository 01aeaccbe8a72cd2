// train/optimize/low_rank.cc: PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1 (one step of subspace
// iteration, started from the previous step's result) with the error feedback of algorithm 2. Uses sums where the paper
// uses means.
//
//   M = gradient + error        P = M Q        sum P over ranks, make it orthonormal
//   Q = M^T P                   sum Q over ranks              P Q^T replaces the sum
//   error = M - P Q^T / ranks
//
// P is computed from the same sums in the same order, so P and the updates of parameters are equal on all ranks.
#include "train/optimize/low_rank.h"

#include <algorithm>
#include <utility>

#include "base/align.h"
#include "base/random.h"

namespace gsel {
namespace {

uint64_t aligned(int64_t elems) {
  return round_up(static_cast<uint64_t>(elems) * sizeof(float), kTensorAlign);
}

void sum_over_ranks(Communicator& comm, float* data, int64_t count, gsel_stream* stream) {
  comm.collective(
      make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, static_cast<uint64_t>(count), GSEL_F32, GSEL_SUM), stream);
}

}  // namespace

bool can_skip(const Program& program) {
  return std::ranges::any_of(program.step,
                             [](const gsel_instr& instr) { return work_of(instr.kind) == InstrWork::check; });
}

uint64_t LowRankCompressor::bytes(const LowRankParts& parts, bool keeps_two) {
  if (parts.matrices.empty()) return 0;
  const uint64_t kept = aligned(parts.matrix_elems) + aligned(parts.right_elems);
  return aligned(parts.left_elems + parts.plain_elems) + (keeps_two ? 2 : 1) * kept;
}

LowRankCompressor::LowRankCompressor(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program,
                                     int32_t bucket, uint64_t seed)
    : Compressor(program, bucket),
      device_(std::move(device)),
      parts_(low_rank_parts(program, bucket)),
      keeps_two_(can_skip(program)),
      memory_(device_, ledger, MemoryPart::compression, bytes(parts_, keeps_two_)) {
  if (parts_.matrices.empty()) return;
  if (!device_->table().low_rank_step)
    fail(GSEL_ERR_UNSUPPORTED,
         "bucket {} is to be reduced in low rank, and the device's plugin has no kernels for that; use f16, bf16 or no "
         "compression",
         bucket);
  uint64_t offset = 0;
  auto take = [&](int64_t elems) {
    return reinterpret_cast<float*>(memory_.at(std::exchange(offset, offset + aligned(elems))));
  };
  left_ = take(parts_.left_elems + parts_.plain_elems);
  kept_[0] = {take(parts_.matrix_elems), take(parts_.right_elems)};
  if (keeps_two_) kept_[1] = {take(parts_.matrix_elems), take(parts_.right_elems)};
  device_->enqueue(&gsel_device_v1::zero, static_cast<void*>(kept_[0].errors), aligned(parts_.matrix_elems));
  float* left = left_;
  int64_t error = 0, right = 0;
  for (const BucketMatrix& m : parts_.matrices) {
    const uint64_t key = derive_key(derive_key(seed, "low rank"), program.params[m.param].name);
    matrices_.push_back({m.first, m.rows, m.cols, left, error, right, key});
    run(GSEL_LOW_RANK_START, matrices_.back(), nullptr, kept_[0], kept_[0], 1, 1, device_->compute());
    left += m.rows * parts_.rank;
    error += m.elems();
    right += m.cols * parts_.rank;
  }
  device_->wait();  // reductions run on other streams
}

void LowRankCompressor::run(int32_t kind, const Matrix& matrix, float* gradients, const Kept& before, const Kept& after,
                            double scale, int32_t ranks, gsel_stream* stream) const {
  gsel_low_rank_step step{};
  step.struct_size = sizeof step;
  step.kind = kind;
  step.rows = matrix.rows;
  step.cols = matrix.cols;
  step.rank = parts_.rank;
  step.matrix = gradients ? gradients + matrix.first : nullptr;
  step.left = matrix.left;
  step.right = after.rights + matrix.right;
  step.error = after.errors + matrix.error;
  step.old_error = before.errors + matrix.error;
  step.key = kind == GSEL_LOW_RANK_RIGHT ? derive_key(matrix.key, "left") : matrix.key;
  step.scale = scale;
  step.ranks = ranks;
  device_->run(&gsel_device_v1::low_rank_step, static_cast<const gsel_low_rank_step*>(&step), stream);
}

void LowRankCompressor::copy(float* to, const float* from, int64_t elems, gsel_stream* stream) const {
  device_->run(&gsel_device_v1::copy, static_cast<void*>(to), static_cast<const void*>(from),
               static_cast<uint64_t>(elems) * sizeof(float), int32_t{GSEL_COPY_ON_DEVICE}, stream);
}

void LowRankCompressor::end_step(bool taken) {
  if (std::exchange(changed_, false) && taken && keeps_two_) now_ = 1 - now_;
}

void LowRankCompressor::compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) {
  if (matrices_.empty()) return sum_over_ranks(comm, gradients, elems_, stream);
  const Kept before = std::exchange(changed_, true) ? next() : kept_[now_], after = next();
  auto run_all = [&](int32_t kind) {
    for (const Matrix& m : matrices_) run(kind, m, gradients, before, after, scale, comm.world_size(), stream);
  };
  if (before.rights != after.rights) copy(after.rights, before.rights, parts_.right_elems, stream);
  run_all(GSEL_LOW_RANK_LEFT);
  auto copy_plain = [&](bool back) {
    float* plain = left_ + parts_.left_elems;
    for (const gsel_range& range : parts_.plain) {
      float *own = gradients + range.begin, *to = back ? own : plain, *from = back ? plain : own;
      copy(to, from, range.end - range.begin, stream);
      plain += range.end - range.begin;
    }
  };
  copy_plain(false);
  sum_over_ranks(comm, left_, parts_.left_elems + parts_.plain_elems, stream);
  copy_plain(true);
  run_all(GSEL_LOW_RANK_RIGHT);
  sum_over_ranks(comm, after.rights, parts_.right_elems, stream);
  run_all(GSEL_LOW_RANK_FINISH);
}

}  // namespace gsel
