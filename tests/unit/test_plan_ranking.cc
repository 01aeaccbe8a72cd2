// unit/test_plan_ranking.cc: one forecast ranks all candidates, whether their programs were compiled or not, with the
// bubble of the schedule as it runs; the first choice is one that a run accepts.
#include <algorithm>
#include <cmath>

#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/plan.h"
#include "support/check.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

// Sixteen layers, and a head that is as long as several of them.
Request request(const char* cluster, int64_t batch, const char* fixed) {
  const Transformer shape = read_transformer(
      R"({"model_type":"llama","hidden_size":2048,"intermediate_size":5504,"num_hidden_layers":16,
          "num_attention_heads":16,"vocab_size":128000,"max_position_embeddings":2048})",
      "llama.json");
  Request r{
      workload_of(shape, 2048), cluster_of(cluster, {}), *find_recipe("gsel-bf16"), batch, parse_fixed(fixed), {}};
  r.constants = constants_for(r.cluster.kinds.front().device_class, Runtime::compiled);
  r.model = describe(shape, {2048, GSEL_BF16});
  return r;
}

void near(const char* what, double got, double expected) {
  if (std::abs(got - expected) > 1e-9 * std::abs(expected)) fail_msg("%s: %.12g, expected %.12g", what, got, expected);
}

void all_are_ranked_by_one_forecast(void**) {
  const Plan plan(request("8xH100", 2048, "microbatch=1"), {});
  size_t compiled = 0;
  double before = 0;
  for (const Candidate& c : plan.candidates()) {
    compiled += c.programs.has_value();
    near(name_of(c.layout).c_str(), c.step_s(), evaluate(plan.input(), c.layout, c.shares).step_s());
    assert_true(c.step_s() >= before);
    before = c.step_s();
  }
  assert_true(plan.candidates().front().programs.has_value());
  if (compiled == plan.candidates().size()) fail_msg("all %zu were compiled", compiled);
}

Candidate in_chunks(const Request& r, int64_t microbatches) {
  Layout l;
  l.pipeline = 4, l.chunks = 2, l.schedule = ScheduleKind::interleaved;
  l.microbatch = 1, l.microbatches = microbatches;
  const SearchInput input{r.workload, r.cluster, r.recipe, r.constants, microbatches, {}, 1, {}};
  return evaluate(input, l);
}

void embedding_and_head_are_in_one_chunk(void**) {
  const Request r = request("4xH100", 8, "");
  const Candidate c = in_chunks(r, 8);
  const SearchInput input{r.workload, r.cluster, r.recipe, r.constants, 8, {}, 1, {}};
  const Split stages = split_of(r.workload, r.recipe, c);
  const std::vector<StageTimes> times = stage_times(input, c, stages, {0, 1, 2, 3, 0, 1, 2, 3});
  near("layers of the first rank", times[4].forward, times[2].forward);
  near("chunks without ends", times[5].forward, times[1].forward);
  assert_true(times[7].forward > 1.5 * times[3].forward && times[0].forward > times[4].forward);
  const StageTime whole =
      stage_time(r.workload, stages, stages.runs.back(), 3, r.cluster, c.layout, {}, r.recipe, r.constants);
  near("both chunks of the last rank", times[3].forward + times[7].forward, whole.forward);
}

// A long schedule is simulated by a part of its micro-batches.
void a_part_tells_of_a_long_schedule(void**) {
  const Request r = request("4xH100", 8, "");
  for (const int64_t microbatches : {16, 32, 64, 512}) {
    const Candidate c = in_chunks(r, microbatches);
    const SearchInput input{r.workload, r.cluster, r.recipe, r.constants, microbatches, {}, 1, {}};
    const gsel::Schedule schedule = make_schedule("interleaved-1f1b", 4, static_cast<int32_t>(microbatches), 2);
    const Split stages = split_of(r.workload, r.recipe, c);
    near("makespan", c.simulated_s,
         gsel::simulate(schedule, stage_times(input, c, stages, schedule.rank_of), 0).makespan);
  }
}

// Chunks of which one has the head alone make a schedule wait: one stage a rank is faster, and is found.
void the_schedule_decides_between_chunks_and_none(void**) {
  const Request r = request("4xH100", 32, "pipeline=4, microbatch=1");
  const SearchInput input{r.workload, r.cluster, r.recipe, r.constants, r.batch, r.fixed, 32, {}};
  const SearchResult result = search(input);
  double without = 0;
  Layout l;
  l.pipeline = 4, l.microbatches = 32;
  without = evaluate(input, l).step_s();
  assert_true(!result.best.empty());
  if (result.best.front().step_s() > without * (1 + 1e-9))
    fail_msg("%s takes %g s, one stage a rank %g s", name_of(result.best.front().layout).c_str(),
             result.best.front().step_s(), without);
  for (size_t i = 1; i < result.best.size(); ++i)
    assert_true(result.best[i].layout.zero_stage != result.best[i - 1].layout.zero_stage ||
                result.best[i].layout.offload != result.best[i - 1].layout.offload);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(all_are_ranked_by_one_forecast),
      cmocka_unit_test(embedding_and_head_are_in_one_chunk),
      cmocka_unit_test(the_schedule_decides_between_chunks_and_none),
      cmocka_unit_test(a_part_tells_of_a_long_schedule),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
