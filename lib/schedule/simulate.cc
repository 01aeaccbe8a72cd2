// schedule/simulate.cc: see simulate.h.
#include "schedule/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/json.h"
#include "schedule/schedule_walk.h"

namespace gsel {
namespace {

double time_of(const StageTimes& times, int32_t kind) {
  switch (kind) {
    case GSEL_FORWARD:
      return times.forward;
    case GSEL_BACKWARD_INPUT:
      return times.backward_input;
    case GSEL_BACKWARD_WEIGHT:
      return times.backward_weight;
    default:
      return times.backward_input + times.backward_weight;
  }
}

class Simulator {
 public:
  Simulator(const Schedule& schedule, std::span<const StageTimes> times, double hop) : s_(schedule) {
    out_.name = schedule.name;
    out_.n_microbatches = schedule.n_microbatches;
    out_.times.assign(times.begin(), times.end());
    out_.hop = hop;
    out_.messages_forward.resize(schedule.rank_of.size() - 1);
    out_.messages_backward.resize(schedule.rank_of.size() - 1);
    for (const auto& row : schedule.rows) out_.rows.emplace_back().reserve(row.size());
    forward_end_.resize(schedule.cell(schedule.n_stages(), 0));
    backward_end_.resize(forward_end_.size());
  }

  Simulation run() {
    ScheduleWalk(s_).run([&](int32_t rank, size_t i) { place_action(rank, i); });
    sum_up_ranks();
    count_activations();
    return std::move(out_);
  }

 private:
  void place_action(int32_t rank, size_t i) {
    const gsel_action& action = s_.rows[static_cast<size_t>(rank)][i];
    auto& row = out_.rows[static_cast<size_t>(rank)];
    const double begin = std::max(row.empty() ? 0 : row.back().end, arrival(rank, action));
    const double end = begin + time_of(out_.times[static_cast<size_t>(action.stage)], action.kind);
    row.push_back({action, begin, end});
    if (action.kind != GSEL_BACKWARD_WEIGHT) ends(action.kind)[s_.cell(action.stage, action.microbatch)] = end;
  }

  // When the input from another stage is available; it is a message if that stage is on another rank.
  double arrival(int32_t rank, const gsel_action& action) {
    const std::optional<int32_t> read = stage_read(s_, action);
    if (!read) return 0;
    const double made = ends(action.kind)[s_.cell(*read, action.microbatch)];
    if (s_.rank_of[static_cast<size_t>(*read)] == rank) return made;
    const auto boundary = static_cast<size_t>(std::min(*read, action.stage));
    ++(action.kind == GSEL_FORWARD ? out_.messages_forward : out_.messages_backward)[boundary];
    return made + out_.hop;
  }

  std::vector<double>& ends(int32_t kind) { return kind == GSEL_FORWARD ? forward_end_ : backward_end_; }

  void sum_up_ranks() {
    double first = out_.rows.empty() ? 0 : out_.rows.front().front().begin, last = 0;
    for (const auto& row : out_.rows) {
      double busy = 0;
      for (const TimedAction& timed : row)
        busy += time_of(out_.times[static_cast<size_t>(timed.action.stage)], timed.action.kind);
      out_.busy.push_back(busy);
      out_.ideal = std::max(out_.ideal, busy);
      out_.longest_rank_span = std::max(out_.longest_rank_span, row.back().end - row.front().begin);
      first = std::min(first, row.front().begin);
      last = std::max(last, row.back().end);
    }
    out_.makespan = last - first;
  }

  void count_activations() {
    const std::vector<int32_t> stages = stages_of_ranks(s_);
    for (size_t rank = 0; rank < s_.rows.size(); ++rank) {
      int64_t held = 0, most = 0, until_input = 0, most_until_input = 0;
      for (const gsel_action& action : s_.rows[rank]) {
        if (action.kind == GSEL_FORWARD) {
          most = std::max(most, ++held);
          most_until_input = std::max(most_until_input, ++until_input);
        }
        if (is_backward(action.kind)) --until_input;
        if (action.kind == GSEL_BACKWARD || action.kind == GSEL_BACKWARD_WEIGHT) --held;
      }
      out_.peak_activations.push_back(static_cast<double>(most) / stages[rank]);
      out_.peak_until_input.push_back(static_cast<double>(most_until_input) / stages[rank]);
    }
  }

  const Schedule& s_;
  std::vector<double> forward_end_, backward_end_;  // by cell
  Simulation out_;
};

}  // namespace

std::vector<StageTimes> equal_stages(const Schedule& schedule, const StageTimes& share) {
  const std::vector<int32_t> stages = stages_of_ranks(schedule);
  std::vector<StageTimes> times;
  for (int32_t rank : schedule.rank_of) {
    const double parts = stages[static_cast<size_t>(rank)];
    times.push_back({share.forward / parts, share.backward_input / parts, share.backward_weight / parts});
  }
  return times;
}

Simulation simulate(const Schedule& schedule, std::span<const StageTimes> times, double hop) {
  return Simulator(schedule, times, hop).run();
}

// ---- as JSON -------------------------------------------------------------------------------------------------------

namespace {

class Writer {
 public:
  explicit Writer(const Simulation& simulation) : s_(simulation) {}

  std::string write() {
    print("{{\n  \"gsel-simulation\": 1");
    field("schedule", Json(s_.name).on_one_line());
    field("ranks", s_.rows.size());
    field("stages", s_.times.size());
    field("microbatches", s_.n_microbatches);
    field("chunks", chunks());
    list("rank_of_stage", ranks_of_stages());
    print(",\n  \"times\": [");
    each(s_.times, ", ",
         [&](const StageTimes& t) { print("[{}, {}, {}]", t.forward, t.backward_input, t.backward_weight); });
    print("]");
    if (s_.unit_s > 0) field("unit_s", s_.unit_s);
    field("hop", s_.hop);
    field("makespan", s_.makespan);
    field("ideal", s_.ideal);
    field("bubble_of_makespan", s_.bubble_of_makespan());
    field("bubble_of_ideal", s_.bubble_of_ideal());
    field("longest_rank_span", s_.longest_rank_span);
    list("busy", s_.busy);
    list("peak_activations", s_.peak_activations);
    list("peak_until_input", s_.peak_until_input);
    list("messages", both_ways());
    list("messages_forward", s_.messages_forward);
    list("messages_backward", s_.messages_backward);
    rows();
    print("\n}}\n");
    return fmt::to_string(text_);
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  template <class Items, class Print>
  void each(const Items& items, const char* between, Print&& print_one) {
    const char* before = "";
    for (const auto& item : items) {
      put(before);
      print_one(item);
      before = between;
    }
  }

  template <class T>
  void field(const char* name, const T& value) {
    print(",\n  \"{}\": {}", name, value);
  }

  template <class T>
  void list(const char* name, const std::vector<T>& values) {
    print(",\n  \"{}\": [", name);
    each(values, ", ", [&](const T& value) { print("{}", value); });
    print("]");
  }

  // The bulk of the document, written without format strings for speed.
  void rows() {
    print(",\n  \"rows\": [\n");
    each(s_.rows, ",\n", [&](const std::vector<TimedAction>& row) {
      print("    [");
      each(row, ",\n     ", [&](const TimedAction& timed) {
        put("{\"action\": \"");
        put(to_text(timed.action));
        put("\", \"begin\": ");
        put_number(timed.begin);
        put(", \"end\": ");
        put_number(timed.end);
        put("}");
      });
      print("]");
    });
    print("\n  ]");
  }

  void put(std::string_view text) { text_.append(text.data(), text.data() + text.size()); }

  void put_number(double number) {
    constexpr double kExact = 1e15;  // integers below this print without exponent
    if (number < kExact && number == std::floor(number))
      put({fmt::format_int(static_cast<int64_t>(number)).c_str()});
    else
      print("{}", number);
  }

  std::vector<size_t> ranks_of_stages() const {
    std::vector<size_t> ranks(s_.times.size());
    for (size_t rank = 0; rank < s_.rows.size(); ++rank)
      for (const TimedAction& timed : s_.rows[rank]) ranks[static_cast<size_t>(timed.action.stage)] = rank;
    return ranks;
  }

  // The most stages on a rank.
  int64_t chunks() const {
    std::vector<int64_t> stages(s_.rows.size());
    for (size_t rank : ranks_of_stages()) ++stages[rank];
    return *std::max_element(stages.begin(), stages.end());
  }

  std::vector<int64_t> both_ways() const {
    std::vector<int64_t> messages = s_.messages_forward;
    for (size_t i = 0; i < messages.size(); ++i) messages[i] += s_.messages_backward[i];
    return messages;
  }

  const Simulation& s_;
  fmt::memory_buffer text_;
};

}  // namespace

std::string to_json(const Simulation& simulation) {
  return Writer(simulation).write();
}

}  // namespace gsel
