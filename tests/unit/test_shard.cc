// Shards of units among ranks of an axis, and a part as rows in memory: exhaustive where sizes are small, drawn where
// they are not, against rules that are written out here a second time and more slowly.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/config.h"
#include "base/shard.h"
#include "support/check.h"
#include "support/draw.h"

using gsel::Shard;
using gsel::ShardRows;
using gsel::test::Draw;

namespace {

std::vector<int64_t> sizes_of(const std::vector<int64_t>& bounds) {
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < bounds.size(); ++i) sizes.push_back(bounds[i] - bounds[i - 1]);
  return sizes;
}

void check_tiling(const std::vector<int64_t>& bounds, int64_t n, size_t ranks, int64_t least) {
  assert_int_equal(bounds.size(), ranks + 1);
  assert_int_equal(bounds.front(), 0);
  assert_int_equal(bounds.back(), n);
  for (int64_t size : sizes_of(bounds)) assert_true(size >= least);
}

void ranks_that_weigh_alike_get_what_everything_in_gsel_gets(void**) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks)
    for (int64_t n = 0; n <= 40; ++n)
      for (double weight : {1.0, 0.1, 7.0, 1e9}) {
        const std::vector<double> weights(static_cast<size_t>(ranks), weight);
        const std::vector<int64_t> items = gsel::shard_items(n, weights);
        const std::vector<int64_t> units = n >= ranks ? gsel::shard_bounds(n, weights) : items;
        for (int64_t i = 0; i < ranks; ++i) {
          const gsel_range expected = gsel::shard_range(n, ranks, i);
          assert_int_equal(items[i], expected.begin);
          assert_int_equal(units[i], expected.begin);
          assert_int_equal(items[i + 1], expected.end);
        }
      }
}

struct Example {
  int64_t n;
  std::vector<double> weights;
  std::vector<int64_t> units, items;
};

void shares_are_in_proportion_and_remainders_go_to_the_largest(void**) {
  const Example examples[] = {
      {6, {2, 1}, {4, 2}, {4, 2}},
      {7, {2, 1}, {5, 2}, {5, 2}},  // 4.67 and 2.33
      {8, {2, 1}, {5, 3}, {5, 3}},  // 5.33 and 2.67
      {8, {1, 2}, {3, 5}, {3, 5}},  // the heavier one second
      {10, {3, 1, 1}, {6, 2, 2}, {6, 2, 2}},
      {4, {100, 1}, {3, 1}, {4, 0}},  // a unit each, where there must be one
      {3, {1, 1e9, 1}, {1, 1, 1}, {0, 3, 0}},
      {5, {1, 1e9, 1}, {1, 3, 1}, {0, 5, 0}},
      {2, {1}, {2}, {2}},
      {7, {0.5, 0.25}, {5, 2}, {5, 2}},
      {5, {1, 1}, {3, 2}, {3, 2}},  // of equal remainders the lower rank's
  };
  for (const Example& e : examples) {
    assert_true(sizes_of(gsel::shard_bounds(e.n, e.weights)) == e.units);
    assert_true(sizes_of(gsel::shard_items(e.n, e.weights)) == e.items);
  }
}

void drawn_shares_tile_and_are_off_by_less_than_a_unit(void**) {
  Draw draw(11);
  for (int round = 0; round < 20000; ++round) {
    const size_t ranks = static_cast<size_t>(draw.from(1, 9));
    const int64_t n = static_cast<int64_t>(ranks) + draw.from(0, round % 7 ? 60 : 5000000);
    std::vector<double> weights(ranks);
    for (double& w : weights) w = 0.01 * draw.from(1, round % 5 ? 300 : 1000000);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const std::vector<int64_t> units = gsel::shard_bounds(n, weights), items = gsel::shard_items(n, weights);
    check_tiling(units, n, ranks, 1);
    check_tiling(items, n, ranks, 0);
    bool all_have_a_right_to_one = true;
    for (size_t i = 0; i < ranks; ++i) {
      const double exact = static_cast<double>(n) * weights[i] / sum;
      all_have_a_right_to_one &= exact >= 1;
      assert_true(std::abs(static_cast<double>(sizes_of(items)[i]) - exact) < 1 + 1e-6);
      for (size_t j = 0; j < ranks; ++j)  // a heavier one never has less
        if (weights[j] > weights[i]) {
          assert_true(sizes_of(items)[j] >= sizes_of(items)[i]);
          assert_true(sizes_of(units)[j] >= sizes_of(units)[i]);
        }
    }
    if (all_have_a_right_to_one) assert_true(units == items);
  }
}

// ---- rows ----

// Elements of a part in the order in which the part has them, one by one.
std::vector<int64_t> elements_of(const std::vector<int64_t>& dims, const Shard& shard) {
  const int64_t n = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  std::vector<int64_t> result;
  for (int64_t e = 0; e < n; ++e) {
    int64_t inner = 1;
    for (size_t i = static_cast<size_t>(std::max(shard.dim, 0)) + 1; i < dims.size(); ++i) inner *= dims[i];
    const int64_t in_block = shard.is_whole() ? 0 : e / inner % dims[shard.dim] % shard.whole;
    if (shard.is_whole() || (in_block >= shard.begin && in_block < shard.end)) result.push_back(e);
  }
  return result;
}

std::vector<int64_t> elements_of(const ShardRows& rows) {
  std::vector<int64_t> result;
  for (int64_t r = 0; r < rows.count; ++r)
    for (int64_t i = 0; i < rows.length; ++i) result.push_back(rows.first + r * rows.stride + i);
  return result;
}

void rows_are_the_elements_of_the_part_in_order(void**) {
  Draw draw(12);
  int uneven = 0, in_blocks = 0;
  for (int round = 0; round < 4000; ++round) {
    const int32_t dim = draw.from(0, 3), blocks = draw.from(1, 3);
    const int64_t unit = draw.from(1, 3), n = draw.from(1, 5);
    std::vector<int64_t> dims(static_cast<size_t>(draw.from(dim + 1, dim + 3)));
    for (int64_t& d : dims) d = draw.from(1, 4);
    dims[dim] = n * unit * blocks;
    const std::vector<double> weights(static_cast<size_t>(draw.from(1, static_cast<int32_t>(n))), 1.0);
    const std::vector<int64_t> bounds = gsel::shard_bounds(n, weights);
    std::vector<int64_t> all;
    for (size_t i = 0; i < weights.size(); ++i) {
      const Shard shard{dim, blocks, bounds[i] * unit, bounds[i + 1] * unit, n * unit};
      assert_true(elements_of(gsel::rows_of(dims, shard)) == elements_of(dims, shard));
      const std::vector<int64_t> local = gsel::local_dims(dims, shard), mine = elements_of(dims, shard);
      assert_int_equal(std::accumulate(local.begin(), local.end(), int64_t{1}, std::multiplies<>()), mine.size());
      all.insert(all.end(), mine.begin(), mine.end());
      in_blocks += blocks > 1;
    }
    uneven += n % static_cast<int64_t>(weights.size()) != 0;
    // Nothing twice and nothing left out.
    std::ranges::sort(all);
    const int64_t whole = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
    assert_int_equal(all.size(), whole);
    for (int64_t e = 0; e < whole; ++e) assert_int_equal(all[e], e);
    assert_true(elements_of(gsel::rows_of(dims, {})) == elements_of(dims, {}));
  }
  assert_true(uneven > 500 && in_blocks > 500);
}

void a_part_of_the_outermost_dimension_in_one_block_is_one_row(void**) {
  const int64_t dims[] = {6, 5, 4};
  const ShardRows rows = gsel::rows_of(dims, {0, 1, 2, 5, 6});
  assert_int_equal(rows.count, 1);
  assert_int_equal(rows.first, 40);
  assert_int_equal(rows.length, 60);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(ranks_that_weigh_alike_get_what_everything_in_gsel_gets),
      cmocka_unit_test(shares_are_in_proportion_and_remainders_go_to_the_largest),
      cmocka_unit_test(drawn_shares_tile_and_are_off_by_less_than_a_unit),
      cmocka_unit_test(rows_are_the_elements_of_the_part_in_order),
      cmocka_unit_test(a_part_of_the_outermost_dimension_in_one_block_is_one_row),
  };
  return cmocka_run_group_tests_name("shard", tests, nullptr, nullptr);
}
