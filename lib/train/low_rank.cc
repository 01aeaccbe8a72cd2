// train/low_rank.cc: PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1 (one step of subspace iteration,
// begun where the last step ended) with the error feedback of algorithm 2. Sums stand where the paper has means.
//
//   M = gradient + error        P = M Q        sum P over ranks, make it orthonormal
//   Q = M^T P                   sum Q over ranks              the sum's place takes P Q^T
//   error = M - P Q^T / ranks
//
// P is the same on all ranks, being made of the same sums in the same order, and so is what is done to the parameters.
#include "train/low_rank.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/align.h"
#include "base/random.h"
#include "comm/host/stream.h"

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

uint64_t LowRankCompressor::bytes(const LowRankParts& parts) {
  if (parts.matrices.empty()) return 0;
  return aligned(parts.matrix_elems) + aligned(parts.left_elems + parts.plain_elems) + aligned(parts.right_elems);
}

LowRankCompressor::LowRankCompressor(std::shared_ptr<Backend> backend, Ledger& ledger, const Program& program,
                                     int32_t bucket, uint64_t seed)
    : Compressor(program, bucket),
      parts_(low_rank_parts(program, bucket)),
      memory_(std::move(backend), ledger, Part::compression, bytes(parts_)) {
  if (parts_.matrices.empty()) return;
  auto* error = static_cast<float*>(memory_.data());
  std::fill_n(error, parts_.matrix_elems, 0.0f);
  left_ = reinterpret_cast<float*>(memory_.at(aligned(parts_.matrix_elems)));
  right_ = reinterpret_cast<float*>(
      memory_.at(aligned(parts_.matrix_elems) + aligned(parts_.left_elems + parts_.plain_elems)));
  float *left = left_, *right = right_;
  for (const BucketMatrix& m : parts_.matrices) {
    const Shape shape{m.rows, m.cols, parts_.rank};
    const uint64_t key = derive_key(derive_key(seed, "low rank"), program.params[m.param].name);
    matrices_.push_back({m.first, m.elems(), shape, error, left, right, key});
    start(matrices_.back());
    error += m.elems();
    left += m.rows * parts_.rank;
    right += m.cols * parts_.rank;
  }
}

void LowRankCompressor::start(const Matrix& matrix) {
  for (int64_t k = 0; k < matrix.shape.rank; ++k)
    fill_column(matrix.right + k * matrix.shape.cols, matrix.shape.cols, matrix.key, k);
}

// Whether every element of the product is a finite number.
bool LowRankCompressor::finite(const Matrix& matrix) {
  const auto [rows, cols, rank] = matrix.shape;
  if (!std::all_of(matrix.left, matrix.left + rows * rank, [](float x) { return std::isfinite(x); })) return false;
  for (int64_t j = 0; j < cols; ++j) {
    float sum = 0;  // elements of orthonormal columns are at most 1
    for (int64_t k = 0; k < rank; ++k) sum += std::fabs(matrix.right[k * cols + j]);
    if (!std::isfinite(sum)) return false;
  }
  return true;
}

void LowRankCompressor::compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) {
  host::run_on(stream, [this, &comm, gradients, scale] { reduce(comm, gradients, scale); });
}

void LowRankCompressor::reduce(Communicator& comm, float* gradients, double scale) {
  if (matrices_.empty()) return sum_over_ranks(comm, gradients, elems_);
  for (const Matrix& m : matrices_) {
    float* gradient = gradients + m.first;
    for (int64_t i = 0; i < m.elems; ++i) gradient[i] += m.error[i] * static_cast<float>(scale);
    orthonormalise(m.right, m.shape.cols, m.shape.rank, m.key);
    multiply(m.shape, gradient, m.right, m.left);
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
    multiply_transposed(m.shape, gradients + m.first, m.left, m.right);
  }
  sum_over_ranks(comm, right_, parts_.right_elems);
  for (const Matrix& m : matrices_) {
    float* gradient = gradients + m.first;
    if (finite(m)) {
      expand(m.shape, m.left, m.right, 1.0f / static_cast<float>(comm.world_size()), static_cast<float>(1 / scale),
             gradient, m.error);
    } else {
      // A step that overflowed is not taken: the error stays what it was, and nothing of it is where the next begins.
      std::fill_n(gradient, m.elems, std::numeric_limits<float>::quiet_NaN());
      start(m);
    }
  }
}

}  // namespace gsel
