// train/compile/pass_pipeline.cc: the functions about pipelines that a strategy plugin calls during its pass: stages,
// schedules, measured layers; and those that report to the user: notes, suggestions.
#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/guard.h"
#include "base/json_object.h"
#include "base/random.h"
#include "base/text.h"
#include "program/program.h"
#include "program/stages.h"
#include "program/words/words.h"
#include "train/compile/pass_calls.h"

namespace gsel {
namespace {

// ---- the times of layers, from recorded steps (docs/step.md) -------------------------------------------------------

// Per micro-batch. An undivided backward counts as backward_input.
struct LayerSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0;
};

namespace fs = std::filesystem;

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr gsel_instr_kind kKinds[] = {GSEL_FORWARD, GSEL_BACKWARD_INPUT, GSEL_BACKWARD_WEIGHT, GSEL_BACKWARD};
constexpr size_t kForward = 0, kInput = 1, kWeight = 2, kFused = 3, kColumns = 4;

// Recorded times of one layer, by kKinds.
using Samples = std::array<std::vector<double>, kColumns>;

struct Spot {
  size_t layer, column;
};
using Spots = std::map<std::string, Spot, std::less<>>;

std::string_view without_microbatch(std::string_view text) {
  return text.substr(0, text.rfind(" mb="));
}

// The text of every layer instruction as it appears in records, without its micro-batch.
Spots spots_of(const Program& program) {
  Spots result;
  for (size_t l = 0; l < program.layers.size(); ++l)
    for (size_t column = 0; column < kColumns; ++column) {
      gsel_instr instr = make_instr(kKinds[column]);
      instr.layer = static_cast<int32_t>(l);
      instr.microbatch = 0;
      result.emplace(without_microbatch(to_text(program, instr)), Spot{l, column});
    }
  return result;
}

void read_step(JsonObject step, const Spots& spots, std::vector<Samples>& samples) {
  if (step.is_null("intervals")) return;
  if (step.flag("on_device", false))
    step.refuse("on_device",
                "is true: the times are the host's, until work was given to the device, and cannot say how "
                "long layers take; leave costs out");
  step.array("intervals").each([&](JsonObject interval) {
    const auto found = spots.find(without_microbatch(interval.any_text("text")));
    if (found == spots.end()) return;
    const double seconds = interval.amount("end_s", 0) - interval.amount("begin_s", 0);
    samples[found->second.layer][found->second.column].push_back(std::max(seconds, 0.0));
  });
}

void read_record(const std::string& path, const Spots& spots, std::vector<Samples>& samples) {
  const JsonSource source{"recorded step", path};
  const auto tree = parse_json(read_file(source.what, path, kMaxFileBytes), source);
  JsonObject document(*tree, source);
  document.array("steps").each([&](JsonObject step) { read_step(std::move(step), spots, samples); });
}

bool is_record(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("step-") && name.ends_with(".json");
}

std::vector<std::string> records_at(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return {path};
  std::vector<std::string> result;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (is_record(entry.path())) result.push_back(entry.path().string());
  std::ranges::sort(result);
  if (result.empty())
    fail(GSEL_ERR_CONFIG,
         "measured layers were asked for from {}, which has no file step-RANK.json; train.timeline = \"{}\" would have "
         "steps recorded there",
         path, path);
  return result;
}

double median(std::vector<double>& numbers) {
  if (numbers.empty()) return 0;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

LayerSeconds summary(const ProgramLayer& layer, Samples& samples, const std::string& path) {
  const bool has_backward = !samples[kInput].empty() || !samples[kWeight].empty() || !samples[kFused].empty();
  const bool needs_backward = layer.needs_backward_input || layer.needs_backward_weight;
  if (samples[kForward].empty() || (needs_backward && !has_backward))
    fail(GSEL_ERR_CONFIG,
         "measured layers were asked for from {}, which has no {} of layer \"{}\"; record a step of this model, on all "
         "ranks, with train.timeline",
         path, samples[kForward].empty() ? "forward" : "backward", layer.name);
  const double fused = median(samples[kFused]);
  return {median(samples[kForward]), fused > 0 ? fused : median(samples[kInput]),
          fused > 0 ? 0 : median(samples[kWeight])};
}

// By layer of the program's model: the median of all recorded times. path: a file, or a folder of files step-RANK.json.
// GSEL_ERR_IO, GSEL_ERR_PARSE; GSEL_ERR_CONFIG naming a layer that has no times.
std::vector<LayerSeconds> measured_layers(const Program& program, const std::string& path) {
  const std::string absolute = absolute_path("recorded step", path);
  const Spots spots = spots_of(program);
  std::vector<Samples> samples(program.layers.size());
  for (const std::string& record : records_at(absolute)) read_record(record, spots, samples);
  std::vector<LayerSeconds> result;
  for (size_t l = 0; l < samples.size(); ++l) result.push_back(summary(program.layers[l], samples[l], absolute));
  return result;
}

// ---- functions of the pass -----------------------------------------------------------------------------------------

constexpr size_t kMaxScheduleBytes = size_t{64} << 20;

// The plugin's opaque handle points to a Schedule.
const gsel_schedule* handle_of(const Schedule& schedule) {
  return reinterpret_cast<const gsel_schedule*>(&schedule);
}
const Schedule& schedule_of(const gsel_schedule* handle) {
  return *reinterpret_cast<const Schedule*>(handle);
}

const gsel_schedule* keep(gsel_pass* pass, Schedule&& schedule) {
  return handle_of(pass->schedules.emplace_back(std::move(schedule)));
}

int32_t pipeline_ranks(const gsel_pass* pass) {
  return pass->program.mesh.size[GSEL_AXIS_PIPELINE];
}
int32_t microbatches(const gsel_pass* pass) {
  return static_cast<int32_t>(pass->program.microbatches.size());
}

bool rises_by_one(const int32_t* stage_of_layer, size_t n_layers, int32_t n_stages) {
  int32_t before = -1;
  for (size_t l = 0; l < n_layers; ++l) {
    const int32_t stage = stage_of_layer[l];
    if (stage != before && stage != before + 1) return false;
    before = stage;
  }
  return before + 1 == n_stages;
}

bool all_ranks_used(const int32_t* rank_of_stage, int32_t n_stages, int32_t n_ranks) {
  std::vector<bool> used(n_ranks);
  for (int32_t s = 0; s < n_stages; ++s) {
    if (rank_of_stage[s] < 0 || rank_of_stage[s] >= n_ranks) return false;
    used[rank_of_stage[s]] = true;
  }
  return std::ranges::all_of(used, std::identity());
}

void check_fits(const gsel_pass* pass, const Schedule& schedule, const std::string& path) {
  if (schedule.n_ranks() != pipeline_ranks(pass))
    fail(GSEL_ERR_CONFIG, "schedule {} has rows for {}, and mesh.pipeline is {}; one of the two must change", path,
         with_noun(schedule.n_ranks(), "rank"), pipeline_ranks(pass));
  if (schedule.n_microbatches != microbatches(pass))
    fail(GSEL_ERR_CONFIG, "schedule {} has {}, and a rank of the data axis has {}; set train.microbatches = {}", path,
         with_noun(schedule.n_microbatches, "micro-batch"), microbatches(pass), schedule.n_microbatches);
}

}  // namespace

const ParamHolders& param_holders(const gsel_pass* pass) {
  if (!pass->param_holders) {
    const Program& program = pass->program;
    const int32_t own = program.mesh.coordinate(program.rank, GSEL_AXIS_PIPELINE);
    ParamHolders result{class_of_params(program), {}};
    for (const std::vector<int32_t>& holders : all_holders(program))
      result.here.push_back(std::ranges::count(holders, own) > 0);
    pass->param_holders = std::move(result);
  }
  return *pass->param_holders;
}

gsel_status set_stages(gsel_pass* pass, const int32_t* stage_of_layer, const int32_t* rank_of_stage, int32_t n_stages) {
  Program& program = pass->program;
  if (!stage_of_layer || !rank_of_stage || n_stages < 1 ||
      !rises_by_one(stage_of_layer, program.layers.size(), n_stages) ||
      !all_ranks_used(rank_of_stage, n_stages, pipeline_ranks(pass)))
    return GSEL_ERR_ARG;
  return attempt([&] {
    program.rank_of_stage.assign(rank_of_stage, rank_of_stage + n_stages);
    for (size_t l = 0; l < program.layers.size(); ++l) program.layers[l].stage = stage_of_layer[l];
    program.buckets = plain_buckets(program);
    pass->param_holders.reset();
  });
}

int32_t bucket_count(const gsel_pass* pass) {
  return static_cast<int32_t>(pass->program.buckets.size());
}

gsel_status schedule(gsel_pass* pass, const char* name, int32_t chunks, const gsel_schedule** out, gsel_error** err) {
  return guard(err, [&] {
    if (!name || !out) fail(GSEL_ERR_ARG, "a schedule was asked for without a name or a place for it");
    *out = nullptr;
    *out = keep(pass, make_schedule(name, pipeline_ranks(pass), microbatches(pass), chunks));
  });
}

gsel_status schedule_file(gsel_pass* pass, const char* path, const gsel_schedule** out, gsel_error** err) {
  return guard(err, [&] {
    if (!path || !out) fail(GSEL_ERR_ARG, "a schedule was asked for without a file or a place for it");
    *out = nullptr;
    const std::string absolute = absolute_path("schedule", path);
    Schedule schedule = parse_schedule(read_file("schedule", absolute, kMaxScheduleBytes), absolute);
    check_fits(pass, schedule, absolute);
    pass->files_key = derive_key(pass->files_key, to_text(schedule));
    *out = keep(pass, std::move(schedule));
  });
}

int32_t schedule_stages(const gsel_schedule* schedule) {
  return schedule ? schedule_of(schedule).n_stages() : 0;
}
int32_t schedule_rank_of(const gsel_schedule* schedule, int32_t stage) {
  return schedule && within(schedule_of(schedule).rank_of, stage) ? schedule_of(schedule).rank_of[stage] : -1;
}
int32_t schedule_length(const gsel_schedule* schedule, int32_t rank) {
  if (!schedule || !within(schedule_of(schedule).rows, rank)) return 0;
  return static_cast<int32_t>(schedule_of(schedule).rows[rank].size());
}
gsel_status schedule_action(const gsel_schedule* schedule, int32_t rank, int32_t i, gsel_action* out) {
  if (!out || i < 0 || i >= schedule_length(schedule, rank)) return GSEL_ERR_ARG;
  *out = schedule_of(schedule).rows[rank][i];
  return GSEL_OK;
}

gsel_status measured(gsel_pass* pass, const char* path, double* seconds, gsel_error** err) {
  return guard(err, [&] {
    if (!path || !seconds) fail(GSEL_ERR_ARG, "measured layers were asked for without a file or a place for them");
    const std::vector<LayerSeconds> layers = measured_layers(pass->program, path);
    for (size_t l = 0; l < layers.size(); ++l) {
      for (double number : {layers[l].forward, layers[l].backward_input, layers[l].backward_weight})
        pass->files_key = derive_key(pass->files_key, std::bit_cast<uint64_t>(number));
      seconds[3 * l] = layers[l].forward;
      seconds[3 * l + 1] = layers[l].backward_input;
      seconds[3 * l + 2] = layers[l].backward_weight;
    }
  });
}

void note(gsel_pass* pass, const char* line) {
  if (!line) return;
  attempt([&] { pass->program.notes.push_back(one_line(line)); });
}

gsel_status suggest(gsel_pass* pass, const gsel_suggestion* suggestion) {
  if (!pass->suggestions) return GSEL_ERR_STATE;
  gsel_suggestion given{};
  if (!take(suggestion, given) || !given.reason || !given.settings || given.n_settings < 1 || given.reserved != 0 ||
      given.flags & ~GSEL_SUGGESTION_OFFLOADS)
    return GSEL_ERR_ARG;
  const std::span<const gsel_setting> settings(given.settings, static_cast<size_t>(given.n_settings));
  if (!std::ranges::all_of(settings, &gsel_setting::key)) return GSEL_ERR_ARG;
  return attempt([&] {
    Suggestion made{{}, one_line(given.reason), (given.flags & GSEL_SUGGESTION_OFFLOADS) != 0};
    for (const gsel_setting& setting : settings)
      made.settings.emplace_back(setting.key, setting.value ? setting.value : "");
    pass->suggestions->push_back(std::move(made));
  });
}

}  // namespace gsel
