// What a plan says of its numbers: times in the unit that suits, why programs were not compiled, refusals of one line,
// one device, own measurements of some kinds of devices; and files beside each other.
#include <algorithm>

#include "base/error.h"
#include "plan/config_layout.h"
#include "plan/describe.h"
#include "plan/plan.h"
#include "support/check.h"
#include "support/share.h"

namespace {

using namespace gsel;
using namespace gsel::plan;

constexpr const char* kLlama = R"({"model_type":"llama","hidden_size":2048,"intermediate_size":8192,
    "num_hidden_layers":16,"num_attention_heads":32,"num_key_value_heads":8,"head_dim":64,"vocab_size":128256,
    "max_position_embeddings":131072,"tie_word_embeddings":true})";

Request request(const char* cluster, int64_t batch, const char* fixed = "", bool described = true) {
  const Transformer shape = read_transformer(kLlama, "llama.json");
  Request r{
      workload_of(shape, 1024), cluster_of(cluster, {}), *find_recipe("gsel-bf16"), batch, parse_fixed(fixed), {}};
  r.constants = constants_for(r.cluster.kinds.front().device_class, Runtime::compiled);
  if (described) r.model = describe(shape, {1024, GSEL_BF16});
  return r;
}

void expect_in(const std::string& text, const char* part) {
  if (text.find(part) == std::string::npos) fail_msg("no \"%s\" in:\n%s", part, text.c_str());
}

void times_have_the_unit_that_suits(void**) {
  const struct {
    double seconds;
    int32_t digits;
    const char* text;
  } rows[] = {{0.0123456, 4, "12.35 ms"}, {0.9996, 4, "999.6 ms"}, {0.99996, 4, "1 s"},   {0.9996, 3, "1 s"},
              {2.79, 3, "2.79 s"},        {-0.5, 4, "-500 ms"},    {12345, 4, "12345 s"}, {1999, 3, "1999 s"}};
  for (const auto& row : rows) assert_string_equal(duration_text(row.seconds, row.digits).c_str(), row.text);
}

void one_device_has_its_own_words(void**) {
  const std::string text = Plan(request("1xH100", 8), {}).text();
  expect_in(text, "none: one device has no other to talk to\n");
  expect_in(text, "one device, 1 micro-batch of 8 samples: the model fits it, and nothing travels\n");
  expect_in(text, "sends nothing in a step");
  assert_null(strstr(text.c_str(), "only gradients travel"));
}

void every_axis_has_its_reason(void**) {
  const char* const fixed[][2] = {
      {"pipeline=2, data=1, tensor=1", ": stages of the layers, which send no more than the values at their ends\n"},
      {"context=2, data=1, pipeline=1",
       ": ranks divide the positions of a sample, and attention shifts keys and values"},
      {"tensor=2, data=1, pipeline=1, context=1", ": the tensor axis inside a node, where its collectives are cheap\n"},
      {"data=2, tensor=1, pipeline=1, zero=0", ": replicas of a model that fits one device; only gradients travel\n"}};
  for (const auto& [what, reason] : fixed) expect_in(Plan(request("2xH100", 8, what), {}).text(), reason);
  expect_in(Plan(request("4xT4", 16, "pipeline=4"), {}).text(), ": the model does not fit one device; stages of it do");
}

void the_reason_why_programs_are_not_compiled_is_told(void**) {
  const Plan costs(request("8xH100", 64, "", false), {});
  expect_in(costs.text(), "\nIts programs were not compiled: 16 layers are too many.\n");
  Request listed = request("8xH100", 64, "", false);
  listed.workload.heads = 0;
  expect_in(Plan(listed, {}).text(), "\nIts programs were not compiled: the model is known by its costs alone.\n");
  const Plan large(request("8xH100", 262144, "pipeline=8, microbatch=1, tensor=1"), {});
  expect_in(large.text(), "instructions are too many; up to 600000 are compiled.\n");
  assert_true(!large.candidates().front().programs);
}

// What a run refuses has a table of its memory, whose first line says it.
void a_refusal_is_one_line(void**) {
  Request r = request("8xV100-PCIe", 64, "pipeline=2");
  Candidate c = Plan(r, {}).candidates().front();
  assert_true(c.programs.has_value());
  r.cluster.kinds.front().memory_bytes = static_cast<double>(c.programs->memory_bytes) - 1e6;
  c.programs.reset();
  try {
    Plan(r, {}).verify(c);
    fail_msg("programs that do not fit were accepted");
  } catch (const Error& error) {
    const std::string refusal = error.message();
    expect_in(refusal, " GiB of ");
    if (std::ranges::count(refusal, '\n') != 0) fail_msg("%s", refusal.c_str());
  }
}

// Closed forms are near the programs, not above them: what is not marked is accepted by a run.
void what_is_not_marked_runs(void**) {
  const Transformer shape = read_transformer(
      R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,"num_hidden_layers":32,
          "num_attention_heads":32,"vocab_size":32000,"max_position_embeddings":4096})",
      "llama.json");
  const char* const clusters[] = {"1xA40+2xRTX3090", "4xRTX3090"};
  size_t sure = 0, unsure = 0;
  int64_t dropped = 0;
  for (const char* cluster : clusters) {
    if (SANITIZED && cluster != clusters[0]) continue;
    Request r{workload_of(shape, 2048), cluster_of(cluster, {}), *find_recipe("gsel-bf16"), 48, {}, {}};
    r.constants = constants_for(r.cluster.kinds.front().device_class, Runtime::compiled);
    r.model = describe(shape, {2048, GSEL_BF16});
    const Plan plan(std::move(r), {});
    for (const Candidate& c : plan.candidates()) {
      ++(c.may_exceed ? unsure : sure);
      if (c.may_exceed || c.programs) continue;
      try {
        plan.verify(c);
      } catch (const Error& error) {
        fail_msg("%s: %s: %s", cluster, name_of(c.layout).c_str(), error.what());
      }
    }
    dropped += plan.result().dropped.programs;
  }
  if (sure <= unsure || dropped == 0)
    fail_msg("%zu candidates are sure, %zu are not, %d were dropped", sure, unsure, static_cast<int>(dropped));
}

void kinds_without_own_measurements_are_named(void**) {
  const char* rows =
      "model\tlayers\thidden\tffn\theads\tseq\tvocab\tgbs\tmbs\tgpus\tgpu\tdp\ttp\tpp\tmetric\tvalue\n"
      "GPT\t24\t2048\t8192\t16\t2048\t51200\t8\t1\t8\tA100-SXM\t8\t1\t1\titeration_s\t1\n";
  Request mixed = request("2xA100+1xRTX4090", 8);
  calibrate(mixed, rows, "own.tsv");
  expect_in(confidence(mixed), "; RTX-4090 takes the scalar of A100-SXM-80GB, without a measurement of its own");
  Request alike = request("2xA100", 8);
  calibrate(alike, rows, "own.tsv");
  assert_null(strstr(confidence(alike).c_str(), "takes the scalar"));
}

Compared compared(const Request& r, const char* name, const char* toml) {
  const Config config = parse_config(toml, name);
  bool others = false;
  const Layout layout = layout_of(config, r.workload, r.cluster.size(), &others);
  Request own = r;
  own.batch = config.train.batch;
  const SearchInput input{own.workload, own.cluster, own.recipe, own.constants, own.batch, {}, 1, {}};
  return {name, evaluate(input, layout), own};
}

void files_of_unlike_batches_are_told(void**) {
  const Request r = request("8xH100", 64);
  const std::vector<Compared> unlike{compared(r, "a.toml", "[train]\nbatch = 64\n"),
                                     compared(r, "b.toml", "[train]\nbatch = 128\n")};
  assert_string_equal(unlike_batches(unlike).c_str(),
                      "batches differ, and a step is of unlike work: a.toml has 64, b.toml has 128; tokens/s can be "
                      "compared");
  expect_in(compared_text(unlike[0].request, unlike), " 64  128\n");
  const std::vector<Compared> alike{unlike[0], unlike[0]};
  assert_string_equal(unlike_batches(alike).c_str(), "");
}

void micro_batches_are_those_of_the_file(void**) {
  const Request r = request("8xH100", 64);
  const struct {
    const char *train, *name;
    bool uneven;
  } rows[] = {{"microbatch = 3", "data 8, 3 micro-batches of 3 samples", true},
              {"microbatch = 4", "data 8, 2 micro-batches of 4 samples", false},
              {"microbatch = 100", "data 8, 1 micro-batch of 8 samples", false},
              {"microbatches = 3", "data 8, 3 micro-batches of 3 samples", true},
              {"microbatches = 8", "data 8, 8 micro-batches of 1 sample", false}};
  for (const auto& row : rows) {
    const Config config = parse_config(fmt::format("[train]\nbatch = 64\n{}\n", row.train), "f.toml");
    bool others = false;
    const Layout layout = layout_of(config, r.workload, 8, &others);
    assert_string_equal(name_of(layout).c_str(), row.name);
    assert_true(uneven_note(config, layout).empty() != row.uneven);
  }
}

void a_file_without_a_layout_is_refused(void**) {
  const Request r = request("8xH100", 64);
  try {
    compared(r, "auto.toml", "[strategy]\nplan = \"auto\"\n[train]\nbatch = 64\n");
    fail_msg("plan = \"auto\" was compared");
  } catch (const Error& error) {
    expect_in(error.what(), "auto.toml:2: strategy.plan = \"auto\" chooses a layout when training starts; ");
    assert_int_equal(error.code(), GSEL_ERR_CONFIG);
  }
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(times_have_the_unit_that_suits),
      cmocka_unit_test(one_device_has_its_own_words),
      cmocka_unit_test(every_axis_has_its_reason),
      cmocka_unit_test(the_reason_why_programs_are_not_compiled_is_told),
      cmocka_unit_test(a_refusal_is_one_line),
      cmocka_unit_test(what_is_not_marked_runs),
      cmocka_unit_test(kinds_without_own_measurements_are_named),
      cmocka_unit_test(files_of_unlike_batches_are_told),
      cmocka_unit_test(micro_batches_are_those_of_the_file),
      cmocka_unit_test(a_file_without_a_layout_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
