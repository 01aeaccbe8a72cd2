// plan/automatic.cc: see automatic.h.
#include "plan/automatic.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "comm/device/device_backend.h"
#include "plan/config_layout.h"
#include "plan/finalist.h"
#include "plan/measure.h"
#include "plan/plan.h"
#include "plan/units.h"
#include "select/inventory/inventory.h"

namespace gsel::plan {
namespace {

constexpr double kMeasureSeconds = 2;
constexpr size_t kMostUnitsTried = 8;  // most kinds of layers for which opting out of the tensor axis is tried
constexpr int32_t kMostPriced = 64;    // most ranks of one host for which all layouts are compiled

std::optional<int64_t> fixed_size(const Config& config, gsel_axis axis) {
  const std::string key = fmt::format("mesh.{}", axis_name(axis));
  if (!config.places.contains(key) || config.mesh[axis] == 0) return std::nullopt;
  return config.mesh[axis];
}

void refuse_strategies(const Config& config) {
  for (const gsel_axis axis : kInnerToOuter) {
    const auto& section = config.strategy[axis];
    if (!section) continue;
    throw Error(
        GSEL_ERR_CONFIG,
        fmt::format("{}[strategy.{}] conflicts with strategy.plan = \"auto\", which chooses strategies; remove one",
                    place_prefix(section->place), axis_name(axis)))
        .at(section->place);
  }
}

// The configuration for a layout; all other keys are unchanged.
Config with_layout(const Config& config, const Workload& workload, const Layout& l) {
  Config out = with_setting(config, "strategy.plan", "none");
  const auto set = [&](const std::string& key, const std::string& value) { out = with_setting(out, key, value); };
  const std::pair<const char*, int32_t> sizes[] = {
      {"mesh.tensor", l.tensor}, {"mesh.context", l.context}, {"mesh.data", l.data}, {"mesh.pipeline", l.pipeline}};
  for (const auto& [key, size] : sizes) set(key, std::to_string(size));
  for (const StrategySetting& s : strategy_settings(workload, l))
    set(fmt::format("strategy.{}.{}", axis_name(s.axis), s.key), s.value);
  if (config.train.microbatch == 0 && config.train.microbatches == 0 && l.microbatches > 1)
    set("train.microbatches", std::to_string(l.microbatches));
  if (l.recompute != Recompute::none) set("train.recompute", "all");
  return out;
}

// Numbers of micro-batches per replica to try when the file does not set it.
std::vector<int64_t> microbatch_counts(const Config& config, int64_t local_batch, int32_t stages) {
  if (config.train.microbatches > 0) return {config.train.microbatches};
  if (config.train.microbatch > 0) return {std::max<int64_t>(1, local_batch / config.train.microbatch)};
  std::vector<int64_t> counts{1};
  for (const int64_t more : {int64_t{stages}, 2L * stages, 4L * stages})
    if (more > counts.back() && local_batch % more == 0) counts.push_back(more);
  return counts;
}

// unbatched: called with the number of replicas of each mesh that does not divide the batch.
template <class Visit, class Unbatched>
void for_each_layout(const Config& config, int32_t ranks, Visit&& visit, Unbatched&& unbatched) {
  const auto fits = [&](gsel_axis axis, int32_t size) { return fixed_size(config, axis).value_or(size) == size; };
  for (int32_t sharing = 1; sharing <= ranks; ++sharing) {
    if (ranks % sharing != 0) continue;
    for (const gsel_axis axis : {GSEL_AXIS_TENSOR, GSEL_AXIS_CONTEXT}) {
      if (sharing == 1 && axis == GSEL_AXIS_CONTEXT) continue;
      for (int32_t pipeline = 1; pipeline <= ranks / sharing; ++pipeline) {
        if (ranks / sharing % pipeline != 0) continue;
        Layout l;
        (axis == GSEL_AXIS_TENSOR ? l.tensor : l.context) = sharing;
        l.pipeline = pipeline, l.data = ranks / sharing / pipeline;
        if (!fits(GSEL_AXIS_TENSOR, l.tensor) || !fits(GSEL_AXIS_CONTEXT, l.context) ||
            !fits(GSEL_AXIS_PIPELINE, l.pipeline) || !fits(GSEL_AXIS_DATA, l.data))
          continue;
        if (config.train.batch % l.data != 0) {
          unbatched(l.data);
          continue;
        }
        for (const int64_t count : microbatch_counts(config, config.train.batch / l.data, pipeline)) {
          l.microbatches = count;
          l.microbatch = std::max<int64_t>(1, config.train.batch / l.data / count);
          for (l.zero_stage = 0; l.zero_stage <= (l.data > 1 ? 3 : 0); ++l.zero_stage) visit(l);
        }
      }
    }
  }
}

template <class Visit>
void for_each_layout(const Config& config, int32_t ranks, Visit&& visit) {
  for_each_layout(config, ranks, visit, [](int64_t) {});
}

// Why no mesh of these sizes divides the batch; empty if one does, or if there is no such mesh.
std::string why_no_batch(const Config& config, int32_t ranks) {
  int64_t fewest = 0, layouts = 0;
  for_each_layout(
      config, ranks, [&](const Layout&) { ++layouts; },
      [&](int64_t replicas) { fewest = fewest == 0 ? replicas : std::min(fewest, replicas); });
  if (layouts > 0 || fewest == 0) return {};
  return fmt::format("train.batch = {} does not divide by {}, the fewest of any layout of {}; accepted: {}",
                     config.train.batch, with_noun(fewest, "replica"), with_noun(ranks, "rank"),
                     multiples_near(config.train.batch, fewest));
}

struct Choice {
  Layout layout;
  Config config;
  double step_s = 0;
};

class Choices {
 public:
  void add(Choice choice) {
    const auto before = [](const Choice& a, const Choice& b) { return a.step_s < b.step_s; };
    best_.insert(std::ranges::upper_bound(best_, choice, before), std::move(choice));
    if (best_.size() > 2) best_.pop_back();
  }
  void refused(const Layout& layout, const Error& error) { none(name_of(layout) + ": " + error.what()); }
  void none(const std::string& why) {
    if (why_.empty()) why_ = why;
  }
  const Choice& first(const Config& config) const {
    const Place place = config.place_of("strategy.plan");
    if (best_.empty())
      throw Error(GSEL_ERR_CONFIG, fmt::format("{}strategy.plan = \"auto\" found no layout that runs; {}",
                                               place_prefix(place), why_.empty() ? "none has these sizes" : why_))
          .at(place);
    return best_.front();
  }
  void log_choice() const {
    log(GSEL_LOG_INFO, "plan", "took {}: {} a step are forecast{}", name_of(best_[0].layout),
        duration_text(best_[0].step_s),
        best_.size() < 2
            ? ""
            : fmt::format("; next is {} with {}", name_of(best_[1].layout), duration_text(best_[1].step_s)));
  }

 private:
  std::vector<Choice> best_;
  std::string why_;
};

void price_on_host(Choices& choices, Communicator& comm, const std::shared_ptr<Model>& model, const Config& config,
                   const DataSource& data) {
  const int32_t ranks = comm.world_size();
  std::vector<int64_t> samples;
  for_each_layout(config, ranks, [&](const Layout& l) { samples.push_back(l.microbatch); });
  std::ranges::sort(samples);
  samples.erase(std::unique(samples.begin(), samples.end()), samples.end());
  if (samples.empty()) return choices.none(why_no_batch(config, ranks));
  const Measured measured = measure(comm, model, data, config, {samples, kMeasureSeconds});
  const MeasuredDurations durations(measured);
  const Workload workload = workload_of(*model, "the model");
  const auto try_one = [&](const Layout& l) {
    try {
      Config candidate = with_layout(config, workload, l);
      const auto bound = static_cast<uint64_t>(config.train.memory_bytes);
      const Finalist f = price(*model, candidate, ranks, {durations, durations.hosts(ranks), bound, 2});
      choices.add({l, std::move(candidate), f.step_s});
      return f.step_s;
    } catch (const Error& error) {
      choices.refused(l, error);
      return std::numeric_limits<double>::infinity();
    }
  };
  for_each_layout(config, ranks, [&](Layout l) {
    const double divided = try_one(l);
    const size_t units = workload.units.size();
    if (l.tensor == 1 || units < 2 || units > kMostUnitsTried) return;
    // Opts out each kind of layers by itself, then all kinds that gained together, unless nothing is left to divide.
    uint64_t gaining = 0;
    for (size_t u = 0; u < units; ++u) {
      l.excluded = uint64_t{1} << u;
      if (try_one(l) < divided) gaining |= l.excluded;
    }
    l.excluded = gaining;
    if (std::popcount(gaining) > 1 && static_cast<size_t>(std::popcount(gaining)) < units) try_one(l);
  });
}

void search_on_devices(Choices& choices, Communicator& comm, const Model& model, const Config& config) {
  const bool f32 = config.train.precision == "f32";
  Request request{workload_of(model, "the model"),
                  cluster_of(selected(comm, detect_inventory(), comm.device()->accelerator()->uuid), {}),
                  *find_recipe(f32 ? "gsel-f32" : "gsel-bf16"),
                  config.train.batch,
                  {},
                  {}};
  align_kinds(request.cluster);
  if (comm.rank() == 0)
    for (const std::string& note : request.cluster.notes) log(GSEL_LOG_INFO, "plan", "{}", note);
  request.constants = constants_for(request.cluster.kinds.front().device_class, runtime_of(request.recipe));
  request.fixed.devices = comm.world_size();
  request.reorder = false;
  request.fixed.tensor = fixed_size(config, GSEL_AXIS_TENSOR);
  request.fixed.context = fixed_size(config, GSEL_AXIS_CONTEXT);
  request.fixed.pipeline = fixed_size(config, GSEL_AXIS_PIPELINE);
  request.fixed.data = fixed_size(config, GSEL_AXIS_DATA);
  const Plan plan(std::move(request), {});
  for (const Candidate& c : plan.candidates())
    choices.add({c.layout, with_layout(config, plan.request().workload, c.layout), c.step_s()});
  if (plan.candidates().empty()) choices.none(smallest_change(plan.request(), plan.result()));
}

}  // namespace

Inventory selected(Communicator& comm, const Inventory& inventory, std::string_view uuid) {
  const auto known = [&](const Device& device) { return !uuid.empty() && device.uuid == uuid; };
  const auto own = std::ranges::find_if(inventory.devices, known);
  std::vector<uint64_t> mine(2), all(2 * static_cast<size_t>(comm.world_size()));  // position (from 1), free bytes
  if (own != inventory.devices.end())
    mine = {static_cast<uint64_t>(own - inventory.devices.begin()) + 1, own->free_bytes};
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHER, mine.data(), all.data(), mine.size(), GSEL_U64);
  comm.check(call);
  comm.host().run(call, nullptr);
  Inventory out = inventory;
  const auto listed = [&](uint64_t position) { return position >= 1 && position <= inventory.devices.size(); };
  bool all_known = true;
  for (size_t i = 0; i < all.size(); i += 2) all_known &= listed(all[i]);
  if (!all_known) {
    for (Device& device : out.devices) device.free_bytes = 0;
    return out;
  }
  out.devices.clear();
  for (size_t i = 0; i < all.size(); i += 2) {
    out.devices.push_back(inventory.devices[all[i] - 1]);
    out.devices.back().free_bytes = all[i + 1];
  }
  out.hosts.front().count = static_cast<int32_t>(out.devices.size());
  const auto is_taken = [&](int32_t index) {
    return std::ranges::any_of(out.devices, [&](const Device& device) { return device.index == index; });
  };
  for (Host& host : out.hosts)
    std::erase_if(host.links, [&](const gsel::Link& link) { return !is_taken(link.a) || !is_taken(link.b); });
  return out;
}

Config planned(Communicator& comm, const std::shared_ptr<Model>& model, const Config& config, const DataSource& data) {
  refuse_strategies(config);
  if (comm.world_size() > kMostPriced)
    fail(GSEL_ERR_CONFIG,
         "strategy.plan = \"auto\" measures up to {} ranks, and there are {}; gsel plan writes a gsel.toml "
         "for more",
         kMostPriced, comm.world_size());
  Choices choices;
  if (comm.device())
    search_on_devices(choices, comm, *model, config);
  else
    price_on_host(choices, comm, model, config, data);
  const Choice& first = choices.first(config);
  if (comm.rank() == 0) choices.log_choice();
  return first.config;
}

}  // namespace gsel::plan
