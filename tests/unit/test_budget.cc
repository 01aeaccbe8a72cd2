// unit/test_budget.cc: a model that does not fit train.memory_bytes is refused with a table and the smallest change
// that fits.
#include "base/error.h"
#include "support/check.h"
#include "support/made_model.h"
#include "support/pipeline_lowering.h"
#include "train/state/budget.h"

namespace {

using namespace gsel;

uint64_t need(const Model& model, const std::string& text, int32_t ranks) {
  const Config config = made::config(text);
  const Optimizer optimizer(config, model, nullptr);
  uint64_t most = 0;
  for (const Program& program : made::programs(model, config, ranks))
    most = std::max(most, total_bytes(forecast_memory(model, program, optimizer)));
  return most;
}

// The rank that needs most, of ranks that all have the whole model.
RankNeed greatest(const Model& model, const Config& config, const std::vector<Program>& programs) {
  const Optimizer optimizer(config, model, nullptr);
  RankNeed most;
  for (const Program& program : programs) {
    const RankNeed need{program.rank, forecast_memory(model, program, optimizer)};
    if (program.rank == 0 || need.total() > most.total()) most = need;
  }
  return most;
}

void check(const Model& model, const Config& config, const std::vector<Program>& programs) {
  const Mesh& mesh = programs.front().mesh;
  check_budget(
      config, Budget{static_cast<uint64_t>(config.train.memory_bytes)}, programs.front(),
      greatest(model, config, programs),
      [&]() -> std::vector<Suggestion> {
        try {
          return Compiler(model, config, mesh).advise(GSEL_AXIS_DATA, GSEL_ADVICE_MEMORY, 0);
        } catch (const Error&) {
          return {};
        }
      },
      [&](const Config& other) -> std::optional<RankNeed> {
        try {
          return greatest(model, other, made::programs(model, other, mesh));
        } catch (const Error&) {
          return {};
        }
      });
}

// What check_budget says; empty when it fits.
std::string refusal(const Model& model, const std::string& text, int32_t ranks, uint64_t budget) {
  const Config config = made::config(fmt::format("[train]\nmemory_bytes = {}\n{}", budget, text));
  try {
    check(model, config, made::programs(model, config, ranks));
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_NOMEM);
    assert_string_equal(e.place().token.c_str(), "train.memory_bytes");
    assert_int_equal(e.place().line, 2);
    return e.message();
  }
  return "";
}

void expect_part(const std::string& message, const std::string& part) {
  if (message.find(part) == std::string::npos) fail_msg("expected \"%s\" in:\n%s", part.c_str(), message.c_str());
}

std::string needs(const std::string& what, uint64_t bytes, uint64_t budget) {
  return fmt::format("{} needs {} of {}", what, human_bytes(bytes), human_bytes(budget));
}

void sizes_are_told_in_the_unit_that_suits(void**) {
  assert_string_equal(human_bytes(0).c_str(), "0 bytes");
  assert_string_equal(human_bytes(1023).c_str(), "1023 bytes");
  assert_string_equal(human_bytes(1536).c_str(), "1.5 KiB");
  assert_string_equal(human_bytes(uint64_t{310} << 20).c_str(), "310.0 MiB");
  assert_string_equal(human_bytes(~uint64_t{0}).c_str(), "16384.0 PiB");
}

void the_table_is_aligned_and_leaves_offload_memory_out_of_its_total(void**) {
  MemoryPartBytes parts{};
  parts[static_cast<size_t>(MemoryPart::params)] = 2048;
  parts[static_cast<size_t>(MemoryPart::windows)] = 100;
  parts[static_cast<size_t>(MemoryPart::offload_params)] = uint64_t{3} << 30;
  assert_string_equal(memory_table(parts).c_str(),
                      "\n  parameters                      2.0 KiB        2048 bytes"
                      "\n  values and windows            100 bytes         100 bytes"
                      "\n  parameters, offload memory      3.0 GiB  3221225472 bytes"
                      "\n  total without offload memory    2.1 KiB        2148 bytes");
}

void what_needs_exactly_the_budget_fits(void**) {
  const auto model = made::chain({1000, 7});
  const std::string text = "batch = 4\n";
  const uint64_t bytes = need(*model, "[train]\n" + text, 2);
  assert_string_equal(refusal(*model, text, 2, bytes).c_str(), "");
  assert_string_equal(refusal(*model, text, 2, 0).c_str(), "");  // no budget
  const std::string message = refusal(*model, text, 2, bytes - 1);
  expect_part(message, fmt::format("test.toml:2: train.memory_bytes = {} (", bytes - 1));
  expect_part(message, ") is not enough: rank 0 of 2 needs ");
  expect_part(message, "\n  optimizer state  ");
  expect_part(message, fmt::format("{} bytes\n", bytes));
}

// Pipeline rank 1 has the large layers, in two stages.
void a_rank_of_a_pipeline_is_named_with_its_stages(void**) {
  const auto model = made::chain({10, 10, 5000, 10, 5000});
  const Config config = made::config("[train]\nmemory_bytes = 1000\nbatch = 4\nmicrobatch = 1\n");
  const made::Cut cut{{2, 3, 4}, {0, 1, 0, 1}};
  const Mesh mesh = made::pipeline_mesh(1, 2);
  std::vector<Program> programs;
  for (int32_t rank = 0; rank < 2; ++rank)
    programs.push_back(
        made::lower_pipeline(*model, config, mesh, rank, cut, made::all_forward_all_backward(cut, rank, 4)));
  try {
    check(*model, config, programs);
    fail_msg("40,000 bytes of parameters fit 1000 bytes");
  } catch (const Error& e) {
    expect_part(
        e.message(),
        "is not enough: rank 1 of 2 (stage 1: layers \"l2\" to \"l2\", stage 3: layers \"l4\" to \"l5\") needs ");
  }
}

// Eight parameters of 16 MiB on 4 ranks: the first stage of ZeRO that fits is named.
void the_first_stage_that_fits_is_named_with_the_lines_to_write(void**) {
  const auto model = made::chain(std::vector<int64_t>(8, 4 << 20), 4, 0);
  const std::string text = "batch = 8\n";
  uint64_t before = need(*model, "[train]\n" + text, 4);
  for (int stage = 1; stage <= 3; ++stage) {
    const std::string line = fmt::format("plugin = \"zero\"\nstage = {}\n", stage);
    const uint64_t bytes = need(*model, "[train]\n" + text + "[strategy.data]\n" + line, 4);
    assert_true(bytes < before);
    for (const uint64_t budget : {bytes, before - 1}) {
      const std::string message = refusal(*model, text, 4, budget);
      expect_part(message, needs(fmt::format("ZeRO stage {} on 4 ranks", stage), bytes, budget));
      expect_part(message, fmt::format("; in gsel.toml: [strategy.data] plugin = \"zero\", stage = {}", stage));
    }
    before = bytes;
  }
  // From stage 2, what comes next is stage 3, and the options that were given stay.
  const std::string two = text + "[strategy.data]\nplugin = \"zero\"\nstage = 2\npersist_elems = 7\n";
  const uint64_t three =
      need(*model, "[train]\n" + text + "[strategy.data]\nplugin = \"zero\"\nstage = 3\npersist_elems = 7\n", 4);
  expect_part(refusal(*model, two, 4, three), needs("ZeRO stage 3 on 4 ranks", three, three));
}

void recomputing_then_smaller_microbatches_are_named_where_values_are_large(void**) {
  const auto recomputable = made::chain({3, 3, 3, 3, 3, 3}, 1 << 16, GSEL_LAYER_RECOMPUTABLE);
  const auto saving = made::changed_chain({5, 5, 5, 5, 5, 5}, 1 << 10, [](size_t l, made::LayerSpec& layer) {
    layer.saved = 1 << 20;
    layer.flags = l % 2 ? 0 : GSEL_LAYER_RECOMPUTABLE;  // runs of one layer
  });
  const std::string text = "batch = 16\n";
  const uint64_t again = need(*saving, "[train]\nrecompute = \"all\"\n" + text, 1);
  const std::string message = refusal(*saving, text, 1, again);
  expect_part(message, needs("recomputing all layers", again, again));
  expect_part(message, "; in gsel.toml: [train] recompute = \"all\"");

  const uint64_t quarter = need(*recomputable, "[train]\nmicrobatch = 4\n" + text, 1);
  expect_part(refusal(*recomputable, text, 1, quarter), needs("micro-batches of 4 samples", quarter, quarter));
}

void offload_is_named_where_nothing_else_fits(void**) {
  const auto model = made::chain(std::vector<int64_t>(8, 4 << 20), 4, GSEL_LAYER_RECOMPUTABLE);
  const std::string text = "batch = 2\n";
  const auto with = [&](const char* offload) {
    return need(
        *model,
        fmt::format("[train]\n{}[strategy.data]\nplugin = \"zero\"\nstage = 3\noffload = \"{}\"\n", text, offload), 2);
  };
  for (const char* offload : {"state", "all"}) {
    const std::string message = refusal(*model, text, 2, with(offload));
    expect_part(message, fmt::format("stage = 3, offload = \"{}\"", offload));
    expect_part(message, "in offload memory needs");
  }
}

void where_nothing_fits_the_least_is_told(void**) {
  const auto model = made::chain({1000, 7});
  const std::string message = refusal(*model, "batch = 4\n", 2, 100);
  expect_part(message, "\nnothing that was tried would fit; the least: ");
  expect_part(message, "of 100 bytes");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(sizes_are_told_in_the_unit_that_suits),
      cmocka_unit_test(the_table_is_aligned_and_leaves_offload_memory_out_of_its_total),
      cmocka_unit_test(what_needs_exactly_the_budget_fits),
      cmocka_unit_test(a_rank_of_a_pipeline_is_named_with_its_stages),
      cmocka_unit_test(the_first_stage_that_fits_is_named_with_the_lines_to_write),
      cmocka_unit_test(recomputing_then_smaller_microbatches_are_named_where_values_are_large),
      cmocka_unit_test(offload_is_named_where_nothing_else_fits),
      cmocka_unit_test(where_nothing_fits_the_least_is_told),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
