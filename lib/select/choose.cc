// select/choose.cc: see choose.h.
#include "select/choose.h"

#include <algorithm>

namespace gsel {
namespace {

// Failures after which the next choice is tried.
bool is_absence(gsel_status code) {
  return code == GSEL_ERR_NO_DEVICES || code == GSEL_ERR_OUT_OF_RANGE || code == GSEL_ERR_BUSY ||
         code == GSEL_ERR_UNKNOWN_DEVICE || code == GSEL_ERR_UNKNOWN_HOST || code == GSEL_ERR_PERMISSION;
}

}  // namespace

void choose(Candidates& candidates, const Question& question, const Scene& scene, Trace& trace) {
  const auto& choices = question.spec.choices;
  if (choices.size() == 1) return choose_one(candidates, question, choices.front(), scene, trace);
  std::vector<Error> refusals;
  for (const Choice& choice : choices) {
    Candidates attempt = candidates;
    const size_t steps = trace.steps.size(), warnings = trace.warnings.size();
    try {
      choose_one(attempt, question, choice, scene, trace);
    } catch (const Error& error) {
      if (!is_absence(error.code())) throw;
      trace.steps.resize(steps);
      trace.warnings.resize(warnings);
      trace.add("request", question.spec.input, choice.whole, "nothing", "the next choice is tried");
      refusals.push_back(error);
      continue;
    }
    for (const Error& refusal : refusals) trace.warn(fmt::format("not taken: {}", refusal.message()));
    candidates.assign(std::move(attempt));
    return;
  }
  std::string all;
  for (size_t i = 0; i < std::min(refusals.size(), kMostTold); ++i) all += (i ? "; " : "") + refusals[i].message();
  if (refusals.size() > kMostTold) all += fmt::format("; and {} more", refusals.size() - kMostTold);
  // Busy devices can be waited for, so a busy refusal takes precedence over those of earlier choices.
  const auto busy = std::ranges::find(refusals, GSEL_ERR_BUSY, &Error::code);
  const Error& told = busy == refusals.end() ? refusals.front() : *busy;
  throw Error(told.code(), fmt::format("none of {} choices can be had: {}", choices.size(), all)).at(told.place());
}

}  // namespace gsel
