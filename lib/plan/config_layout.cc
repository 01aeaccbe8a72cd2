// plan/config_layout.cc: see config_layout.h.
#include "plan/config_layout.h"

#include <gsel/plugin.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/shard.h"
#include "base/text.h"
#include "base/types.h"
#include "plan/plan.h"
#include "plan/units.h"
#include "plugin/registry.h"

namespace gsel::plan {
namespace {

// As the strategy describes it; empty if it has no such option.
std::string default_of(const std::string& plugin, std::string_view option) {
  const auto& strategy = *static_cast<const gsel_strategy_v1*>(load_plugin(GSEL_PLUGIN_STRATEGY, plugin).table);
  for (int32_t i = 0; i < strategy.n_options; ++i)
    if (strategy.options[i].name == option && strategy.options[i].default_text) return strategy.options[i].default_text;
  return {};
}

int64_t number_of(const std::string& text) {
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// "[2, 1, 1]": whole numbers of heads unchanged, others with few digits, since only ratios count.
std::string list_of(const std::vector<double>& weights) {
  const bool whole = std::ranges::all_of(weights, [](double w) { return w == std::floor(w) && w < 1e6; });
  if (whole) return fmt::format("[{}]", fmt::join(weights, ", "));
  const double least = *std::ranges::min_element(weights);
  std::string text;
  for (const double w : weights) text += fmt::format("{}{:.4g}", text.empty() ? "" : ", ", w / least);
  return "[" + text + "]";
}

std::string mesh_text(const Layout& l) {
  std::string text = "[mesh]\n";
  if (l.tensor > 1) text += fmt::format("tensor = {}\n", l.tensor);
  if (l.context > 1) text += fmt::format("context = {}\n", l.context);
  if (l.pipeline > 1) text += fmt::format("pipeline = {}\n", l.pipeline);
  return text + fmt::format("data = {}\n", l.data);
}

// The devices of the ranks, if they come from an inventory and a run must not use all devices in their order.
std::string select_text(const Request& request, const Layout& l) {
  const Cluster& c = request.cluster;
  const bool all_in_order = request.order.empty() && l.ranks() == c.size();
  if (all_in_order || c.nodes() > 1 || c.indices.empty()) return {};
  std::string list;
  for (int32_t rank = 0; rank < l.ranks(); ++rank) {
    const int32_t device = request.order.empty() ? rank : request.order[static_cast<size_t>(rank)];
    list += fmt::format("{}{}", rank == 0 ? "" : ",", c.indices[static_cast<size_t>(device)]);
  }
  return fmt::format("[select]\ndevices = \"index:{}\"\n\n", list);
}

// Elements that stage 3 of ZeRO gathers ahead, if its default is less than the largest block: else that would be
// gathered while all ranks wait. Not used where the forecast does not count this memory: with one replica, and with
// interleaved stages, whose programs have been seen to need more.
std::string ahead_text(const Workload& workload, const Layout& l) {
  if (l.zero_stage < 3 || l.data == 1 || l.chunks > 1) return {};
  double most = 0;
  for (const Block& block : workload.blocks)
    most = std::max(most, block.costs.params_divided / l.tensor + block.costs.params_whole);
  const auto ahead = static_cast<int64_t>(std::ceil(most));
  if (ahead <= number_of(default_of(OwnStrategies::sharded_data, OwnStrategies::ahead))) return {};
  return fmt::format("{} = {}\n", OwnStrategies::ahead, ahead);
}

std::string strategies_text(const Workload& workload, const Layout& l, const Shares& shares) {
  std::string text;
  gsel_axis axis = -1;
  const auto end_section = [&] {
    if (axis == GSEL_AXIS_DATA) text += ahead_text(workload, l);
    std::string weights;
    if (axis == GSEL_AXIS_TENSOR && !shares.tensor_weights.empty()) weights = list_of(shares.tensor_weights);
    if (axis == GSEL_AXIS_DATA && !shares.data_weights.empty()) weights = list_of(shares.data_weights);
    if (axis == GSEL_AXIS_PIPELINE && !shares.stage_layers.empty())
      weights = fmt::format("[{}]", fmt::join(shares.stage_layers, ", "));
    if (!weights.empty()) text += fmt::format("weights = {}\n", weights);
  };
  for (const StrategySetting& s : strategy_settings(workload, l)) {
    if (s.axis != axis) {
      end_section();
      text += fmt::format("\n[strategy.{}]\n", axis_name(s.axis));
    }
    axis = s.axis;
    text += fmt::format("{} = {}\n", s.key, s.is_text ? "\"" + s.value + "\"" : s.value);
  }
  end_section();
  return text;
}

[[noreturn]] void refuse_key(const Config& config, const std::string& key, const std::string& why) {
  const Place place = config.place_of(key);
  throw Error(GSEL_ERR_CONFIG, fmt::format("{}{} {}", place_prefix(place), key, why)).at(place);
}

// As the file says it, or the default of its strategy.
std::string option_of(const Config& config, gsel_axis axis, const char* name) {
  const auto& section = config.strategy[axis];
  if (section)
    if (const auto found = section->options.find(name); found != section->options.end()) return found->second.text;
  return default_of(section ? section->plugin : OwnStrategies::of(axis_name(axis)), name);
}

void read_tensor(const Config& config, const Workload& workload, Layout& l, bool* others) {
  *others = false;
  if (l.tensor == 1) return;
  l.sequence_parallel = option_of(config, GSEL_AXIS_TENSOR, OwnStrategies::positions) == "true";
  l.excluded = units_named(workload, option_of(config, GSEL_AXIS_TENSOR, OwnStrategies::excluded), others);
}

void read_data(const Config& config, Layout& l) {
  const auto& section = config.strategy[GSEL_AXIS_DATA];
  if (!section || section->plugin != OwnStrategies::sharded_data) return;
  l.zero_stage = static_cast<int32_t>(number_of(option_of(config, GSEL_AXIS_DATA, OwnStrategies::sharded)));
  const std::string offload = option_of(config, GSEL_AXIS_DATA, OwnStrategies::offloaded);
  for (const Offload one : {Offload::none, Offload::state, Offload::all})
    if (offload == name_of(one)) l.offload = one;
}

void read_pipeline(const Config& config, Layout& l) {
  if (l.pipeline == 1) return;
  const std::string schedule = option_of(config, GSEL_AXIS_PIPELINE, OwnStrategies::schedule);
  bool known = false;
  for (const ScheduleKind one :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    if (schedule == name_of(one)) l.schedule = one, known = true;
  if (!known)
    refuse_key(
        config, "strategy.pipeline.schedule",
        fmt::format("is \"{}\", which the planner does not price; it prices gpipe, 1f1b, interleaved-1f1b and zb-h1",
                    schedule));
  l.chunks = static_cast<int32_t>(
      std::max<int64_t>(1, number_of(option_of(config, GSEL_AXIS_PIPELINE, OwnStrategies::chunks))));
  if (l.schedule == ScheduleKind::interleaved && l.chunks == 1) l.chunks = 2;
}

}  // namespace

std::vector<StrategySetting> strategy_settings(const Workload& workload, const Layout& l) {
  std::vector<StrategySetting> all;
  const auto text = [&](gsel_axis axis, const char* key, std::string value) {
    all.push_back({axis, key, std::move(value), true});
  };
  const auto bare = [&](gsel_axis axis, const char* key, std::string value) {
    all.push_back({axis, key, std::move(value), false});
  };
  if (l.tensor > 1) {
    text(GSEL_AXIS_TENSOR, "plugin", OwnStrategies::tensor);
    if (l.sequence_parallel) bare(GSEL_AXIS_TENSOR, OwnStrategies::positions, "true");
    if (l.excluded != 0) text(GSEL_AXIS_TENSOR, OwnStrategies::excluded, layers_of(workload, l.excluded));
  }
  if (l.context > 1) text(GSEL_AXIS_CONTEXT, "plugin", OwnStrategies::context);
  if (l.pipeline > 1) {
    text(GSEL_AXIS_PIPELINE, "plugin", OwnStrategies::pipeline);
    text(GSEL_AXIS_PIPELINE, OwnStrategies::schedule, name_of(l.schedule));
    if (l.chunks > 1) bare(GSEL_AXIS_PIPELINE, OwnStrategies::chunks, std::to_string(l.chunks));
  }
  text(GSEL_AXIS_DATA, "plugin", l.zero_stage > 0 ? OwnStrategies::sharded_data : OwnStrategies::data);
  if (l.zero_stage > 0) bare(GSEL_AXIS_DATA, OwnStrategies::sharded, std::to_string(l.zero_stage));
  if (l.offload != Offload::none) text(GSEL_AXIS_DATA, OwnStrategies::offloaded, name_of(l.offload));
  return all;
}

std::string toml_of(const Request& request, const Candidate& candidate) {
  const Layout& l = candidate.layout;
  std::string text = fmt::format(
      "# {} on {}: {}.\n# Forecast: {:.4g} s a step, {} GiB on the rank that is nearest to its device's memory.\n",
      request.workload.name, request.cluster.name, name_of(l), candidate.step_s(), gib(candidate.memory.total()));
  if (const std::string devices = devices_text(request, candidate); !devices.empty())
    text += fmt::format("# {}{}.\n", static_cast<char>(devices[0] - 'a' + 'A'), devices.substr(1));
  text += select_text(request, l) + mesh_text(l);
  text += strategies_text(request.workload, l, candidate.shares);
  text += fmt::format("\n[train]\nbatch = {}\n", request.batch);
  text += candidate.shares.data_weights.empty() ? fmt::format("microbatch = {}\n", l.microbatch)
                                                : fmt::format("microbatches = {}\n", l.microbatches);
  text += fmt::format("precision = \"{}\"\n", request.recipe.element_bytes <= 2 ? "bf16" : "f32");
  if (l.recompute == Recompute::full) text += "recompute = \"all\"\n";
  return text;
}

std::string why_not_run(const Request& request, const Layout& layout) {
  const Recipe& recipe = request.recipe;
  if (!std::string_view(recipe.name).starts_with("gsel-"))
    return fmt::format(
        "gsel's trainer cannot run this plan: {} is how other programs keep their states; the nearest that it runs is "
        "precision {}",
        recipe.name, recipe.element_bytes <= 2 ? "gsel-bf16" : "gsel-f32");
  if (layout.recompute == Recompute::selective)
    return "gsel's trainer cannot run this plan: recompute=selective is of kernels that keep the scores of attention; "
           "the nearest that it runs is recompute=all";
  return {};
}

Cluster devices_of(const Config& config, const Cluster& cluster) {
  if (cluster.nodes() > 1) return cluster;
  Cluster out = cluster;
  std::string_view list = config.select.devices;
  if (list.starts_with("index:") && list.find_first_not_of("0123456789,", 6) == list.npos && !cluster.indices.empty()) {
    out.devices.clear(), out.indices.clear();
    for (list.remove_prefix(6); !list.empty();) {
      const std::string one(list.substr(0, list.find(',')));
      list.remove_prefix(std::min(list.size(), one.size() + 1));
      const auto at = std::ranges::find(cluster.indices, static_cast<int32_t>(number_of(one)));
      if (at == cluster.indices.end())
        refuse_key(config, "select.devices", fmt::format("lists device {}, which {} does not have", one, cluster.name));
      out.devices.push_back(cluster.devices[static_cast<size_t>(at - cluster.indices.begin())]);
      out.indices.push_back(*at);
    }
  }
  int64_t ranks = 1;
  for (const int64_t size : config.mesh) ranks = ranks > out.size() ? ranks : ranks * size;
  if (ranks >= 1 && ranks < out.size()) out.devices.resize(static_cast<size_t>(ranks));
  if (!out.indices.empty()) out.indices.resize(out.devices.size());
  out.per_node = out.size();
  return out;
}

Layout layout_of(const Config& config, const Workload& workload, int32_t world_size, bool* others) {
  if (config.plan == "auto")
    refuse_key(
        config, "strategy.plan",
        "= \"auto\" chooses a layout when training starts; without it, the layout that the file says is forecast, "
        "and gsel plan --toml writes a file with the first choice");
  const auto mesh = resolve_mesh(config, world_size);
  Layout l;
  l.tensor = mesh[GSEL_AXIS_TENSOR], l.context = mesh[GSEL_AXIS_CONTEXT];
  l.data = mesh[GSEL_AXIS_DATA], l.pipeline = mesh[GSEL_AXIS_PIPELINE];
  read_data(config, l);
  read_pipeline(config, l);
  read_tensor(config, workload, l, others);
  if (config.train.recompute != "none") l.recompute = Recompute::full;
  if (config.train.batch < l.data || (config.train.batch % l.data != 0 && l.pipeline > 1))
    refuse_key(config, "train.batch",
               fmt::format("is {}, which {} replicas do not divide", config.train.batch, l.data));
  const int64_t local_batch = (config.train.batch + l.data - 1) / l.data;  // of the largest replica
  l.microbatches = config.train.microbatches > 0 ? config.train.microbatches
                   : config.train.microbatch > 0 ? (local_batch + config.train.microbatch - 1) / config.train.microbatch
                                                 : 1;
  // If this is not divisible by the micro-batches, the size of the largest.
  l.microbatch = config.train.microbatches == 0 && config.train.microbatch > 0
                     ? std::min(local_batch, config.train.microbatch)
                     : std::max<int64_t>(1, (local_batch + l.microbatches - 1) / l.microbatches);
  return l;
}

std::string uneven_note(const Config& config, const Layout& l) {
  if (config.get("strategy.data.weights")) return {};
  const int64_t local_batch = (config.train.batch + l.data - 1) / l.data;
  if (local_batch % l.microbatch == 0 && local_batch / l.microbatch == l.microbatches) return {};
  return fmt::format("{} of a replica of {} are not {} of {}; the forecast takes all of them as the largest",
                     with_noun(local_batch, "sample"), config.file.empty() ? "a config" : config.file,
                     with_noun(l.microbatches, "micro-batch"), with_noun(l.microbatch, "sample"));
}

Shares shares_of(const Config& config, const Workload& workload, const Cluster& cluster, const Layout& l) {
  Shares shares;
  // Unequal devices divide the work equally when the file has no weights.
  const auto weights = [&](gsel_axis axis, const char* key, int32_t ranks) {
    const bool given = config.get(key) || (!cluster.uniform() && ranks > 1);
    return given ? axis_weights(config, axis, ranks) : std::vector<double>();
  };
  const auto sizes = [](const std::vector<int64_t>& bounds, std::vector<double>& all) {
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(bounds[i + 1] - bounds[i]);
  };
  shares.data_weights = weights(GSEL_AXIS_DATA, "strategy.data.weights", l.data);
  if (!shares.data_weights.empty()) sizes(shard_items(config.train.batch, shares.data_weights), shares.data_weights);
  shares.tensor_weights = weights(GSEL_AXIS_TENSOR, "strategy.tensor.weights", l.tensor);
  if (!shares.tensor_weights.empty() && workload.kv_heads >= l.tensor)
    sizes(shard_bounds(workload.kv_heads, shares.tensor_weights), shares.tensor_weights);
  if (config.get("strategy.pipeline.weights"))
    shares.stage_layers = layers_of_stages(workload, l.pipeline, axis_weights(config, GSEL_AXIS_PIPELINE, l.pipeline));
  else if (!cluster.uniform() && l.pipeline > 1)
    shares.stage_layers = layers_of_stages(workload, l.pipeline);
  return shares;
}

}  // namespace gsel::plan
