// schedule/simulate_json.cc: a simulation as JSON, written incrementally since a schedule has many actions. The first
// key names the kind of document.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/json.h"
#include "schedule/simulate.h"

namespace gsel {
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
