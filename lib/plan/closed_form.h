// plan/closed_form.h: the time of one stage of a layout, term by term, with the terms of docs/plan.md in the same
// order. Only time.cc includes it. Sums have a fixed order.
#pragma once

#include <algorithm>
#include <vector>

#include "plan/rates.h"
#include "plan/time.h"

namespace gsel::plan {

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

inline const Costs* costs_of(const Workload& workload, BlockKind kind) {
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
  struct Part {
    int32_t kind;
    double samples, divisor;
    bool operator==(const Part&) const = default;
  };
  Part part_of(int32_t index, int32_t i, const Shares& shares) const {
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

  StageParts of(const StageRun& run, int32_t index, const Part& part) const {
    const double samples = static_cast<double>(layout.microbatch) / layout.context;
    return stage(run, index == 0, index + 1 == split.stages, Speeds(cluster.kinds[part.kind], recipe, k),
                 samples * part.samples, part.divisor);
  }

  // The slowest rank of a stage.
  StageParts slowest(const StageRun& run, int32_t index, const Shares& shares, const DeviceKind** device) const {
    *device = cluster.kinds.data();
    if (cluster.uniform() && shares.data_weights.empty() && shares.tensor_weights.empty())
      return of(run, index, {0, 1, static_cast<double>(layout.tensor)});
    StageParts worst;
    Part before{-1, 0, 0};
    for (int32_t i = 0; i < layout.tensor * layout.context * layout.data; ++i) {
      const Part part = part_of(index, i, shares);
      if (part == before) continue;  // equal device and shard take equal time; most such ranks are adjacent
      before = part;
      const StageParts here = of(run, index, part);
      if (here.forward + here.backward <= worst.forward + worst.backward) continue;
      worst = here;
      *device = &cluster.kinds[part.kind];
    }
    return worst;
  }
};

}  // namespace gsel::plan
