// test_optimizer.cc: how the library's own rules are applied to what a rank owns: which rates each parameter gets, that
// no division into shards matters, and the learning rate over time.
#include <cmath>

#include "device/host/kernels.h"
#include "device/host/table.h"
#include "support/bucket_shard.h"

namespace {

using gsel::Config;
using gsel::Optimizer;
using gsel::StepScale;
using namespace gsel_test;

struct Kind {
  const char* name;
  int32_t kind;
};
constexpr Kind kElementwise[] = {{"adamw", GSEL_OPTIMIZER_ADAMW},
                                 {"adam", GSEL_OPTIMIZER_ADAM},
                                 {"lion", GSEL_OPTIMIZER_LION},
                                 {"sgd", GSEL_OPTIMIZER_SGD},
                                 {"sign_sgd", GSEL_OPTIMIZER_SIGN_SGD}};

Config config_of(const std::string& optimizer, double momentum = 0) {
  Config config;
  config.train.optimizer = optimizer;
  config.train.learning_rate = 0.01;
  config.train.weight_decay = 0.1;
  config.train.momentum = momentum;
  return config;
}

// Sizes that end neither with a vector nor with a block of 8-bit state.
std::vector<ParamOf> params() {
  return {{"w", {37, 11}},
          {"b", {11}, GSEL_PARAM_NO_DECAY},
          {"e", {300}, GSEL_PARAM_NO_CLIP},
          {"f", {5, 3}, GSEL_PARAM_NO_CLIP | GSEL_PARAM_NO_DECAY},
          {"g", {129}, 0, 0.5},
          {"h", {64}}};
}

// Table of the host that counts optimizer steps.
int n_steps = 0;
gsel_status counted_step(void* ctx, const gsel_optimizer_step* step, gsel_stream* stream, gsel_error** err) {
  ++n_steps;
  return gsel::host_device_table().optimizer_step(ctx, step, stream, err);
}
std::shared_ptr<gsel::DeviceContext> counting_device() {
  static const gsel_device_v1 table = [] {
    gsel_device_v1 t = gsel::host_device_table();
    t.optimizer_step = counted_step;
    return t;
  }();
  n_steps = 0;
  return std::make_shared<gsel::DeviceContext>(table, 0);
}

// The same by hand: each parameter alone, with the rates its description asks for.
void step_by_hand(const Bucket& bucket, int32_t kind, double momentum, const StepScale& scale, Owner& all) {
  int64_t first = 0;
  for (const int32_t p : bucket.params) {
    const gsel::Param& param = bucket.model.params()[p];
    gsel_optimizer_step s{};
    s.struct_size = sizeof s;
    s.kind = kind;
    s.param = all.values.data() + first, s.gradient = all.gradient.data() + first;
    s.state0 = !all.states.empty() ? all.states[0].data() + first : nullptr;
    s.state1 = all.states.size() > 1 ? all.states[1].data() + first : nullptr;
    s.count = static_cast<uint64_t>(param.n_elems);
    s.t = scale.step + 1;
    s.gradient_scale = param.flags & GSEL_PARAM_NO_CLIP ? scale.gradient : scale.gradient * scale.clip;
    s.learning_rate = 0.01 * param.lr_factor;
    s.weight_decay = param.flags & GSEL_PARAM_NO_DECAY ? 0 : 0.1;
    s.momentum = momentum, s.beta1 = 0.9, s.beta2 = 0.999, s.epsilon = 1e-8;
    gsel::host::elementwise_step(gsel::host::best_isa(), s);
    first += param.n_elems;
  }
}

void each_parameter_gets_the_rates_its_description_asks_for(void**) {
  const Bucket bucket(params());
  const auto device = gsel::DeviceContext::open_host();
  for (const Kind& kind : kElementwise)
    for (const double momentum : {0.0, 0.5}) {
      const Optimizer optimizer(config_of(kind.name, momentum), bucket.model, nullptr);
      Owner got(bucket, optimizer, 0, bucket.count(), GSEL_BF16), expected(bucket, optimizer, 0, bucket.count());
      for (int64_t step = 0; step < 3; ++step) {
        const StepScale scale{step, 0.125, 0.75};
        optimizer.step(*device, got.shard, scale, bucket.params, no_sum);
        step_by_hand(bucket, kind.kind, momentum, scale, expected);
      }
      if (!same(got.values, expected.values)) fail_msg("%s with momentum %g differs", kind.name, momentum);
      for (size_t i = 0; i < got.values.size(); ++i)
        assert_int_equal(got.rounded[i], gsel::BF16::narrow(got.values[i]).bits);
      got.check_rest();
    }
}

void any_division_into_shards_gives_the_same_bits(void**) {
  Bucket bucket(params());
  const auto device = gsel::DeviceContext::open_host();
  for (const Kind& kind : kElementwise) {
    const Optimizer optimizer(config_of(kind.name, 0.5), bucket.model, nullptr);
    std::vector<float> whole;
    for (const int n : {1, 2, 3, 5, 8, 100}) {
      const auto all = owners(bucket, optimizer, n);
      for (int64_t step = 0; step < 3; ++step)
        for (const auto& owner : all) optimizer.step(*device, owner->shard, {step, 0.5, 0.25}, bucket.params, no_sum);
      if (n == 1) whole = values_of(bucket, all);
      if (!same(values_of(bucket, all), whole)) fail_msg("%s in %d shards differs", kind.name, n);
      for (const auto& owner : all) owner->check_rest();
    }
  }
}

// Blocks of 8-bit state begin with a piece. So where shards end between parameters nothing changes; where one is cut,
// its moments are rounded in other blocks, and no others are.
void eight_bit_state_depends_on_where_a_parameter_is_cut_alone(void**) {
  const Bucket bucket(params());
  const auto device = gsel::DeviceContext::open_host();
  const Optimizer optimizer(config_of("adamw_8bit"), bucket.model, nullptr);
  const auto stepped = [&](std::vector<int64_t> cuts) {
    std::vector<float> values;
    cuts.push_back(bucket.count());
    int64_t from = 0;
    for (const int64_t to : cuts) {
      Owner owner(bucket, optimizer, from, to);
      for (int64_t step = 0; step < 5; ++step)
        optimizer.step(*device, owner.shard, {step, 0.5, 0.25}, bucket.params, no_sum);
      owner.check_rest();
      values.insert(values.end(), owner.values.begin(), owner.values.end());
      from = to;
    }
    return values;
  };
  const std::vector<float> whole = stepped({});
  assert_true(same(stepped({407}), whole));            // behind w
  assert_true(same(stepped({407, 418, 718}), whole));  // behind w, b and e
  const std::vector<float> cut = stepped({300});       // in w
  assert_false(same(cut, whole));
  assert_true(same({cut.begin() + 407, cut.end()}, {whole.begin() + 407, whole.end()}));
}

void touching_runs_that_are_treated_alike_are_one_call(void**) {
  const Bucket bucket({{"a", {8}},
                       {"b", {8}},
                       {"c", {8}, GSEL_PARAM_NO_DECAY},
                       {"d", {8}, GSEL_PARAM_NO_DECAY},
                       {"e", {8}, GSEL_PARAM_NO_DECAY, 0.5},
                       {"f", {8}}});
  const auto device = counting_device();
  const Optimizer sgd(config_of("sgd"), bucket.model, nullptr);
  Owner all(bucket, sgd, 0, bucket.count());
  sgd.step(*device, all.shard, {}, bucket.params, no_sum);
  assert_int_equal(n_steps, 4);
  all.runs[1].first = 12, all.runs[1].count = 4;  // no longer beside the first
  sgd.step(*device, all.shard, {}, bucket.params, no_sum);
  assert_int_equal(n_steps, 4 + 5);
  const Optimizer bytes(config_of("adamw_8bit"), bucket.model, nullptr);
  Owner blocks(bucket, bytes, 0, bucket.count());
  bytes.step(*device, blocks.shard, {}, bucket.params, no_sum);
  assert_int_equal(n_steps, 4 + 5 + 6);
  Owner nothing(bucket, sgd, 48, 56);
  sgd.step(*device, nothing.shard, {}, bucket.params, no_sum);
  assert_int_equal(n_steps, 4 + 5 + 6);
}

void states_take_the_bytes_their_rule_needs(void**) {
  const Bucket bucket({{"w", {1}}});
  const auto bytes = [&](const char* name, double momentum, int64_t count, int64_t n_runs) {
    const Optimizer optimizer(config_of(name, momentum), bucket.model, nullptr);
    uint64_t sum = 0;
    for (int i = 0; i < gsel::kMostStates; ++i) sum += optimizer.state_bytes(i, count, n_runs);
    return sum;
  };
  assert_int_equal(bytes("adamw", 0, 1000, 3), 8000);
  assert_int_equal(bytes("adam", 0, 1000, 3), 8000);
  assert_int_equal(bytes("lion", 0, 1000, 3), 4000);
  assert_int_equal(bytes("sgd", 0.5, 1000, 3), 4000);
  assert_int_equal(bytes("sgd", 0, 1000, 3), 0);
  assert_int_equal(bytes("sign_sgd", 0.5, 1000, 3), 0);
  assert_int_equal(bytes("adamw_8bit", 0, 1001, 3), 2 * (1004 + 4 * (3 + 3 + 1)));
  assert_int_equal(bytes("adamw_8bit", 0, 0, 0), 0);
}

double rate(const char* schedule, int64_t step) {
  Config config;
  config.train.learning_rate = 1;
  config.train.schedule = schedule;
  config.train.warmup_steps = 4;
  config.train.total_steps = 12;
  config.train.final_learning_rate = 0.25;
  const gsel::Model model;
  return Optimizer(config, model, nullptr).learning_rate(step);
}

void the_learning_rate_follows_its_schedule(void**) {
  for (const char* schedule : {"constant", "linear", "cosine"}) {
    assert_true(rate(schedule, 0) == 0.25);
    assert_true(rate(schedule, 2) == 0.75);
    assert_true(rate(schedule, 3) == 1);
    assert_true(rate(schedule, 4) == 1);
  }
  assert_true(rate("constant", 1000000) == 1);
  assert_true(std::fabs(rate("linear", 6) - (0.25 + 0.75 * 0.75)) < 1e-12);
  assert_true(std::fabs(rate("linear", 8) - 0.625) < 1e-12);
  assert_true(std::fabs(rate("linear", 11) - (0.25 + 0.75 / 8)) < 1e-12);
  assert_true(std::fabs(rate("cosine", 6) - (0.25 + 0.75 * (1 + std::sqrt(0.5)) / 2)) < 1e-12);
  assert_true(std::fabs(rate("cosine", 8) - 0.625) < 1e-12);
  for (const char* schedule : {"linear", "cosine"})
    for (const int64_t step : {12, 13, 1000000}) assert_true(rate(schedule, step) == 0.25);
}

void without_warm_up_the_first_step_has_the_whole_rate(void**) {
  Config config;
  const gsel::Model model;
  assert_true(Optimizer(config, model, nullptr).learning_rate(0) == 1e-3);
  config.train.schedule = "linear";
  config.train.total_steps = 1;
  assert_true(Optimizer(config, model, nullptr).learning_rate(0) == 1e-3);
  assert_true(Optimizer(config, model, nullptr).learning_rate(1) == 0);
}

void a_falling_schedule_without_an_end_is_refused_with_its_place(void**) {
  const gsel::Model model;
  const auto refused = [&](const char* text) {
    return failure(GSEL_ERR_CONFIG, [&] { Optimizer(gsel::parse_config(text, "f"), model, nullptr); });
  };
  assert_string_equal(refused("[train]\nbatch = 1\nschedule = \"cosine\"\n").c_str(),
                      "f:3: train.schedule = \"cosine\" ends at train.total_steps, which is 0; expected more than "
                      "train.warmup_steps = 0");
  assert_string_equal(refused("[train]\nwarmup_steps = 10\ntotal_steps = 10\nschedule = \"linear\"\n").c_str(),
                      "f:3: train.schedule = \"linear\" ends at train.total_steps, which is 10; expected more than "
                      "train.warmup_steps = 10");
  Optimizer(gsel::parse_config("[train]\nwarmup_steps = 10\n", "f"), model, nullptr);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(each_parameter_gets_the_rates_its_description_asks_for),
      cmocka_unit_test(any_division_into_shards_gives_the_same_bits),
      cmocka_unit_test(eight_bit_state_depends_on_where_a_parameter_is_cut_alone),
      cmocka_unit_test(touching_runs_that_are_treated_alike_are_one_call),
      cmocka_unit_test(states_take_the_bytes_their_rule_needs),
      cmocka_unit_test(the_learning_rate_follows_its_schedule),
      cmocka_unit_test(without_warm_up_the_first_step_has_the_whole_rate),
      cmocka_unit_test(a_falling_schedule_without_an_end_is_refused_with_its_place),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
