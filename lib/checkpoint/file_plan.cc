// checkpoint/file_plan.cc: see file_plan.h.
#include "checkpoint/file_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace gsel::checkpoint {
namespace {

std::vector<int64_t> local_shape(const Region& region) {
  if (region.count() != region.product()) return {region.count()};
  std::vector<int64_t> shape;
  for (size_t d = 0; d < region.shape().size(); ++d) {
    int64_t n = 0;
    for (const gsel_range& interval : region.intervals(d)) n += interval.end - interval.begin;
    shape.push_back(n);
  }
  return shape;
}

}  // namespace

std::string name_of_file(int32_t rank) {
  return fmt::format("rank-{:05}.safetensors", rank);
}

FilePlan::FilePlan(std::string file, int64_t step) : name(std::move(file)) {
  header.metadata = {{"format", "gsel"}, {"step", std::to_string(step)}};
}

// Regions of one tensor follow each other.
void FilePlan::add(int32_t tensor, const std::string& tensor_name, Region region) {
  const auto before = std::ranges::equal_range(pieces, tensor, {}, &IndexPiece::tensor).size();
  std::string key = tensor_name + (before == 0 ? "" : fmt::format("#{}", before));
  const uint64_t at = bytes();
  header.tensors.push_back({key, stored_type(GSEL_F32), local_shape(region), at,
                            at + sizeof(float) * static_cast<uint64_t>(region.count())});
  pieces.push_back({tensor, name, std::move(key), std::move(region)});
}

void FilePlan::add_user(const std::string& user_name, uint64_t n_bytes) {
  const uint64_t at = bytes();
  header.tensors.push_back(
      {user_key(user_name), stored_type(GSEL_U8), {static_cast<int64_t>(n_bytes)}, at, at + n_bytes});
}

}  // namespace gsel::checkpoint
