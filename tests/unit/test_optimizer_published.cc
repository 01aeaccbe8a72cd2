// test_optimizer_published.cc: LAMB and Muon, written by an embedder as they are published: norms and whole parameters
// over several owners.
#include <barrier>
#include <cmath>
#include <thread>

#include "support/user_optimizer.h"

namespace {

using gsel::Optimizer;
using namespace gsel_test;

// Adam's direction with decay, times the trust ratio of the whole parameter: You et al., ICLR 2020, algorithm 2.
gsel_status lamb(const gsel_optimizer_call* call, void*) {
  const auto t = static_cast<double>(call->t);
  const double ratio = call->param_norm > 0 && call->update_norm > 0 ? call->param_norm / call->update_norm : 1;
  for (int64_t i = 0; i < call->count; ++i) {
    if (call->phase == 1) {
      call->values[i] -= static_cast<float>(call->learning_rate * ratio) * call->gradient[i];
      continue;
    }
    float &m = call->states[0][i], &v = call->states[1][i];
    m = 0.9f * m + 0.1f * call->gradient[i];
    v = 0.999f * v + 0.001f * call->gradient[i] * call->gradient[i];
    const double first = m / (1 - std::pow(0.9, t)), second = v / (1 - std::pow(0.999, t));
    call->gradient[i] = static_cast<float>(first / (std::sqrt(second) + 1e-6) + call->weight_decay * call->values[i]);
  }
  return GSEL_OK;
}

// Owners step at once, each on a thread, and add their numbers as ranks would.
struct Sum {
  explicit Sum(int n) : barrier(n), parts(static_cast<size_t>(n)) {}
  std::barrier<> barrier;
  std::vector<std::span<double>> parts;
  void add(size_t rank, std::span<double> numbers) {
    parts[rank] = numbers;
    barrier.arrive_and_wait();
    std::vector<double> sum(numbers.size());
    for (const auto& part : parts)
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += i < part.size() ? part[i] : NAN;
    barrier.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), numbers.begin());
  }
};

std::vector<float> train_in(const Bucket& bucket, const Optimizer& optimizer, int n) {
  const auto all = owners(bucket, optimizer, n);
  Sum sum(n);
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      const auto device = gsel::DeviceContext::open_host();
      for (int64_t step = 0; step < 3; ++step) {
        all[r]->take_gradient(bucket);
        optimizer.step(*device, all[r]->shard, {step, 0.5, 1}, bucket.params,
                       [&](std::span<double> numbers) { sum.add(static_cast<size_t>(r), numbers); });
      }
    });
  for (auto& thread : threads) thread.join();
  for (const auto& owner : all) owner->check_rest();
  return values_of(bucket, all);
}

// LAMB over the whole bucket, in double.
std::vector<double> lamb_by_hand(const Bucket& bucket) {
  std::vector<double> p(bucket.values.begin(), bucket.values.end()), m(p.size()), v(p.size()), u(p.size());
  for (int t = 1; t <= 3; ++t) {
    size_t first = 0;
    for (const int32_t id : bucket.params) {
      const gsel::Param& param = bucket.model.params()[id];
      const size_t end = first + static_cast<size_t>(param.n_elems);
      double p_sum = 0, u_sum = 0;
      for (size_t i = first; i < end; ++i) {
        const double g = 0.5 * bucket.gradient[i];
        m[i] = 0.9 * m[i] + 0.1 * g, v[i] = 0.999 * v[i] + 0.001 * g * g;
        u[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-6) +
               (param.flags & GSEL_PARAM_NO_DECAY ? 0 : 0.25) * p[i];
        p_sum += p[i] * p[i], u_sum += u[i] * u[i];
      }
      for (; first < end; ++first) p[first] -= 0.5 * param.lr_factor * std::sqrt(p_sum / u_sum) * u[first];
    }
  }
  return p;
}

void lamb_sees_norms_of_whole_parameters_however_they_are_divided(void**) {
  const Bucket bucket(params());
  const gsel_optimizer_options options = described(GSEL_NEEDS_PARAM_NORM, 2, lamb);
  const Optimizer optimizer(config(), bucket.model, &options);
  assert_true(optimizer.needs_param_norms());
  const std::vector<double> expected = lamb_by_hand(bucket);
  for (const int n : {1, 2, 3, 7, 60}) {  // the last ones own padding alone
    const std::vector<float> got = train_in(bucket, optimizer, n);
    for (size_t i = 0; i < got.size(); ++i)
      if (std::fabs(got[i] - expected[i]) > 1e-5)
        fail_msg("%d owners, element %zu: expected %g, got %g", n, i, expected[i], static_cast<double>(got[i]));
  }
}

// Momentum made orthogonal by five steps of a quintic Newton-Schulz iteration: Jordan et al., 2024. A vector is a
// matrix of one row.
using Matrix = std::vector<std::vector<double>>;

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}

Matrix transposed(const Matrix& a) {
  Matrix c(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) c[j][i] = a[i][j];
  return c;
}

Matrix orthogonal(Matrix x) {
  double norm = 0;
  for (const auto& row : x)
    for (const double e : row) norm += e * e;
  for (auto& row : x)
    for (double& e : row) e /= std::sqrt(norm) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    const Matrix a = times(x, transposed(x)), aa = times(a, a), ax = times(a, x), aax = times(aa, x);
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] - 4.775 * ax[i][j] + 2.0315 * aax[i][j];
  }
  return x;
}

gsel_status muon(const gsel_optimizer_call* call, void*) {
  int64_t all = 1;
  for (int32_t d = 0; d < call->n_dims; ++d) all *= call->dims[d];
  if (call->first != 0 || call->count != all) return GSEL_ERR_ARG;
  for (int64_t i = 0; i < call->count; ++i) call->states[0][i] = 0.95f * call->states[0][i] + call->gradient[i];
  const auto columns = static_cast<size_t>(call->n_dims == 2 ? call->dims[1] : call->count);
  Matrix m(static_cast<size_t>(all) / columns, std::vector<double>(columns));
  for (size_t i = 0; i < static_cast<size_t>(all); ++i) m[i / columns][i % columns] = call->states[0][i];
  m = orthogonal(m);
  for (size_t i = 0; i < static_cast<size_t>(all); ++i)
    call->values[i] -= static_cast<float>(call->learning_rate * m[i / columns][i % columns]);
  return GSEL_OK;
}

void muon_gets_whole_parameters_and_steps_orthogonally(void**) {
  const Bucket bucket({{"w", {4, 6}}, {"u", {3, 5}}});
  const gsel_optimizer_options options = described(GSEL_NEEDS_WHOLE_PARAM, 1, muon);
  const Optimizer optimizer(config(), bucket.model, &options);
  assert_true(optimizer.needs_whole_params());
  Owner first(bucket, optimizer, 0, 24, GSEL_BF16), second(bucket, optimizer, 24, 39, GSEL_BF16);
  for (Owner* owner : {&first, &second}) {
    optimizer.step(*gsel::DeviceContext::open_host(), owner->shard, {0, 1, 1}, bucket.params, no_sum);
    for (size_t i = 0; i < owner->values.size(); ++i)
      assert_int_equal(owner->rounded[i], gsel::BF16::narrow(owner->values[i]).bits);
  }
  Matrix step(4, std::vector<double>(6));
  for (size_t i = 0; i < 24; ++i) step[i / 6][i % 6] = (bucket.values[i] - first.values[i]) / 0.5;
  const Matrix square = times(step, transposed(step));
  for (size_t i = 0; i < 4; ++i)
    for (size_t j = 0; j < 4; ++j) assert_true(std::fabs(square[i][j] - (i == j ? 1 : 0)) < 0.5);

  Owner cut(bucket, optimizer, 0, 20);
  const std::string text = failure(GSEL_ERR_INTERNAL, [&] {
    optimizer.step(*gsel::DeviceContext::open_host(), cut.shard, {0, 1, 1}, bucket.params, no_sum);
  });
  assert_string_equal(text.c_str(),
                      "elements [0, 20) of 24 of parameter \"w\" came to an optimizer of whole parameters");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(lamb_sees_norms_of_whole_parameters_however_they_are_divided),
      cmocka_unit_test(muon_gets_whole_parameters_and_steps_orthogonally),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
