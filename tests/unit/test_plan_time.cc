// The time of a step: its parts add up; bubbles are those of closed forms; whatever becomes faster never makes a step
// slower; a stage is as slow as its slowest rank. What was published holds: data parallelism by one process, by
// several, and without NVLink in their order; ZeRO-3 behind pipelines of many nodes.
#include <cmath>

#include "plan/constants.h"
#include "plan/rows.h"
#include "plan/time.h"
#include "support/check.h"
#include "support/gpt_shape.h"
#include "support/random_program.h"

namespace {

using namespace gsel::plan;
using made::Random;

Cluster cluster_with(const char* devices, int32_t nodes) {
  ClusterOptions options;
  options.nodes = nodes;
  return cluster_of(devices, options);
}

// Layers alone, so that all stages of a pipeline are alike.
Workload plain_layers(int64_t layers) {
  Workload w = workload_of(gpt("layers", layers, 4096, 32, 51200, 2048), 2048);
  std::erase_if(w.blocks, [](const Block& block) { return block.kind != BlockKind::layer; });
  w.tied_params = 0;
  return w;
}

TimeForecast forecast(const Workload& w, const Cluster& cluster, const Layout& layout, const Constants& k,
                      const Recipe& recipe = *find_recipe("megatron-bf16")) {
  return forecast_time(w, split(w, layout.pipeline), cluster, layout, {}, recipe, k);
}

Layout random_layout(Random& random, int32_t ranks) {
  Layout l;
  while (l.ranks() * 2 <= ranks) {
    int32_t* axes[] = {&l.tensor, &l.data, &l.pipeline, &l.context};
    int32_t& axis = *axes[random.below(4)];
    if (&axis != &l.tensor || l.tensor < 8) axis *= 2;
  }
  l.zero_stage = static_cast<int32_t>(random.below(4));
  l.microbatch = random.between(1, 8);
  l.microbatches = l.pipeline * random.between(1, 8);
  l.recompute = static_cast<Recompute>(random.below(3));
  l.offload = static_cast<Offload>(random.below(3));
  l.sequence_parallel = random.chance(50);
  if (l.pipeline > 1 && random.chance(50)) l.schedule = ScheduleKind::interleaved, l.chunks = 2;
  return l;
}

void parts_add_up_and_none_is_negative(void**) {
  const Workload w = workload_of(gpt("GPT", 64, 4096, 32, 51200, 2048), 2048);
  const Cluster cluster = cluster_with("8xA100", 16);
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    Random random(seed);
    const Layout l = random_layout(random, 128);
    const auto k = constants_for("a100", static_cast<Runtime>(random.below(kRuntimes)));
    const TimeForecast t = forecast(w, cluster, l, k);
    double sum = 0;
    for (size_t i = 0; i < kTimeParts; ++i) {
      if (!(t.parts[i] >= 0) || !std::isfinite(t.parts[i]))
        fail_msg("seed %u: %s takes %g s", seed, name_of(static_cast<TimePart>(i)), t.parts[i]);
      sum += t.parts[i];
    }
    assert_true(sum == t.step() && sum > 0);
    assert_true(t.data_in_all >= t[TimePart::data]);
    const TimeForecast again = forecast(w, cluster, l, k);
    assert_true(again.parts == t.parts);
  }
}

void what_becomes_faster_makes_no_step_slower(void**) {
  const Workload w = workload_of(gpt("GPT", 64, 4096, 32, 51200, 2048), 2048);
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    const Layout l = random_layout(random, 64);
    const auto k = constants_for("h100", static_cast<Runtime>(random.below(kRuntimes)));
    const Cluster before = cluster_with("8xH100", 8);
    const double step = forecast(w, before, l, k).step();
    for (int change = 0; change < 5; ++change) {
      Cluster after = before;
      DeviceKind& kind = after.kinds[0];
      if (change == 0) kind.flop_16 *= 2;
      if (change == 1) kind.memory_bytes_per_second *= 2;
      if (change == 2) after.inside.bytes_per_second *= 2;
      if (change == 3) after.network.bytes_per_second *= 2;
      if (change == 4) kind.host_bytes_per_second *= 2;
      const double faster = forecast(w, after, l, k).step();
      if (faster > step * (1 + 1e-9))
        fail_msg("seed %u, change %d: %.9g s before, %.9g s after", seed, change, step, faster);
    }
  }
}

void bubbles_are_those_of_closed_forms(void**) {
  const Workload w = plain_layers(64);
  const Cluster cluster = cluster_with("8xA100", 1);
  Constants k = constants_for("a100", Runtime::plain);
  k.step_s = 0;
  for (const int32_t p : {2, 4, 8})
    for (const int32_t v : {1, 2, 4})
      for (const int64_t m : {8, 16, 64}) {
        Layout l;
        l.pipeline = p, l.chunks = v, l.microbatches = m;
        if (v > 1) l.schedule = ScheduleKind::interleaved;
        const TimeForecast t = forecast(w, cluster, l, k);
        const double busy = t.step() - t[TimePart::bubble] - t[TimePart::optimizer];
        const double expected = busy * (p - 1) / (static_cast<double>(v) * static_cast<double>(m));
        if (std::abs(t[TimePart::bubble] - expected) > 1e-9 * expected)
          fail_msg("%d stages, %d chunks, %lld micro-batches: a bubble of %.9g s, expected %.9g s", p, v,
                   static_cast<long long>(m), t[TimePart::bubble], expected);
        l.schedule = ScheduleKind::zb_h1, l.chunks = 1;
        if (v == 1) assert_true(forecast(w, cluster, l, k)[TimePart::bubble] < expected);
      }
}

// docs/strategies.md: stage 1 reduces gradients once and gathers parameters once; stage 2 reduces in each micro-batch;
// stage 3 gathers for forward and for backward of each as well.
void zero_moves_what_its_stage_says(void**) {
  const Workload w = plain_layers(4);
  const Cluster cluster = cluster_with("4xA100", 1);
  Constants k = constants_for("a100", Runtime::plain);
  k.call_s = k.ring_hops = k.network_hops = 0;
  const Recipe& recipe = *find_recipe("gsel-bf16");  // 4 bytes of a gradient, 2 of a parameter
  const double once = 3.0 / 4 * w.params() / (cluster.inside.bytes_per_second * k.inside);
  for (const double m : {1.0, 8.0}) {
    Layout l;
    l.data = 4, l.microbatches = static_cast<int64_t>(m);
    const double bytes[] = {2 * 4, 4 + 2, m * 4 + 2, m * (2 * 2 + 4)};
    for (l.zero_stage = 0; l.zero_stage < 4; ++l.zero_stage) {
      const double got = forecast(w, cluster, l, k, recipe).data_in_all, expected = bytes[l.zero_stage] * once;
      if (std::abs(got - expected) > 1e-9 * expected)
        fail_msg("stage %d, %g micro-batches: %.9g s of collectives, expected %.9g s", l.zero_stage, m, got, expected);
    }
  }
}

void a_stage_is_as_slow_as_its_slowest_rank(void**) {
  const Workload w = plain_layers(8);
  const Constants k = constants_for("a100", Runtime::plain);
  const Recipe& recipe = *find_recipe("megatron-bf16");
  const Cluster mixed = cluster_with("2xH100+2xA100", 1);
  Layout l;
  l.data = 2, l.pipeline = 2, l.microbatches = 4;
  const Split stages = split(w, 2);
  const auto of = [&](const Cluster& cluster, int32_t stage, const Shares& shares) {
    return stage_time(w, stages, stages.runs[stage], stage, cluster, l, shares, recipe, k).forward;
  };
  const Cluster old = cluster_with("4xA100", 1);
  assert_true(of(mixed, 0, {}) < of(mixed, 1, {}));
  assert_true(of(mixed, 1, {}) == of(old, 1, {}));
  Cluster each = mixed;  // one old device in the first stage makes it as slow
  each.devices = {0, 1, 0, 0};
  assert_true(of(each, 0, {}) == of(old, 0, {}));
  assert_true(of(each, 1, {}) < of(old, 1, {}));
  // A smaller part for the old device helps; all for it does not.
  Shares shares;
  shares.data_weights = {3, 1};
  assert_true(of(each, 0, shares) < of(each, 0, {}));
  shares.data_weights = {1, 3};
  assert_true(of(each, 0, shares) > of(each, 0, {}));
}

double published_s(const std::string& line) {
  static const std::string kHead =
      "row\tsource\tmodel\tlayers\thidden\theads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tgpus_per_"
      "node\tdp\ttp\tpp\tzero\trecompute\tprecision\tmetric\tvalue\tnote\n";
  const auto rows = read_rows(kHead + line, "rows.tsv");
  const RowCase run = case_of(rows.at(0));
  if (!run.why.empty()) fail_msg("%s", run.why.c_str());
  return step_of(run, run.constants);
}

// 200 steps took 101.9 s (DDP), 110.6 s (DP) and 131.4 s (DDP through the memory of the host).
void data_parallelism_with_and_without_nvlink(void**) {
  const auto seconds = [](const char* model, const char* note) {
    return 200 *
           published_s(
               std::string("1\tguide\t") + model +
               "\t12\t768\t12\t1024\t50257\t8\t4\t2\tTITAN RTX\t2\t2\t1\t1\t0\tnone\tfp32\ttrain_200_steps_s\t100\t" +
               note + "\n");
  };
  const double ddp = seconds("GPT-2 (DDP NVLink)", "NV2 link"), dp = seconds("GPT-2 (DP NVLink)", "NV2 link");
  const double slow = seconds("GPT-2 (DDP no NVLink)", "NCCL_P2P_DISABLE=1");
  const double expected[] = {101.9, 110.6, 131.4}, got[] = {ddp, dp, slow};
  for (int i = 0; i < 3; ++i)
    if (std::abs(got[i] / expected[i] - 1) > 0.1)
      fail_msg("line %d: %.1f s measured, %.1f s forecast", i, expected[i], got[i]);
  assert_true(ddp < dp && dp < slow);
}

// arXiv:2104.04473 table 2: at 384 devices ZeRO-3 is slightly behind a pipeline, at 1536 it takes three times as long.
void zero_3_falls_behind_pipelines(void**) {
  const auto seconds = [](int gpus, int zero, int data, int tensor, int pipeline, int micro) {
    return published_s(
        fmt::format("1\tSC21\tGPT\t96\t12288\t96\t2048\t51200\t1536\t{}\t{}\tA100-SXM-80GB\t8\t{}\t{}\t{}\t{}"
                    "\tfull\tfp16\titeration_s\t1\t{}\n",
                    micro, gpus, data, tensor, pipeline, zero, zero == 3 ? "ZeRO-3" : ""));
  };
  double before = 1;
  for (const int gpus : {384, 768, 1536}) {
    const double behind = seconds(gpus, 3, gpus, 1, 1, 1536 / gpus) / seconds(gpus, 0, gpus / 96, 8, 12, 1);
    if (!(behind > before))
      fail_msg("%d devices: ZeRO-3 takes %.3f of the pipeline's time, and %.3f with fewer", gpus, behind, before);
    before = behind;
  }
  assert_true(before > 2);
}

// A device that nobody measured is forecast from its data sheet, and says so.
void classes_without_measurements_say_so(void**) {
  assert_true(constants_for("a100", Runtime::plain).calibrated());
  assert_true(!constants_for("gaudi3", Runtime::plain).calibrated());
  const Workload w = workload_of(gpt("GPT", 24, 1024, 16, 51200, 1024), 1024);
  for (const Accelerator& a : accelerators()) {
    ClusterOptions options;
    const Cluster cluster = cluster_of(std::string("2x") + a.name, options);
    Layout l;
    l.data = 2;
    const double step = forecast(w, cluster, l, constants_for(a.device_class, Runtime::overlapped)).step();
    if (!(step > 0 && step < 60)) fail_msg("%s: a step of %g s", a.name, step);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(parts_add_up_and_none_is_negative),
      cmocka_unit_test(what_becomes_faster_makes_no_step_slower),
      cmocka_unit_test(bubbles_are_those_of_closed_forms),
      cmocka_unit_test(zero_moves_what_its_stage_says),
      cmocka_unit_test(a_stage_is_as_slow_as_its_slowest_rank),
      cmocka_unit_test(data_parallelism_with_and_without_nvlink),
      cmocka_unit_test(zero_3_falls_behind_pipelines),
      cmocka_unit_test(classes_without_measurements_say_so),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
