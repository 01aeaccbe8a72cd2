// plan/time.cc: see time.h. Each term is a data sheet's figure times a fitted constant (constants.h); terms of a stage
// are in closed_form.h. Sums have a fixed order, so every machine computes the same bytes.
#include "plan/time.h"

#include <algorithm>

#include "plan/closed_form.h"

namespace gsel::plan {

const char* name_of(TimePart part) {
  static constexpr const char* kNames[kTimeParts] = {"products", "attention", "element-wise",     "tensor collectives",
                                                     "bubble",   "messages",  "data collectives", "optimizer",
                                                     "offload",  "overhead"};
  return kNames[static_cast<size_t>(part)];
}

double TimeForecast::step() const {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

StageTime stage_time(const Workload& workload, const Split& split, const StageRun& run, int32_t stage,
                     const Cluster& cluster, const Layout& layout, const Shares& shares, const Recipe& recipe,
                     const Constants& constants) {
  const ClosedForm form{workload, split, cluster, layout, recipe, constants};
  const DeviceKind* device = nullptr;
  const StageParts parts = form.slowest(run, stage, shares, &device);
  return parts.time();
}

StageTime rank_time(const Workload& workload, const Split& split, const StageRun& run, int32_t stage, int32_t i,
                    const Cluster& cluster, const Layout& layout, const Shares& shares, const Recipe& recipe,
                    const Constants& constants) {
  const ClosedForm form{workload, split, cluster, layout, recipe, constants};
  const StageParts parts = form.of(run, stage, form.part_of(stage, i, shares));
  return parts.time();
}

TimeForecast forecast_time(const Workload& workload, const Split& split, const Cluster& cluster, const Layout& layout,
                           const Shares& shares, const Recipe& recipe, const Constants& constants) {
  const ClosedForm form{workload, split, cluster, layout, recipe, constants};
  const auto m = static_cast<double>(layout.microbatches);
  const double chunks = layout.chunks, message = 2 * form.message_s() * chunks;
  TimeForecast out;
  StageParts slow;
  double sum = 0, longest = -1, finish = 0, data_all = 0, optimizer = 0, offload = 0, summed = 0;
  for (const StageRun& run : split.runs) {
    // Merged stages are equal on a uniform cluster; otherwise each stage has its own devices.
    const int32_t each = cluster.uniform() ? run.count : 1;
    for (int32_t i = 0; i < run.count; i += each) {
      const DeviceKind* device = nullptr;
      const StageParts parts = form.slowest(run, run.first + i, shares, &device);
      const double busy = parts.forward + parts.backward;
      // A schedule that splits backward fills the bubble with parameter gradients.
      sum += each * (busy + message - (layout.schedule == ScheduleKind::zb_h1 ? 2 * parts.weight_backward : 0));
      if (busy > longest) longest = busy, slow = parts;
      const ClosedForm::Data moved = form.data(parts);
      // A stage that finishes early runs its collectives while it would wait.
      const double offloaded = form.offload_s(parts, device->host_bytes_per_second, m * busy + moved.exposed);
      if (m * busy + moved.exposed + offloaded > finish)
        finish = m * busy + moved.exposed + offloaded, offload = offloaded;
      if (moved.in_all > data_all) data_all = moved.in_all;
      summed = std::max(summed, parts.summed);
      optimizer =
          std::max(optimizer, form.optimizer_s(parts, device->memory_bytes_per_second / constants.compute_scale));
    }
  }
  const double busy = slow.forward + slow.backward;
  const double beyond = std::max(0.0, finish - m * busy);
  offload = std::min(offload, beyond);
  double data = std::min(beyond - offload, data_all);
  const double kernels = slow.products + slow.attention + slow.elements + slow.tensor;
  out[TimePart::products] = m * slow.products;
  out[TimePart::attention] = m * slow.attention;
  out[TimePart::elements] = m * slow.elements;
  out[TimePart::tensor] = m * slow.tensor + summed;
  out[TimePart::messages] = m * message;
  if (layout.pipeline > 1) {
    const double own = busy + message - (layout.schedule == ScheduleKind::zb_h1 ? 2 * slow.weight_backward : 0);
    out[TimePart::bubble] = std::max(0.0, sum - own) / chunks;
    // Reduction of an embedding that the last stage also holds.
    if (workload.tied_params > 0) {
      const double stride = static_cast<double>(layout.tensor) * layout.context * layout.data;
      const bool far = stride * layout.pipeline > cluster.per_node;
      const double rate = far ? cluster.network.bytes_per_second * constants.network / cluster.per_node
                              : cluster.inside.bytes_per_second * constants.inside;
      const double tied = workload.tied_params / (workload.tied_out ? 1 : layout.tensor) * recipe.reduced_bytes / rate *
                          constants.link_scale;
      data += tied, data_all += tied;
    }
  }
  out[TimePart::data] = data;
  out[TimePart::optimizer] = optimizer;
  out[TimePart::offload] = offload;
  out[TimePart::overhead] = m * std::max(0.0, busy - kernels) + constants.step_s * constants.compute_scale;
  out.data_in_all = data_all;
  out.summed_s = summed;
  return out;
}

}  // namespace gsel::plan
