// plan/time.cc: the time of a layout, term by term, with the terms of docs/plan.md in the same order. Each term is a
// data sheet's figure times a fitted constant (constants.h). Sums have a fixed order and square roots are exact, so
// every machine computes the same bytes.
#include "plan/time.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "plan/cluster.h"
#include "plan/constants.h"
#include "plan/layout.h"
#include "plan/recipe.h"

namespace gsel::plan {
namespace {

// ---- rates of devices and links ------------------------------------------------------------------------------------

// The time of two overlapping activities: a smooth maximum.
double beside(double a, double b) {
  return std::sqrt(a * a + b * b);
}
double mostly_longer(double a, double b) {
  return std::sqrt(beside(a * a, b * b));
}

struct Speeds {
  double products, attention, memory, head;  // operations and bytes per second
  Speeds(const DeviceKind& kind, const Recipe& recipe, const Constants& k) {
    const double peak = kind.flop(recipe.element_bytes, recipe.tf32) * kind.matmul_share / k.compute_scale;
    const bool eight = recipe.eight_bit && kind.flop_8 > 0;
    head = peak * k.products;
    products = eight ? kind.flop_8 * kind.matmul_share / k.compute_scale * k.products * k.eight_bit : head;
    attention = peak * k.flash;
    memory = kind.memory_bytes_per_second / k.compute_scale;
  }
};

// A group of ranks at distance `stride`: how many are in a node, and the share of the links that each has.
struct Ring {
  double ranks, nodes, bytes_per_second, latency_s;
  Ring(double n, double stride, const Cluster& cluster, const Constants& k, double reached) : ranks(n) {
    const double per_node = cluster.per_node;
    const double near = std::clamp(std::floor(per_node / stride), 1.0, n);
    nodes = n > 1 ? std::ceil(n / near) : 1;
    bytes_per_second = cluster.inside.bytes_per_second * k.inside;
    // All rings that leave a node share its adapters.
    if (nodes > 1)
      bytes_per_second =
          std::min(bytes_per_second, cluster.network.bytes_per_second * k.network * reached * near / per_node);
    bytes_per_second /= k.link_scale;
    latency_s = (k.call_s + (nodes > 1 ? k.network_hops * cluster.network.latency_s : 0)) * k.link_scale;
  }
};

// An all-reduce of the tensor axis.
struct TensorCollective {
  double call_s = 0, byte_s = 0;
  TensorCollective(const Layout& layout, const Cluster& cluster, const Constants& k) {
    if (layout.tensor < 2) return;
    const double n = layout.tensor, inside = std::min<double>(n, cluster.per_node);
    call_s = k.call_s + k.inside_hops * cluster.inside.latency_s * (inside - 1);
    if (n <= inside) {
      byte_s = 2 * (n - 1) / n / (cluster.inside.bytes_per_second * k.inside);
    } else {
      // A group that occupies whole nodes has all their adapters.
      const double nodes = n / inside;
      double hops = 1;
      for (double reach = 2; reach < nodes; reach *= 2) hops += 1;
      call_s += k.network_hops * cluster.network.latency_s * hops;
      byte_s = 2 * (n - 1) / n / (cluster.network.bytes_per_second * k.network * inside / cluster.per_node);
    }
    call_s *= k.link_scale;
    byte_s *= k.link_scale;
  }
};

// ---- one stage -----------------------------------------------------------------------------------------------------

constexpr Costs kNoCosts{};

// Time of one micro-batch on one rank of a stage.
struct StageParts {
  double forward = 0, backward = 0;                    // both with recomputation and without messages
  double layers_forward = 0, layers_all_backward = 0;  // the same without embedding and head
  double products = 0, attention = 0, elements = 0, tensor = 0;
  double weight_backward = 0;  // part of backward: only gradients of parameters
  double params = 0;           // on a rank
  double layers = 0;
  double layers_backward = 0;  // part of backward that can hide collectives of gradients
  double summed = 0;           // once a step: summing gradients of opted-out layers over the tensor axis
  StageTime time() const { return {forward, backward, forward - layers_forward, backward - layers_all_backward}; }
};

const Costs* costs_of(const Workload& workload, BlockKind kind) {
  for (const Block& block : workload.blocks)
    if (block.kind == kind) return &block.costs;
  return nullptr;
}

struct ClosedForm {
  const Workload& workload;
  const Split& split;
  const Cluster& cluster;
  const Layout& layout;
  const Recipe& recipe;
  const Constants& k;
  const Costs* const embedding = costs_of(workload, BlockKind::embedding);
  const Costs* const head = costs_of(workload, BlockKind::head);
  const TensorCollective tensor{layout, cluster, k};

  // samples, t: this rank's samples, and the divisor of its layers; microbatch / context and `tensor` if all ranks are
  // equal.
  StageParts stage(const StageRun& run, bool first, bool last, const Speeds& speed, double samples, double t) const {
    const double el = recipe.element_bytes, b = samples;
    const bool sharded_sequence = layout.sequence_parallel;
    const double seq = sharded_sequence ? t : 1;
    const Costs& c = run.costs;
    const Costs& e = first && embedding ? *embedding : kNoCosts;
    const Costs& h = last && head ? *head : kNoCosts;
    StageParts out;
    out.params = c.params_divided / t + c.params_whole;
    out.layers = c.layers;

    // The layers.
    const double tied = last && !first ? workload.tied_params : 0;
    const double tied_divided = workload.tied_out ? 0 : tied;
    const double weights = (c.params_divided - e.params_divided - h.params_divided - tied_divided) / t +
                           (c.params_whole - e.params_whole - h.params_whole - (tied - tied_divided));
    const double flop =
        b * ((c.flop_dense - h.flop_dense) / t + c.flop_whole + (c.flop_sequence - h.flop_sequence) / seq);
    const double moved = b * (c.saved_sequence.elems - e.saved_sequence.elems - c.saved_out * (1 - 1 / seq) +
                              c.saved_gathered.elems + c.saved_divided.elems / t);
    if (sharded_sequence && c.params_out > 0)
      out.summed = tensor.call_s + c.params_out * recipe.reduced_bytes * tensor.byte_s;
    const double start = 4 * c.layers * k.product_s;
    const double traffic_s = k.product_traffic * el / speed.memory;
    const double products_f = beside(flop / speed.products, traffic_s * (moved + weights)) + start;
    const double products_b = beside(2 * flop / speed.products, traffic_s * (2 * moved + 3 * weights)) + 2 * start;

    double core_f, core_b;
    const double core_flop = b * (c.flop_core / t + c.core_whole);
    if (recipe.fused_attention) {
      core_f = core_flop * (workload.causal ? 0.5 : 1) / speed.attention;
      core_b = 2.5 * core_f;
    } else {
      const double scores = c.saved_core.elems / (c.saved_core.mask_bytes > 0 ? 2 : 1);
      core_f = core_flop / speed.head + k.score_passes * el * b * scores / t / speed.memory;
      core_b = 2 * core_f;
    }
    const double touched = (c.touched_sequence - e.touched_sequence - h.touched_sequence) / seq +
                           (c.touched_divided - h.touched_divided) / t;
    const double elements_f = k.element_passes * el * b * touched / speed.memory;

    const double reductions = c.reductions - e.reductions - h.reductions;
    const double all_tensor = reductions * tensor.call_s + b * (c.reduced - e.reduced - h.reduced) * el * tensor.byte_s;
    const double tensor_f = all_tensor * (1 - k.tensor_hidden);
    const double ring_f = context_ring(c, b, t, core_f);
    const double host_f =
        (c.layers * k.host_layer_s + (t > 1 ? c.tensor_layers * (k.host_tensor_s + k.host_rank_s * (t - 1)) : 0)) *
        k.compute_scale;

    const double forward = mostly_longer(products_f + core_f + elements_f + tensor_f + ring_f, host_f);
    const double backward =
        mostly_longer(products_b + core_b + 2 * elements_f + tensor_f + 2 * ring_f, k.host_backward * host_f);
    double again = 0, repeats = 0;
    if (layout.recompute == Recompute::full) {
      again = forward, repeats = 1;
    } else if (layout.recompute == Recompute::selective) {
      if (k.selective_share > 0)
        again = k.selective_share * mostly_longer(products_f + core_f + elements_f, host_f);
      else if (!recipe.fused_attention)
        again = core_f;
    }
    out.products = products_f * (1 + repeats) + products_b;
    out.attention = core_f * (1 + repeats) + core_b;
    out.elements = elements_f * (3 + repeats);
    out.tensor = (tensor_f + ring_f) * (1 + repeats) + tensor_f + 2 * ring_f;
    if (layout.recompute == Recompute::selective) {
      if (k.selective_share > 0) {
        out.products += k.selective_share * products_f;
        out.attention += k.selective_share * core_f;
        out.elements += k.selective_share * elements_f;
      } else if (!recipe.fused_attention) {
        out.attention += core_f;
      }
    }
    out.forward = forward;
    out.backward = backward + again;
    out.layers_backward = out.backward - again;
    out.layers_forward = out.forward, out.layers_all_backward = out.backward;
    out.weight_backward = 0.5 * products_b;

    // The head: its logits are large, and their gradient is computed right away. The embedding: one read and one write.
    const double whole_reduce = t > 1 ? tensor.call_s + b * split.boundary * el * tensor.byte_s : 0;
    if (h.logits + h.logits_sequence > 0) {
      const double reduce = h.logits > 0 ? whole_reduce : 0;
      const double logits = h.logits / t + h.logits_sequence / seq;
      const double read = h.logits > 0 ? split.boundary : split.boundary / seq;
      const double matrix = (h.flop_dense / t + h.flop_sequence) / (2 * static_cast<double>(workload.sequence));
      const double flop_h = h.flop_dense / t + h.flop_sequence / seq;
      const double products = beside(3 * b * flop_h / speed.head, 3 * traffic_s * (b * (logits + read) + matrix));
      const double elements = k.logit_passes * 4 * b * logits / speed.memory;
      out.products += products, out.elements += elements, out.tensor += 2 * reduce;
      out.forward += products / 3 + elements / 2 + reduce;
      out.backward += products * 2 / 3 + elements / 2 + reduce;
      out.weight_backward += products / 3;
    }
    if (e.params_divided + e.params_out > 0) {
      const double reduce = e.params_divided > 0 ? whole_reduce : 0;
      const double elements = k.element_passes * el * b * e.touched_sequence / speed.memory;
      out.elements += 3 * elements, out.tensor += reduce;
      out.forward += elements + reduce, out.backward += 2 * elements;
    }
    return out;
  }

  // Keys and values are sent around the ranks of the context axis while attention computes.
  double context_ring(const Costs& c, double b, double t, double core_s) const {
    if (layout.context < 2) return 0;
    const bool inside = layout.tensor * layout.context <= cluster.per_node;
    const double rate = inside ? cluster.inside.bytes_per_second * k.inside
                               : cluster.network.bytes_per_second * k.network / cluster.per_node;
    const double ring = (layout.context - 1) *
                        (c.layers * k.message_s + b * c.shifted / t * recipe.element_bytes / rate) * k.link_scale;
    return std::max(0.2 * ring, ring - core_s);
  }

  // Message time of one stage boundary, in one direction.
  double message_s() const {
    if (layout.pipeline < 2) return 0;
    const double per_node = cluster.per_node;
    const double stride = static_cast<double>(layout.tensor) * layout.context * layout.data;
    const double far = std::min(1.0, stride / per_node);
    const double senders = k.messages_divided || layout.sequence_parallel ? layout.tensor : 1;
    const double bytes =
        static_cast<double>(layout.microbatch) / layout.context * split.boundary * recipe.element_bytes / senders;
    return k.message_exposed * k.link_scale *
           (k.message_s + (1 - far) * bytes / (cluster.inside.bytes_per_second * k.inside) +
            far * bytes * per_node / (cluster.network.bytes_per_second * k.message));
  }

  struct Data {
    double in_all = 0, exposed = 0;
  };
  // The collectives of a stage over the data axis and the context axis, whose ranks have the same parameters.
  Data data(const StageParts& stage) const {
    const double n = static_cast<double>(layout.data) * layout.context;
    if (n < 2) return {};
    const Ring ring(n, layout.tensor, cluster, k, layout.zero_stage == 3 ? k.gather_network : 1);
    const double share = (n - 1) / n / ring.bytes_per_second;
    const double hops = k.ring_hops * cluster.network.latency_s * (n - 1) * k.link_scale;
    const bool gathers = layout.zero_stage == 3 || (layout.zero_stage == 2 && recipe.params_divided_at == 2);
    Data out;
    const auto m = static_cast<double>(layout.microbatches);
    if (!gathers) {
      // ZeRO gathers parameters where plain data parallelism gathers sums. From stage 2 on a rank keeps only its shard
      // of the sums, so each micro-batch is reduced.
      const double gathered = layout.zero_stage >= 1 ? recipe.gathered_bytes : recipe.reduced_bytes;
      const double times = layout.zero_stage >= 2 ? m : 1;
      out.in_all =
          share * stage.params * (times * recipe.reduced_bytes + gathered) + (times + 1) * (ring.latency_s + hops);
      const double behind =
          k.data_hidden_by * (times * stage.layers_backward + (layout.zero_stage >= 1 ? stage.forward : 0));
      const double parts = k.chunks_overlap ? layout.chunks : 1;
      out.exposed = std::max(k.data_exposed * out.in_all, (out.in_all - behind) / parts);
      return out;
    }
    const double times = layout.pipeline > 1 && k.stages_keep_gathered ? 1 : m;
    const double latency = stage.layers * k.gather_calls * (ring.latency_s + hops);
    const double gather = share * stage.params * recipe.gathered_bytes + latency;
    const double reduce = share * stage.params * recipe.reduced_bytes + latency;
    out.in_all = layout.zero_stage == 3 ? times * (2 * gather + reduce) : gather + times * reduce;
    const double behind = k.gather_hidden_by * m * (stage.forward + stage.backward);
    out.exposed = std::max(k.gather_exposed * out.in_all, out.in_all - behind);
    return out;
  }

  // The optimizer, and its transfers between device and host with those of offloaded parameters.
  double optimizer_s(const StageParts& stage, double memory) const {
    const double shards = layout.zero_stage >= 1 ? layout.data : 1;
    const double bytes = 2 * (recipe.master_bytes + recipe.state_bytes) + recipe.gradient_bytes + recipe.param_bytes;
    const double rate = layout.offload == Offload::none ? memory : kHostOptimizer;
    return k.optimizer_passes * stage.params / shards * bytes / rate;
  }
  // busy: seconds of computation and collectives that run at the same time.
  double offload_s(const StageParts& stage, double host_rate, double busy) const {
    if (layout.offload == Offload::none || !(host_rate > 0)) return 0;
    const double shards = layout.zero_stage >= 1 ? layout.data : 1;
    double moved = stage.params / shards * (recipe.reduced_bytes + recipe.gathered_bytes) / host_rate;
    if (layout.offload == Offload::all) {
      const double params = stage.params / (layout.zero_stage == 3 ? layout.data : 1);
      const double fetched = 2 * static_cast<double>(layout.microbatches) * params * recipe.gathered_bytes / host_rate;
      const double behind = 0.8 * busy;
      moved += std::max(0.2 * fetched, fetched - behind);
    }
    return moved;
  }
  static constexpr double kHostOptimizer = 20e9;  // bytes per second of a rank's share of the host's memory

  // The share of a stage's work that one rank has: samples relative to an equal share, and layers divided by `divisor`.
  struct RankShare {
    int32_t kind;
    double samples, divisor;
    bool operator==(const RankShare&) const = default;
  };
  RankShare share_of_rank(int32_t index, int32_t i, const Shares& shares) const {
    const auto sum = [](const std::vector<double>& weights) {
      double total = 0;
      for (const double weight : weights) total += weight;
      return total;
    };
    const int32_t stride = layout.tensor * layout.context * layout.data, at = index * stride + i;
    const int32_t replica = i / (layout.tensor * layout.context), part = i % layout.tensor;
    const double data_sum = sum(shares.data_weights), tensor_sum = sum(shares.tensor_weights);
    return {cluster.devices[std::min(at, cluster.size() - 1)],
            data_sum > 0 ? shares.data_weights[replica] / data_sum * layout.data : 1,
            tensor_sum > 0 && shares.tensor_weights[part] > 0 ? tensor_sum / shares.tensor_weights[part]
                                                              : static_cast<double>(layout.tensor)};
  }

  StageParts of(const StageRun& run, int32_t index, const RankShare& share) const {
    const double samples = static_cast<double>(layout.microbatch) / layout.context;
    return stage(run, index == 0, index + 1 == split.stages, Speeds(cluster.kinds[share.kind], recipe, k),
                 samples * share.samples, share.divisor);
  }

  // The slowest rank of a stage.
  StageParts slowest(const StageRun& run, int32_t index, const Shares& shares, const DeviceKind** device) const {
    *device = cluster.kinds.data();
    if (cluster.uniform() && shares.data_weights.empty() && shares.tensor_weights.empty())
      return of(run, index, {0, 1, static_cast<double>(layout.tensor)});
    StageParts worst;
    RankShare before{-1, 0, 0};
    for (int32_t i = 0; i < layout.tensor * layout.context * layout.data; ++i) {
      const RankShare share = share_of_rank(index, i, shares);
      if (share == before) continue;  // equal device and shard take equal time; most such ranks are adjacent
      before = share;
      const StageParts here = of(run, index, share);
      if (here.forward + here.backward <= worst.forward + worst.backward) continue;
      worst = here;
      *device = &cluster.kinds[share.kind];
    }
    return worst;
  }
};

}  // namespace

// ---- the whole step ------------------------------------------------------------------------------------------------

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
  const StageParts parts = form.of(run, stage, form.share_of_rank(stage, i, shares));
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
