// train/report/step_record.cc: see step_record.h.
#include "train/report/step_record.h"

#include "base/file.h"
#include "base/json.h"
#include "base/types.h"
#include "base/version.h"
#include "program/words/words.h"

namespace gsel {
namespace {

void add_report(const gsel_step_report& r, Json& step) {
  step.set("step", r.step);
  step.set("loss", r.loss);
  step.set("loss_sum", r.loss_sum);
  step.set("weight", r.weight);
  step.set("gradient_norm", r.gradient_norm);
  step.set("learning_rate", r.learning_rate);
  step.set("loss_scale", r.loss_scale);
  step.set("skipped", r.skipped != 0);
  step.set("validated_step", r.validated_step);
  step.set("restarts", r.restarts);
  step.set("non_finite_rank", r.non_finite_rank);
  step.set("non_finite_layer", r.non_finite_layer);
  step.set("non_finite_param", r.non_finite_param);
  step.set("non_finite_microbatch", r.non_finite_microbatch);
  step.set("seconds", r.seconds);
  step.set("tokens_per_second", r.seconds > 0 ? Json(r.weight / r.seconds) : Json());
  step.set("compute_s", r.compute_s);
  step.set("exposed_comm_s", r.exposed_comm_s);
  step.set("optimizer_s", r.optimizer_s);
  step.set("allgather_s", r.allgather_s);
  step.set("exposed_allgather_s", r.exposed_allgather_s);
  step.set("bytes_sent", r.bytes_sent);
  step.set("n_reduces", r.n_reduces);
  step.set("n_overlapped", r.n_overlapped);
  step.set("n_allgathers", r.n_allgathers);
  step.set("peak_bytes", r.peak_bytes);
  step.set("offload_bytes_in", r.offload_bytes_in);
  step.set("offload_bytes_out", r.offload_bytes_out);
}

Json counts_json(const std::vector<AxisCount>& counts) {
  Json list = Json::array();
  for (const AxisCount& c : counts) {
    const InstrRow* row = find_instr_row(c.kind);
    list.push({{"axis", axis_name(c.axis)},
               {"instruction", row ? row->word : "unknown"},
               {"calls", c.count.calls},
               {"bytes_sent", c.count.bytes_sent}});
  }
  return list;
}

// By axis of several ranks: bytes that this rank sent, and how long it waited.
Json axes_json(const Mesh& mesh, const StepRecord& record) {
  Json list = Json::array();
  for (gsel_axis axis = 0; axis < kAxes; ++axis) {
    if (mesh.size[axis] == 1) continue;
    uint64_t bytes = 0;
    for (const AxisCount& c : record.counts) bytes += c.axis == axis ? c.count.bytes_sent : 0;
    list.push({{"axis", axis_name(axis)}, {"bytes_sent", bytes}, {"exposed_s", record.exposed_s[axis]}});
  }
  return list;
}

Json memory_json(const StepRecord& record) {
  Json list = Json::array();
  for (size_t i = 0; i < kMemoryParts; ++i) {
    const auto part = static_cast<MemoryPart>(i);
    list.push({{"part", memory_part_name(part)},
               {"offloaded", is_offloaded(part) ? 1 : 0},
               {"forecast_bytes", record.forecast[i]},
               {"peak_bytes", record.peak[i]}});
  }
  return list;
}

// By stage of this rank: the time of its layers, forward and backward together.
Json stages_json(const Program& program, const std::vector<Interval>& intervals) {
  std::map<int32_t, double> busy;
  for (const Interval& interval : intervals)
    if (const gsel_instr& instr = program.step.at(interval.position); instr.layer >= 0 && !interval.asynchronous)
      busy[program.layers[instr.layer].stage] += interval.end - interval.begin;
  Json list = Json::array();
  for (const auto& [stage, seconds] : busy) list.push({{"stage", stage}, {"busy_s", seconds}});
  return list;
}

Json intervals_json(const Program& program, const std::vector<Interval>& intervals) {
  const bool in_stages = program.rank_of_stage.size() > 1;
  Json list = Json::array();
  for (const Interval& interval : intervals) {
    const gsel_instr& instr = program.step.at(interval.position);
    const InstrRow* row = find_instr_row(instr.kind);
    Json one{{"position", interval.position},   {"instruction", row ? row->word : "unknown"},
             {"text", to_text(program, instr)}, {"begin_s", interval.begin},
             {"end_s", interval.end},           {"asynchronous", interval.asynchronous}};
    if (in_stages && row && row->layer) one.set("stage", program.layers.at(instr.layer).stage);
    list.push(std::move(one));
  }
  return list;
}

}  // namespace

std::string to_json(const Program& program, const StepRecord& record, bool with_intervals) {
  Json step{{"rank", program.rank}, {"world_size", program.mesh.world_size()}};
  Json mesh;
  for (gsel_axis axis = 0; axis < kAxes; ++axis) mesh.set(axis_name(axis), program.mesh.size[axis]);
  step.set("mesh", std::move(mesh));
  add_report(record.report, step);
  step.set("counts", counts_json(record.counts));
  step.set("axes", axes_json(program.mesh, record));
  step.set("memory", memory_json(record));
  step.set("stages", stages_json(program, record.intervals));
  step.set("on_device", record.on_device);
  step.set("graph_launches", record.graph_launches);
  step.set("no_graphs", record.no_graphs.empty() ? Json() : Json(record.no_graphs));
  step.set("began_ns", record.began_ns);
  step.set("intervals", with_intervals ? intervals_json(program, record.intervals) : Json());
  Json steps = Json::array();
  steps.push(std::move(step));
  const Json document{{"gsel", kVersionText}, {"steps", std::move(steps)}};
  return document.on_one_line() + "\n";
}

void write_timeline(const std::string& folder, const Program& program, const StepRecord& record) {
  const std::string path = absolute_path("timeline", fmt::format("{}/step-{}.json", folder, program.rank));
  write_file(path, to_json(program, record, true));
}

}  // namespace gsel
