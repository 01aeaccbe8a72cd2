// select/resolve.cc: see resolve.h.
#include "select/resolve.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "select/spec.h"

namespace gsel {
namespace {

const auto is_any = [](const Device&) { return true; };
const auto is_cpu = [](const Device& device) { return device.is_cpu(); };

std::string quoted(const Spec& spec) {
  return printable(spec.input.value);
}

// What is asked, with the two fields of the request brought together.
struct Question {
  Spec spec;
  std::string accelerator;  // "auto", "cpu", or a row of rules()

  bool wants_cpu() const { return accelerator == "cpu" || spec.kind == Spec::Kind::cpu; }
  bool may_fall_back() const { return accelerator == "auto" && spec.kind == Spec::Kind::automatic; }
  bool covers(const Rules& row) const { return accelerator == "auto" || accelerator == row.accelerator; }
};

Question read_question(const Request& request) {
  Question question{parse_spec(request.devices), request.accelerator.value_or("auto")};
  const std::string& accelerator = question.accelerator;
  std::vector<std::string> known{"auto", "cpu"};
  for (const Rules& row : rules()) known.push_back(row.accelerator);
  const Input input{"accelerator", accelerator};
  const Token token{accelerator, 1, false};
  if (std::find(known.begin(), known.end(), accelerator) == known.end())
    refuse(GSEL_ERR_SYNTAX, input, token, fmt::format("is no accelerator; {} work", fmt::join(known, ", ")));
  const Spec& spec = question.spec;
  const bool names_accelerators =
      spec.kind == Spec::Kind::count || spec.kind == Spec::Kind::index || spec.kind == Spec::Kind::uuid;
  if ((accelerator == "cpu" && names_accelerators) ||
      (accelerator != "cpu" && accelerator != "auto" && spec.kind == Spec::Kind::cpu))
    refuse(GSEL_ERR_CONFLICT, input, token,
           fmt::format("does not go with {}; leave one of them out", spec.input.shown()));
  return question;
}

class Resolver {
 public:
  Resolver(const Inventory& inventory, const Environment& environment, const Request& request)
      : candidates_(inventory), environment_(environment), question_(read_question(request)) {}

  Selection run() {
    check_hosts();
    if (question_.wants_cpu()) {
      take_cpu("the CPU was asked for");
    } else {
      keep_visible();
      if (candidates_.kept().empty() && question_.may_fall_back())
        fall_back();
      else
        apply_spec();
    }
    return {candidates_.inventory(), candidates_.kept(), candidates_.verdicts(), std::move(warnings_)};
  }

 private:
  // ---- layers ----

  void check_hosts() const {
    const auto& devices = candidates_.inventory().devices;
    for (const Device& device : devices)
      if (device.host != devices.front().host)
        fail(GSEL_ERR_UNSUPPORTED, "inventory has hosts {} and {}; devices are selected on one host at a time",
             devices.front().host, device.host);
  }

  // Accelerators of the kinds asked for, without what the environment hides.
  void keep_visible() {
    all_ = accelerators();
    candidates_.narrow(all_, is_cpu, "a CPU, taken only when no accelerator is visible or when asked for");
    candidates_.narrow(all_, is_any, "not among what was asked for, or of a vendor that gsel has no rules for");
    for (const Rules& row : rules())
      if (question_.covers(row)) row.narrow(candidates_, environment_, warnings_);
  }

  void apply_spec() {
    switch (question_.spec.kind) {
      case Spec::Kind::count:
        return take_count();
      case Spec::Kind::index:
      case Spec::Kind::uuid:
        return take_named();
      default:
        return take_all();
    }
  }

  void take_all() {
    need_some();
    for (int32_t index : candidates_.kept()) candidates_.note(index, fmt::format("kept by {}", quoted(question_.spec)));
  }

  void take_count() {
    need_some();
    const Spec& spec = question_.spec;
    const auto& visible = candidates_.kept();
    if (spec.count > static_cast<int64_t>(visible.size()))
      refuse(GSEL_ERR_OUT_OF_RANGE, spec.input, spec.tokens.front(),
             fmt::format("{} of {} accelerators {} visible{}; count:{} would work", visible.size(), all_.size(),
                         visible.size() == 1 ? "is" : "are", hidden_text(), visible.size()));
    const std::vector<int32_t> first(visible.begin(), visible.begin() + spec.count);
    const std::string rest = fmt::format("not needed: {} takes the first {} of {} visible accelerators", quoted(spec),
                                         spec.count, visible.size());
    keep(first, rest);
  }

  void take_named() {
    if (all_.empty()) need_some();
    const Spec& spec = question_.spec;
    std::vector<int32_t> order;
    for (const Token& token : spec.tokens) {
      const int32_t index =
          spec.kind == Spec::Kind::index ? by_index(token) : find_uuid(candidates_.inventory(), spec.input, token);
      if (std::find(order.begin(), order.end(), index) != order.end())
        refuse(GSEL_ERR_DUPLICATE, spec.input, token, "this device stands in the list before");
      if (!candidates_.keeps(index)) refuse_hidden(token, index);
      order.push_back(index);
    }
    keep(order, fmt::format("not named by {}", quoted(spec)));
  }

  // Indexes count all accelerators in bus order, whatever is visible or asked for.
  int32_t by_index(const Token& token) const {
    int64_t left = number_of(token.text);
    int64_t count = 0;
    const auto& devices = candidates_.inventory().devices;
    for (size_t i = 0; i < devices.size(); ++i) {
      if (devices[i].is_cpu()) continue;
      if (left-- == 0) return static_cast<int32_t>(i);
      ++count;
    }
    refuse(GSEL_ERR_OUT_OF_RANGE, question_.spec.input, token,
           fmt::format("this machine has {} accelerator{}, index:0 to index:{} in bus order", count,
                       count == 1 ? "" : "s", count - 1));
  }

  void fall_back() {
    const std::string why = nothing_text();
    take_cpu(fmt::format("taken because there was nothing else: {}", why));
    warnings_.push_back(fmt::format("the CPU was taken: {}", why));
  }

  void take_cpu(const std::string& why) {
    std::vector<int32_t> cpus;
    const auto& devices = candidates_.inventory().devices;
    for (size_t i = 0; i < devices.size(); ++i)
      if (devices[i].is_cpu()) cpus.push_back(static_cast<int32_t>(i));
    if (cpus.empty())
      refuse(GSEL_ERR_NO_DEVICES, question_.spec.input, {question_.spec.input.value, 1, false},
             all_.empty() && !question_.wants_cpu() ? fmt::format("{}, and the inventory has no CPU", nothing_text())
                                                    : "the inventory has no CPU");
    candidates_.narrow(cpus, is_any, "an accelerator, and the CPU was asked for");
    candidates_.explain(cpus.front(), why);
  }

  // ---- helpers ----

  std::vector<int32_t> accelerators() const {
    std::vector<int32_t> out;
    for (int32_t index : candidates_.kept()) {
      const Rules* row = rules_for(candidates_.device(index).vendor);
      if (row && question_.covers(*row)) out.push_back(index);
    }
    return out;
  }

  void keep(const std::vector<int32_t>& order, const std::string& why_not) {
    candidates_.narrow(order, is_any, why_not);
    for (size_t i = 0; i < order.size(); ++i)
      candidates_.note(order[i], fmt::format("place {} of {}", i, quoted(question_.spec)));
  }

  void refuse_hidden(const Token& token, int32_t index) const {
    const Device& device = candidates_.device(index);
    refuse(GSEL_ERR_CONFLICT, question_.spec.input, token,
           fmt::format("asks for device {} ({}), which is {}; change one of them", index, device.uuid,
                       candidates_.reason(index)));
  }

  void need_some() const {
    if (!candidates_.kept().empty()) return;
    const bool cpu =
        std::any_of(candidates_.inventory().devices.begin(), candidates_.inventory().devices.end(), is_cpu);
    const bool both = question_.accelerator != "auto";
    const Input input = both ? Input{"accelerator", question_.accelerator} : question_.spec.input;
    refuse(GSEL_ERR_NO_DEVICES, input, {input.value, 1, false},
           fmt::format("{}{}", nothing_text(), cpu ? "; cpu would work" : ""));
  }

  // Why no accelerator is left.
  std::string nothing_text() const {
    if (!all_.empty()) return fmt::format("no accelerator is visible{}", hidden_text());
    std::vector<std::string> labels;
    for (const Rules& row : rules())
      if (question_.covers(row)) labels.push_back(row.label);
    const auto& notes = candidates_.inventory().notes;
    return fmt::format("no accelerator was found, looked for {}{}", fmt::join(labels, ", "),
                       notes.empty() ? "" : fmt::format(" ({})", fmt::join(notes, "; ")));
  }

  // ", 6 of 8 hidden by CUDA_VISIBLE_DEVICES=0,1" or nothing.
  std::string hidden_text() const {
    int32_t hidden = -1;
    size_t count = 0;
    for (int32_t index : all_) {
      if (candidates_.keeps(index)) continue;
      hidden = index;
      ++count;
    }
    return count ? fmt::format(", {} of {} {}", count, all_.size(), candidates_.reason(hidden)) : "";
  }

  Candidates candidates_;
  const Environment& environment_;
  Question question_;
  std::vector<int32_t> all_;  // accelerators asked for, before masks
  std::vector<std::string> warnings_;
};

}  // namespace

Selection resolve(const Inventory& inventory, const Environment& environment, const Request& request) {
  return Resolver(inventory, environment, request).run();
}

}  // namespace gsel
