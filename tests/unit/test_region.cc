// Regions of tensors against a list of their elements, made by looking at each index: runs, what two regions share, and
// whether several hold each element once. Drawn, with small and with zero dimensions, blocks and ranges.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/region.h"
#include "support/check.h"
#include "support/draw.h"

using gsel::Region;
using gsel::RegionRun;
using gsel::SharedRun;
using gsel::test::Draw;

namespace {

std::vector<int64_t> drawn_shape(Draw& draw) {
  std::vector<int64_t> shape(static_cast<size_t>(draw.from(0, 4)));
  for (int64_t& dim : shape) dim = draw.chance(3) ? 0 : draw.from(1, 6);
  return shape;
}

Region drawn_region(Draw& draw, const std::vector<int64_t>& shape) {
  std::vector<Region::Intervals> intervals(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (draw.chance(50)) continue;
    for (int64_t at = 0; at < shape[d];) {
      const int64_t begin = at + draw.from(0, 2), end = begin + draw.from(0, 3);
      if (end > shape[d]) break;
      intervals[d].push_back({begin, end});
      at = end;
    }
  }
  const Region product(shape, intervals, std::nullopt);
  if (draw.chance(40)) return product;
  const auto most = static_cast<int32_t>(product.count());
  const int64_t begin = draw.from(0, most), end = draw.from(static_cast<int32_t>(begin), most);
  return {shape, intervals, gsel_range{begin, end}};
}

// The offsets in the whole tensor of the region's elements, in order.
std::vector<int64_t> elements_of(const Region& region) {
  const std::vector<int64_t>& shape = region.shape();
  int64_t n = 1;
  for (int64_t dim : shape) n *= dim;
  std::vector<int64_t> elements;
  for (int64_t offset = 0; offset < n; ++offset) {
    int64_t rest = offset;
    bool is_in = true;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      is_in = is_in && std::ranges::any_of(region.intervals(d), [&](const gsel_range& interval) {
                return rest % shape[d] >= interval.begin && rest % shape[d] < interval.end;
              });
    if (is_in) elements.push_back(offset);
  }
  return {elements.begin() + region.range().begin, elements.begin() + region.range().end};
}

void runs_are_the_elements_and_as_long_as_can_be(void**) {
  Draw draw(1);
  for (int i = 0; i < 20000; ++i) {
    const Region region = drawn_region(draw, drawn_shape(draw));
    const std::vector<int64_t> elements = elements_of(region);
    assert_int_equal(region.count(), elements.size());
    size_t next = 0;
    Region::Cursor cursor(region);
    for (auto run = cursor.next(); run; run = cursor.next()) {
      assert_int_equal(run->local, next);
      assert_true(run->count > 0);
      if (next > 0) assert_int_not_equal(elements[next - 1] + 1, run->whole);  // else it is one run
      for (int64_t k = 0; k < run->count; ++k) assert_int_equal(elements[next++], run->whole + k);
    }
    assert_int_equal(next, elements.size());
  }
}

void shared_runs_are_what_both_have(void**) {
  Draw draw(2);
  for (int i = 0; i < 20000; ++i) {
    const std::vector<int64_t> shape = drawn_shape(draw);
    const Region first = drawn_region(draw, shape), second = drawn_region(draw, shape);
    const std::vector<int64_t> a = elements_of(first), b = elements_of(second);
    std::vector<int64_t> both, got;
    std::ranges::set_intersection(a, b, std::back_inserter(both));
    gsel::SharedRuns runs(first, second);
    for (auto run = runs.next(); run; run = runs.next())
      for (int64_t k = 0; k < run->count; ++k) {
        got.push_back(run->whole + k);
        assert_int_equal(a[static_cast<size_t>(run->first_local + k)], got.back());
        assert_int_equal(b[static_cast<size_t>(run->second_local + k)], got.back());
      }
    assert_true(got == both);
  }
}

void coverage_finds_the_first_element_that_is_missing_or_held_twice(void**) {
  Draw draw(3);
  int exact = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::vector<int64_t> shape = drawn_shape(draw);
    std::vector<Region> regions;
    const Region whole(shape);
    const int parts = draw.from(1, 4);
    int64_t at = 0;
    for (int p = 0; p < parts; ++p) {  // of ranges that tile it, one of which may be drawn instead
      const int64_t end =
          p == parts - 1 ? whole.count() : draw.from(static_cast<int32_t>(at), static_cast<int32_t>(whole.count()));
      regions.push_back(draw.chance(20) ? drawn_region(draw, shape) : whole.part(at, end - at));
      at = end;
    }
    std::vector<int> held(static_cast<size_t>(whole.count()), 0);
    for (const Region& region : regions)
      for (int64_t element : elements_of(region)) ++held[static_cast<size_t>(element)];
    const auto wrong = std::ranges::find_if(held, [](int n) { return n != 1; });
    std::vector<const Region*> views;
    for (const Region& region : regions) views.push_back(&region);
    const gsel::Coverage coverage = gsel::coverage_of(views);
    assert_int_equal(coverage.is_exact(), wrong == held.end());
    exact += coverage.is_exact();
    if (coverage.is_exact()) continue;
    assert_int_equal(coverage.whole, wrong - held.begin());
    assert_int_equal(coverage.second >= 0, *wrong > 1);
    for (int32_t holder : {coverage.first, coverage.second}) {
      if (holder < 0) continue;
      const std::vector<int64_t> elements = elements_of(regions[static_cast<size_t>(holder)]);
      assert_true(std::ranges::binary_search(elements, coverage.whole));
    }
  }
  assert_in_range(exact, 1000, 19000);
}

// As ranks of a tensor axis divide a fused QKV, and ranks of a data axis what each of these has.
void a_range_of_a_shard_in_blocks(void**) {
  const Region shard({6, 2}, gsel::Shard{0, 3, 1, 2, 2});  // rows 1, 3, 5
  Region::Cursor all(shard);
  assert_true(all.next() == (RegionRun{2, 0, 2}));
  assert_true(all.next() == (RegionRun{6, 2, 2}));
  assert_true(all.next() == (RegionRun{10, 4, 2}));
  assert_false(all.next().has_value());
  const Region part = shard.part(1, 4);
  Region::Cursor cursor(part);
  assert_true(cursor.next() == (RegionRun{3, 0, 1}));
  assert_true(cursor.next() == (RegionRun{6, 1, 2}));
  assert_true(cursor.next() == (RegionRun{10, 3, 1}));
  assert_false(cursor.next().has_value());
}

template <class Make>
void is_refused(Make&& make, const char* why) {
  try {
    make();
  } catch (const gsel::Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_ARG);
    if (!strstr(e.what(), why)) fail_msg("expected \"%s\", got \"%s\"", why, e.what());
    return;
  }
  fail_msg("expected an error with \"%s\"", why);
}

void what_is_no_region_is_refused(void**) {
  using Lists = std::vector<Region::Intervals>;
  is_refused([] { Region({int64_t{1} << 32, int64_t{1} << 32}); }, "above 2^63 - 1");
  is_refused([] { Region({0, int64_t{1} << 32, int64_t{1} << 32}); }, "above 2^63 - 1");
  is_refused([] { Region({2, -1}); }, "a dimension of -1 elements");
  is_refused(
      [] {
        Region({4}, Lists{{{0, 5}}}, std::nullopt);
      },
      "interval [0, 5) of dimension 0, which has 4 elements");
  is_refused([] { Region({4}, Lists{{{2, 3}, {0, 1}}}, std::nullopt); }, "interval [0, 1)");
  is_refused([] { Region({4}, Lists{{{0, 2}, {1, 3}}}, std::nullopt); }, "none over another");
  is_refused([] { Region({4}, Lists{{{-1, 2}}}, std::nullopt); }, "interval [-1, 2)");
  is_refused([] { Region({4, 4}, Lists{{{0, 2}}}, std::nullopt); }, "intervals of 1 dimensions, and the tensor has 2");
  is_refused([] { Region({4}, Lists{{{0, 2}}}, gsel_range{0, 3}); }, "range [0, 3) of 2 elements");
  is_refused([] { Region({4}, {}, gsel_range{3, 2}); }, "range [3, 2)");
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(runs_are_the_elements_and_as_long_as_can_be),
      cmocka_unit_test(shared_runs_are_what_both_have),
      cmocka_unit_test(coverage_finds_the_first_element_that_is_missing_or_held_twice),
      cmocka_unit_test(a_range_of_a_shard_in_blocks),
      cmocka_unit_test(what_is_no_region_is_refused),
  };
  return cmocka_run_group_tests_name("region", tests, nullptr, nullptr);
}
