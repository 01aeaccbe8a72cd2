// The program that strategies start from: how a rank's samples are cut, what a step ends with, buckets.
#include "program/stages.h"
#include "program/text/text.h"
#include "program/words/words.h"
#include "support/check.h"
#include "support/made_model.h"
#include "train/compile/base_program.h"

namespace {

using namespace gsel;

Mesh mesh_of(int32_t data, int32_t pipeline) {
  Mesh mesh;
  mesh.size[GSEL_AXIS_DATA] = data;
  mesh.size[GSEL_AXIS_PIPELINE] = pipeline;
  return mesh;
}

Program base(const std::string& train, int32_t data, int32_t pipeline = 1, int32_t rank = 0) {
  const auto model = made::chain({4, 6});
  return base_program(*model, made::config("[train]\n" + train), mesh_of(data, pipeline), rank);
}

void check_samples(const Program& p, const std::vector<Microbatch>& expected) {
  if (p.microbatches != expected) {
    std::string got;
    for (const Microbatch& m : p.microbatches) got += fmt::format(" {}+{}", m.first, m.count);
    fail_msg("rank %d: got%s", int(p.rank), got.c_str());
  }
}

void micro_batches_are_cut_by_number_or_by_size(void**) {
  check_samples(base("batch = 10\nmicrobatches = 4\n", 1), {{0, 3}, {3, 3}, {6, 2}, {8, 2}});
  check_samples(base("batch = 11\nmicrobatches = 4\n", 2, 1, 1), {{6, 2}, {8, 1}, {9, 1}, {10, 1}});
  check_samples(base("batch = 3\nmicrobatches = 2\n", 2, 1, 1), {{2, 1}, {3, 0}});
  check_samples(base("batch = 11\nmicrobatch = 4\n", 2, 1, 1), {{6, 4}, {10, 1}});
  check_samples(base("batch = 3\nmicrobatch = 1\n", 2, 2, 3), {{2, 1}, {3, 0}});
  check_samples(base("batch = 12\n", 2, 2, 2), {{0, 6}});
}

// Samples go by the weights of the data axis; all ranks have as many micro-batches as the largest shard asks for.
void shares_of_samples_are_in_proportion_to_the_weights(void**) {
  auto with = [](const std::string& train, const std::string& weights) {
    return train + "[strategy.data]\nplugin = \"ddp\"\nweights = " + weights + "\n";
  };
  check_samples(base(with("batch = 9\n", "[2, 1]"), 2, 1, 0), {{0, 6}});
  check_samples(base(with("batch = 9\n", "[2, 1]"), 2, 1, 1), {{6, 3}});
  check_samples(base(with("batch = 8\nmicrobatch = 2\n", "[1, 3]"), 2, 1, 0), {{0, 2}, {2, 0}, {2, 0}});
  check_samples(base(with("batch = 8\nmicrobatch = 2\n", "[1, 3]"), 2, 1, 1), {{2, 2}, {4, 2}, {6, 2}});
  check_samples(base(with("batch = 4\n", "[100, 1]"), 2, 1, 1), {{4, 0}});
  check_samples(base(with("batch = 9\nmicrobatches = 3\n", "[2, 1]"), 2, 2, 2), {{0, 2}, {2, 2}, {4, 2}});
  check_samples(base(with("batch = 9\nmicrobatches = 3\n", "[2, 1]"), 2, 2, 1), {{6, 1}, {7, 1}, {8, 1}});
  try {
    base(with("batch = 8\nmicrobatches = 2\n", "[2, 1]"), 2, 2);
    fail_msg("micro-batches of two sizes were accepted");
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_CONFIG);
    assert_string_equal(
        e.what(),
        "test.toml:6: strategy.data.weights = [2, 1] give coordinate 0 of the data axis 5 of train.batch = 8 "
        "samples, which are not 2 equal micro-batches (train.microbatches), as a pipeline needs them");
  }
}

void check_refused(const std::string& train, int32_t data, const char* message) {
  try {
    base(train, data, 2);
    fail_msg("\"%s\" was accepted", train.c_str());
  } catch (const Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_CONFIG);
    assert_string_equal(e.what(), message);
    assert_string_equal(e.place().token.c_str(), "train.microbatches");
  }
}

void more_micro_batches_than_samples_are_refused(void**) {
  check_samples(base("batch = 4\nmicrobatches = 4\n", 2, 1, 1), {{2, 1}, {3, 1}, {4, 0}, {4, 0}});
  check_refused("batch = 4\nmicrobatches = 16\n", 1,
                "test.toml:3: train.microbatches = 16 are more than the 4 samples of train.batch, on any number of "
                "ranks; use 4 or fewer");
}

void a_pipeline_wants_micro_batches_of_one_size(void**) {
  check_samples(base("batch = 12\nmicrobatches = 3\n", 2, 2, 1), {{6, 2}, {8, 2}, {10, 2}});
  check_refused("batch = 10\nmicrobatches = 4\n", 1,
                "test.toml:3: train.batch = 10 samples are not 4 equal micro-batches, train.microbatches = 4 for each "
                "of 1 rank of the data axis, as a pipeline needs them; set train.batch = 8 or 12");
  check_refused("batch = 5\nmicrobatches = 4\n", 2,
                "test.toml:3: train.batch = 5 samples are not 8 equal micro-batches, train.microbatches = 4 for each "
                "of 2 ranks of the data axis, as a pipeline needs them; set train.batch = 8");
  check_refused("batch = 8\nmicrobatches = 65537\n", 1,
                "test.toml:3: train.microbatches = 65537 is more than 65536; use fewer");
}

std::string end_of(const Program& p) {
  std::string text;
  for (const gsel_instr& instr : p.step)
    if (instr.microbatch < 0) text += to_text(p, instr) + "\n";
  return text;
}

void a_step_ends_over_each_axis_once(void**) {
  const std::string train = "precision = \"fp16\"\nclip_norm = 1\n";
  assert_string_equal(end_of(base(train, 2)).c_str(),
                      "loss_allreduce axis=data\noverflow axis=data\nnorm\nstep bucket=0\n");
  assert_string_equal(
      end_of(base(train, 1, 2)).c_str(),
      "loss_allreduce axis=pipeline\nloss_allreduce axis=data\noverflow axis=pipeline\noverflow axis=data\n"
      "norm\nstep bucket=0\n");
}

// A table of first and last stage, frozen and 16-bit parameters between them.
void buckets_are_anew_those_of_what_is_here(void**) {
  made::Maker make;
  const int32_t table = make.param(8), frozen = make.param(2, GSEL_PARAM_FROZEN), half = make.param(4, 0, GSEL_BF16),
                own = make.param(3);
  const int32_t in = make.value(4, GSEL_VALUE_INPUT), x = make.value(4), y = make.value(4), z = make.value(4);
  auto layer = [&](int32_t from, int32_t to, const std::vector<int32_t>& params) {
    made::LayerSpec spec;
    spec.inputs = {from};
    spec.outputs = {to};
    spec.params = params;
    make.layer(spec);
  };
  layer(in, x, {table, half});
  layer(x, y, {own, frozen});
  layer(y, z, {table});
  const auto model = make.finish({z});
  auto buckets_of = [&](int32_t rank) {
    Program p = base_program(*model, made::config(""), mesh_of(1, 3), rank);
    assert_int_equal(p.buckets.size(), 2);  // one for each dtype, of all there are
    p.rank_of_stage = {0, 1, 2};
    for (int32_t l = 0; l < 4; ++l) p.layers[l].stage = std::min(l, 2);
    make_buckets(p);
    std::vector<std::vector<int32_t>> params;
    for (const ProgramBucket& b : p.buckets) params.push_back(b.params);
    size_t steps = 0;
    for (const gsel_instr& instr : p.step) steps += instr.kind == GSEL_INSTR_STEP;
    assert_int_equal(steps, p.buckets.size());
    return params;
  };
  using Buckets = std::vector<std::vector<int32_t>>;
  assert_true(buckets_of(0) == (Buckets{{table}, {half}}));
  assert_true(buckets_of(1) == (Buckets{{own}}));
  assert_true(buckets_of(2) == (Buckets{{table}}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(micro_batches_are_cut_by_number_or_by_size),
      cmocka_unit_test(shares_of_samples_are_in_proportion_to_the_weights),
      cmocka_unit_test(more_micro_batches_than_samples_are_refused),
      cmocka_unit_test(a_pipeline_wants_micro_batches_of_one_size),
      cmocka_unit_test(a_step_ends_over_each_axis_once),
      cmocka_unit_test(buckets_are_anew_those_of_what_is_here),
  };
  return cmocka_run_group_tests_name("base program", tests, nullptr, nullptr);
}
