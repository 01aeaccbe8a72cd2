// unit/test_plan_split.cc: blocks on the stages of a pipeline: none is lost, work is equal where programs cut between
// operations, and the forecast of such stages is what a simulation of their programs takes.
#include <cmath>

#include "plan/describe.h"
#include "plan/plan.h"
#include "plan/split.h"
#include "support/check.h"
#include "support/gpt_shape.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

constexpr const char* kLlama =
    R"({"model_type":"llama","hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
        "num_attention_heads":32,"num_key_value_heads":8,"vocab_size":128256,"max_position_embeddings":8192})";

Layout in_stages(int32_t pipeline) {
  Layout l;
  l.pipeline = pipeline;
  l.microbatches = 4L * pipeline;
  return l;
}

// Each once, embedding first and head last.
void check_whole(const Workload& w, const Split& s, int32_t stages) {
  double params = 0, layers = 0, flop = 0;
  int32_t counted = 0;
  for (const StageRun& run : s.runs) {
    assert_int_equal(run.first, counted);
    counted += run.count;
    params += run.count * run.costs.params();
    layers += run.count * run.layers;
    flop += run.count * run.costs.flop();
  }
  const double all = w.params() + (stages > 1 ? w.tied_params : 0);
  assert_int_equal(counted, stages);
  if (std::abs(layers - static_cast<double>(w.layers())) > 1e-6) fail_msg("%g layers in %d stages", layers, stages);
  if (std::abs(params / all - 1) > 1e-9) fail_msg("%g parameters of %g in %d stages", params, all, stages);
  if (std::abs(flop / w.flop_forward() - 1) > 1e-9) fail_msg("operations of %d stages", stages);
  assert_true(s.runs.back().costs.logits == w.blocks.back().costs.logits);
  if (stages > 1) assert_true(s.runs.front().costs.params() >= w.blocks.front().costs.params());
}

void every_split_has_all_layers(void**) {
  const Workload w = workload_of(gpt("g", 31, 64, 4, 1000, 128), 128);
  for (int32_t stages = 1; stages <= 31; ++stages) {
    for (const bool weighted : {false, true}) {
      std::vector<double> weights;
      for (int32_t i = 0; weighted && i < stages; ++i) weights.push_back(1 + i % 3);
      check_whole(w, split(w, stages, weights), stages);
      Shares shares;
      if (weighted) shares.stage_layers = layers_of_stages(w, stages, weights);
      check_whole(w, split_for(w, in_stages(stages), shares, *find_recipe("gsel-bf16")), stages);
    }
  }
  assert_int_equal(layers_of_stages(w, 2, {2, 1})[0], 21);
}

double work_of(const Workload& w, const StageRun& run) {
  Block all = w.blocks.front();
  all.costs = run.costs;
  return gsel::plan::work_of(all, {});
}

// None has more than an even share and the largest sublayer, but one that is whole.
void stages_have_equal_work(void**) {
  const Workload w = workload_of(read_transformer(kLlama, "llama.json"), 4096);
  double head = gsel::plan::work_of(w.blocks.back(), {}), all = 0, sublayer = 0;
  for (const Block& block : w.blocks) all += static_cast<double>(block.count) * gsel::plan::work_of(block, {});
  for (const double share : w.blocks[1].sublayers)
    sublayer = std::max(sublayer, share * gsel::plan::work_of(w.blocks[1], {}));
  for (const int32_t stages : {2, 4, 8, 16, 32}) {
    const Split s = split_for(w, in_stages(stages), {}, *find_recipe("gsel-bf16"));
    for (const StageRun& run : s.runs)
      if (work_of(w, run) > std::max(head, all / stages + sublayer) * 1.001)
        fail_msg("stage %d of %d has %.3f of the work", run.first, stages, work_of(w, run) / all);
  }
}

void sublayers_are_all_of_a_layer(void**) {
  for (const char* config : {kLlama,
                             R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024,
                                 "vocab_size":50257})",
                             R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,
                                 "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,
                                 "vocab_size":32000,"num_local_experts":8,"num_experts_per_tok":2})"}) {
    const Workload w = workload_of(read_transformer(config, "c.json"), 1024);
    double sum = 0;
    for (const double share : w.blocks[1].sublayers) sum += share;
    if (std::abs(sum - 1) > 1e-12) fail_msg("sublayers add up to %.15g", sum);
  }
}

// Other people's programs were measured with whole layers.
void other_programs_have_whole_layers(void**) {
  const Workload w = workload_of(read_transformer(kLlama, "llama.json"), 4096);
  for (const StageRun& run : split_for(w, in_stages(4), {}, *find_recipe("megatron-bf16")).runs)
    assert_true(run.layers == 8);
}

struct Case {
  const char* fixed;
  int64_t batch;
  double within;
};
void expect_near_programs(const char* config, int64_t sequence, const Case& one) {
  const Transformer shape = read_transformer(config, "config.json");
  Request r{workload_of(shape, sequence), cluster_of("8xH100", {}),
            *find_recipe("gsel-bf16"),    one.batch,
            parse_fixed(one.fixed),       {}};
  r.constants = constants_for(r.cluster.kinds.front().device_class, Runtime::compiled);
  r.model = describe(shape, {sequence, GSEL_BF16});
  const Plan plan(std::move(r), {});
  assert_true(!plan.candidates().empty() && plan.candidates().front().programs);
  const Candidate& c = plan.candidates().front();
  const double off = c.step_s() / c.programs->step_s - 1;
  if (std::abs(off) > one.within)
    fail_msg("%s: forecast %.4g s, simulated %.4g s", name_of(c.layout).c_str(), c.step_s(), c.programs->step_s);
}

void the_forecast_is_what_programs_take(void**) {
  // Chunks of a rank are as long as each other here, and as their operations allow in programs.
  constexpr Case kCases[] = {
      {"pipeline=2, data=4, chunks=1", 64, 0.01},
      {"pipeline=4, data=2, chunks=1", 64, 0.01},
      {"pipeline=8, data=1, chunks=1", 32, 0.01},
      {"pipeline=4, data=2, chunks=1, recompute=all", 64, 0.01},
      {"pipeline=8, data=1, chunks=1, recompute=all", 32, 0.01},
      {"pipeline=4, tensor=2, data=1, chunks=1", 32, 0.01},
      {"pipeline=2, tensor=2, data=2, chunks=1", 32, 0.01},
      {"pipeline=4, data=2, chunks=2", 64, 0.04},
  };
  for (const Case& one : kCases) expect_near_programs(kLlama, 4096, one);
}

// The host launches its kernels more slowly than the device runs them.
void launches_are_counted_once(void**) {
  constexpr const char* kGpt =
      R"({"model_type":"gpt2","n_embd":1600,"n_layer":48,"n_head":25,"n_positions":1024,"vocab_size":50257})";
  for (const char* fixed : {"pipeline=2, data=4, chunks=1, microbatch=1", "pipeline=4, data=2, chunks=1, microbatch=1"})
    expect_near_programs(kGpt, 1024, {fixed, 32, 0.03});
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(every_split_has_all_layers),         cmocka_unit_test(stages_have_equal_work),
      cmocka_unit_test(sublayers_are_all_of_a_layer),       cmocka_unit_test(other_programs_have_whole_layers),
      cmocka_unit_test(the_forecast_is_what_programs_take), cmocka_unit_test(launches_are_counted_once),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
