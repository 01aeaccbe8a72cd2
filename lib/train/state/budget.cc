// train/state/budget.cc: see budget.h. Candidate configurations are compiled and forecast as the trainer does, in order
// of their cost: more communication, then more time, then slower memory.
#include "train/state/budget.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/text.h"
#include "base/types.h"
#include "train/compile/base_program.h"

namespace gsel {
namespace {

// "rank 3 of 4", with its stages in a pipeline: " (stage 1: layers \"fc2\" to \"loss\")", or with the ranks that share
// its device. The program may be another rank's.
std::string named(const RankNeed& need, const Program& program) {
  const int32_t rank = need.rank;
  std::string text = fmt::format("rank {} of {}", rank, program.mesh.world_size());
  if (!need.sharing.empty())
    return fmt::format("{}, with rank{} {} on the same device,", text, need.sharing.size() == 1 ? "" : "s",
                       fmt::join(need.sharing, ", "));
  if (program.mesh.size[GSEL_AXIS_PIPELINE] == 1) return text;
  std::vector<std::string> stages;
  for (size_t s = 0; s < program.rank_of_stage.size(); ++s) {
    if (program.rank_of_stage[s] != program.mesh.coordinate(rank, GSEL_AXIS_PIPELINE)) continue;
    const auto stage = static_cast<int32_t>(s);  // Clang 14 does not compile equal_range of GCC 12's library
    const auto first = std::ranges::lower_bound(program.layers, stage, {}, &ProgramLayer::stage);
    const auto last = std::ranges::upper_bound(program.layers, stage, {}, &ProgramLayer::stage);
    if (first == last) continue;
    stages.push_back(fmt::format("stage {}: layers \"{}\" to \"{}\"", s, first->name, std::prev(last)->name));
  }
  return fmt::format("{} ({})", text, fmt::join(stages, ", "));
}

// A change of the configuration: its names for messages, and its lines in gsel.toml.
struct Change {
  std::vector<std::string> names, lines;
  Config config;
};

std::string joined(const std::vector<std::string>& texts, const char* between) {
  return fmt::format("{}", fmt::join(texts, between));
}

// The section with the suggested settings.
StrategySection with_settings(const std::optional<StrategySection>& section, const Suggestion& suggestion,
                              const std::string& key_prefix) {
  Config given = default_config();
  if (section) given = with_setting(given, key_prefix + "plugin", section->plugin);
  for (const auto& [key, value] : suggestion.settings) given = with_setting(given, key_prefix + key, value);
  StrategySection made = *given.strategy[GSEL_AXIS_DATA];
  if (section && section->plugin == made.plugin) made.options.insert(section->options.begin(), section->options.end());
  return made;
}

class Candidates {
 public:
  Candidates(const Config& config, const Mesh& mesh, const std::vector<Suggestion>& suggestions)
      : config_(config), ranks_(mesh.size[GSEL_AXIS_DATA]) {
    for (const Suggestion& suggestion : suggestions) {
      try {
        (suggestion.offloads ? offloading_ : sharding_).push_back(with(suggestion));
      } catch (const std::exception&) {  // not valid as a configuration
      }
    }
  }

  // Calls `fits` with candidates in order of preference until one fits.
  void each(const std::function<bool(const Change&)>& fits) const {
    for (const Change& change : sharding_)
      if (fits(change)) return;
    if (recomputing(unchanged(), fits) || smaller(unchanged(), fits)) return;
    if (both(sharding_.empty() ? unchanged() : sharding_.back(), fits)) return;
    for (const Change& change : offloading_)
      if (fits(change) || both(change, fits)) return;
  }

 private:
  using Fits = std::function<bool(const Change&)>;
  Change unchanged() const { return {{}, {}, config_}; }

  // The lines keep the suggestion's order.
  Change with(const Suggestion& suggestion) const {
    Change change = unchanged();
    const std::string section = fmt::format("strategy.{}", axis_name(GSEL_AXIS_DATA));
    StrategySection made = with_settings(config_.strategy[GSEL_AXIS_DATA], suggestion, section + ".");
    std::vector<std::string> settings;
    for (const auto& [key, value] : suggestion.settings)
      settings.push_back(
          fmt::format("{} = {}", key, key == "plugin" ? fmt::format("\"{}\"", value) : made.options.at(key).shown()));
    change.config.strategy[GSEL_AXIS_DATA] = std::move(made);
    change.names.push_back(suggestion.reason);
    change.lines.push_back(fmt::format("[{}] {}", section, joined(settings, ", ")));
    return change;
  }

  static Change with_recompute(Change change) {
    change.config.train.recompute = change.config.texts["train.recompute"] = "all";
    change.names.push_back("recomputing all layers");
    change.lines.push_back("[train] recompute = \"all\"");
    return change;
  }

  // If the number of micro-batches is configured, changes it instead of their size.
  Change with_microbatch(Change change, int64_t samples) const {
    if (const int64_t n = config_.train.microbatches; n > 0) {
      const int64_t more = n * (microbatch() / samples);
      change.config.train.microbatches = more;
      change.config.texts["train.microbatches"] = std::to_string(more);
      change.names.push_back(with_noun(more, "micro-batch"));
      change.lines.push_back(fmt::format("[train] microbatches = {}", more));
      return change;
    }
    change.config.train.microbatch = samples;
    change.config.texts["train.microbatch"] = std::to_string(samples);
    change.names.push_back(fmt::format("micro-batches of {}", with_noun(samples, "sample")));
    change.lines.push_back(fmt::format("[train] microbatch = {}", samples));
    return change;
  }

  int64_t microbatch() const {
    const int64_t most = largest_local_batch(config_, ranks_);
    if (config_.train.microbatches > 0) return std::max<int64_t>(most / config_.train.microbatches, 1);
    return config_.train.microbatch ? std::min(config_.train.microbatch, most) : most;
  }

  // Halves the micro-batch until it fits.
  bool smaller(const Change& change, const Fits& fits) const {
    for (int64_t samples = microbatch() / 2; samples >= 1; samples /= 2)
      if (fits(with_microbatch(change, samples))) return true;
    return false;
  }

  bool recomputing(const Change& change, const Fits& fits) const {
    return config_.train.recompute != "all" && fits(with_recompute(change));
  }

  // Recomputation, then smaller micro-batches as well.
  bool both(const Change& change, const Fits& fits) const {
    if (config_.train.recompute == "all") return !change.names.empty() && smaller(change, fits);
    return (!change.names.empty() && recomputing(change, fits)) || smaller(with_recompute(change), fits);
  }

  const Config& config_;
  int32_t ranks_;
  std::vector<Change> sharding_, offloading_;  // as suggested
};

// "ZeRO stage 2 on 4 ranks needs 310.0 MiB of 512.0 MiB: [strategy.data] plugin = \"zero\", stage = 2".
std::string best_change(const Config& config, const Mesh& mesh, uint64_t budget,
                        const std::vector<Suggestion>& suggestions, const NeedOf& need_of) {
  std::string text, least_text;
  uint64_t least = ~uint64_t{0};
  Candidates(config, mesh, suggestions).each([&](const Change& change) {
    const std::optional<RankNeed> need = need_of(change.config);
    if (!need) return false;
    const std::string what =
        fmt::format("{} needs {} of {}", joined(change.names, ", "), human_bytes(need->total()), human_bytes(budget));
    if (need->total() <= budget) text = fmt::format("{}; in gsel.toml: {}", what, joined(change.lines, "; "));
    if (need->total() < least) least_text = what;
    least = std::min(least, need->total());
    return need->total() <= budget;
  });
  if (!text.empty()) return text;
  return least_text.empty() ? "no change of strategy, micro-batches or offload that was tried would fit"
                            : fmt::format("nothing that was tried would fit; the least: {}", least_text);
}

}  // namespace

void check_budget(const Config& config, const Budget& budget, const Program& program, const RankNeed& need,
                  const MemoryAdvice& advice, const NeedOf& need_of) {
  if (budget.bytes == 0 || need.total() <= budget.bytes) return;
  const Place place = budget.is_free_memory ? Place{} : config.place_of("train.memory_bytes");
  const std::string room = budget.is_free_memory
                               ? fmt::format("the accelerator of rank {} has {} bytes ({}) free, which", need.rank,
                                             budget.bytes, human_bytes(budget.bytes))
                               : fmt::format("train.memory_bytes = {} ({})", budget.bytes, human_bytes(budget.bytes));
  throw Error(GSEL_ERR_NOMEM, fmt::format("{}{} is not enough: {} needs {}{}\n{}", place_prefix(place), room,
                                          named(need, program), human_bytes(need.total()), memory_table(need.parts),
                                          best_change(config, program.mesh, budget.bytes, advice(), need_of)))
      .at(place);
}

}  // namespace gsel
