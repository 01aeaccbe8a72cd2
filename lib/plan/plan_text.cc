// plan/plan_text.cc: a plan as text: the decision, the ranked table, the details of the first choice.
#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "plan/config_layout.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

using Row = std::vector<std::string>;

// Columns separated by two blanks, numbers right-aligned.
std::string columns(const std::vector<Row>& rows) {
  std::vector<size_t> width(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      line += last ? row[i] : fmt::format("{:>{}}  ", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string header(const Request& r) {
  const Cluster& c = r.cluster;
  return fmt::format("{}: {:.4g} billion parameters, batch {} of {} tokens, {}\n{}: {} of {}\n{}\n", r.workload.name,
                     r.workload.params() / 1e9, r.batch, r.workload.sequence, r.recipe.name, c.name,
                     with_noun(c.nodes(), "node"), with_noun(c.per_node, "device"), notes_text(r));
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

std::string per_second(double n) {
  return n >= 1e6   ? fmt::format("{:.3g} M", n / 1e6)
         : n >= 1e3 ? fmt::format("{:.4g} k", n / 1e3)
                    : fmt::format("{:.4g}", n);
}

std::string ranked(const Request& request, const std::vector<Candidate>& candidates) {
  std::vector<Row> rows{
      {"#", "step", "band", "simulated*", "tokens/s", "MFU", "HFU", "GiB", "bubble", "exposed", "lost by", "layout"}};
  bool unsure = false;
  for (size_t i = 0; i < candidates.size() && i < request.shown; ++i) {
    const Candidate& c = candidates[i];
    unsure |= c.may_exceed;
    const Rates r = rates_of(request, c);
    rows.push_back({std::to_string(i + 1), duration_text(r.step_s),
                    fmt::format("{:.0f} %", band_of(request, c).all() * 100),
                    c.programs ? duration_text(c.programs->step_s) : "-", per_second(r.tokens_per_s), percent(r.mfu),
                    percent(r.hfu), gib(c.memory.total()) + (c.may_exceed ? "?" : ""), percent(r.bubble),
                    percent(r.exposed), i == 0 ? "" : lost_by(candidates[0], c), name_of(c.layout)});
  }
  const bool compiled = std::ranges::any_of(candidates, [](const Candidate& c) { return c.programs.has_value(); });
  return columns(rows) +
         (compiled ? "* of the compiled programs, whose collectives hide as far as their order allows; all are ranked "
                     "by step, the forecast of closed forms\n"
                   : "") +
         (unsure ? "? programs were not compiled whole: they may need more than the device has, and a run may refuse "
                   "them\n"
                 : "");
}

std::string time_parts(const Candidate& c) {
  std::string text = "\nStep of the first choice:\n";
  std::vector<Row> rows{{"", ""}};
  rows.clear();
  for (size_t i = 0; i < kTimeParts; ++i)
    if (c.time.parts[i] != 0) rows.push_back({duration_text(c.time.parts[i]), name_of(static_cast<TimePart>(i))});
  if (c.time.data_in_all > c.time[TimePart::data])
    rows.push_back({duration_text(c.time.data_in_all - c.time[TimePart::data]),
                    "data, hidden behind backward and not part of the sum"});
  return text + columns(rows);
}

std::string memory_parts(const Request& request, const Candidate& c) {
  const Split stages = split_of(request.workload, request.recipe, c);
  std::vector<Row> rows{{"stage", "layers", "all"}};
  for (size_t i = 0; i < kEstimatedParts; ++i) rows[0].emplace_back(name_of(static_cast<EstimatedPart>(i)));
  for (auto first = stages.runs.begin(); first != stages.runs.end();) {
    const auto end = std::find_if(first + 1, stages.runs.end(), [&](const StageRun& run) {
      return first->first == 0 || run.first + 1 == stages.stages || std::abs(run.layers - first->layers) >= 1;
    });
    StageMemory most;
    double layers = 0;
    for (auto run = first; run != end; ++run) {
      const StageMemory m = forecast_memory(stages, *run, run->first, c.layout, request.recipe);
      if (m.total() > most.total()) most = m, layers = run->layers;
    }
    const int32_t last = (end - 1)->first + (end - 1)->count - 1;
    Row row{last > first->first ? fmt::format("{}-{}", first->first, last) : std::to_string(last),
            fmt::format("{:.3g}", layers), gib(most.total())};
    for (const double part : most.parts) row.push_back(gib(part));
    rows.push_back(row);
    first = end;
  }
  std::string text =
      "\nMemory of a rank of the first choice, GiB, for the stage of each range that needs most:\n" + columns(rows);
  if (c.memory.host_bytes > 0) text += fmt::format("host memory of a rank: {} GiB\n", gib(c.memory.host_bytes));
  return text;
}

// Bytes sent in a step: "1.23 GB at most".
std::string sent(uint64_t bytes) {
  if (bytes == 0) return "nothing";
  return fmt::format("{:.4g} GB at most", static_cast<double>(bytes) / 1e9);
}

std::string band_text(const Request& request, const Candidate& c) {
  const ErrorBand band = band_of(request, c);
  if (band.parts.empty()) return {};
  return fmt::format(
      "Band of the first choice: {:.0f} % of the measurements, and half of the {} of the step that they do "
      "not cover: {}.\n",
      band.spread * 100, percent(band.uncovered), fmt::join(band.parts, ", "));
}

std::string programs_text(const Plan& plan, const Candidate& c) {
  if (!c.programs)
    return fmt::format("\nIts programs were not compiled: {}.\n{}", plan.why_not_compiled(c),
                       c.in_short ? "Those of a step of a few micro-batches were, and verified.\n" : "");
  const std::string simulated = fmt::format("a simulation of the programs takes {}", duration_text(c.programs->step_s));
  return fmt::format(
      "\nIts programs were compiled and verified. The trainer needs {} GiB beside what kernels keep for "
      "themselves, a rank\nsends {} in a step, and {}.\n",
      gib(static_cast<double>(c.programs->memory_bytes)), sent(c.programs->bytes_sent), simulated);
}

std::string shares_text(const Request& request, const Candidate& c) {
  std::string text = devices_text(request, c);
  if (!text.empty()) text += "\n";
  if (!c.shares.stage_layers.empty())
    text += fmt::format("layers of the stages: {}\n", fmt::join(c.shares.stage_layers, ", "));
  const auto weights = [&](const char* axis, const std::vector<double>& all) {
    if (all.empty()) return;
    double least = all[0];
    for (const double w : all) least = std::min(least, w);
    text += fmt::format("weights of the {} axis:", axis);
    for (const double w : all) text += fmt::format(" {:.3g}", w / least);
    text += "\n";
  };
  weights("data", c.shares.data_weights);
  weights("tensor", c.shares.tensor_weights);
  return text.empty() ? text : "\nRanks get unequal parts:\n" + text;
}

// The units that the tensor axis divides or that opt out, each compared with the other choice.
std::string opt_out_text(const SearchInput& input, const Candidate& c) {
  std::string text;
  for (const UnitChoice& one : unit_choices(input, c)) {
    std::string line = fmt::format("{} ({}): {}", one.name, one.layers, one.excluded ? "whole" : "divided");
    if (one.other_step_s != 0)
      line += fmt::format("; {} a step takes {} {}", one.excluded ? "divided" : "whole",
                          duration_text(std::abs(one.other_step_s)), one.other_step_s < 0 ? "less" : "more");
    if (std::abs(one.other_bytes) >= 0.005 * kGiB)
      line +=
          fmt::format(" and a rank {} GiB {}", gib(std::abs(one.other_bytes)), one.other_bytes < 0 ? "less" : "more");
    if (!one.why.empty()) line += fmt::format(": {}{}", one.excluded ? "whole it has " : "", one.why);
    text += line + "\n";
  }
  return text.empty() ? text : "\nLayers on the tensor axis:\n" + text;
}

std::string dropped_text(const Dropped& d) {
  std::string text = fmt::format("\n{} tried", with_noun(d.tried, "layout"));
  const auto add = [&](int64_t n, const char* one, const char* many) {
    if (n > 0) text += fmt::format(", {} {}", n, n == 1 ? one : many);
  };
  add(d.memory, "does not fit the memory of a device", "do not fit the memory of a device");
  add(d.host, "does not fit the memory of a host", "do not fit the memory of a host");
  add(d.heads, "mesh cuts a head or leaves the node with the tensor axis",
      "meshes cut a head or leave the node with the tensor axis");
  add(d.batch, "mesh has replicas that do not divide the batch", "meshes have replicas that do not divide the batch");
  add(d.layers, "mesh has more stages than layers", "meshes have more stages than layers");
  add(d.programs, "finalist has programs that a run refuses", "finalists have programs that a run refuses");
  return text + "\n" + (d.refusal.empty() ? "" : d.refusal + "\n");
}

}  // namespace

std::string notes_text(const Request& request) {
  std::string text;
  for (const auto* notes : {&request.workload.notes, &request.cluster.notes})
    for (const std::string& note : *notes) text += "note: " + note + "\n";
  return text;
}

std::string unlike_batches(const std::vector<Compared>& all) {
  std::string text;
  bool unlike = false;
  for (const Compared& one : all) {
    unlike |= one.request.batch != all.front().request.batch;
    text += fmt::format("{}{} has {}", text.empty() ? "" : ", ", one.name, one.request.batch);
  }
  return unlike ? "batches differ, and a step is of unlike work: " + text + "; tokens/s can be compared" : "";
}

std::string compared_text(const Request& request, const std::vector<Compared>& all) {
  std::vector<Row> rows{{""}};
  for (const Compared& one : all) rows[0].push_back(one.name);
  const auto add = [&](const std::string& name, auto of) {
    Row row{name};
    for (const Compared& one : all) row.push_back(of(one.candidate));
    rows.push_back(row);
  };
  const auto add_rate = [&](const std::string& name, auto of) {
    Row row{name};
    for (const Compared& one : all) row.push_back(of(rates_of(one.request, one.candidate)));
    rows.push_back(row);
  };
  if (!unlike_batches(all).empty()) {
    Row row{"batch"};
    for (const Compared& one : all) row.push_back(std::to_string(one.request.batch));
    rows.push_back(row);
  }
  add("step", [](const Candidate& c) { return duration_text(c.step_s()); });
  for (size_t i = 0; i < kTimeParts; ++i)
    add(name_of(static_cast<TimePart>(i)), [&](const Candidate& c) { return duration_text(c.time.parts[i]); });
  add_rate("tokens/s", [](const Rates& r) { return per_second(r.tokens_per_s); });
  add_rate("MFU", [](const Rates& r) { return percent(r.mfu); });
  add("memory GiB", [](const Candidate& c) { return gib(c.memory.total()); });
  for (size_t i = 0; i < kEstimatedParts; ++i)
    add(name_of(static_cast<EstimatedPart>(i)), [&](const Candidate& c) { return gib(c.memory.parts[i]); });
  add("fits", [](const Candidate& c) { return std::string(c.short_bytes() <= 0 ? "yes" : "no"); });
  std::string text = header(request);
  for (const Compared& one : all) text += fmt::format("{}: {}\n", one.name, name_of(one.candidate.layout));
  return text + "\n" + columns(rows) + fmt::format("\nTimes are {}.\n", confidence(request));
}

std::string Plan::text() const {
  std::string text = header(request_);
  for (const Answer& a : decision(request_, result_)) text += fmt::format("{:34}{}\n", a.question, a.answer);
  if (candidates().empty()) {
    const std::string change = smallest_change(request_, result_);
    return text + dropped_text(result_.dropped) + (change.empty() ? "" : "\n" + change + "\n");
  }
  const Candidate& first = candidates().front();
  text += "\n" + ranked(request_, candidates()) + time_parts(first) + memory_parts(request_, first) +
          shares_text(request_, first) + opt_out_text(input(), first) + programs_text(*this, first);
  if (const std::string why = why_not_run(request_, first.layout); !why.empty()) text += why + "\n";
  text += dropped_text(result_.dropped) + band_text(request_, first);
  text += fmt::format(
      "Times are {}. MFU: 3 x forward FLOPs of all attention pairs / (step x devices x dense 16-bit peak); "
      "HFU counts recomputation.\n",
      confidence(request_));
  return text;
}

}  // namespace gsel::plan
