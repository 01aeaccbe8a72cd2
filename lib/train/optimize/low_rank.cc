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
#include <cmath>
#include <limits>
#include <utility>

#include "base/align.h"
#include "base/random.h"
#include "device/host/stream.h"

namespace gsel {
namespace {

uint64_t aligned(int64_t elems) {
  return round_up(static_cast<uint64_t>(elems) * sizeof(float), kTensorAlign);
}

void sum_over_ranks(Communicator& comm, float* data, int64_t count) {
  comm.collective(
      make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, static_cast<uint64_t>(count), GSEL_F32, GSEL_SUM));
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
      parts_(low_rank_parts(program, bucket)),
      keeps_two_(can_skip(program)),
      memory_(std::move(device), ledger, MemoryPart::compression, bytes(parts_, keeps_two_)) {
  if (parts_.matrices.empty()) return;
  uint64_t offset = 0;
  auto take = [&](int64_t elems) {
    return reinterpret_cast<float*>(memory_.at(std::exchange(offset, offset + aligned(elems))));
  };
  left_ = take(parts_.left_elems + parts_.plain_elems);
  kept_[0] = {take(parts_.matrix_elems), take(parts_.right_elems)};
  if (keeps_two_) kept_[1] = {take(parts_.matrix_elems), take(parts_.right_elems)};
  std::fill_n(kept_[0].errors, parts_.matrix_elems, 0.0f);
  float* left = left_;
  int64_t error = 0, right = 0;
  for (const BucketMatrix& m : parts_.matrices) {
    const Shape shape{m.rows, m.cols, parts_.rank};
    const uint64_t key = derive_key(derive_key(seed, "low rank"), program.params[m.param].name);
    matrices_.push_back({m.first, m.elems(), shape, left, error, right, key});
    start(matrices_.back(), kept_[0].rights + right);
    left += m.rows * parts_.rank;
    error += m.elems();
    right += m.cols * parts_.rank;
  }
}

void LowRankCompressor::start(const Matrix& matrix, float* right) {
  for (int64_t k = 0; k < matrix.shape.rank; ++k)
    fill_column(right + k * matrix.shape.cols, matrix.shape.cols, matrix.key, k);
}

// Whether every element of the product is finite.
bool LowRankCompressor::finite(const Matrix& matrix, const float* right) {
  const auto [rows, cols, rank] = matrix.shape;
  if (!std::all_of(matrix.left, matrix.left + rows * rank, [](float x) { return std::isfinite(x); })) return false;
  for (int64_t j = 0; j < cols; ++j) {
    float sum = 0;  // elements of orthonormal columns are at most 1
    for (int64_t k = 0; k < rank; ++k) sum += std::fabs(right[k * cols + j]);
    if (!std::isfinite(sum)) return false;
  }
  return true;
}

void LowRankCompressor::end_step(bool taken) {
  if (std::exchange(changed_, false) && taken && keeps_two_) now_ = 1 - now_;
}

void LowRankCompressor::compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) {
  host::run_on(stream, [this, &comm, gradients, scale] { reduce(comm, gradients, scale); });
}

void LowRankCompressor::reduce(Communicator& comm, float* gradients, double scale) {
  if (matrices_.empty()) return sum_over_ranks(comm, gradients, elems_);
  const Kept before = std::exchange(changed_, true) ? next() : kept_[now_], after = next();
  if (before.rights != after.rights) std::copy_n(before.rights, parts_.right_elems, after.rights);
  for (const Matrix& m : matrices_) {
    float *gradient = gradients + m.first, *right = after.rights + m.right;
    const float* error = before.errors + m.error;
    for (int64_t i = 0; i < m.elems; ++i) gradient[i] += error[i] * static_cast<float>(scale);
    orthonormalise(right, m.shape.cols, m.shape.rank, m.key);
    multiply(m.shape, gradient, right, m.left);
  }
  float* plain = left_ + parts_.left_elems;
  for (const gsel_range& range : parts_.plain) plain = std::copy(gradients + range.begin, gradients + range.end, plain);
  sum_over_ranks(comm, left_, parts_.left_elems + parts_.plain_elems);
  plain = left_ + parts_.left_elems;
  for (const gsel_range& range : parts_.plain) {
    std::copy_n(plain, range.end - range.begin, gradients + range.begin);
    plain += range.end - range.begin;
  }
  for (const Matrix& m : matrices_) {
    orthonormalise(m.left, m.shape.rows, m.shape.rank, derive_key(m.key, "left"));
    multiply_transposed(m.shape, gradients + m.first, m.left, after.rights + m.right);
  }
  sum_over_ranks(comm, after.rights, parts_.right_elems);
  for (const Matrix& m : matrices_) finish_matrix(m, before, gradients + m.first, comm.world_size(), scale);
}

void LowRankCompressor::finish_matrix(const Matrix& m, const Kept& before, float* gradient, int32_t ranks,
                                      double scale) const {
  float *error = next().errors + m.error, *right = next().rights + m.right;
  if (finite(m, right))
    return expand(m.shape, m.left, right, 1.0f / static_cast<float>(ranks), static_cast<float>(1 / scale), gradient,
                  error);
  // Not finite: the error stays as before the step, and the next step starts with new factors.
  std::fill_n(gradient, m.elems, std::numeric_limits<float>::quiet_NaN());
  if (const float* old = before.errors + m.error; old != error) std::copy_n(old, m.elems, error);
  start(m, right);
}

}  // namespace gsel
