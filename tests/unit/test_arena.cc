// unit/test_arena.cc: the memory of what lives for part of a step: nothing that lives is overwritten, in programs made
// at random and in those of the strategies; no more memory than needed; and a few sizes worked out by hand.
#include <algorithm>

#include "base/align.h"
#include "base/error.h"
#include "support/arena_check.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/pipeline_lowering.h"
#include "support/random_program.h"
#include "train/compile/base_program.h"
#include "train/memory/arena_fit.h"

namespace {

using namespace gsel;
using made::Random;

constexpr double kMostWaste = 1.3;  // of the bytes alive at the fullest instruction

void check(const Model& model, const Program& program, const Optimizer& optimizer, const std::string& what) {
  const std::vector<BucketLayout> layouts = layouts_of(program, optimizer);
  const ArenaPlan plan(model, program, layouts);
  const uint64_t alive = made::check_arena(model, program, layouts, plan);
  const uint64_t told = plan.peak().total();
  if (told != alive)
    fail_msg("%s: %llu bytes must live at once, the plan lets %llu live", what.c_str(),
             static_cast<unsigned long long>(alive), static_cast<unsigned long long>(told));
  if (static_cast<double>(plan.bytes()) > kMostWaste * static_cast<double>(alive))
    fail_msg("%s: the arena has %llu bytes, of which %llu are alive at once", what.c_str(),
             static_cast<unsigned long long>(plan.bytes()), static_cast<unsigned long long>(alive));
}

void nothing_alive_is_overwritten_in_random_programs(void**) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Random random(seed);
    const auto model = made::random_model(random);
    const Config config =
        made::config(fmt::format("[train]\nbatch = {}\nmicrobatch = {}\nprecision = \"{}\"\n", random.between(1, 9),
                                 random.between(1, 3), random.chance(50) ? "bf16" : "f32"));
    const Optimizer optimizer(config, *model, nullptr);
    check(*model, made::random_program(*model, config, random), optimizer, fmt::format("seed {}", seed));
  }
}

// Stages cut anywhere, one or several on a pipeline rank; gradients that come back to ranks which read the value, too.
void nothing_lent_to_a_message_is_overwritten(void**) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    Random random(5000 + seed);
    const auto model = made::random_model(random);
    const auto layers = static_cast<int32_t>(model->layers().size());
    made::Cut cut{{}, {0}};
    for (int32_t l = 1; l < layers; ++l)
      if (random.chance(40)) cut.first_layers.push_back(l);
    const auto stages = static_cast<int32_t>(cut.first_layers.size()) + 1;
    const auto pipeline = static_cast<int32_t>(random.between(1, stages));
    for (int32_t s = 1; s < stages; ++s)
      cut.rank_of_stage.push_back(s < pipeline ? s : static_cast<int32_t>(random.below(pipeline)));
    const Config config = made::config(fmt::format("[train]\nbatch = {}\nmicrobatch = 2\nprecision = \"{}\"\n",
                                                   random.between(1, 12), random.chance(50) ? "bf16" : "f32"));
    const Optimizer optimizer(config, *model, nullptr);
    const Mesh mesh = made::pipeline_mesh(static_cast<int32_t>(random.between(1, 2)), pipeline);
    for (int32_t rank = 0; rank < mesh.world_size(); ++rank) {
      const bool recompute = random.chance(50);
      const int32_t pipeline_rank = mesh.coordinate(rank, GSEL_AXIS_PIPELINE);
      const auto m = static_cast<int32_t>(base_program(*model, config, mesh, rank).microbatches.size());
      const std::vector<made::StageAction> actions = random.chance(50) && pipeline == stages
                                                         ? made::one_forward_one_backward(pipeline_rank, pipeline, m)
                                                         : made::all_forward_all_backward(cut, pipeline_rank, m);
      Program program = made::lower_pipeline(*model, config, mesh, rank, cut, actions, recompute);
      program.transfers = 1 << random.below(4);
      check(*model, program, optimizer, fmt::format("seed {}, rank {}", seed, rank));
    }
  }
}

void nothing_alive_is_overwritten_in_the_strategies_programs(void**) {
  const char* const strategies[] = {"plugin = \"ddp\"",
                                    "plugin = \"dp\"",
                                    "plugin = \"zero\"\nstage = 1",
                                    "plugin = \"zero\"\nstage = 2\nbucket_bytes = 600",
                                    "plugin = \"zero\"\nstage = 3\npersist_elems = 50",
                                    "plugin = \"zero\"\nstage = 3\npersist_elems = 0\nprefetch_elems = 0",
                                    "plugin = \"zero\"\nstage = 3\npersist_elems = 0\nkeep = \"forward\"",
                                    "plugin = \"zero\"\nstage = 3\npersist_elems = 0\nkeep = \"step\""};
  for (uint32_t seed = 0; seed < 12; ++seed) {
    Random random(1000 + seed);
    const auto model = made::random_model(random);
    for (const char* strategy : strategies)
      for (const char* recompute : {"none", "all"})
        for (int32_t ranks : {1, 3, 4}) {
          const std::string text = fmt::format(
              "[train]\nbatch = 7\nmicrobatch = 1\nprecision = \"bf16\"\nrecompute = \"{}\"\n[strategy.data]\n{}\n",
              recompute, strategy);
          const Config config = made::config(text);
          const Optimizer optimizer(config, *model, nullptr);
          for (const Program& program : made::programs(*model, config, ranks))
            check(*model, program, optimizer, fmt::format("seed {}, {} ranks:\n{}", seed, ranks, text));
        }
  }
}

// Six layers of 16 f32 values a sample, 4 samples: 256 bytes a value. Backward needs each layer's input and output.
void a_chain_without_declarations_keeps_all_values(void**) {
  const auto model = made::chain({1, 1, 1, 1, 1, 1});
  const Config config = made::config("[train]\nbatch = 4\n");
  const Optimizer optimizer(config, *model, nullptr);
  const Program program = base_program(*model, config, made::data_mesh(1), 0);
  const ArenaPlan plan(*model, program, layouts_of(program, optimizer));
  // At the backward of the last layer: 7 values and the gradients of two. The loss's two scalars are gone.
  assert_int_equal(plan.peak().values, 7 * 256);
  assert_int_equal(plan.peak().gradients, 2 * 256);
  assert_int_equal(plan.peak().total(), 9 * 256);
  assert_int_equal(plan.bytes(), 9 * 256);
}

// With every layer recomputed each value lives twice: two at a time going forward, and again before its backward.
void recomputed_values_live_twice_and_leave_their_memory_between(void**) {
  const auto model = made::changed_chain({1, 1, 1, 1, 1, 1}, 16, [](size_t, made::LayerSpec& layer) {
    layer.saved = 64 * 10;  // 2560 bytes for 4 samples
    layer.flags = GSEL_LAYER_RECOMPUTABLE;
  });
  const Config config = made::config("[train]\nbatch = 4\n");
  const Optimizer optimizer(config, *model, nullptr);
  Program program = base_program(*model, config, made::data_mesh(1), 0);
  const uint64_t plain = ArenaPlan(*model, program, layouts_of(program, optimizer)).peak().total();
  std::vector<gsel_instr> step;
  for (const gsel_instr& instr : program.step) {
    if (instr.kind == GSEL_BACKWARD && !model->layers()[instr.layer].is_loss()) {
      step.push_back(instr);
      step.back().kind = GSEL_INSTR_RECOMPUTE;
    }
    step.push_back(instr);
  }
  program.step = step;
  const ArenaPlan plan(*model, program, layouts_of(program, optimizer));
  assert_int_equal(plain, 6 * 2560 + 7 * 256 + 2 * 256);
  // One layer's saved bytes at a time; of the values, each waits for the recomputation of the layer behind it.
  assert_int_equal(plan.peak().saved, 2560);
  assert_int_equal(plan.peak().total(), 2560 + 7 * 256 + 2 * 256);
  check(*model, program, optimizer, "recomputed chain");
}

void what_backward_does_not_read_is_freed_after_forward(void**) {
  const auto model = made::changed_chain({1, 1, 1, 1, 1, 1}, 16, [](size_t, made::LayerSpec& layer) {
    layer.input_unread = layer.weight_unread = GSEL_UNREAD_INPUT(0) | GSEL_UNREAD_OUTPUT(0);
  });
  const Config config = made::config("[train]\nbatch = 4\n");
  const Optimizer optimizer(config, *model, nullptr);
  const Program program = base_program(*model, config, made::data_mesh(1), 0);
  const ArenaPlan plan(*model, program, layouts_of(program, optimizer));
  assert_int_equal(plan.peak().total(), 256 + 256 + 2 * 64);  // the loss's backward: input, its gradient, two scalars
}

// Stage 3 with one layer gathered at a time, and stage 2's whole gradients, stand in the arena with their padding.
void windows_of_shards_are_as_large_as_their_buckets_with_padding(void**) {
  const auto model = made::chain({1001, 501});
  const Config config = made::config(
      "[train]\nbatch = 4\nmicrobatch = 1\n[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 0\n"
      "prefetch_elems = 0\n");
  const Optimizer optimizer(config, *model, nullptr);
  const Program program = made::programs(*model, config, 4)[1];
  const ArenaPlan plan(*model, program, layouts_of(program, optimizer));
  assert_int_equal(plan.peak().gathered, round_up(4 * 1004, 64));
  assert_true(plan.peak().whole_gradients >= round_up(4 * 1004, 64));
}

void buffers_are_placed_apart_and_tightly(void**) {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    std::vector<Buffer> buffers;
    const size_t length = 200;
    for (int i = 0; i < 300; ++i) {
      const auto first = static_cast<int32_t>(random.below(static_cast<int64_t>(length)));
      const int64_t span = random.chance(20) ? random.below(150) : random.below(8);
      const auto last = static_cast<int32_t>(std::min<int64_t>(first + span, static_cast<int64_t>(length) - 1));
      buffers.push_back({static_cast<uint64_t>(64 * random.between(1, random.chance(20) ? 400 : 20)), first, last, 0});
    }
    const uint64_t bytes = fit(buffers, length);
    for (size_t a = 0; a < buffers.size(); ++a) {
      assert_true(buffers[a].offset + buffers[a].bytes <= bytes);
      for (size_t b = a + 1; b < buffers.size(); ++b) {
        const Buffer &x = buffers[a], &y = buffers[b];
        const bool together = x.first <= y.last && y.first <= x.last;
        assert_true(!together || x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset);
      }
    }
    assert_true(static_cast<double>(bytes) <= kMostWaste * static_cast<double>(most_live(buffers, length)));
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(nothing_alive_is_overwritten_in_random_programs),
      cmocka_unit_test(nothing_lent_to_a_message_is_overwritten),
      cmocka_unit_test(nothing_alive_is_overwritten_in_the_strategies_programs),
      cmocka_unit_test(a_chain_without_declarations_keeps_all_values),
      cmocka_unit_test(recomputed_values_live_twice_and_leave_their_memory_between),
      cmocka_unit_test(what_backward_does_not_read_is_freed_after_forward),
      cmocka_unit_test(windows_of_shards_are_as_large_as_their_buckets_with_padding),
      cmocka_unit_test(buffers_are_placed_apart_and_tightly),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
