// train/compile/idle_settings.cc: settings that do nothing under the chosen strategies; see pass.h.
#include <algorithm>

#include "base/text.h"
#include "train/compile/base_program.h"
#include "train/compile/pass.h"

namespace gsel {
namespace {

class IdleSettings {
 public:
  IdleSettings(const Compiler& compiler, const Model& described, const Program& program)
      : compiler_(compiler), config_(compiler.config()), described_(described), program_(program) {}

  std::vector<std::string> find() {
    find_microbatches();
    find_recompute();
    find_tensor();
    for (gsel_axis axis : kInnerToOuter) find_options(axis);
    return std::move(lines_);
  }

 private:
  template <class... Args>
  void note(const Place& place, fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(place_prefix(place) + fmt::format(text, std::forward<Args>(args)...));
  }

  // Not an error, since one file may be used with any number of ranks.
  void find_microbatches() {
    const int64_t n = config_.train.microbatches;
    const int64_t most = largest_local_batch(config_, program_.mesh.size[GSEL_AXIS_DATA]);
    if (n > most)
      note(config_.place_of("train.microbatches"),
           "train.microbatches = {} cut a shard of {} sample{}: {} micro-batch{} empty on every rank; expected {} or "
           "fewer",
           n, most, most == 1 ? "" : "s", n - most, n - most == 1 ? " is" : "es are", most);
  }

  void find_recompute() {
    if (config_.train.recompute != "all") return;
    for (const Layer& layer : described_.layers())
      if (layer.recomputable() && !layer.is_loss()) return;
    note(config_.place_of("train.recompute"),
         "train.recompute = \"all\" changes nothing: no layer is flagged GSEL_LAYER_RECOMPUTABLE; flag those that may "
         "run "
         "forward again");
  }

  void find_tensor() {
    const gsel_axis axis = program_.mesh.sharing_axis();
    if (program_.mesh.size[axis] == 1 || !config_.strategy[axis]) return;
    const auto& section = *config_.strategy[axis];
    if (std::ranges::none_of(program_.layers, &ProgramLayer::divided))
      note(section.place,
           "strategy.{0}.plugin = \"{1}\" divides nothing: no parameter of the model has a shard rule that it takes, "
           "and no layer positions to share, so each of {2} computes everything; set GSEL_SHARD_DIM in "
           "gsel_param_options, or mesh.{0} = 1",
           axis_name(axis), section.plugin, with_noun(program_.mesh.size[axis], "rank"));
  }

  std::vector<Suggestion> advice(gsel_axis axis) {
    try {
      return compiler_.advise(axis, GSEL_ADVICE_IDLE, program_.rank);
    } catch (const Error& e) {
      note(config_.strategy[axis]->place, "{}{}", e.message(), e.cause() ? ": " + e.cause()->message() : "");
      return {};
    }
  }

  // Ignores what a strategy reports about defaults: only keys in the file count.
  void find_options(gsel_axis axis) {
    const auto& section = config_.strategy[axis];
    if (!section) return;
    for (const Suggestion& idle : advice(axis)) {
      const std::string& key = idle.settings.front().first;
      const ConfigValue plugin{ConfigValue::Type::text, section->plugin, section->place};
      const auto option = section->options.find(key);
      if (key != "plugin" && option == section->options.end()) continue;
      const ConfigValue& value = key == "plugin" ? plugin : option->second;
      note(value.place, "strategy.{}.{} = {} {}", axis_name(axis), key, value.shown(), idle.reason);
    }
  }

  const Compiler& compiler_;
  const Config& config_;
  const Model& described_;
  const Program& program_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> idle_settings(const Compiler& compiler, const Model& described, const Program& program) {
  return IdleSettings(compiler, described, program).find();
}

}  // namespace gsel
