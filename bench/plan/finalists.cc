// finalists.cc: how long 32 finalists take to be priced: of 8 ranks by their programs, and of 10,240 ranks by a
// schedule.
#include <algorithm>
#include <cstdio>

#include "base/os.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/job.h"
#include "schedule/simulate.h"
#include "support/gpt_shape.h"

namespace bench {

using namespace gsel;
using namespace gsel::plan;

namespace {

Transformer llama_7b() {
  Transformer t = gpt("llama", 32, 4096, 32, 32000, 4096);
  t.positions = 0;
  t.mlp_matrices = 3, t.ffn = 11008, t.norm_vectors = 1;
  t.tied = t.qkv_bias = t.output_bias = t.mlp_bias = false;
  return t;
}

std::vector<Layout> layouts_of(int32_t ranks, int64_t batch) {
  std::vector<Layout> all;
  for (int32_t pipeline = 1; pipeline <= ranks; pipeline *= 2)
    for (int32_t tensor = 1; tensor * pipeline <= ranks; tensor *= 2)
      for (int32_t zero : {0, 1, 3})
        for (ScheduleKind schedule : {ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
          if (pipeline == 1 && schedule != ScheduleKind::one_f_one_b) continue;
          Layout l;
          l.pipeline = pipeline, l.tensor = tensor, l.data = ranks / pipeline / tensor;
          l.zero_stage = zero, l.schedule = schedule;
          l.microbatches = batch / l.data;
          all.push_back(l);
        }
  return all;
}

}  // namespace

int time_finalists() {
  Request request;
  request.workload.name = "llama";
  request.recipe = *find_recipe("gsel-bf16");
  request.cluster.kinds.resize(1);
  request.cluster.devices.assign(8, 0);
  const Transformer shape = llama_7b();
  GivenDurations durations;
  durations.links.fill({1e-5, 1e-11});
  for (int64_t batch : {8, 64}) {
    double began = os::now_seconds();
    const auto model = describe(shape, {.sequence = 4096, .dtype = GSEL_BF16});
    const double described = os::now_seconds() - began;
    std::vector<Layout> layouts = layouts_of(8, batch);
    double compiled_s = 0, priced_s = 0, worst = 0;
    size_t n = 0, instrs = 0;
    for (const Layout& layout : layouts) {
      if (n == 32) break;
      began = os::now_seconds();
      Candidate candidate;
      candidate.layout = layout;
      request.batch = layout.batch();
      const Config config = parse_config(toml_of(request, candidate), "finalist");
      const CompiledJob job(*model, config, 8, nullptr, 1);
      const double compiled = os::now_seconds();
      durations.layers.assign(job.programs().front().layers.size(), {1e-3, 1e-3, 1e-3});
      price(job, {durations, {}, 0, 1});
      const double priced = os::now_seconds();
      compiled_s += compiled - began, priced_s += priced - compiled;
      worst = std::max(worst, priced - began);
      for (const Program& p : job.programs()) instrs += p.step.size();
      ++n;
    }
    printf(
        "%zu finalists of 8 ranks, 7B, %d samples: described in %.1f ms, compiled and verified in %.0f ms, priced in "
        "%.0f ms, the longest %.0f ms; %zu instructions\n",
        n, static_cast<int>(batch), 1e3 * described, 1e3 * compiled_s, 1e3 * priced_s, 1e3 * worst, instrs);
  }
  const std::vector<StageTimes> stages(64, {1e-3, 1e-3, 1e-3});
  const double began = os::now_seconds();
  for (int i = 0; i < 32; ++i) gsel::simulate(make_schedule("1f1b", 64, 256, 0), stages, 1e-5);
  printf("32 finalists of 10,240 ranks in 64 stages of 256 micro-batches, by schedule: %.0f ms\n",
         1e3 * (os::now_seconds() - began));
  return 0;
}

}  // namespace bench
