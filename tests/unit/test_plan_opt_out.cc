// Layers that opt out of the tensor axis: the plan chooses them by the price of both, says which and why, and the
// programs of its gsel.toml have these layers whole; closed forms of a layer that opted out are those of one rank.
#include <set>

#include "base/config.h"
#include "base/error.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/finalist.h"
#include "plan/plan.h"
#include "plan/units.h"
#include "support/check.h"
#include "support/gpt_shape.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

Request narrow(const char* fixed) {
  Request r;
  r.workload = workload_of(gpt("narrow", 8, 512, 8, 256, 1024), 1024);
  r.cluster = cluster_of("4xRTX4090", {});
  r.recipe = *find_recipe("gsel-bf16");
  r.constants = constants_for("rtx40", Runtime::compiled);
  r.batch = 16;
  r.fixed = parse_fixed(fixed);
  return r;
}

const Unit& unit_of(const Request& r, std::string_view name) {
  for (const Unit& unit : r.workload.units)
    if (unit.name == name) return unit;
  fail_msg("there is no unit %s", std::string(name).c_str());
  abort();
}

// A narrow model on slow links: some layers opt out of the tensor axis, the gsel.toml and the text say which, the other
// choice is priced slower, and the programs that are compiled have these layers whole and the others in parts.
void narrow_layers_opt_out_of_the_tensor_axis(void**) {
  Request r = narrow("tensor=4");
  r.model = describe(gpt("narrow", 8, 512, 8, 256, 1024), {1024, GSEL_BF16});
  const Plan plan(std::move(r), {});
  const Candidate& c = plan.candidates().front();
  assert_true(c.layout.excluded != 0 && c.programs);
  const std::string toml = toml_of(plan.request(), c), list = layers_of(plan.request().workload, c.layout.excluded);
  assert_true(toml.find("exclude = \"" + list + "\"\n") != std::string::npos);
  assert_true(list.find("h*.mlp.*") != std::string::npos && list.find("attn") == std::string::npos);
  for (const UnitChoice& one : unit_choices(plan.input(), c)) {
    if (one.excluded && !(one.other_step_s > 0.005 * c.step_s()))
      fail_msg("%s: %g", one.name.c_str(), one.other_step_s);
    assert_false(one.why.empty());
    assert_true(plan.text().find(one.layers + (one.excluded ? "): whole; divided" : "): divided")) !=
                std::string::npos);
  }
  assert_true(plan.json().find("\"layers\": \"h*.mlp.*\"") != std::string::npos);
  const Config config = parse_config(toml, "plan.toml");
  const CompiledJob job(*plan.request().model, config, c.layout.ranks());
  for (const Param& param : job.model_of(0).params()) {
    if (param.shard_kind == GSEL_SHARD_NONE) continue;
    const bool attends = param.name.find("attn") != std::string::npos;
    if (attends == param.shard.is_whole()) fail_msg("%s is %s", param.name.c_str(), attends ? "whole" : "in parts");
  }
  const double trainer = static_cast<double>(c.programs->memory_bytes),
               forecast = c.memory.total() - c.memory[EstimatedPart::context] - c.memory[EstimatedPart::slack];
  if (std::abs(forecast / trainer - 1) > 0.02) fail_msg("%g bytes by closed forms, %g by programs", forecast, trainer);
}

Request wide() {
  Request r = narrow("tensor=8, microbatch=2");
  r.workload = workload_of(gpt("GPT 7B", 32, 4096, 32, 51200, 4096), 4096);
  r.cluster = cluster_of("8xH100", {.nodes = 2});
  r.constants = constants_for("h100", Runtime::compiled);
  r.batch = 256;
  r.fixed.sequence_parallel = false;
  return r;
}

void wide_layers_stay_divided(void**) {
  const Plan plan(wide(), {});
  for (const Candidate& c : plan.candidates()) assert_true(c.layout.excluded == 0);
}

// Whole layers need of a rank what one rank alone needs, and no collectives.
void what_opted_out_costs_what_one_rank_has(void**) {
  const Request r = narrow("tensor=4");
  const Workload whole = with_whole_units(r.workload, 7);
  Layout four, one;
  four.tensor = 4, four.microbatch = one.microbatch = 16;
  const StageMemory has = worst_memory(split(whole, 1), four, r.recipe),
                    alone = worst_memory(split(r.workload, 1), one, r.recipe);
  for (const EstimatedPart part : {EstimatedPart::params, EstimatedPart::gradients, EstimatedPart::state,
                                   EstimatedPart::activations, EstimatedPart::logits})
    if (std::abs(has[part] - alone[part]) > 1) fail_msg("%s: %g and %g", name_of(part), has[part], alone[part]);
  const TimeForecast takes = forecast_time(whole, split(whole, 1), r.cluster, four, {}, r.recipe, r.constants),
                     lone = forecast_time(r.workload, split(r.workload, 1), r.cluster, one, {}, r.recipe, r.constants);
  assert_true(takes[TimePart::tensor] == 0);
  for (const TimePart part : {TimePart::products, TimePart::attention, TimePart::elements})
    if (std::abs(takes[part] / lone[part] - 1) > 1e-9)
      fail_msg("%s: %g and %g", name_of(part), takes[part], lone[part]);
  assert_true(whole.params() == r.workload.params() && whole.flop_forward() == r.workload.flop_forward());
  assert_true(unit_of(r, "attention").layers == "h*.attn*");
}

// Of a described model, units are the networks that values in parts join.
void units_of_a_described_model_are_its_networks(void**) {
  for (const bool tied : {true, false}) {
    Transformer shape = gpt("small", 3, 64, 4, 256, 32);
    shape.tied = tied;
    const Workload w = workload_of(*describe(shape, {32, GSEL_BF16}), "described");
    std::set<std::string> lists, expected{"h*.attn.qkv,h*.attn,h*.attn.proj", "h*.mlp.fc1,h*.mlp.act,h*.mlp.fc2"};
    if (tied)
      expected.insert("embed.token,head,loss");
    else
      expected.insert({"embed.token", "head,loss"});
    for (const Unit& unit : w.units) {
      lists.insert(unit.layers);
      assert_true(unit.by_position == (unit.layers.find("attn") == std::string::npos));
    }
    assert_true(lists == expected);
    bool others = true;
    assert_true(units_named(w, layers_of(w, 5), &others) == 5 && !others);
    assert_true(units_named(w, "h*.mlp.fc1", &others) == 0 && others);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(narrow_layers_opt_out_of_the_tensor_axis),
      cmocka_unit_test(wide_layers_stay_divided),
      cmocka_unit_test(what_opted_out_costs_what_one_rank_has),
      cmocka_unit_test(units_of_a_described_model_are_its_networks),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
