// train/compile/pass.h: compiles one rank's program: a base program of the whole model on one rank, rewritten by one
// strategy plugin for each axis of the mesh. The plugin of the sharing axis (tensor or context) comes first and divides
// the model. A pure function of (model, mesh, config, rank) and of the files that the configuration names. Does not
// know memory and communication.
#pragma once

#include <gsel/plugin.h>

#include <array>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "model/divide.h"
#include "model/model.h"
#include "program/program.h"
#include "schedule/schedule.h"

namespace gsel {

// A validated plugin option.
struct OptionValue {
  int64_t integer = 0;
  double number = 0;
  std::string text;
};

// A strategy chosen for an axis, with its options.
struct ChosenStrategy {
  const gsel_plugin_v1* plugin = nullptr;  // nullptr: the axis has one rank and no plugin
  const gsel_strategy_v1* strategy = nullptr;
  std::map<std::string, OptionValue, std::less<>> options;
};

// A strategy's suggestion, see gsel/plugin.h.
struct Suggestion {
  std::vector<std::pair<std::string, std::string>> settings;  // key and value in its section
  std::string reason;
  bool offloads = false;
};

// What a rank runs: its program, and the model that the program refers to, as this rank of the sharing axis has it.
struct Compiled {
  std::shared_ptr<const Model> model;
  Program program;
  uint64_t files_key = 0;  // hash of the files that strategies read; equal on all ranks; 0: no files
};

// For use by one thread.
class Compiler {
 public:
  // Loads the plugins that config names and checks their options. GSEL_ERR_CONFIG, GSEL_ERR_PLUGIN.
  Compiler(const Model& model, const Config& config, const Mesh& mesh);

  // The program of a rank, without what depends on other ranks: see exchange_programs.h.
  Compiled compile(int32_t rank) const;

  // What the strategy of an axis suggests on a topic, GSEL_ADVICE_*. If the data axis's strategy gives no advice on
  // memory, the default strategy of that axis is asked. Throws the plugin's failure.
  std::vector<Suggestion> advise(gsel_axis axis, int32_t topic, int32_t rank) const;

  const Config& config() const { return config_; }
  const Mesh& mesh() const { return mesh_; }
  // Relative weights of the coordinates of an axis: [strategy.AXIS] weights.
  std::vector<double> weights_of(gsel_axis axis) const;

 private:
  ChosenStrategy choose(gsel_axis axis) const;
  ChosenStrategy load(gsel_axis axis, const std::string& name, const StrategySection* section,
                      const Place& place) const;
  // Cached: ranks with one coordinate on the sharing axis have the same model (the verifier checks this).
  struct Divided {
    std::shared_ptr<const Model> model;
    uint64_t files_key = 0;
  };
  const Divided& divided(int32_t rank) const;
  Divided divide_for(int32_t rank) const;
  Program compile_for(const Model& model, const Model& first, int32_t rank, uint64_t& files_key) const;
  Program base_of_sharing(int32_t rank) const;
  Program run_passes(const Model& first, int32_t rank, std::initializer_list<gsel_axis> axes,
                     uint64_t& files_key) const;

  const Model& model_;
  const Config& config_;
  Mesh mesh_;
  std::array<ChosenStrategy, kAxes> strategies_;
  mutable std::map<int32_t, Divided> divided_;  // by coordinate on the sharing axis
};

// idle_settings.cc: program: of rank 0, as compiled. One line per setting: file, line, key, why it has no effect, and
// what to set.
std::vector<std::string> idle_settings(const Compiler& compiler, const Model& described, const Program& program);

// For each parameter: its tie group, and whether this rank holds it.
struct ParamHolders {
  std::vector<int32_t> tie;
  std::vector<bool> here;
};
}  // namespace gsel

// A plugin's handle during its pass.
struct gsel_pass {
  const gsel::Compiler& compiler;
  const gsel::Model& model;  // for the sharing axis as described, for other axes as this rank has it
  const gsel::ChosenStrategy& chosen;
  gsel::Program& program;
  gsel::Division* division = nullptr;                            // only in the sharing axis's pass
  std::deque<gsel::Schedule> schedules = {};                     // lent to the plugin
  mutable std::optional<gsel::ParamHolders> param_holders = {};  // computed after stages are set
  uint64_t files_key = 0;                                        // hash of the files read so far
  std::vector<gsel::Suggestion>* suggestions = nullptr;          // only in advise
};

namespace gsel {
const gsel_pass_api_v1& pass_api();
}
