// select/request/request.cc: see request.h.
#include "select/request/request.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace gsel {

bool Question::concerns(const Rules& row) const {
  if (accelerator != "auto") return accelerator == row.accelerator;
  return std::any_of(spec.choices.begin(), spec.choices.end(), [&](const Choice& choice) {
    const std::string named = choice.accelerator();
    const Clause* picker = choice.picker();
    return (named.empty() || named == row.accelerator) && !(picker && picker->kind == Clause::Kind::none);
  });
}

Question read_question(const Request& request) {
  Question question{parse_spec(request.devices), request.accelerator.value_or("auto"),
                    parse_order(request.order),  request.order.has_value(),
                    request.free_only,           request.per_rank};
  const std::string& accelerator = question.accelerator;
  const Input input{"accelerator", accelerator};
  const Token token{accelerator, 1, false};
  if (accelerator != "auto" && accelerator != "cpu" && !rules_named(accelerator)) {
    std::vector<std::string> known{"auto", "cpu"};
    for (const Rules& row : rules()) known.push_back(row.accelerator);
    refuse(GSEL_ERR_SYNTAX, input, token, fmt::format("is no accelerator; {} work", fmt::join(known, ", ")));
  }
  if (accelerator == "auto") return question;
  for (const Choice& choice : question.spec.choices) {
    const std::string named = choice.accelerator();
    const Clause* picker = choice.picker();
    const bool names_devices = picker && (picker->is_list() || picker->kind == Clause::Kind::count);
    if ((!named.empty() && named != accelerator) || (accelerator == "cpu" && names_devices))
      refuse(GSEL_ERR_CONFLICT, input, token,
             fmt::format("does not go with {}; leave one of them out", question.spec.input.shown()));
  }
  return question;
}

}  // namespace gsel
