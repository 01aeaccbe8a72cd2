// test_optimizer_user.cc: optimizers of the embedder's: what they are told, and what becomes of their mistakes.
#include <stdexcept>

#include "support/user_optimizer.h"

namespace {

using gsel::Config;
using gsel::Optimizer;
using namespace gsel_test;

// The library's own SGD, written by an embedder.
gsel_status sgd(const gsel_optimizer_call* call, void*) {
  const auto rate = static_cast<float>(call->learning_rate), decay = static_cast<float>(call->weight_decay);
  for (int64_t i = 0; i < call->count; ++i) call->values[i] -= rate * (call->gradient[i] + decay * call->values[i]);
  return GSEL_OK;
}

void a_rule_of_elements_gives_what_the_same_rule_of_the_library_gives(void**) {
  const Bucket bucket(params());
  const auto device = gsel::DeviceContext::open_host();
  const gsel_optimizer_options options = described(GSEL_NEEDS_ELEMENTS, 0, sgd);
  const Optimizer ours(config(), bucket.model, nullptr), theirs(config(), bucket.model, &options);
  for (const gsel_dtype dtype : {GSEL_F32, GSEL_BF16, GSEL_F16})
    for (const int n : {1, 2, 3, 7}) {
      const auto a = owners(bucket, ours, n, dtype), b = owners(bucket, theirs, n, dtype);
      for (int64_t step = 0; step < 3; ++step)
        for (size_t i = 0; i < a.size(); ++i) {
          b[i]->take_gradient(bucket);  // theirs was poisoned
          ours.step(*device, a[i]->shard, {step, 0.5, 0.25}, bucket.params, no_sum);
          theirs.step(*device, b[i]->shard, {step, 0.5, 0.25}, bucket.params, no_sum);
        }
      assert_true(same(values_of(bucket, a), values_of(bucket, b)));
      for (size_t i = 0; i < a.size(); ++i) {
        assert_true(a[i]->rounded == b[i]->rounded);
        b[i]->check_rest();
      }
    }
}

// What a call said, and its first gradient and state.
struct Heard {
  std::string name;
  gsel_optimizer_call call;
  float gradient, state;
};
struct Listener {
  const Bucket* bucket;
  std::vector<Heard> heard;
};

gsel_status listen(const gsel_optimizer_call* call, void* user_data) {
  auto& listener = *static_cast<Listener*>(user_data);
  const std::string& name = listener.bucket->model.params()[call->param].name;
  listener.heard.push_back({name, *call, call->gradient[0], call->states[1][0]});
  for (int64_t i = 0; i < call->count; ++i) call->states[1][i] += 1;
  return GSEL_OK;
}

void a_call_says_what_it_is_about(void**) {
  const Bucket bucket(params());
  Listener listener{&bucket, {}};
  const gsel_optimizer_options options = described(GSEL_NEEDS_ELEMENTS, 2, listen, &listener);
  const Optimizer optimizer(config(), bucket.model, &options);
  assert_int_equal(optimizer.n_states(), 2);
  assert_false(optimizer.needs_whole_params() || optimizer.needs_param_norms());
  Owner part(bucket, optimizer, 20, 40);  // the end of w, b, the beginning of e
  const std::vector<float> gradient = part.gradient;
  for (int64_t step = 0; step < 2; ++step) {
    part.take_gradient(bucket);
    optimizer.step(*gsel::DeviceContext::open_host(), part.shard, {step, 0.5, 0.25}, bucket.params, no_sum);
  }
  assert_int_equal(listener.heard.size(), 6);
  const struct {
    const char* name;
    int64_t first, count, at;
    double rate, decay;
    float scale;
    int32_t n_dims;
  } expected[] = {
      {"w", 20, 4, 0, 0.5, 0.25, 0.125f, 2}, {"b", 0, 4, 4, 0.5, 0, 0.125f, 1}, {"e", 0, 12, 8, 0.25, 0.25, 0.5f, 2}};
  for (size_t i = 0; i < 6; ++i) {
    const auto& e = expected[i % 3];
    const Heard& h = listener.heard[i];
    assert_string_equal(h.name.c_str(), e.name);
    assert_true(h.call.first == e.first && h.call.count == e.count && h.call.n_dims == e.n_dims);
    assert_true(h.call.t == static_cast<int64_t>(i / 3) + 1 && h.call.phase == 0 && h.call.n_states == 2);
    assert_true(h.call.learning_rate == e.rate && h.call.weight_decay == e.decay);
    assert_true(h.gradient == gradient[e.at] * e.scale);
    assert_true(h.state == static_cast<float>(i / 3));
    assert_int_equal(h.call.flags, bucket.model.params()[h.call.param].flags);
    assert_true(h.call.dims[0] == bucket.model.params()[h.call.param].dims[0]);
  }
}

gsel_status fail_with_text(const gsel_optimizer_call* call, void*) {
  if (call->count < 10) return GSEL_OK;
  snprintf(call->message, call->message_capacity, "element %d\nis odd", 3);
  return GSEL_ERR_ARG;
}
gsel_status fail_without_text(const gsel_optimizer_call* call, void*) {
  return call->phase == 1 ? GSEL_ERR_STATE : GSEL_OK;
}
gsel_status throw_something(const gsel_optimizer_call*, void*) {
  throw std::runtime_error("no more memory");
}
gsel_status fill_the_text(const gsel_optimizer_call* call, void*) {
  memset(call->message, 'x', call->message_capacity);
  return GSEL_ERR_ARG;
}

void a_failing_call_names_its_parameter_and_says_why(void**) {
  const Bucket bucket(params());
  const auto said = [&](int32_t needs, gsel_optimizer_fn step) {
    const gsel_optimizer_options options = described(needs, 1, step);
    const Optimizer optimizer(config(), bucket.model, &options);
    Owner part(bucket, optimizer, 20, 40);
    return failure(GSEL_ERR_CALLBACK, [&] {
      optimizer.step(*gsel::DeviceContext::open_host(), part.shard, {0, 1, 1}, bucket.params, no_sum);
    });
  };
  assert_string_equal(said(GSEL_NEEDS_ELEMENTS, fail_with_text).c_str(),
                      "the optimizer failed on parameter \"e\", elements [0, 12), phase 0: element 3 is odd");
  assert_string_equal(said(GSEL_NEEDS_PARAM_NORM, fail_without_text).c_str(),
                      "the optimizer failed on parameter \"w\", elements [20, 24), phase 1: GSEL_ERR_STATE");
  assert_string_equal(
      said(GSEL_NEEDS_ELEMENTS, throw_something).c_str(),
      "the optimizer failed on parameter \"w\", elements [20, 24), phase 0: it threw an exception: no more memory");
  assert_true(said(GSEL_NEEDS_ELEMENTS, fill_the_text).ends_with("xxx"));
}

void a_description_that_cannot_be_is_refused(void**) {
  const gsel::Model model;
  const auto refused = [&](gsel_optimizer_options options) {
    return failure(GSEL_ERR_ARG, [&] { Optimizer(Config{}, model, &options); });
  };
  assert_string_equal(refused(described(0, 0, nullptr)).c_str(),
                      "gsel_optimizer_options.step is NULL; an optimizer is its function");
  assert_string_equal(refused(described(3, 0, sgd)).c_str(),
                      "gsel_optimizer_options.needs is 3; expected one of GSEL_NEEDS_*, 0 to 2");
  assert_string_equal(refused(described(-1, 0, sgd)).c_str(),
                      "gsel_optimizer_options.needs is -1; expected one of GSEL_NEEDS_*, 0 to 2");
  for (const int32_t n : {-1, 5})
    assert_string_equal(refused(described(0, n, sgd)).c_str(),
                        fmt::format("gsel_optimizer_options.n_states is {}; expected 0 to 4", n).c_str());
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_rule_of_elements_gives_what_the_same_rule_of_the_library_gives),
      cmocka_unit_test(a_call_says_what_it_is_about),
      cmocka_unit_test(a_failing_call_names_its_parameter_and_says_why),
      cmocka_unit_test(a_description_that_cannot_be_is_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
