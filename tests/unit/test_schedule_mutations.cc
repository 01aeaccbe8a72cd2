// Every mutation of a good schedule that breaks it is refused, and what is refused is broken: a plain search for an
// order of execution, which knows nothing of the check, agrees on each.
#include <set>
#include <tuple>

#include "base/random.h"
#include "schedule/schedule.h"
#include "support/check.h"

namespace {

using namespace gsel;

class Dice {
 public:
  explicit Dice(uint64_t key) : key_(key) {}
  size_t below(size_t end) {
    return std::min(end - 1, static_cast<size_t>(random_uniform(key_, counter_++) * static_cast<double>(end)));
  }

 private:
  uint64_t key_, counter_ = 0;
};

// ---- the oracle ----

using Fact = std::tuple<char, int32_t, int32_t>;  // F, I or W of a stage and micro-batch is done

bool run_one(const gsel_action& a, int32_t stages, std::set<Fact>& done) {
  auto is = [&](char what, int32_t stage) { return done.count({what, stage, a.microbatch}) > 0; };
  auto now = [&](char what) { return done.insert({what, a.stage, a.microbatch}).second; };
  const bool last = a.stage == stages - 1;
  switch (a.kind) {
    case GSEL_FORWARD:
      return (a.stage == 0 || is('F', a.stage - 1)) && now('F');
    case GSEL_BACKWARD_INPUT:
      return is('F', a.stage) && (last || is('I', a.stage + 1)) && now('I');
    case GSEL_BACKWARD_WEIGHT:
      return is('I', a.stage) && now('W');
    default:
      return is('F', a.stage) && (last || is('I', a.stage + 1)) && now('I') && now('W');
  }
}

bool works(const Schedule& schedule) {
  std::set<Fact> done;
  std::vector<size_t> next(schedule.rows.size());
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < next.size(); ++r)
      while (next[r] < schedule.rows[r].size() && run_one(schedule.rows[r][next[r]], schedule.n_stages(), done)) {
        ++next[r];
        moved = true;
      }
  }
  for (size_t r = 0; r < next.size(); ++r) {
    if (next[r] < schedule.rows[r].size()) return false;
    for (const gsel_action& a : schedule.rows[r])
      if (schedule.rank_of[a.stage] != static_cast<int32_t>(r)) return false;
  }
  return done.size() == 3 * schedule.rank_of.size() * static_cast<size_t>(schedule.n_microbatches);
}

// ---- mutations ----

bool is_accepted(const Schedule& schedule) {
  try {
    check_schedule(schedule);
    return true;
  } catch (const Error& error) {
    if (error.code() != GSEL_ERR_PROGRAM) fail_msg("%s: %s", gsel_status_name(error.code()), error.what());
    return false;
  }
}

void check_agrees(const Schedule& schedule, const char* mutation) {
  if (is_accepted(schedule) == works(schedule)) return;
  fail_msg("%s of %s: the check %s it:\n%s", mutation, schedule.name.c_str(),
           is_accepted(schedule) ? "accepts" : "refuses", to_text(schedule).c_str());
}

void check_refuses(const Schedule& schedule, const char* mutation) {
  if (is_accepted(schedule))
    fail_msg("%s of %s is accepted:\n%s", mutation, schedule.name.c_str(), to_text(schedule).c_str());
  assert_false(works(schedule));
}

std::vector<Schedule> small_schedules() {
  std::vector<Schedule> all;
  for (const char* name : {"naive", "gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "interleaved-zb", "zb-h2", "zb-v"})
    for (int32_t p = 1; p <= 4; ++p)
      for (int32_t m : {1, 2, 4}) all.push_back(make_schedule(name, p, m, 0));
  for (int32_t p = 1; p <= 4; ++p) all.push_back(make_schedule("dualpipe-v", p, 2 * p + 1, 0));
  return all;
}

template <class Visit>
void for_each_action(const Schedule& schedule, Visit&& visit) {
  for (size_t r = 0; r < schedule.rows.size(); ++r)
    for (size_t i = 0; i < schedule.rows[r].size(); ++i) visit(r, i);
}

void test_a_dropped_action_is_refused(void**) {
  for (const Schedule& good : small_schedules())
    for_each_action(good, [&](size_t r, size_t i) {
      Schedule bad = good;
      bad.rows[r].erase(bad.rows[r].begin() + static_cast<std::ptrdiff_t>(i));
      check_refuses(bad, "a dropped action");
    });
}

void test_a_doubled_action_is_refused(void**) {
  for (const Schedule& good : small_schedules())
    for_each_action(good, [&](size_t r, size_t i) {
      Schedule bad = good;
      bad.rows[r].push_back(bad.rows[r][i]);
      check_refuses(bad, "a doubled action");
    });
}

void test_an_action_of_another_kind_is_refused(void**) {
  for (const Schedule& good : small_schedules())
    for_each_action(good, [&](size_t r, size_t i) {
      for (int32_t kind = 0; kind <= 5; ++kind) {
        if (kind == good.rows[r][i].kind) continue;
        Schedule bad = good;
        bad.rows[r][i].kind = kind;
        if (is_accepted(bad)) fail_msg("kind %d is accepted in %s", kind, to_text(bad).c_str());
      }
    });
}

void test_an_action_on_another_rank_is_refused(void**) {
  for (const Schedule& good : small_schedules())
    for_each_action(good, [&](size_t r, size_t i) {
      if (good.n_ranks() < 2) return;
      Schedule bad = good;
      const size_t other = (r + 1) % bad.rows.size();
      bad.rows[other].push_back(bad.rows[r][i]);
      bad.rows[r].erase(bad.rows[r].begin() + static_cast<std::ptrdiff_t>(i));
      check_refuses(bad, "a moved action");
    });
}

void test_two_swapped_actions_are_refused_just_where_nothing_could_run(void**) {
  int accepted = 0, refused = 0;
  for (const Schedule& good : small_schedules())
    for_each_action(good, [&](size_t r, size_t i) {
      for (size_t k = i + 1; k < std::min(good.rows[r].size(), i + 6); ++k) {
        Schedule bad = good;
        std::swap(bad.rows[r][i], bad.rows[r][k]);
        check_agrees(bad, "a swap");
        ++(is_accepted(bad) ? accepted : refused);
      }
    });
  assert_true(accepted > 500 && refused > 500);
}

void test_shuffled_rows_are_refused_just_where_nothing_could_run(void**) {
  Dice dice(7);
  const std::vector<Schedule> all = small_schedules();
  for (int round = 0; round < 3000; ++round) {
    Schedule bad = all[dice.below(all.size())];
    for (size_t swaps = 1 + dice.below(4); swaps > 0; --swaps) {
      auto& row = bad.rows[dice.below(bad.rows.size())];
      std::swap(row[dice.below(row.size())], row[dice.below(row.size())]);
    }
    check_agrees(bad, "several swaps");
  }
}

void test_numbers_out_of_range_are_refused(void**) {
  const Schedule good = make_schedule("1f1b", 2, 2, 0);
  for (int32_t wrong : {-1, 2, INT32_MAX, INT32_MIN}) {
    Schedule bad = good;
    bad.rows[1][1].stage = wrong;
    assert_false(is_accepted(bad));
    bad = good;
    bad.rows[1][1].microbatch = wrong;
    assert_false(is_accepted(bad));
    bad = good;
    bad.rank_of[1] = wrong;
    assert_false(is_accepted(bad));
    bad = good;
    bad.n_microbatches = wrong == 2 ? 3 : wrong;
    assert_false(is_accepted(bad));
  }
  assert_false(is_accepted(Schedule{}));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_a_dropped_action_is_refused),
      cmocka_unit_test(test_a_doubled_action_is_refused),
      cmocka_unit_test(test_an_action_of_another_kind_is_refused),
      cmocka_unit_test(test_an_action_on_another_rank_is_refused),
      cmocka_unit_test(test_two_swapped_actions_are_refused_just_where_nothing_could_run),
      cmocka_unit_test(test_shuffled_rows_are_refused_just_where_nothing_could_run),
      cmocka_unit_test(test_numbers_out_of_range_are_refused),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
