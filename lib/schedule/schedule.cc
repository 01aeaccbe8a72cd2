// schedule/schedule.cc: named schedules, and the text of schedules.
#include "schedule/schedule.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "schedule/schedule_rows.h"

namespace gsel {
namespace {

struct Form {
  std::string_view name;
  std::string_view torch_name;  // empty: torch does not have it
  int32_t chunks;               // default
  bool any_chunks;
  bool in_rounds;    // needs rounds of equal size
  int32_t per_rank;  // minimum of micro-batches per rank; 0: any number
  ScheduleRow (*row)(const PipelineShape&, int32_t rank);
  int32_t (*rank_of)(const PipelineShape&, int32_t stage);
};

constexpr Form kForms[] = {
    {"naive", "", 1, false, false, 0, naive_row, looping_rank},
    {"gpipe", "GPipe", 1, false, false, 0, gpipe_row, looping_rank},
    {"1f1b", "1F1B", 1, false, false, 0, one_f_one_b_row, looping_rank},
    {"interleaved-1f1b", "Interleaved1F1B", 2, true, true, 0, interleaved_row, looping_rank},
    {"zb-h1", "", 1, false, false, 0, zb_h1_row, looping_rank},
    {"interleaved-zb", "InterleavedZeroBubble", 2, true, true, 0, interleaved_zb_row, looping_rank},
    {"zb-h2", "", 1, false, false, 0, zb_h2_row, looping_rank},
    {"zb-v", "ZBVZeroBubble", 2, false, false, 0, zb_v_row, v_rank},
    {"dualpipe-v", "DualPipeV", 2, false, false, 2, dualpipe_v_row, v_rank},
};

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

const Form& form_of(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Form& form : kForms) {
    if (same_letters(name, form.name) || (!name.empty() && same_letters(name, form.torch_name))) return form;
    known.push_back(form.name);
    if (!form.torch_name.empty()) known.push_back(form.torch_name);
  }
  const std::string meant = nearest(name, known);
  fail(GSEL_ERR_CONFIG, "schedule {} is none of {}{}", in_quotes(name), schedule_names(),
       meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

int32_t chunks_of(const Form& form, int32_t asked) {
  if (asked == 0 || form.any_chunks || asked == form.chunks) return asked == 0 ? form.chunks : asked;
  fail(GSEL_ERR_CONFIG, "schedule {} has {} of each rank, not {}; {}", form.name,
       form.chunks == 1 ? "one stage" : with_noun(form.chunks, "stage"), asked,
       form.chunks == 1 ? "interleaved-1f1b and interleaved-zb have any number" : "leave chunks out");
}

void check_rounds(const Form& form, const PipelineShape& shape) {
  const int32_t m = shape.microbatches;
  if (!form.in_rounds || microbatches_of_round(shape.ranks, m) > 0) return;
  int32_t fewer = m, more = m;
  while (microbatches_of_round(shape.ranks, fewer) == 0) --fewer;
  while (microbatches_of_round(shape.ranks, more) == 0) ++more;
  fail(GSEL_ERR_CONFIG,
       "schedule {} cannot divide {} over {}: they do not go into {} of equal size; {} or "
       "{} do",
       form.name, with_noun(m, "micro-batch"), with_noun(shape.ranks, "rank"), with_noun(m / shape.ranks, "round"),
       fewer, more);
}

void check_enough(const Form& form, const PipelineShape& shape) {
  const int64_t least = static_cast<int64_t>(form.per_rank) * shape.ranks;
  if (shape.microbatches < least)
    fail(GSEL_ERR_CONFIG, "schedule {} takes {} or more over {}, not {}; zb-v takes any number", form.name,
         with_noun(least, "micro-batch"), with_noun(shape.ranks, "rank"), shape.microbatches);
}

void check_numbers(int32_t ranks, int32_t microbatches, int32_t chunks) {
  if (ranks < 1) fail(GSEL_ERR_ARG, "a pipeline of {} was asked for; it has 1 or more", with_noun(ranks, "rank"));
  if (microbatches < 1)
    fail(GSEL_ERR_ARG, "{} were asked for; a step has 1 or more", with_noun(microbatches, "micro-batch"));
  if (chunks < 0)
    fail(GSEL_ERR_ARG, "{} were asked for; a rank has 1 stage or more, 0 is as many as needed",
         with_noun(chunks, "chunk"));
}

void check_size(const PipelineShape& shape) {
  const int64_t stages = static_cast<int64_t>(shape.ranks) * shape.chunks;
  if (stages > kMostStages)
    fail(GSEL_ERR_CONFIG, "{} with {} each were asked for; a schedule has at most {} stages",
         with_noun(shape.ranks, "rank"), with_noun(shape.chunks, "stage"), kMostStages);
  if (stages * shape.microbatches > kMostCells)
    fail(GSEL_ERR_CONFIG, "{0} with {1} were asked for; a schedule has at most {2} of {0}", with_noun(stages, "stage"),
         with_noun(shape.microbatches, "micro-batch"), with_noun(kMostCells / stages, "micro-batch"));
}

char letter_of(int32_t kind) {
  switch (kind) {
    case GSEL_FORWARD:
      return 'F';
    case GSEL_BACKWARD_INPUT:
      return 'I';
    case GSEL_BACKWARD_WEIGHT:
      return 'W';
    case GSEL_BACKWARD:
      return 'B';
    default:
      return '?';
  }
}

}  // namespace

std::string schedule_names() {
  std::string names;
  for (const Form& form : kForms) names += (names.empty() ? "" : ", ") + std::string(form.name);
  return names;
}

Schedule make_schedule(std::string_view name, int32_t ranks, int32_t microbatches, int32_t chunks) {
  check_numbers(ranks, microbatches, chunks);
  const Form& form = form_of(name);
  const PipelineShape shape{ranks, microbatches, chunks_of(form, chunks)};
  check_size(shape);
  check_rounds(form, shape);
  check_enough(form, shape);
  Schedule schedule;
  schedule.name = form.name;
  schedule.n_microbatches = microbatches;
  for (int32_t stage = 0; stage < ranks * shape.chunks; ++stage) schedule.rank_of.push_back(form.rank_of(shape, stage));
  for (int32_t rank = 0; rank < ranks; ++rank) schedule.rows.push_back(form.row(shape, rank));
  return schedule;
}

std::string to_text(const gsel_action& action) {
  std::string text(fmt::format_int(action.stage).c_str());
  text += letter_of(action.kind);
  text += fmt::format_int(action.microbatch).c_str();
  return text;
}

std::string to_text(const Schedule& schedule) {
  std::string text;
  for (const auto& row : schedule.rows)
    for (size_t i = 0; i < row.size(); ++i) {
      text += to_text(row[i]);
      text += i + 1 < row.size() ? ',' : '\n';
    }
  return text;
}

std::vector<int32_t> stages_of_ranks(const Schedule& schedule) {
  std::vector<int32_t> stages(schedule.rows.size());
  for (int32_t rank : schedule.rank_of) ++stages[static_cast<size_t>(rank)];
  return stages;
}

Place place_of(const Schedule& schedule, int32_t rank, size_t i) {
  Place place;
  place.token = to_text(schedule.rows[static_cast<size_t>(rank)][i]);
  if (schedule.places.empty()) return place;
  const ActionPlace& at = schedule.places[static_cast<size_t>(rank)][i];
  place.file = schedule.name;
  place.line = at.line;
  place.column = at.column;
  return place;
}

std::string cell_prefix(const Place& place) {
  const std::string known = one_line(place_prefix(place)) + (place.file.empty() ? "" : " ");
  return place.column > 0 ? known + fmt::format("column {}: ", place.column) : known;
}

}  // namespace gsel
