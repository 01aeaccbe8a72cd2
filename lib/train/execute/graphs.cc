// train/execute/graphs.cc: see graphs.h.
#include "train/execute/graphs.h"

#include <algorithm>

#include "base/log.h"
#include "base/os.h"
#include "train/execute/instructions.h"

namespace gsel::execute {
namespace {

std::string why_not_over_ranks(const Fixed& fixed, const Program& program, int32_t world_size) {
  if (fixed.config.train.graph == "auto")
    return fmt::format(
        "the communicator has {} ranks, which could not give up a recording together; set train.graph = "
        "\"on\"",
        world_size);
  for (const gsel_instr& instr : program.step)
    if (const InstrRow& row = instr_row(instr.kind); row.in_graph == InGraph::no && row.task != InstrTask::input)
      return fmt::format("the program of the {} ranks has \"{}\", which is no part of a graph", world_size, row.word);
  return "";
}

std::string why_not(const Fixed& fixed, const Program& program, int32_t world_size) {
  if (!fixed.device->compute())
    return "the trainer's device is the host, which has no graphs; set train.device = \"cuda\"";
  if (!Graph::exist_on(*fixed.device))
    return "the plugin of the device has no graphs; use one of plugin ABI 1.10 or newer";
  if (fixed.config.train.lending == "moved")
    return "train.lending = \"moved\" gives each call other addresses; set train.lending = \"direct\"";
  return world_size > 1 ? why_not_over_ranks(fixed, program, world_size) : "";
}

[[noreturn]] void refuse(const Fixed& fixed, const std::string& why) {
  const Place place = fixed.config.place_of("train.graph");
  throw Error(GSEL_ERR_UNSUPPORTED,
              fmt::format("{}train.graph = \"on\" is not possible: {}; or set train.graph = \"auto\"",
                          place_prefix(place), why))
      .at(place);
}

bool lacks_samples(const Run& run) {
  for (size_t m = 0; m < run.empty.size(); ++m)
    if (run.empty[m] && run.program.microbatches[m].count > 0) return true;
  return false;
}

}  // namespace

bool is_of_tail(const gsel_instr& instr) {
  return instr_row(instr.kind).in_graph == InGraph::at_end;
}

StepGraphs::StepGraphs(const Fixed& fixed, const HeldMemory& memory, const Program& program, int32_t world_size)
    : device_(fixed.device),
      n_ranks_(world_size),
      is_wanted_(fixed.config.train.graph != "off"),
      is_required_(fixed.config.train.graph == "on") {
  if (!is_wanted_) return;
  const std::string why = why_not(fixed, program, world_size);
  if (why.empty()) {
    find_segments(program, world_size == 1 && fixed.optimizer.has_graphs(*device_));
    make_memory(fixed.model, program, memory);
    return;
  }
  if (is_required_) refuse(fixed, why);
  turn_off(why);
}

void StepGraphs::refuse_calls(const Fixed& fixed, AxisComms& comms) const {
  if (!is_wanted_ || n_ranks_ == 1) return;
  if (const std::string why = comms.why_not_captured(); !why.empty()) refuse(fixed, why);
}

void StepGraphs::find_segments(const Program& program, bool with_tail) {
  at_.assign(program.step.size() + 1, -1);
  for (size_t i = 0; i < program.step.size(); ++i) {
    const InGraph in_graph = instr_row(program.step[i].kind).in_graph;
    const bool is_tail = in_graph == InGraph::at_end;
    if (is_tail ? !with_tail : in_graph == InGraph::no) continue;
    if (segments_.empty() || segments_.back().end != i) {
      at_[i] = static_cast<int32_t>(segments_.size());
      Segment& made = segments_.emplace_back();
      made.begin = made.end = made.tail = i;
    }
    Segment& segment = segments_.back();
    if (segment.tail == segment.end && !is_tail) segment.tail = i + 1;
    segment.end = i + 1;
  }
}

void StepGraphs::turn_off(const std::string& why) {
  is_wanted_ = false;
  reason_ = why;
  segments_.clear();
  log(GSEL_LOG_INFO, "train", "train.graph = \"auto\": steps run without graphs: {}", why);
}

// ---- the host's side ------------------------------------------------------------------------------------------------

StepGraphs::Mark StepGraphs::mark_of(const State& s) {
  const Run& run = *s.run;
  return {run.position,     s.numbers.count(), run.record.intervals.size(), run.fetched, run.pending_checks,
          run.weight_begun, run.used,          s.params.windows(),          s.n_async,   s.last_async};
}

void StepGraphs::go_to(State& s, const Mark& mark) {
  Run& run = *s.run;
  run.position = mark.position;
  run.phase = 0;
  s.numbers.set_count(mark.numbers);
  run.fetched = mark.fetched;
  run.pending_checks = mark.pending_checks;
  run.weight_begun = mark.weight_begun;
  run.used = mark.used;
  s.params.set_windows(mark.windows);
  s.n_async = mark.n_async;
  s.last_async = mark.last_async;
}

// ---- recordings and launches ----------------------------------------------------------------------------------------

bool StepGraphs::pass(State& s) {
  if (!is_wanted_ || s.run != &s.training) return false;
  if (recorded_) {
    if (s.run->position != recorded_->end) return false;
    finish(s);
    return true;
  }
  if (launched_ && s.run->position == launched_->end) launched_ = nullptr;
  if (launched_) return false;
  const int32_t i = at_[s.run->position];
  if (i < 0) return false;
  Segment& segment = segments_[static_cast<size_t>(i)];
  const Way way = agreed(s, way_of(s, segment));
  if (way == Way::launched) {
    launch(s, segment);
    return true;
  }
  if (way == Way::recorded) record(s, segment);
  return false;
}

StepGraphs::Way StepGraphs::way_of(const State& s, Segment& segment) const {
  if (lacks_samples(*s.run)) return Way::plain;
  if (segment.graph && (segment.memory != s.run->memory->data() || segment.loss_scale != s.loss_scale.value()))
    segment.graph.reset();
  if (segment.graph) return Way::launched;
  return std::exchange(segment.was_run, true) ? Way::recorded : Way::plain;
}

// A launch makes the calls of its graph, so all ranks launch, or none does.
StepGraphs::Way StepGraphs::agreed(State& s, Way way) const {
  if (n_ranks_ == 1) return way;
  for (gsel_axis axis = 0; axis < kAxes; ++axis) s.counts.set_poster(axis, GSEL_COLLECTIVE_ALLREDUCE, 0);
  auto least = static_cast<int32_t>(way);
  s.comms.world().collective_on_host(make_collective(GSEL_COLLECTIVE_ALLREDUCE, &least, &least, 1, GSEL_I32, GSEL_MIN));
  return static_cast<Way>(least);
}

void StepGraphs::record(State& s, Segment& segment) {
  segment.graph.reset();
  before_ = mark_of(s);
  recorded_ = &segment;
  if (n_ranks_ > 1) segment.calls = s.counts.end();
  segment.squares.clear();
  next_factors_ = nullptr;
  thread_ = std::this_thread::get_id();
  Graph::begin(*device_);
  is_open_ = true;
}

// The device ends a recording for the thread that began it.
void StepGraphs::refuse_thread() const {
  if (thread_ != std::this_thread::get_id())
    fail(GSEL_ERR_STATE,
         "a step that is recorded as a graph is driven by another thread than began it; drive a trainer "
         "with train.graph from one thread");
}

std::string StepGraphs::why_broken() const {
  try {
    refuse_thread();
    Graph::check(*device_);
    return "";
  } catch (const Error& error) {
    return error.message();
  }
}

// Calls under way end in the graph, and their WAIT finds nothing to do.
void StepGraphs::finish(State& s) {
  refuse_thread();
  for (size_t b = 0; b < s.buckets.size(); ++b) wait_bucket(s, static_cast<int32_t>(b));
  is_open_ = false;
  recorded_->graph = std::make_unique<Graph>(device_);
  recorded_->memory = s.run->memory->data();
  recorded_->loss_scale = s.loss_scale.value();
  recorded_->after = mark_of(s);
  recorded_->after.n_async = before_.n_async;  // the events of its calls are in the graph
  recorded_->after.last_async = before_.last_async;
  Segment& segment = *std::exchange(recorded_, nullptr);
  if (n_ranks_ > 1) segment.calls = difference(s.counts.end(), segment.calls);
  segment.graph->launch();
  ++launches_;
  go_after(s, segment);
}

void StepGraphs::go_after(State& s, const Segment& segment) {
  go_to(s, segment.after);
  s.run->position = segment.tail;
  if (segment.tail < segment.end) launched_ = &segment;
  n_checks_ = 0;
}

// The host's time counts for the first instruction.
void StepGraphs::launch(State& s, Segment& segment) {
  Run& run = *s.run;
  const double began = os::now_seconds();
  const size_t position = run.position;
  segment.graph->launch();
  ++launches_;
  if (n_ranks_ > 1) s.counts.add(segment.calls);
  go_after(s, segment);
  run.record.intervals.push_back({position, began - run.began, os::now_seconds() - run.began, false});
}

// ---- recordings that end early --------------------------------------------------------------------------------------

std::optional<Error> StepGraphs::give_up(State& s, const std::string& why) {
  if (is_open_) refuse_thread();
  if (std::exchange(is_open_, false)) Graph::drop(*device_);
  recorded_ = nullptr;
  if (const std::string failure = device_->failure(); !failure.empty())  // no step can be recorded or run
    return Error(GSEL_ERR_DEVICE, fmt::format("{}; {}", why, failure));
  if (is_required_)
    return Error(
        GSEL_ERR_UNSUPPORTED,
        fmt::format("train.graph = \"on\" and the step cannot be recorded: {}; or set train.graph = \"auto\"", why));
  s.lent.lender.take_back();
  s.lent.handed_out = false;
  s.run->record.intervals.resize(before_.intervals);
  go_to(s, before_);
  turn_off(why);
  return {};
}

void StepGraphs::abandon() noexcept {
  if (std::exchange(is_open_, false)) Graph::drop(*device_);
  recorded_ = nullptr;
}

}  // namespace gsel::execute
