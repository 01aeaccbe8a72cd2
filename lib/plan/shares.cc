// plan/shares.cc: how unequal devices divide the work: layers of stages by the speed of each stage's slowest device,
// whole samples of replicas and whole heads of layers by speed; nothing if all devices are equal.
#include <algorithm>
#include <cmath>

#include "base/config.h"
#include "plan/search.h"

namespace gsel::plan {
namespace {

double speed(const DeviceKind& kind) {
  return kind.flop(2, false) * kind.matmul_share;
}

bool differ(const std::vector<double>& values) {
  return std::ranges::any_of(values, [&](double value) { return value != values.front(); });
}

// For each coordinate of an axis: the speed of its slowest device.
template <class CoordinateOf>
std::vector<double> slowest(const Cluster& cluster, int32_t ranks, int32_t size, CoordinateOf&& coordinate_of) {
  std::vector<double> speeds(static_cast<size_t>(size), 0);
  for (int32_t rank = 0; rank < ranks; ++rank) {
    double& at = speeds[static_cast<size_t>(coordinate_of(rank))];
    const double here = speed(cluster.kind(rank));
    if (at == 0 || here < at) at = here;
  }
  return speeds;
}

// Whole heads with their keys, by speed; every rank has at least one. Empty if all ranks have equally many.
std::vector<double> tensor_weights(const Workload& workload, const Cluster& cluster, const Layout& layout) {
  auto speeds = slowest(cluster, layout.ranks(), layout.tensor, [&](int32_t r) { return r % layout.tensor; });
  if (workload.heads == 0) return differ(speeds) ? speeds : std::vector<double>();
  if (workload.kv_heads < layout.tensor) return {};
  const std::vector<int64_t> bounds = shard_items(workload.kv_heads - layout.tensor, speeds);
  for (size_t i = 0; i < speeds.size(); ++i) speeds[i] = static_cast<double>(1 + bounds[i + 1] - bounds[i]);
  return differ(speeds) ? speeds : std::vector<double>();
}

// Whole samples by speed, so that the last replica ends as early as possible; every replica has at least one.
std::vector<double> whole_samples(int64_t samples, const std::vector<double>& speeds) {
  double sum = 0;
  for (const double one : speeds) sum += one;
  std::vector<double> out;
  auto left = static_cast<double>(samples);
  for (const double one : speeds) {
    out.push_back(std::max(1.0, std::floor(static_cast<double>(samples) * one / sum)));
    left -= out.back();
  }
  for (; left != 0; left += left > 0 ? -1 : 1) {
    const double change = left > 0 ? 1 : -1;
    size_t best = out.size();
    double soonest = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      if (out[i] + change < 1) continue;
      // One more sample goes to the replica that then ends first; one less comes from the replica that ends last.
      const double ends = change > 0 ? (out[i] + 1) / speeds[i] : -out[i] / speeds[i];
      if (best == out.size() || ends < soonest) best = i, soonest = ends;
    }
    out[best] += change;
  }
  return out;
}

}  // namespace

Shares shares_of(const Workload& workload, const Cluster& cluster, const Layout& layout, int64_t batch) {
  Shares out;
  if (layout.tensor > 1) out.tensor_weights = tensor_weights(workload, cluster, layout);
  if (cluster.uniform()) return out;
  const int32_t inner = layout.tensor * layout.context, replicas = inner * layout.data;
  if (layout.pipeline > 1) {
    const auto speeds = slowest(cluster, layout.ranks(), layout.pipeline, [&](int32_t r) { return r / replicas; });
    if (differ(speeds)) out.stage_layers = layers_of_stages(workload, layout.pipeline, speeds);
  }
  if (layout.data > 1) {
    const auto speeds =
        slowest(cluster, layout.ranks(), layout.data, [&](int32_t r) { return r / inner % layout.data; });
    // Replicas of a pipeline have equally many samples in each micro-batch.
    const int64_t samples = layout.pipeline > 1 ? layout.microbatch * layout.data : batch;
    if (differ(speeds)) out.data_weights = whole_samples(samples, speeds);
  }
  return out;
}

}  // namespace gsel::plan
