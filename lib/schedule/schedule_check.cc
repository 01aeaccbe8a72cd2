// schedule/schedule_check.cc: checks that a schedule is complete. Counts are checked first: if each stage has as many
// actions as there are micro-batches, tables of stages x micro-batches are no larger than the schedule itself.
#include <algorithm>

#include "base/text.h"
#include "schedule/schedule.h"
#include "schedule/schedule_walk.h"

namespace gsel {
namespace {

// The actions seen so far of a (stage, micro-batch).
enum Met : uint8_t { met_forward = 1, met_input = 2, met_weight = 4 };

class Checker {
 public:
  explicit Checker(const Schedule& schedule) : s_(schedule) {}

  void check() {
    check_stages();
    for_each_action([&](int32_t rank, size_t i) { check_ranges(rank, i); });
    count_actions();
    met_.assign(s_.cell(s_.n_stages(), 0), 0);
    whole_.assign(met_.size(), false);
    for_each_action([&](int32_t rank, size_t i) { meet(rank, i); });
    for_each_action([&](int32_t rank, size_t i) { check_weight_follows(rank, i); });
    ScheduleWalk walk(s_);
    walk.run([](int32_t, size_t) {});
    for (int32_t rank = 0; rank < s_.n_ranks(); ++rank)
      if (walk.is_stuck(rank)) refuse_deadlock(walk, rank);
  }

 private:
  template <class Visit>
  void for_each_action(Visit&& visit) const {
    for (int32_t rank = 0; rank < s_.n_ranks(); ++rank)
      for (size_t i = 0; i < s_.rows[static_cast<size_t>(rank)].size(); ++i) visit(rank, i);
  }

  const gsel_action& at(int32_t rank, size_t i) const { return s_.rows[static_cast<size_t>(rank)][i]; }
  std::string text(int32_t rank, size_t i) const { return to_text(at(rank, i)); }

  [[noreturn]] void refuse(int32_t rank, size_t i, const std::string& why) const {
    Place place = place_of(s_, rank, i);
    std::string message = cell_prefix(place) + fmt::format("rank {}, {}: ", rank, place.token) + why;
    throw Error(GSEL_ERR_PROGRAM, std::move(message)).about_rank(rank).at(std::move(place));
  }

  // An error of the whole schedule, or of a rank (-1: none) without a single action at fault.
  [[noreturn]] void refuse_whole(int32_t rank, const std::string& why) const {
    Place place;
    if (!s_.places.empty()) place.file = s_.name;
    if (!s_.places.empty() && rank >= 0 && !s_.places[static_cast<size_t>(rank)].empty())
      place.line = s_.places[static_cast<size_t>(rank)].front().line;
    throw Error(GSEL_ERR_PROGRAM, cell_prefix(place) + why).about_rank(rank).at(place);
  }

  void check_stages() const {
    if (s_.rows.empty()) refuse_whole(-1, "the schedule has no rows; it has one for each rank");
    if (s_.n_stages() < 1 || s_.n_stages() > kMostStages)
      refuse_whole(-1, fmt::format("the schedule has {}; a schedule has from 1 to {}",
                                   with_noun(s_.n_stages(), "stage"), kMostStages));
    if (s_.n_microbatches < 1 || s_.n_microbatches > kMostMicrobatches)
      refuse_whole(-1, fmt::format("the schedule has {}; a schedule has from 1 to {}",
                                   with_noun(s_.n_microbatches, "micro-batch"), kMostMicrobatches));
    for (int32_t stage = 0; stage < s_.n_stages(); ++stage) {
      const int32_t rank = s_.rank_of[static_cast<size_t>(stage)];
      if (rank < 0 || rank >= s_.n_ranks())
        refuse_whole(-1,
                     fmt::format("stage {} is on no rank; stages count from 0 without a gap, and this schedule has {}",
                                 stage, s_.n_stages()));
    }
    for (int32_t rank = 0; rank < s_.n_ranks(); ++rank)
      if (s_.rows[static_cast<size_t>(rank)].empty())
        refuse_whole(-1, fmt::format("rank {} has no actions; each rank has a stage or more", rank));
  }

  void check_ranges(int32_t rank, size_t i) const {
    const gsel_action& action = at(rank, i);
    if (action.kind < GSEL_FORWARD || action.kind > GSEL_BACKWARD)
      refuse(rank, i,
             fmt::format("kind {} is none of forward, backward_input, backward_weight, backward", action.kind));
    if (action.stage < 0 || action.stage >= s_.n_stages())
      refuse(rank, i, fmt::format("stage {} is not from 0 to {}", action.stage, s_.n_stages() - 1));
    if (action.microbatch < 0 || action.microbatch >= s_.n_microbatches)
      refuse(rank, i, fmt::format("micro-batch {} is not from 0 to {}", action.microbatch, s_.n_microbatches - 1));
    const int32_t home = s_.rank_of[static_cast<size_t>(action.stage)];
    if (home != rank) refuse(rank, i, fmt::format("stage {} is on rank {}; a stage has one rank", action.stage, home));
  }

  void count_actions() const {
    std::vector<int64_t> forwards(s_.rank_of.size()), backwards(s_.rank_of.size());
    for_each_action([&](int32_t rank, size_t i) {
      const gsel_action& action = at(rank, i);
      if (action.kind == GSEL_FORWARD) ++forwards[static_cast<size_t>(action.stage)];
      if (is_backward(action.kind)) ++backwards[static_cast<size_t>(action.stage)];
    });
    for (int32_t stage = 0; stage < s_.n_stages(); ++stage) {
      if (forwards[static_cast<size_t>(stage)] < s_.n_microbatches) refuse_missing(stage, 'F');
      if (backwards[static_cast<size_t>(stage)] < s_.n_microbatches) refuse_missing(stage, 'B');
    }
  }

  // Names the first micro-batch that the stage lacks.
  [[noreturn]] void refuse_missing(int32_t stage, char kind) const {
    const int32_t rank = s_.rank_of[static_cast<size_t>(stage)];
    const auto& row = s_.rows[static_cast<size_t>(rank)];
    std::vector<bool> there(row.size() + 1);
    for (const gsel_action& action : row) {
      const bool counts = kind == 'F' ? action.kind == GSEL_FORWARD : is_backward(action.kind);
      if (counts && action.stage == stage && static_cast<size_t>(action.microbatch) < there.size())
        there[static_cast<size_t>(action.microbatch)] = true;
    }
    const auto missing = std::find(there.begin(), there.end(), false) - there.begin();
    const std::string what = kind == 'F' ? fmt::format("{}F{}", stage, missing)
                                         : fmt::format("{0}B{1} (or {0}I{1} and {0}W{1})", stage, missing);
    refuse_whole(rank, fmt::format("rank {}: {} is missing; each stage sees each of the {} once", rank, what,
                                   with_noun(s_.n_microbatches, "micro-batch")));
  }

  void meet(int32_t rank, size_t i) {
    const gsel_action& action = at(rank, i);
    uint8_t& met = met_[s_.cell(action.stage, action.microbatch)];
    const uint8_t now = action.kind == GSEL_FORWARD           ? met_forward
                        : action.kind == GSEL_BACKWARD_INPUT  ? met_input
                        : action.kind == GSEL_BACKWARD_WEIGHT ? met_weight
                                                              : met_input | met_weight;
    if (action.kind == GSEL_BACKWARD_WEIGHT && whole_[s_.cell(action.stage, action.microbatch)])
      refuse(rank, i,
             fmt::format("{0}B{1} is both halves of backward; write {0}I{1} where {0}W{1} follows", action.stage,
                         action.microbatch));
    if (met & now) refuse(rank, i, now == met_forward ? "this forward is there twice" : "this backward is there twice");
    if (now != met_forward && !(met & met_forward))
      refuse(rank, i, fmt::format("it comes before {}F{}, whose output it needs", action.stage, action.microbatch));
    if (now == met_weight && !(met & met_input))
      refuse(rank, i,
             fmt::format("it comes before {}I{}, the other half of backward", action.stage, action.microbatch));
    met |= now;
    if (action.kind == GSEL_BACKWARD) whole_[s_.cell(action.stage, action.microbatch)] = true;
  }

  void check_weight_follows(int32_t rank, size_t i) const {
    const gsel_action& action = at(rank, i);
    if (action.kind == GSEL_BACKWARD_INPUT && !(met_[s_.cell(action.stage, action.microbatch)] & met_weight))
      refuse(rank, i, fmt::format("{}W{}, the other half of backward, is missing", action.stage, action.microbatch));
  }

  // Follows the waits until a rank repeats: each stuck rank waits for an action of a stuck rank.
  [[noreturn]] void refuse_deadlock(const ScheduleWalk& walk, int32_t rank) const {
    std::vector<bool> seen(s_.rows.size());
    for (; !seen[static_cast<size_t>(rank)]; rank = holder(walk, rank)) seen[static_cast<size_t>(rank)] = true;
    constexpr int32_t kMostShown = 4;
    std::string ring;
    int32_t at_rank = rank;
    for (int32_t shown = 0; shown < kMostShown; ++shown) {
      ring +=
          fmt::format("{}rank {} waits at {}, which needs {} of rank {}", shown ? "; " : "", at_rank,
                      text(at_rank, walk.position(at_rank)), to_text(awaited(walk, at_rank)), holder(walk, at_rank));
      at_rank = holder(walk, at_rank);
      if (at_rank == rank) break;
      if (shown + 1 == kMostShown) ring += "; and so on";
    }
    refuse(rank, walk.position(rank), "the schedule comes to a standstill: " + ring);
  }

  // As written in its rank's row: a backward may be I or B.
  gsel_action awaited(const ScheduleWalk& walk, int32_t rank) const {
    gsel_action action = at(rank, walk.position(rank));
    action.stage = *stage_read(s_, action);
    const auto& row = s_.rows[static_cast<size_t>(s_.rank_of[static_cast<size_t>(action.stage)])];
    const bool forward = action.kind == GSEL_FORWARD;
    return *std::find_if(row.begin(), row.end(), [&](const gsel_action& other) {
      return other.stage == action.stage && other.microbatch == action.microbatch &&
             (forward ? other.kind == GSEL_FORWARD : is_backward(other.kind));
    });
  }
  int32_t holder(const ScheduleWalk& walk, int32_t rank) const {
    return s_.rank_of[static_cast<size_t>(awaited(walk, rank).stage)];
  }

  const Schedule& s_;
  std::vector<uint8_t> met_;  // by cell
  std::vector<bool> whole_;   // by cell: undivided backward
};

}  // namespace

void check_schedule(const Schedule& schedule) {
  Checker(schedule).check();
}

}  // namespace gsel
