// base/config.h: gsel.toml as checked data. Every key of the core is in one table (config_keys.cc) with type, default,
// bounds and help; parsing, gsel_config_get and docs/config.md follow from this table. A plugin's keys are kept with
// their place and checked once the plugin is loaded.
#pragma once

#include <gsel/types.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/types.h"
#include "base/weight_rules.h"

namespace gsel {

// The value of a plugin's option, as written in the file.
struct ConfigValue {
  enum class Type { integer, number, boolean, text };
  Type type = Type::text;
  std::string text;  // as text: 25000000, 1.0, true, adam
  Place place;       // file, line, column, dotted key

  std::string shown() const;  // for messages: text in quotes
};

// A section [strategy.<axis>].
struct StrategySection {
  std::string plugin;
  Place place;                                 // of the plugin key
  std::map<std::string, ConfigValue> options;  // all other keys
};

// The strategies that the library writes into configurations, with the options that it sets: for the planner's layouts
// and for gsel_pipeline_create. The library names strategies and their options here alone. Defaults of options are
// those that the strategies describe. `data` also runs without a [strategy.data] section.
struct OwnStrategies {
  static constexpr const char *tensor = "tp", *context = "cp", *pipeline = "pp", *data = "ddp", *sharded_data = "zero";
  static constexpr const char *positions = "sequence_parallel", *excluded = "exclude";                // of tensor
  static constexpr const char *schedule = "schedule", *chunks = "chunks";                             // of pipeline
  static constexpr const char *sharded = "stage", *offloaded = "offload", *ahead = "prefetch_elems";  // of sharded_data
  // An axis by its name.
  static const char* of(std::string_view axis);
};

struct Config {
  std::string file;  // for messages; empty for defaults
  struct {
    std::string accelerator = "auto", devices, order = "visible";
  } select;
  struct {
    double timeout_s = 60;
    std::string trace, transport = "auto";
  } comm;
  std::array<int64_t, kAxes> mesh{1, 0, 1, 1};  // by gsel_axis; 0 means "auto"
  std::array<std::optional<StrategySection>, kAxes> strategy;
  std::string plan = "none";  // none | auto: whether gsel chooses the strategies
  struct {
    std::string optimizer = "adamw";  // adamw | adam | adamw_8bit | lion | sgd | sign_sgd
    double learning_rate = 1e-3, weight_decay = 0.01, momentum = 0, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    double clip_norm = 0;                          // 0: no clipping
    std::string gradient_norm = "auto";            // auto | always: when to compute the norm of the mean gradient
    bool elastic = false;                          // whether a step changes nothing before all gradients are reduced
    int64_t redundancy = 0, redundancy_every = 1;  // copies on other ranks; steps between them
    std::string non_finite = "auto";  // auto | skip | error | off: what a non-finite gradient does to its step
    int64_t batch = 8;                // samples per step over all ranks
    int64_t microbatch = 0;           // samples per micro-batch of one rank; 0: the rank's whole shard
    int64_t microbatches = 0;         // micro-batches in one rank's shard; 0: microbatch decides
    int64_t seed = 1;
    std::string schedule = "constant";  // constant | linear | cosine | wsd
    int64_t warmup_steps = 0, total_steps = 0, decay_steps = 0;
    double final_learning_rate = 0;
    std::string precision = "f32";  // f32 | bf16 | fp16: how f32 parameters are kept
    double loss_scale = 0;          // 0: dynamic
    double loss_scale_initial = 65536, loss_scale_minimum = 1;
    int64_t loss_scale_window = 1000, loss_scale_hysteresis = 2;
    std::string recompute = "none";  // none | all | names, separated by commas
    std::string device = "auto";     // auto | cpu | a device such as cuda or cuda:1
    int64_t memory_bytes = 0;        // 0: no budget, or "auto"
    bool takes_free_memory = true;   // memory_bytes is "auto": what the rank's accelerator has free
    std::string offload_folder;      // folder for offload memory; empty: the system's folder for temporary files
    int64_t offload_buffer_bytes = 24 << 20;  // of a device, through which offloaded state passes; 0: none
    std::string lending = "direct";           // direct | moved: see docs/step.md
    std::string graph = "off";                // off | auto | on: see docs/config.md
    std::string check = "none";               // none | kernels: see docs/kernels.md
    int64_t progress_steps = 0;               // steps between progress lines in the log; 0: no progress lines
    std::string timeline;                     // folder for the timeline of each rank's last step; empty: none
  } train;
  struct {
    std::string prefix;             // that names in a file may have in front
    std::vector<WeightRule> rules;  // none: each parameter is the tensor of its name
  } weights;

  // Value of a core key by dotted name as text; nullptr when unknown.
  const std::string* get(std::string_view key) const;
  // Where the file has a key, for errors found later; line 0 when the file does not have it.
  Place place_of(std::string_view key) const;

  std::map<std::string, std::string, std::less<>>
      texts;                                         // every core key, defaults included; [strategy.*] as in the file
  std::map<std::string, Place, std::less<>> places;  // keys that the file has

  // The text of the file, kept so that it can be parsed again with another value of a key.
  std::string source;
  std::map<std::string, std::string, std::less<>> settings;  // keys set by calls, see with_setting
};

Config parse_config(std::string_view text, const std::string& file);
// A copy of `config` with `key` set, or, without a value, as it was before it was set. `value` is written as
// gsel_config_get returns it. Errors are the same as for a file.
Config with_setting(const Config& config, std::string_view key, const std::optional<std::string>& value);
Config load_config(const std::string& path);
Config default_config();
// Loads the file that GSEL_CONFIG names, else returns the defaults.
Config environment_config();

// Sizes of the mesh for `world_size` ranks, "auto" resolved; a size that does not divide is GSEL_ERR_CONFIG naming
// the key.
std::array<int32_t, kAxes> resolve_mesh(const Config& config, int32_t world_size);

// The weights of an axis's ranks, [strategy.AXIS] weights; all 1 when the file has none. GSEL_ERR_CONFIG unless there
// is one weight for each rank.
std::vector<double> axis_weights(const Config& config, gsel_axis axis, int32_t ranks);

}  // namespace gsel
