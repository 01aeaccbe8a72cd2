// train/compile/compile.cc: chooses the strategies and runs their passes over the base program, in the order sharing
// axis, pipeline, data. Then adds the sums of tied parameters. Advice is asked of a strategy with the pass that it
// compiles.
#include <algorithm>
#include <charconv>

#include "base/config.h"
#include "base/foreign.h"
#include "base/random.h"
#include "base/types.h"
#include "plugin/registry.h"
#include "train/compile/base_program.h"
#include "train/compile/exchange_programs.h"
#include "train/compile/pass.h"

namespace gsel {
namespace {

const char* type_word(int32_t type) {
  static const char* const words[] = {"", "an integer", "a number", "true or false", "text"};
  return words[type];
}

[[noreturn]] void refuse_option(const gsel_option_v1& option, const ConfigValue& value, const std::string& wanted) {
  throw Error(GSEL_ERR_CONFIG, fmt::format("{}{} = {} is not accepted; expected {} ({})", place_prefix(value.place),
                                           value.place.token, value.shown(), wanted, option.help))
      .at(value.place);
}

// Converts a setting to an option's type, which must match; an integer is also accepted as a number.
OptionValue convert(const gsel_option_v1& option, const ConfigValue& value) {
  using Type = ConfigValue::Type;
  const bool fits =
      (option.type == GSEL_OPTION_INTEGER && value.type == Type::integer) ||
      (option.type == GSEL_OPTION_NUMBER && (value.type == Type::number || value.type == Type::integer)) ||
      (option.type == GSEL_OPTION_BOOLEAN && value.type == Type::boolean) ||
      (option.type == GSEL_OPTION_TEXT && value.type == Type::text);
  if (!fits) refuse_option(option, value, type_word(option.type));
  OptionValue result;
  result.text = value.text;
  if (option.type == GSEL_OPTION_BOOLEAN) result.integer = value.text == "true";
  if (option.type == GSEL_OPTION_INTEGER || option.type == GSEL_OPTION_NUMBER) {
    std::from_chars(value.text.data(), value.text.data() + value.text.size(), result.number);
    std::from_chars(value.text.data(), value.text.data() + value.text.size(), result.integer);
    if (!(result.number >= option.minimum && result.number <= option.maximum))
      refuse_option(option, value,
                    fmt::format("{} from {:.17g} to {:.17g}", type_word(option.type), option.minimum, option.maximum));
  }
  return result;
}

ConfigValue default_value(const gsel_option_v1& option, const std::string& key) {
  static constexpr ConfigValue::Type types[] = {ConfigValue::Type::text, ConfigValue::Type::integer,
                                                ConfigValue::Type::number, ConfigValue::Type::boolean,
                                                ConfigValue::Type::text};
  return {types[option.type], option.default_text ? option.default_text : "", {"(default)", 0, 0, key}};
}

const ConfigValue* find_option(const StrategySection* section, const char* name) {
  if (!section) return nullptr;
  const auto found = section->options.find(name);
  return found == section->options.end() ? nullptr : &found->second;
}

std::map<std::string, OptionValue, std::less<>> check_options(const gsel_plugin_v1& plugin,
                                                              const gsel_strategy_v1& strategy,
                                                              const StrategySection* section,
                                                              const std::string& prefix) {
  std::map<std::string, OptionValue, std::less<>> result;
  std::string known;
  for (int32_t i = 0; i < strategy.n_options; ++i) {
    const gsel_option_v1& option = strategy.options[i];
    known += (known.empty() ? "" : ", ") + std::string(option.name);
    const ConfigValue* given = find_option(section, option.name);
    result[option.name] = convert(option, given ? *given : default_value(option, prefix + option.name));
  }
  if (section)
    for (const auto& [name, value] : section->options)
      if (!result.contains(name))
        throw Error(GSEL_ERR_CONFIG,
                    fmt::format("{}unknown key \"{}\"; plugin \"{}\" has {}", place_prefix(value.place),
                                value.place.token, plugin.name, known.empty() ? "no options" : known))
            .at(value.place);
  return result;
}

// Calls a function of the pass's plugin. `what`: for messages.
template <class Function, class... Args>
void call_plugin(gsel_pass& pass, const char* what, Function function, Args... args) {
  gsel_error* err = nullptr;
  std::string thrown;
  const gsel_status status = call_foreign([&] { return function(&host_services(), &pass_api(), &pass, args..., &err); },
                                          GSEL_ERR_PLUGIN, thrown);
  if (!thrown.empty()) err = to_handle(Error(status, thrown));
  try {
    throw_if_failed(status, err);
  } catch (const Error& cause) {
    throw Error(cause.code(), fmt::format("plugin \"{}\" could not {} rank {}'s program", pass.chosen.plugin->name,
                                          what, pass.program.rank))
        .because(cause);
  }
}

void run_pass(gsel_pass& pass, gsel_axis axis) {
  call_plugin(pass, "compile", pass.chosen.strategy->compile, axis);
}

// Copies the parts of a program's outline that depend on this rank's shards.
void take_sizes(const Program& from, Program& program) {
  program.params = from.params;
  program.values = from.values;
  for (size_t l = 0; l < program.layers.size(); ++l) {
    const int32_t stage = program.layers[l].stage;
    program.layers[l] = from.layers[l];
    program.layers[l].stage = stage;
  }
}

// All inputs are filled before a graph is launched.
void take_inputs_first(Program& program) {
  std::ranges::stable_partition(program.step,
                                [](const gsel_instr& instr) { return task_of(instr.kind) == InstrTask::input; });
}

}  // namespace

Compiler::Compiler(const Model& model, const Config& config, const Mesh& mesh)
    : model_(model), config_(config), mesh_(mesh) {
  for (gsel_axis axis = 0; axis < kAxes; ++axis) {
    if (config_.get(fmt::format("strategy.{}.weights", axis_name(axis)))) weights_of(axis);  // checks their number
    strategies_[axis] = choose(axis);
  }
}

// Errors of a section are reported at its place in the file.
ChosenStrategy Compiler::choose(gsel_axis axis) const {
  const auto& section = config_.strategy[axis];
  if (!section && mesh_.size[axis] == 1) return {};
  const std::string key =
      fmt::format("{}.{}", section || axis == GSEL_AXIS_DATA ? "strategy" : "mesh", axis_name(axis));
  const Place place = section ? section->place : config_.place_of(key);
  if (!section && axis != GSEL_AXIS_DATA)
    throw Error(GSEL_ERR_CONFIG,
                fmt::format("{}mesh.{} is {} and no strategy is named for it; add [strategy.{}] with plugin = \"...\"",
                            place_prefix(place), axis_name(axis), mesh_.size[axis], axis_name(axis)))
        .at(place);
  return load(axis, section ? section->plugin : OwnStrategies::data, section ? &*section : nullptr, place);
}

ChosenStrategy Compiler::load(gsel_axis axis, const std::string& name, const StrategySection* section,
                              const Place& place) const {
  ChosenStrategy chosen;
  try {
    chosen.plugin = &load_plugin(GSEL_PLUGIN_STRATEGY, name);
  } catch (const Error& cause) {
    throw Error(cause.code(), fmt::format("{}strategy \"{}\" for the {} axis could not be loaded", place_prefix(place),
                                          name, axis_name(axis)))
        .at(place)
        .because(cause);
  }
  chosen.strategy = static_cast<const gsel_strategy_v1*>(chosen.plugin->table);
  if (!(chosen.strategy->axes & 1u << axis)) {
    std::string served;
    for (const gsel_axis other : kInnerToOuter)
      if (chosen.strategy->axes & 1u << other)
        served += fmt::format("{}[strategy.{}]", served.empty() ? "" : " or ", axis_name(other));
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}plugin \"{}\" does not serve the {} axis; expected {}",
                                             place_prefix(place), name, axis_name(axis), served))
        .at(place);
  }
  chosen.options =
      check_options(*chosen.plugin, *chosen.strategy, section, fmt::format("strategy.{}.", axis_name(axis)));
  return chosen;
}

std::vector<double> Compiler::weights_of(gsel_axis axis) const {
  return axis_weights(config_, axis, mesh_.size[axis]);
}

// The model as the sharing axis's strategy divides it for this rank's coordinate.
Compiler::Divided Compiler::divide_for(int32_t rank) const {
  const bool ring_shift = std::ranges::any_of(model_.layers(), [](const Layer& layer) {
    auto ring_shifts = [](const gsel_phase& phase) { return (phase.flags & GSEL_PHASE_RING_SHIFT) != 0; };
    return std::ranges::any_of(layer.forward_phases, ring_shifts) ||
           std::ranges::any_of(layer.backward_phases, ring_shifts);
  });
  const gsel_axis axis = mesh_.sharing_axis();
  const ChosenStrategy& chosen = strategies_[axis];
  if (!ring_shift && !chosen.strategy) return {{std::shared_ptr<void>{}, &model_}};  // not owned
  uint64_t files_key = 0;
  Division division = Division::none(model_, weights_of(axis), axis);
  if (chosen.strategy) {
    Program outline = base_of_sharing(rank);
    gsel_pass pass{*this, model_, chosen, outline, &division};
    run_pass(pass, axis);
    if (pass.files_key) files_key = derive_key(files_key, pass.files_key);
  }
  return {std::make_shared<const Model>(divide(model_, division, mesh_.sharing_index(rank))), files_key};
}

// The sharing axis's pass runs before there are instructions.
Program Compiler::base_of_sharing(int32_t rank) const {
  Program outline = base_program(model_, config_, mesh_, rank);
  outline.step.clear();
  return outline;
}

const Compiler::Divided& Compiler::divided(int32_t rank) const {
  const int32_t coordinate = mesh_.sharing_index(rank);
  const auto known = divided_.find(coordinate);
  return known != divided_.end() ? known->second : divided_.emplace(coordinate, divide_for(rank)).first->second;
}

// Strategies of the other axes must decide equally on all ranks that share a model. Their shards may differ in size, so
// the strategies see the model of the first coordinate on the sharing axis.
Program Compiler::run_passes(const Model& first, int32_t rank, std::initializer_list<gsel_axis> axes,
                             uint64_t& files_key) const {
  Program program = base_program(first, config_, mesh_, rank);
  for (gsel_axis axis : axes) {
    if (!strategies_[axis].strategy) continue;
    gsel_pass pass{*this, first, strategies_[axis], program};
    run_pass(pass, axis);
    if (pass.files_key) files_key = derive_key(files_key, pass.files_key);
  }
  return program;
}

Program Compiler::compile_for(const Model& model, const Model& first, int32_t rank, uint64_t& files_key) const {
  Program program = run_passes(first, rank, {GSEL_AXIS_PIPELINE, GSEL_AXIS_DATA}, files_key);
  if (&model != &first) take_sizes(base_program(model, config_, mesh_, rank), program);
  for (const gsel_instr& instr : program.setup) check_instr(program, instr);
  for (const gsel_instr& instr : program.step) check_instr(program, instr);
  insert_tied_reductions(program);
  if (config_.train.graph == "on" || (config_.train.graph == "auto" && mesh_.world_size() == 1))
    take_inputs_first(program);
  return program;
}

Compiled Compiler::compile(int32_t rank) const {
  const Divided& own = divided(rank);
  const Divided& first = divided(rank - mesh_.sharing_index(rank));
  Compiled result{own.model, {}, own.files_key};
  result.program = compile_for(*own.model, *first.model, rank, result.files_key);
  return result;
}

std::vector<Suggestion> Compiler::advise(gsel_axis axis, int32_t topic, int32_t rank) const {
  if (shares_layers(axis) && axis != mesh_.sharing_axis()) return {};
  ChosenStrategy chosen = strategies_[axis];
  auto is_mute = [&] { return !chosen.strategy || !chosen.strategy->advise; };
  if (is_mute() && axis == GSEL_AXIS_DATA && topic == GSEL_ADVICE_MEMORY)
    chosen = load(axis, OwnStrategies::data, nullptr, {});
  if (is_mute()) return {};
  const Model& model = shares_layers(axis) ? model_ : *divided(rank - mesh_.sharing_index(rank)).model;
  uint64_t files_key = 0;
  Program program = axis == GSEL_AXIS_DATA ? run_passes(model, rank, {GSEL_AXIS_PIPELINE}, files_key)
                    : shares_layers(axis)  ? base_of_sharing(rank)
                                           : run_passes(model, rank, {}, files_key);
  Division division = Division::none(model, weights_of(axis), axis);
  std::vector<Suggestion> suggestions;
  gsel_pass pass{*this, model, chosen, program};
  if (shares_layers(axis)) pass.division = &division;
  pass.suggestions = &suggestions;
  call_plugin(pass, "give advice on", chosen.strategy->advise, axis, topic);
  return suggestions;
}

}  // namespace gsel
