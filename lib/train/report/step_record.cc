// train/report/step_record.cc: see step_record.h.
#include "train/report/step_record.h"

#include <nlohmann/json.hpp>

#include "base/axis.h"
#include "base/dtype.h"
#include "base/read_file.h"
#include "base/write_file.h"

namespace gsel {
namespace {

using Json = nlohmann::ordered_json;

void add_report(const gsel_step_report& r, Json& step) {
  step["step"] = r.step;
  step["loss"] = r.loss;
  step["loss_sum"] = r.loss_sum;
  step["weight"] = r.weight;
  step["gradient_norm"] = r.gradient_norm;
  step["learning_rate"] = r.learning_rate;
  step["loss_scale"] = r.loss_scale;
  step["skipped"] = r.skipped != 0;
  step["validated_step"] = r.validated_step;
  step["restarts"] = r.restarts;
  step["non_finite_rank"] = r.non_finite_rank;
  step["non_finite_layer"] = r.non_finite_layer;
  step["non_finite_param"] = r.non_finite_param;
  step["non_finite_microbatch"] = r.non_finite_microbatch;
  step["seconds"] = r.seconds;
  step["tokens_per_second"] = r.seconds > 0 ? Json(r.weight / r.seconds) : Json();
  step["compute_s"] = r.compute_s;
  step["exposed_comm_s"] = r.exposed_comm_s;
  step["optimizer_s"] = r.optimizer_s;
  step["gather_s"] = r.gather_s;
  step["exposed_gather_s"] = r.exposed_gather_s;
  step["bytes_sent"] = r.bytes_sent;
  step["n_reduces"] = r.n_reduces;
  step["n_overlapped"] = r.n_overlapped;
  step["n_gathers"] = r.n_gathers;
  step["peak_bytes"] = r.peak_bytes;
  step["offload_bytes_in"] = r.offload_bytes_in;
  step["offload_bytes_out"] = r.offload_bytes_out;
}

Json counts_json(const std::vector<AxisCount>& counts) {
  Json list = Json::array();
  for (const AxisCount& c : counts) {
    const InstrForm* form = form_of(c.kind);
    list.push_back({{"axis", axis_name(c.axis)},
                    {"instruction", form ? form->word : "unknown"},
                    {"calls", c.count.calls},
                    {"bytes_sent", c.count.bytes_sent}});
  }
  return list;
}

// What this rank sent along each axis of several ranks, and how long it waited for it.
Json axes_json(const Mesh& mesh, const StepRecord& record) {
  Json list = Json::array();
  for (gsel_axis axis = 0; axis < kAxes; ++axis) {
    if (mesh.size[axis] == 1) continue;
    uint64_t bytes = 0;
    for (const AxisCount& c : record.counts) bytes += c.axis == axis ? c.count.bytes_sent : 0;
    list.push_back({{"axis", axis_name(axis)}, {"bytes_sent", bytes}, {"exposed_s", record.exposed_s[axis]}});
  }
  return list;
}

Json memory_json(const StepRecord& record) {
  Json list = Json::array();
  for (size_t i = 0; i < kParts; ++i) {
    const auto part = static_cast<Part>(i);
    list.push_back({{"part", part_name(part)},
                    {"offloaded", is_offloaded(part) ? 1 : 0},
                    {"forecast_bytes", record.forecast[i]},
                    {"peak_bytes", record.peak[i]}});
  }
  return list;
}

// What the layers of this rank's stages took, forward and backward together.
Json stages_json(const Program& program, const std::vector<Interval>& intervals) {
  std::map<int32_t, double> busy;
  for (const Interval& interval : intervals)
    if (const gsel_instr& instr = program.step.at(interval.position); instr.layer >= 0 && !interval.asynchronous)
      busy[program.layers[instr.layer].stage] += interval.end - interval.begin;
  Json list = Json::array();
  for (const auto& [stage, seconds] : busy) list.push_back({{"stage", stage}, {"busy_s", seconds}});
  return list;
}

Json intervals_json(const Program& program, const std::vector<Interval>& intervals) {
  const bool in_stages = program.rank_of_stage.size() > 1;
  Json list = Json::array();
  for (const Interval& interval : intervals) {
    const gsel_instr& instr = program.step.at(interval.position);
    const InstrForm* form = form_of(instr.kind);
    list.push_back({{"position", interval.position},
                    {"instruction", form ? form->word : "unknown"},
                    {"text", to_text(program, instr)},
                    {"begin_s", interval.begin},
                    {"end_s", interval.end},
                    {"asynchronous", interval.asynchronous}});
    if (in_stages && form && form->layer) list.back()["stage"] = program.layers.at(instr.layer).stage;
  }
  return list;
}

}  // namespace

std::string to_json(const Program& program, const StepRecord& record, bool with_intervals) {
  Json step{{"rank", program.rank}, {"world_size", program.mesh.world_size()}};
  for (gsel_axis axis = 0; axis < kAxes; ++axis) step["mesh"][axis_name(axis)] = program.mesh.size[axis];
  add_report(record.report, step);
  step["counts"] = counts_json(record.counts);
  step["axes"] = axes_json(program.mesh, record);
  step["memory"] = memory_json(record);
  step["stages"] = stages_json(program, record.intervals);
  step["began_ns"] = record.began_ns;
  step["intervals"] = with_intervals ? intervals_json(program, record.intervals) : Json();
  const Json document{{"gsel", gsel_version_text()}, {"steps", Json::array({std::move(step)})}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_timeline(const std::string& folder, const Program& program, const StepRecord& record) {
  const std::string path = absolute_path("timeline", fmt::format("{}/step-{}.json", folder, program.rank));
  write_file(path, to_json(program, record, true));
}

}  // namespace gsel
