// plan/opt_out.cc: decides which layers of a candidate opt out of the tensor axis. A unit of layers opts out if the
// closed forms give a shorter step: shards are less narrow and collectives and launches fewer, but each rank repeats
// work, steps more parameters and needs more memory. Units opt out one by one, the one with the largest gain first.
#include <algorithm>
#include <string_view>

#include "plan/plan.h"
#include "plan/search.h"

namespace gsel::plan {
namespace {

constexpr double kWorth = 0.005;  // of a step: smaller gains are below the forecast's accuracy

bool may_opt_out(const Unit& unit, const Layout& l) {
  return unit.by_position || !l.sequence_parallel;
}

// Whether any unit stays divided; else the axis has no use.
bool leaves_some(const Workload& w, uint64_t excluded) {
  for (size_t u = 0; u < w.units.size(); ++u)
    if (!(excluded >> u & 1)) return true;
  return false;
}

Candidate with_excluded(const SearchInput& in, const Candidate& c, uint64_t excluded) {
  Layout l = c.layout;
  l.excluded = excluded;
  return by_closed_forms(in, l, c.shares);
}

// The differences of two forecasts, for messages: "tensor collectives 3.1 ms less".
std::string parts_text(const TimeForecast& from, const TimeForecast& to) {
  std::vector<std::pair<double, TimePart>> parts;
  for (size_t i = 0; i < kTimeParts; ++i) parts.emplace_back(to.parts[i] - from.parts[i], static_cast<TimePart>(i));
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  std::string text;
  for (size_t i = 0; i < 3; ++i) {
    if (std::abs(parts[i].first) < 0.05 * std::abs(parts[0].first) || parts[i].first == 0) break;
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", name_of(parts[i].second),
                        duration_text(std::abs(parts[i].first), 3), parts[i].first < 0 ? "less" : "more");
  }
  return text;
}

}  // namespace

bool can_opt_out(const SearchInput& in, const Candidate& c) {
  return c.layout.tensor > 1 && !in.workload.units.empty() && in.cluster.uniform() && c.shares.tensor_weights.empty() &&
         std::string_view(in.recipe.name).starts_with("gsel-");
}

void choose_excluded(const SearchInput& in, Candidate& c) {
  if (!can_opt_out(in, c)) return;
  const auto gains = [](const Candidate& now, const Candidate& other) {
    return other.short_bytes() <= 0 && other.step_s() < now.step_s() * (1 - kWorth);
  };
  const auto greedily = [&](Candidate now) {
    for (bool more = true; more;) {
      more = false;
      const Candidate before = now;
      for (size_t u = 0; u < in.workload.units.size(); ++u) {
        const uint64_t excluded = before.layout.excluded | uint64_t{1} << u;
        if (excluded == before.layout.excluded || !may_opt_out(in.workload.units[u], before.layout) ||
            !leaves_some(in.workload, excluded))
          continue;
        Candidate other = with_excluded(in, before, excluded);
        if (gains(before, other) && other.step_s() < now.step_s()) now = std::move(other), more = true;
      }
    }
    return now;
  };
  Candidate best = greedily(c);
  if (!in.fixed.sequence_parallel) {
    Candidate other = c;
    other.layout.sequence_parallel = !c.layout.sequence_parallel;
    other = with_excluded(in, other, 0);
    if (other.short_bytes() <= 0) other = greedily(std::move(other));
    if (gains(best, other) && other.layout.excluded != 0) best = std::move(other);
  }
  if (best.layout.excluded != 0) c = std::move(best);
}

std::vector<UnitChoice> unit_choices(const SearchInput& in, const Candidate& c) {
  std::vector<UnitChoice> out;
  if (!can_opt_out(in, c)) return out;
  const Candidate now = with_excluded(in, c, c.layout.excluded);
  for (size_t u = 0; u < in.workload.units.size(); ++u) {
    const Unit& unit = in.workload.units[u];
    UnitChoice one{unit.name, unit.layers, (c.layout.excluded >> u & 1) != 0, 0, 0, {}};
    const uint64_t toggled = c.layout.excluded ^ uint64_t { 1 } << u;
    if (!one.excluded && !may_opt_out(unit, c.layout)) {
      one.why = "sequence parallelism gathers its positions in any case";
    } else if (!leaves_some(in.workload, toggled)) {
      one.why = "the axis has nothing else to divide";
    } else {
      const Candidate other = with_excluded(in, c, toggled);
      one.other_step_s = other.step_s() - now.step_s();
      one.other_bytes = other.memory.total() - now.memory.total();
      one.why = one.excluded ? parts_text(other.time, now.time) : parts_text(now.time, other.time);
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace gsel::plan
