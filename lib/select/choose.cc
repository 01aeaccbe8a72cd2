// select/choose.cc: see choose.h.
#include "select/choose.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "select/candidates.h"
#include "select/picker.h"
#include "select/rules/rules.h"

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

// ---- one choice: hosts, kinds, filters, then a list, a count or all -------------------------------------------------

namespace {

using Kind = Clause::Kind;

bool is_plain_auto(const Choice& choice) {
  return choice.clauses.size() == 1 && choice.clauses.front().kind == Kind::automatic;
}

bool wants_cpu(const Choice& choice, const Question& question) {
  return choice.accelerator() == "cpu" || question.accelerator == "cpu";
}

// Applies one choice to one set of candidates.
class Chooser {
 public:
  Chooser(Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene, Trace& trace)
      : candidates_(candidates),
        inventory_(candidates.inventory()),
        question_(question),
        choice_(choice),
        picker_(choice.picker()),
        scene_(scene),
        trace_(trace),
        input_(question.spec.input) {}

  void run() {
    if (picker_ && picker_->kind == Kind::none) return candidates_.keep({}, "none was asked for");
    take_hosts();
    if (wants_cpu(choice_, question_)) return take_cpu("the CPU was asked for");
    keep_accelerators();
    const std::vector<Unit> visible = candidates_.kept();
    apply_filters(visible);
    if (picker_ && picker_->is_list())
      take_list(visible);
    else
      take_some();
    check_instances();
  }

 private:
  // ---- which devices can be selected ----

  // The hosts that pass all host: clauses; an index then refers to these.
  void take_hosts() {
    hosts_ = scene_.hosts;
    for (const Clause& clause : choice_.clauses) {
      if (clause.kind != Kind::host) continue;
      for (const Token& token : clause.tokens) check_host(token);
      std::erase_if(hosts_, [&](int32_t host) {
        const std::string& name = inventory_.hosts[static_cast<size_t>(host)].name;
        const bool named = std::any_of(clause.tokens.begin(), clause.tokens.end(),
                                       [&](const Token& token) { return glob_matches(token.text, name); });
        return named == clause.excluded;
      });
    }
  }

  void check_host(const Token& token) const {
    std::vector<std::string_view> names;
    for (int32_t host : scene_.hosts) names.push_back(inventory_.hosts[static_cast<size_t>(host)].name);
    for (std::string_view name : names)
      if (glob_matches(token.text, std::string(name))) return;
    const std::string meant = token.text.size() < 256 ? nearest(token.text, names) : "";
    refuse(GSEL_ERR_UNKNOWN_HOST, input_, token,
           fmt::format("no host in question has such a name{}",
                       meant.empty() ? names.size() == 1 ? fmt::format("; {} is its name", names.front()) : ""
                                     : fmt::format(", {} was meant?", meant)));
  }

  void keep_accelerators() {
    const std::string named = choice_.accelerator();
    candidates_.drop([&](const Unit& unit) -> std::string {
      const Device& device = candidates_.device(unit);
      if (device.is_cpu()) return "a CPU, taken only when no accelerator is visible or when asked for";
      const Rules* row = rules_for(device.vendor);
      if (!row) return fmt::format("of vendor {}, for which gsel has no rules", device.vendor);
      if (!named.empty() && named != row->accelerator) return fmt::format("of vendor {}, not {}", row->label, named);
      return {};
    });
  }

  void apply_filters(const std::vector<Unit>& visible) {
    for (const Clause& clause : choice_.clauses) {
      if (clause.is_picker()) continue;
      if (clause.is_list())
        exclude(clause, visible);
      else
        candidates_.drop([&](const Unit& unit) { return misses(inventory_, unit, clause); });
    }
  }

  void exclude(const Clause& clause, const std::vector<Unit>& visible) {
    Picker picker(inventory_, scene_.environment, visible, hosts_, input_, trace_);
    const std::vector<Unit> units = picker.pick(clause, false);
    const std::set<Unit> out(units.begin(), units.end());
    candidates_.drop([&](const Unit& unit) {
      const bool named = out.count(unit) || out.count({unit.device, -1, -1});  // a device includes all its parts
      return named ? fmt::format("excluded by {}", printable(clause.whole.text)) : std::string();
    });
  }

  // ---- lists ----

  void take_list(const std::vector<Unit>& visible) {
    if (scene_.accelerators.empty()) need_some();
    Picker picker(inventory_, scene_.environment, visible, hosts_, input_, trace_);
    const std::vector<Unit> units = picker.pick(*picker_, true);
    for (size_t i = 0; i < units.size(); ++i) check_allowed(units[i], picker_->tokens[i % picker_->tokens.size()]);
    if (question_.order_given && question_.order != Order::visible)
      trace_.warn(
          fmt::format("order does not apply to {}, a list with an order of its own", printable(picker_->whole.text)));
    keep(units, fmt::format("not named by {}", printable(input_.value)));
  }

  void check_allowed(const Unit& unit, const Token& token) const {
    gsel_status code = GSEL_OK;
    const Device& device = candidates_.device(unit);
    const std::string why = unavailable(device, unit, question_.free_only, &code);
    if (!why.empty()) refuse(code, input_, token, fmt::format("{} is {}", unit_text(inventory_, unit), why));
    if (!candidates_.keeps(unit))
      refuse(GSEL_ERR_CONFLICT, input_, token,
             fmt::format("asks for {}, which is {}; change one of them", unit_text(inventory_, unit),
                         candidates_.reason(unit)));
    const std::string busy = busy_text(device, unit);
    if (busy.starts_with("reserved")) trace_.warn(fmt::format("{} is {}", unit_text(inventory_, unit), busy));
  }

  // ---- counts and all ----

  void take_some() {
    const bool automatic = !picker_ ? false : picker_->kind == Kind::automatic;
    const bool counted = picker_ && picker_->kind == Kind::count;
    // Where accelerators are hidden, the CPU must be requested explicitly: most programs would use it without notice.
    if (scene_.accelerators.empty() && is_plain_auto(choice_) && question_.accelerator == "auto") return fall_back();
    drop_unavailable();
    if (automatic || counted) prefer_discrete();
    if (automatic) keep_one_vendor();
    need_some();
    if (counted)
      take_count();
    else
      take_all();
  }

  void drop_unavailable() {
    candidates_.drop([&](const Unit& unit) {
      gsel_status code = GSEL_OK;
      const std::string why = unavailable(candidates_.device(unit), unit, question_.free_only, &code);
      if (!why.empty()) note_unavailable(code, fmt::format("{} is {}", unit_text(inventory_, unit), why));
      return why;
    });
    if (unavailable_.empty()) return;
    if (candidates_.kept().empty()) refuse(unavailable_code_, input_, whole(), unavailable_text());
    trace_.warn(fmt::format("left out: {}", unavailable_text()));
  }

  // If too few devices are left, the code of the first one is reported.
  void note_unavailable(gsel_status code, std::string text) {
    if (unavailable_.empty()) unavailable_code_ = code;
    unavailable_.push_back(std::move(text));
  }

  std::string unavailable_text() const {
    constexpr size_t kShown = 4;
    const auto end = unavailable_.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, unavailable_.size()));
    return fmt::format("{}{}", fmt::join(unavailable_.begin(), end, ", "),
                       unavailable_.size() > kShown ? fmt::format(" and {} more", unavailable_.size() - kShown) : "");
  }

  void prefer_discrete() {
    for (const Clause& clause : choice_.clauses)
      if (clause.kind == Kind::integrated) return;
    const auto& kept = candidates_.kept();
    const auto discrete = [&](const Unit& unit) { return !candidates_.device(unit).integrated; };
    if (std::none_of(kept.begin(), kept.end(), discrete)) return;
    candidates_.drop([&](const Unit& unit) -> std::string {
      return discrete(unit) ? "" : "integrated, and there are discrete accelerators; index: names it";
    });
  }

  void keep_one_vendor() {
    for (const Rules& row : rules()) {
      const auto own = [&](const Unit& unit) { return candidates_.device(unit).vendor == row.vendor; };
      if (std::none_of(candidates_.kept().begin(), candidates_.kept().end(), own)) continue;
      candidates_.drop([&](const Unit& unit) {
        return own(unit) ? std::string() : fmt::format("auto takes one vendor, and {} comes first", row.label);
      });
      return;
    }
  }

  void take_all() {
    std::vector<Unit> units;
    auto kept = kept_by_host();
    for (int32_t host : hosts_) {
      const std::vector<Unit> own = ordered(inventory_, std::move(kept[static_cast<size_t>(host)]), question_.order);
      units.insert(units.end(), own.begin(), own.end());
    }
    candidates_.reorder(units);
    const std::string reason = fmt::format("kept by {}", printable(input_.value));
    for (const Unit& unit : units) candidates_.note(unit, reason);
  }

  void take_count() {
    const Token& token = picker_->tokens.front();
    std::vector<Unit> units;
    auto kept = kept_by_host();
    for (int32_t host : hosts_) {
      std::vector<Unit> own = std::move(kept[static_cast<size_t>(host)]);
      check_vendors(own, token);
      if (picker_->number > own.size()) refuse_count(own.size(), token);
      own = question_.order == Order::near ? nearest_of(inventory_, own, picker_->number)
                                           : ordered(inventory_, own, question_.order);
      units.insert(units.end(), own.begin(), own.begin() + static_cast<std::ptrdiff_t>(picker_->number));
    }
    keep(units, fmt::format("not needed: {} takes the first {} of {} visible accelerators", printable(input_.value),
                            picker_->number, candidates_.kept().size()));
  }

  void check_vendors(const std::vector<Unit>& units, const Token& token) const {
    std::set<std::string> accelerators;
    for (const Unit& unit : units) accelerators.insert(rules_for(candidates_.device(unit).vendor)->accelerator);
    if (accelerators.size() > 1)
      refuse(GSEL_ERR_AMBIGUOUS, input_, token,
             fmt::format("accelerators of several kinds are visible ({0}); name one, such as {1} & {2}",
                         fmt::join(accelerators, ", "), *accelerators.begin(), printable(picker_->whole.text)));
  }

  [[noreturn]] void refuse_count(size_t found, const Token& token) const {
    const size_t all = scene_.accelerators.size();
    if (!unavailable_.empty())
      refuse(unavailable_code_, input_, token, shortage().count(found) + "; " + unavailable_text());
    refuse(found || all ? GSEL_ERR_OUT_OF_RANGE : GSEL_ERR_NO_DEVICES, input_, token,
           shortage().count(found) + (found ? fmt::format("; count:{} would work", found) : ""));
  }

  // ---- the CPU ----

  void fall_back() {
    const std::string why = shortage().nothing();
    take_cpu(fmt::format("selected, since there is nothing else: {}", why));
    trace_.warn(fmt::format("the CPU was taken: {}", why));
  }

  void take_cpu(const std::string& why) {
    if (picker_ && picker_->is_list())
      refuse(GSEL_ERR_CONFLICT, input_, picker_->whole, "names accelerators, and the CPU is asked for as well");
    std::vector<Unit> cpus;
    for (int32_t host : hosts_) {
      const Host& of = inventory_.hosts[static_cast<size_t>(host)];
      for (int32_t i = of.first; i < of.first + of.count; ++i)
        if (inventory_.devices[static_cast<size_t>(i)].is_cpu()) cpus.push_back({i, -1, -1});
    }
    if (cpus.empty())
      refuse(GSEL_ERR_NO_DEVICES, input_, whole(),
             wants_cpu(choice_, question_) ? "the inventory has no CPU"
                                           : fmt::format("{}, and the inventory has no CPU", shortage().nothing()));
    candidates_.keep(cpus, "an accelerator, and the CPU was asked for");
    apply_filters(cpus);
    if (candidates_.kept().empty())
      refuse(GSEL_ERR_NO_DEVICES, input_, whole(), fmt::format("the CPU is {}", candidates_.reason(cpus.front())));
    if (picker_ && picker_->kind == Kind::count && picker_->number > 1)
      refuse(GSEL_ERR_OUT_OF_RANGE, input_, picker_->tokens.front(), "a host has one CPU, which serves every rank");
    for (const Unit& cpu : candidates_.kept()) candidates_.note(cpu, why);
  }

  // ---- helpers ----

  Shortage shortage() const { return {candidates_, question_, choice_, scene_}; }

  Token whole() const { return choice_.whole.text == input_.value ? Token{input_.value, 1, false} : choice_.whole; }

  std::vector<std::vector<Unit>> kept_by_host() const {
    std::vector<std::vector<Unit>> out(inventory_.hosts.size());
    for (const Unit& unit : candidates_.kept()) out[static_cast<size_t>(candidates_.device(unit).host)].push_back(unit);
    return out;
  }

  void keep(const std::vector<Unit>& units, const std::string& why_not) {
    candidates_.keep(units, why_not);
    for (size_t i = 0; i < units.size(); ++i)
      candidates_.note(units[i], fmt::format("position {} of {}", i, printable(input_.value)));
  }

  // CUDA lets a process see one MIG instance and nothing else.
  void check_instances() const {
    const auto& units = candidates_.kept();
    if (question_.per_rank || units.size() < 2) return;
    for (const Unit& unit : units)
      if (unit.partition >= 0)
        refuse(GSEL_ERR_UNSUPPORTED, input_, whole(),
               fmt::format("{} units with {} among them: CUDA lets a process see one MIG instance alone; name one by "
                           "mig:, or give each rank its own",
                           units.size(), unit_text(inventory_, unit)));
  }

  void need_some() const {
    if (!candidates_.kept().empty()) return;
    const auto& devices = inventory_.devices;
    const bool cpu = std::any_of(devices.begin(), devices.end(), [](const Device& device) { return device.is_cpu(); });
    const bool named = question_.accelerator != "auto" && scene_.accelerators.empty();
    const Input input = named ? Input{"accelerator", question_.accelerator} : input_;
    refuse(GSEL_ERR_NO_DEVICES, input, named ? Token{input.value, 1, false} : whole(),
           fmt::format("{}{}{}", shortage().nothing(), shortage().glob_hint(), cpu ? "; cpu would work" : ""));
  }

  Candidates& candidates_;
  const Inventory& inventory_;
  const Question& question_;
  const Choice& choice_;
  const Clause* picker_;
  const Scene& scene_;
  Trace& trace_;
  const Input& input_;
  std::vector<int32_t> hosts_;  // of the scene, without those that this choice excludes
  gsel_status unavailable_code_ = GSEL_OK;
  std::vector<std::string> unavailable_;
};

}  // namespace

void choose_one(Candidates& candidates, const Question& question, const Choice& choice, const Scene& scene,
                Trace& trace) {
  Chooser(candidates, question, choice, scene, trace).run();
}

// ---- too few devices ------------------------------------------------------------------------------------------------

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
