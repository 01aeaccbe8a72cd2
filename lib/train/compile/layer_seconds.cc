// train/compile/layer_seconds.cc: see layer_seconds.h.
#include "train/compile/layer_seconds.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/json_object.h"
#include "program/words/words.h"

namespace gsel {
namespace {

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

}  // namespace

std::vector<LayerSeconds> measured_layers(const Program& program, const std::string& path) {
  const std::string absolute = absolute_path("recorded step", path);
  const Spots spots = spots_of(program);
  std::vector<Samples> samples(program.layers.size());
  for (const std::string& record : records_at(absolute)) read_record(record, spots, samples);
  std::vector<LayerSeconds> result;
  for (size_t l = 0; l < samples.size(); ++l) result.push_back(summary(program.layers[l], samples[l], absolute));
  return result;
}

}  // namespace gsel
