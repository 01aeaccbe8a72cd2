// train/pipeline_config.cc: converts the options of gsel_pipeline_create to the configuration that strategies read.
#include "program/program.h"
#include "train/pipeline.h"

namespace gsel {
namespace {

constexpr const char* kOrigin = "gsel_pipeline_options";  // takes the place of the file name in messages

ConfigValue option(const char* field, ConfigValue::Type type, std::string text) {
  return {type, std::move(text), {kOrigin, 0, 0, field}};
}

StrategySection own_section(const char* plugin) {
  return {plugin, {kOrigin, 0, 0, plugin}, {}};
}

// Names of the layers that begin stages 1, 2, ...
std::string cuts(const PipelineSettings& settings, const Model& model) {
  const auto n = static_cast<int32_t>(model.layers().size());
  std::string names;
  for (size_t i = 0; i < settings.first_layers.size(); ++i) {
    const int32_t l = settings.first_layers[i], before = i ? settings.first_layers[i - 1] : 0;
    if (l <= before || l >= n)
      fail(GSEL_ERR_ARG,
           "{}.first_layers[{}] is layer {}; stage {} begins after layer {}, and the model's last layer is {}", kOrigin,
           i, l, i + 1, before, n - 1);
    names += (i ? "," : "") + model.layers()[l].name;
  }
  return names;
}

}  // namespace

bool PipelineSettings::reads_file() const {
  return schedule.find('/') != std::string::npos || schedule.ends_with(".csv") || schedule.ends_with(".txt");
}

Config to_config(const PipelineSettings& settings, const Model& model, int32_t ranks) {
  Config config = default_config();
  config.mesh = {settings.tensor_ranks, 1, ranks / settings.tensor_ranks};
  config.train.microbatch = settings.microbatch_samples;
  config.train.batch = settings.microbatch_samples * settings.microbatches;
  using Type = ConfigValue::Type;
  StrategySection section = own_section(OwnStrategies::pipeline);
  const char* key = settings.reads_file() ? "schedule_file" : "schedule";
  section.options[key] = option("schedule", Type::text, settings.schedule);
  if (settings.chunks) section.options["chunks"] = option("chunks", Type::integer, std::to_string(settings.chunks));
  if (!settings.first_layers.empty())
    section.options["cuts"] = option("first_layers", Type::text, cuts(settings, model));
  config.strategy[GSEL_AXIS_PIPELINE] = std::move(section);
  if (settings.tensor_ranks > 1) config.strategy[GSEL_AXIS_TENSOR] = own_section(OwnStrategies::tensor);
  return config;
}

}  // namespace gsel
