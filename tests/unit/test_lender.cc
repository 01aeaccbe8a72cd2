// The lender's copies: each within its memory, none over another of the same call, poisoned when the call is over,
// written back where a callback was to write.
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "support/check.h"
#include "train/memory/lender.h"

namespace gsel {
namespace {

gsel_tensor over(std::vector<float>& values) {
  gsel_tensor t{values.data(), static_cast<int64_t>(values.size()), {}, 1, GSEL_F32};
  t.dims[0] = t.n_elems;
  return t;
}

// Sizes that end exactly where the memory for loans ends, and sizes that do not divide it.
void loans_of_any_size_stay_apart_for_many_calls(void**) {
  for (const size_t elems : {16u, 48u, 100u, 1000u, 4096u, 5000u}) {
    Lender lender(DeviceContext::open_host(), true);
    std::vector<std::vector<float>> homes(5, std::vector<float>(elems));
    std::vector<const float*> before;
    for (int call = 0; call < 200; ++call) {
      std::vector<float*> lent;
      for (size_t i = 0; i < homes.size(); ++i) {
        std::iota(homes[i].begin(), homes[i].end(), static_cast<float>(i));
        lent.push_back(static_cast<float*>(lender.lend(over(homes[i]), Lender::Access::update).data));
      }
      for (size_t i = 0; i < lent.size(); ++i) {
        assert_true(lent[i][0] == static_cast<float>(i) && lent[i][elems - 1] == static_cast<float>(i + elems - 1));
        for (size_t k = 0; k < i; ++k) assert_true(lent[k] + elems <= lent[i] || lent[i] + elems <= lent[k]);
        for (const float* old : before) assert_ptr_not_equal(lent[i], old);
      }
      for (float* values : lent) std::fill_n(values, elems, static_cast<float>(call));
      lender.take_back();
      before.assign(lent.begin(), lent.end());
      for (const auto& home : homes) assert_true(home[0] == static_cast<float>(call) && home[elems - 1] == home[0]);
      for (const float* values : lent) assert_true(std::isnan(values[0]) && std::isnan(values[elems - 1]));
    }
  }
}

void what_is_lent_to_be_read_does_not_come_back(void**) {
  Lender lender(DeviceContext::open_host(), true);
  std::vector<float> home(10, 3.0f);
  auto* lent = static_cast<float*>(lender.lend(over(home), Lender::Access::read).data);
  assert_true(lent[9] == 3);
  lent[9] = 4;
  lender.take_back();
  assert_true(home[9] == 3);
  lent = static_cast<float*>(lender.lend(over(home), Lender::Access::write).data);
  assert_true(std::isnan(lent[0]));  // nothing to read before it is written
  std::fill_n(lent, 10, 5.0f);
  lender.take_back();
  assert_true(home[0] == 5 && home[9] == 5);
}

void directly_lent_is_the_librarys_own_memory(void**) {
  Lender lender(DeviceContext::open_host(), false);
  std::vector<float> home(10, 3.0f);
  assert_ptr_equal(lender.lend(over(home), Lender::Access::write).data, home.data());
  lender.take_back();
  assert_true(home[0] == 3);
  gsel_tensor none{};
  assert_null(Lender(DeviceContext::open_host(), true).lend(none, Lender::Access::read).data);
}

}  // namespace
}  // namespace gsel

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(gsel::loans_of_any_size_stay_apart_for_many_calls),
      cmocka_unit_test(gsel::what_is_lent_to_be_read_does_not_come_back),
      cmocka_unit_test(gsel::directly_lent_is_the_librarys_own_memory),
  };
  return cmocka_run_group_tests_name("lender", tests, nullptr, nullptr);
}
