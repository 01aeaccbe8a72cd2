// train/optimize/compress.cc: the compressors, see compress.h. Those that round to 16 bits leave the sum to the
// reduction, which adds in f32 and rounds its result once.
#include "train/optimize/compress.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/align.h"
#include "base/random.h"
#include "program/shards.h"
#include "program/traffic.h"

namespace gsel {
namespace {

gsel_dtype sent_dtype(int32_t compression) {
  return compression == GSEL_COMPRESS_F16 ? GSEL_F16 : GSEL_BF16;
}

class RoundingCompressor : public Compressor {
 public:
  RoundingCompressor(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program, int32_t bucket)
      : Compressor(program, bucket),
        device_(device),
        dtype_(sent_dtype(program.buckets[bucket].compression)),
        rounded_(std::move(device), ledger, MemoryPart::compression, bytes(elems_)) {}

  static uint64_t bytes(int64_t elems) { return static_cast<uint64_t>(elems) * 2; }

 private:
  void compress(Communicator& comm, float* gradients, double, gsel_stream* stream) override {
    const auto count = static_cast<uint64_t>(elems_);
    void* rounded = rounded_.data();
    device_->run(&gsel_device_v1::cast, rounded, dtype_, static_cast<const void*>(gradients), gsel_dtype{GSEL_F32},
                 count, stream);
    comm.collective(make_collective(GSEL_COLLECTIVE_ALLREDUCE, rounded, rounded, count, dtype_, GSEL_SUM), stream);
    device_->run(&gsel_device_v1::cast, static_cast<void*>(gradients), gsel_dtype{GSEL_F32},
                 static_cast<const void*>(rounded), dtype_, count, stream);
  }

  std::shared_ptr<DeviceContext> device_;
  gsel_dtype dtype_;
  CountedMemory rounded_;
};

// ---- low rank ------------------------------------------------------------------------------------------------------

// PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019, algorithm 1 (one step of subspace iteration, started from the
// previous step's result) with the error feedback of algorithm 2. Uses sums where the paper uses means.
//
//   M = gradient + error        P = M Q        sum P over ranks, make it orthonormal
//   Q = M^T P                   sum Q over ranks              P Q^T replaces the sum
//   error = M - P Q^T / ranks
//
// P is computed from the same sums in the same order, so P and the updates of parameters are equal on all ranks.

// Whether a step may skip its update: if it checks for non-finite gradients, directly or by a norm.
bool can_skip(const Program& program);

class LowRankCompressor : public Compressor {
 public:
  LowRankCompressor(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program, int32_t bucket,
                    uint64_t seed);

  // keeps_two: for programs that can skip a step.
  static uint64_t bytes(const LowRankLayout& layout, bool keeps_two);

  void end_step(bool taken) override;
  std::vector<LowRankState> kept() const override;

 private:
  struct Matrix {
    int32_t param = 0;
    int64_t first = 0;  // in the bucket
    int64_t rows = 0, cols = 0;
    float* left = nullptr;
    int64_t error = 0, right = 0;  // offsets in a Kept
    uint64_t key = 0;
  };
  // State carried from one step to the next.
  struct Kept {
    float *errors = nullptr, *rights = nullptr;  // rights: all right factors, the start of the next step
  };

  void compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) override;
  void run(int32_t kind, const Matrix& matrix, float* gradients, const Kept& before, const Kept& after, double scale,
           int32_t ranks, gsel_stream* stream) const;
  void copy(float* to, const float* from, int64_t elems, gsel_stream* stream) const;
  const Kept& next() const { return kept_[keeps_two_ ? 1 - now_ : now_]; }

  std::shared_ptr<DeviceContext> device_;
  LowRankLayout layout_;
  bool keeps_two_;
  CountedMemory memory_;
  float* left_ = nullptr;  // all left factors, then gradients sent uncompressed
  std::array<Kept, 2> kept_;
  size_t now_ = 0;        // index in kept_ of the state after the last step that was not skipped
  bool changed_ = false;  // by the step under way
  std::vector<Matrix> matrices_;
};

uint64_t aligned(int64_t elems) {
  return round_up(static_cast<uint64_t>(elems) * sizeof(float), kTensorAlign);
}

void sum_over_ranks(Communicator& comm, float* data, int64_t count, gsel_stream* stream) {
  comm.collective(
      make_collective(GSEL_COLLECTIVE_ALLREDUCE, data, data, static_cast<uint64_t>(count), GSEL_F32, GSEL_SUM), stream);
}

bool can_skip(const Program& program) {
  return std::ranges::any_of(program.step,
                             [](const gsel_instr& instr) { return task_of(instr.kind) == InstrTask::check; });
}

uint64_t LowRankCompressor::bytes(const LowRankLayout& layout, bool keeps_two) {
  if (layout.matrices.empty()) return 0;
  const uint64_t kept = aligned(layout.matrix_elems) + aligned(layout.right_elems);
  return aligned(layout.left_elems + layout.plain_elems) + (keeps_two ? 2 : 1) * kept;
}

LowRankCompressor::LowRankCompressor(std::shared_ptr<DeviceContext> device, Ledger& ledger, const Program& program,
                                     int32_t bucket, uint64_t seed)
    : Compressor(program, bucket),
      device_(std::move(device)),
      layout_(low_rank_layout(program, bucket)),
      keeps_two_(can_skip(program)),
      memory_(device_, ledger, MemoryPart::compression, bytes(layout_, keeps_two_)) {
  if (layout_.matrices.empty()) return;
  if (!device_->table().low_rank_step)
    fail(GSEL_ERR_UNSUPPORTED,
         "bucket {} is to be reduced in low rank, and the device's plugin has no kernels for that; use f16, bf16 or no "
         "compression",
         bucket);
  uint64_t offset = 0;
  auto take = [&](int64_t elems) {
    return reinterpret_cast<float*>(memory_.at(std::exchange(offset, offset + aligned(elems))));
  };
  left_ = take(layout_.left_elems + layout_.plain_elems);
  kept_[0] = {take(layout_.matrix_elems), take(layout_.right_elems)};
  if (keeps_two_) kept_[1] = {take(layout_.matrix_elems), take(layout_.right_elems)};
  device_->enqueue(&gsel_device_v1::zero, static_cast<void*>(kept_[0].errors), aligned(layout_.matrix_elems));
  float* left = left_;
  int64_t error = 0, right = 0;
  for (const BucketMatrix& m : layout_.matrices) {
    const uint64_t key = derive_key(derive_key(seed, "low rank"), program.params[m.param].name);
    matrices_.push_back({m.param, m.first, m.rows, m.cols, left, error, right, key});
    run(GSEL_LOW_RANK_START, matrices_.back(), nullptr, kept_[0], kept_[0], 1, 1, device_->compute());
    left += m.rows * layout_.rank;
    error += m.elems();
    right += m.cols * layout_.rank;
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
  step.rank = layout_.rank;
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

std::vector<LowRankState> LowRankCompressor::kept() const {
  std::vector<LowRankState> kept;
  for (const Matrix& m : matrices_)
    kept.push_back({m.param, kept_[now_].errors + m.error, kept_[now_].rights + m.right, m.cols, layout_.rank});
  return kept;
}

void LowRankCompressor::compress(Communicator& comm, float* gradients, double scale, gsel_stream* stream) {
  if (matrices_.empty()) return sum_over_ranks(comm, gradients, elems_, stream);
  const Kept before = std::exchange(changed_, true) ? next() : kept_[now_], after = next();
  auto run_all = [&](int32_t kind) {
    for (const Matrix& m : matrices_) run(kind, m, gradients, before, after, scale, comm.world_size(), stream);
  };
  if (before.rights != after.rights) copy(after.rights, before.rights, layout_.right_elems, stream);
  run_all(GSEL_LOW_RANK_LEFT);
  auto copy_plain = [&](bool back) {
    float* plain = left_ + layout_.left_elems;
    for (const gsel_range& range : layout_.plain) {
      float *own = gradients + range.begin, *to = back ? own : plain, *from = back ? plain : own;
      copy(to, from, range.end - range.begin, stream);
      plain += range.end - range.begin;
    }
  };
  copy_plain(false);
  sum_over_ranks(comm, left_, layout_.left_elems + layout_.plain_elems, stream);
  copy_plain(true);
  run_all(GSEL_LOW_RANK_RIGHT);
  sum_over_ranks(comm, after.rights, layout_.right_elems, stream);
  run_all(GSEL_LOW_RANK_FINISH);
}

}  // namespace

// ---- all of them ---------------------------------------------------------------------------------------------------

Compressor::Compressor(const Program& program, int32_t bucket)
    : elems_(bucket_elems(program, bucket)), start_(program.buckets[bucket].compression_start) {}

MemoryPartBytes Compressor::bytes(const Program& program, int32_t bucket) {
  MemoryPartBytes parts{};
  uint64_t& kept = parts[static_cast<size_t>(MemoryPart::compression)];
  switch (program.buckets[bucket].compression) {
    case GSEL_COMPRESS_F16:
    case GSEL_COMPRESS_BF16:
      kept = RoundingCompressor::bytes(bucket_elems(program, bucket));
      break;
    case GSEL_COMPRESS_LOW_RANK:
      kept = LowRankCompressor::bytes(low_rank_layout(program, bucket), can_skip(program));
      break;
    default:
      break;
  }
  return parts;
}

void Compressor::begin(Communicator& comm, float* gradients, int64_t step, double scale, gsel_stream* stream) {
  if (step >= start_) return compress(comm, gradients, scale, stream);
  comm.collective(make_collective(GSEL_COLLECTIVE_ALLREDUCE, gradients, gradients, static_cast<uint64_t>(elems_),
                                  GSEL_F32, GSEL_SUM),
                  stream);
}

std::unique_ptr<Compressor> make_compressor(std::shared_ptr<DeviceContext> device, Ledger& ledger,
                                            const Program& program, int32_t bucket, uint64_t seed) {
  switch (program.buckets[bucket].compression) {
    case GSEL_COMPRESS_NONE:
      return nullptr;
    case GSEL_COMPRESS_F16:
    case GSEL_COMPRESS_BF16:
      return std::make_unique<RoundingCompressor>(std::move(device), ledger, program, bucket);
    case GSEL_COMPRESS_LOW_RANK:
      return std::make_unique<LowRankCompressor>(std::move(device), ledger, program, bucket, seed);
    default:
      fail(GSEL_ERR_PROGRAM, "bucket {} has compression {}, which does not exist", bucket,
           program.buckets[bucket].compression);
  }
}

}  // namespace gsel
