// plan/plan_json.cc: a plan and an estimate as JSON; docs/plan.md lists the fields.
#include "base/json.h"
#include "plan/config_layout.h"
#include "plan/plan.h"

namespace gsel::plan {
namespace {

Json layout_json(const Layout& l) {
  return {{"tensor", l.tensor},
          {"context", l.context},
          {"data", l.data},
          {"pipeline", l.pipeline},
          {"zero_stage", l.zero_stage},
          {"offload", name_of(l.offload)},
          {"schedule", l.pipeline > 1 ? Json(name_of(l.schedule)) : Json()},
          {"chunks", l.chunks},
          {"microbatch", l.microbatch},
          {"microbatches", l.microbatches},
          {"recompute", name_of(l.recompute)},
          {"sequence_parallel", l.sequence_parallel}};
}

Json memory_json(const StageMemory& memory) {
  Json out = Json::object();
  for (size_t i = 0; i < kEstimatedParts; ++i) out.set(name_of(static_cast<EstimatedPart>(i)), memory.parts[i]);
  return {{"bytes", memory.total()}, {"host_bytes", memory.host_bytes}, {"parts", std::move(out)}};
}

Json time_json(const TimeForecast& time) {
  Json out = Json::object();
  for (size_t i = 0; i < kTimeParts; ++i) out.set(name_of(static_cast<TimePart>(i)), time.parts[i]);
  return out;
}

Json shares_json(const Shares& shares) {
  return {{"stage_layers", shares.stage_layers},
          {"data_weights", shares.data_weights},
          {"tensor_weights", shares.tensor_weights}};
}

Json stages_json(const Request& request, const Candidate& c) {
  const Split stages = split_of(request.workload, request.recipe, c);
  Json out = Json::array();
  for (const StageRun& run : stages.runs) {
    Json one = memory_json(forecast_memory(stages, run, run.first, c.layout, request.recipe));
    one.set("first_stage", run.first);
    one.set("stages", run.count);
    one.set("layers", run.layers);
    out.push(std::move(one));
  }
  return out;
}

Json tensor_units_json(const SearchInput& input, const Candidate& c) {
  Json out = Json::array();
  for (const UnitChoice& one : unit_choices(input, c))
    out.push({{"name", one.name},
              {"layers", one.layers},
              {"excluded", one.excluded},
              {"other_step_s", one.other_step_s},
              {"other_bytes", one.other_bytes},
              {"why", one.why}});
  return out;
}

Json candidate_json(const Request& request, const Candidate& first, const Candidate& c) {
  const Rates r = rates_of(request, c);
  const ErrorBand band = band_of(request, c);
  Json out{{"name", name_of(c.layout)},
           {"layout", layout_json(c.layout)},
           {"step_s", r.step_s},
           {"error_band", band.all()},
           {"not_covered", band.parts},
           {"tokens_per_s", r.tokens_per_s},
           {"samples_per_s", r.samples_per_s},
           {"mfu", r.mfu},
           {"hfu", r.hfu},
           {"bubble", r.bubble},
           {"exposed", r.exposed},
           {"simulated_s", c.simulated_s > 0 ? Json(c.simulated_s) : Json()},
           {"time_s", time_json(c.time)},
           {"hidden_data_s", c.time.data_in_all - c.time[TimePart::data]},
           {"memory", memory_json(c.memory)},
           {"stage", c.stage},
           {"device_bytes", c.capacity},
           {"may_exceed", c.may_exceed},
           {"stages", stages_json(request, c)}};
  if (c.programs)
    out.set("programs", {{"step_s", c.programs->step_s > 0 ? Json(c.programs->step_s) : Json()},
                         {"memory_bytes", c.programs->memory_bytes},
                         {"bytes_sent", c.programs->bytes_sent}});
  const SearchInput input{
      request.workload, request.cluster, request.recipe, request.constants, request.batch, request.fixed, 0, {}};
  if (can_opt_out(input, c)) out.set("tensor_units", tensor_units_json(input, c));
  if (const std::string why = why_not_run(request, c.layout); !why.empty()) out.set("not_run", why);
  if (&first != &c) out.set("lost_by", lost_by(first, c));
  if (!request.cluster.uniform() || !c.shares.tensor_weights.empty()) out.set("shares", shares_json(c.shares));
  if (!request.cluster.uniform()) {
    Json names = Json::array();
    for (int32_t rank = 0; rank < c.layout.ranks(); ++rank) names.push(request.cluster.kind(rank).name);
    out.set("devices", std::move(names));
  }
  return out;
}

Json request_json(const Request& r) {
  Json kinds = Json::array();
  for (const DeviceKind& kind : r.cluster.kinds)
    kinds.push({{"name", kind.name}, {"memory_bytes", kind.memory_bytes}, {"flop_16", kind.flop_16}});
  const Cluster& c = r.cluster;
  return {
      {"model",
       {{"name", r.workload.name},
        {"params", r.workload.params()},
        {"layers", r.workload.layers()},
        {"notes", r.workload.notes},
        {"forward_flop_per_sample", r.workload.flop_forward()}}},
      {"cluster",
       {{"name", c.name},
        {"devices", c.size()},
        {"nodes", c.nodes()},
        {"notes", c.notes},
        {"kinds", std::move(kinds)},
        {"link",
         {{"name", c.inside.name}, {"bytes_per_second", c.inside.bytes_per_second}, {"latency_s", c.inside.latency_s}}},
        {"network", {{"bytes_per_second", c.network.bytes_per_second}, {"latency_s", c.network.latency_s}}}}},
      {"batch", r.batch},
      {"sequence", r.workload.sequence},
      {"precision", r.recipe.name}};
}

}  // namespace

std::string Plan::json() const {
  Json out = request_json(request_);
  Json answers = Json::array();
  for (const Answer& a : decision(request_, result_)) answers.push({{"question", a.question}, {"answer", a.answer}});
  const Dropped& d = result_.dropped;
  out.set("decision", std::move(answers));
  out.set("tried", d.tried);
  out.set("dropped", {{"memory", d.memory},
                      {"host_memory", d.host},
                      {"heads", d.heads},
                      {"batch", d.batch},
                      {"layers", d.layers},
                      {"programs", d.programs}});
  out.set("times", confidence(request_));
  Json list = Json::array();
  for (const Candidate& c : candidates()) list.push(candidate_json(request_, candidates().front(), c));
  if (candidates().empty()) out.set("would_fit", smallest_change(request_, result_));
  out.set("candidates", std::move(list));
  return out.on_lines(1);
}

std::string compared_json(const Request& request, const std::vector<Compared>& all) {
  Json out = request_json(request);
  out.set("times", confidence(request));
  Json list = Json::array();
  for (const Compared& one : all) {
    Json json = candidate_json(one.request, all.front().candidate, one.candidate);
    json.set("file", one.name);
    json.set("batch", one.request.batch);
    json.set("fits", one.candidate.short_bytes() <= 0);
    list.push(std::move(json));
  }
  out.set("compared", std::move(list));
  return out.on_lines(1);
}

std::string estimate_json(const Request& request) {
  Json out = request_json(request);
  Json rows = Json::array();
  for (const EstimateRow& row : estimate(request)) {
    Json one = memory_json(row.memory);
    one.set("strategy", row.strategy);
    one.set("fits", row.fits);
    one.set("layout", layout_json(row.layout));
    Json ranks = Json::array();
    for (const EstimateRow::Ranks& each : row.ranks) {
      Json of = memory_json(each.memory);
      of.set("first_rank", each.first);
      of.set("ranks", each.count);
      of.set("fits", each.fits);
      ranks.push(std::move(of));
    }
    one.set("ranks", std::move(ranks));
    rows.push(std::move(one));
  }
  out.set("rows", std::move(rows));
  return out.on_lines(1);
}

}  // namespace gsel::plan
