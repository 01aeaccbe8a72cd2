// train/optimize/compress.cc: the base of all compressors, and those that round to 16 bits; see compress.h. The
// reduction itself adds in f32 and rounds its result once.
#include "train/optimize/compress.h"

#include "program/shards.h"
#include "train/optimize/low_rank.h"

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

}  // namespace

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
      kept = LowRankCompressor::bytes(low_rank_parts(program, bucket), can_skip(program));
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
