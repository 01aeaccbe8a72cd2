// select/shortage.cc: see choose.h.
#include <fmt/ranges.h>

#include "base/text.h"
#include "select/choose.h"
#include "select/rules/rules.h"

namespace gsel {
namespace {

using Kind = Clause::Kind;

}  // namespace

// A name without a wildcard must match the whole name, which users rarely intend.
std::string Shortage::glob_hint() const {
  for (const Clause& clause : choice_.clauses)
    for (const Token& token : clause.tokens)
      if (clause.kind == Kind::name && !clause.excluded && token.text.find_first_of("*?[") == token.text.npos)
        return fmt::format("; a part of a name is written name:*{}*", printable(token.text));
  return {};
}

std::string Shortage::nothing() const {
  if (!scene_.accelerators.empty()) return fmt::format("no accelerator is visible{}", hidden());
  std::vector<std::string> labels;
  for (const Rules& row : rules())
    if (question_.concerns(row)) labels.push_back(row.label);
  std::vector<std::string> notes = candidates_.inventory().notes;
  if (notes.size() > kMostTold) notes.resize(kMostTold);
  return fmt::format("no accelerator was found, looked for {}{}", fmt::join(labels, ", "),
                     notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; ")));
}

// ", 6 of 8 hidden by CUDA_VISIBLE_DEVICES=0,1" or nothing.
std::string Shortage::hidden() const {
  const Unit* hidden = nullptr;
  size_t count = 0;
  for (const Unit& unit : scene_.accelerators) {
    if (candidates_.keeps(unit)) continue;
    hidden = &unit;
    ++count;
  }
  return hidden ? fmt::format(", {} of {} {}", count, scene_.accelerators.size(), candidates_.reason(*hidden)) : "";
}

std::string Shortage::count(size_t found) const {
  return fmt::format("{} of {} {} visible and fitting{}", found, with_noun(scene_.accelerators.size(), "accelerator"),
                     found == 1 ? "is" : "are", hidden());
}

}  // namespace gsel
