// support/compression.cc: see compression.h.
#include "support/compression.h"

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "program/shards.h"

namespace gsel::test {

Program program_of(const std::vector<ParamShape>& shapes, int32_t compression, int32_t rank, int64_t start) {
  Program program;
  ProgramBucket bucket;
  bucket.compression = compression;
  bucket.compression_rank = rank;
  bucket.compression_start = start;
  for (const ParamShape& shape : shapes) {
    ProgramParam param;
    param.name = shape.name;
    param.rows = shape.rows;
    param.n_elems = shape.rows * shape.cols;
    bucket.params.push_back(static_cast<int32_t>(program.params.size()));
    program.params.push_back(param);
  }
  program.buckets.push_back(bucket);
  return program;
}

Worker::Worker(rank_run* run, Program p) : program(std::move(p)), comm(join(run)) {
  compressor = make_compressor(device, ledger, program, 0, 42);
  gradients.resize(static_cast<size_t>(bucket_elems(program, 0)));
}

JoinOptions Worker::join(rank_run* run) {
  gsel_comm_options options = GSEL_COMM_OPTIONS_INIT;
  options.rank = run->rank;
  options.world_size = run->world_size;
  options.id = &run->id;
  return complete_join(options);
}

void Worker::reduce(int64_t step, double scale) {
  compressor->begin(comm, gradients.data(), step, scale, stream.get());
  device->run(&gsel_device_v1::stream_wait, stream.get());
}

std::vector<double> Worker::sum(const std::vector<float>& data) {
  std::vector<double> out(data.begin(), data.end());
  comm.collective(make_collective(GSEL_COLLECTIVE_ALLREDUCE, out.data(), out.data(), out.size(), GSEL_F64, GSEL_SUM));
  return out;
}

bool Worker::same_everywhere() {
  const size_t n = gradients.size();
  std::vector<float> all(n * static_cast<size_t>(comm.world_size()));
  comm.collective(make_collective(GSEL_COLLECTIVE_ALLGATHER, gradients.data(), all.data(), n, GSEL_F32));
  for (int32_t r = 0; r < comm.world_size(); ++r)
    if (std::memcmp(all.data() + static_cast<size_t>(r) * n, gradients.data(), n * sizeof(float)) != 0) return false;
  return true;
}

float noise(uint64_t stream, int32_t rank, size_t i) {
  return random_normal(derive_key(stream, static_cast<uint64_t>(rank)), i);
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

double distance(const std::vector<float>& got, const std::vector<double>& expected) {
  std::vector<double> difference(expected);
  for (size_t i = 0; i < got.size(); ++i) difference[i] -= got[i];
  return norm(difference) / norm(expected);
}

}  // namespace gsel::test
