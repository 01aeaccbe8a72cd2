// schedules.cc: see schedules.h. All output comes from the simulation's JSON (docs/pipeline.md).
#include "schedules.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "client.h"
#include "schedule_text.h"
#include "table.h"
#include "usage.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMost = 1'000'000;

// A schedule with its simulation.
struct Simulated {
  Handle<gsel_schedule> schedule;
  std::string document;
  Json json;
};

bool is_file(const std::string& name) {
  return name.find_first_of("/.") != name.npos;
}

double time_from(const std::string& option, std::string_view text, const std::string& whole) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !(value >= 0) || !std::isfinite(value))
    refuse(GSEL_ERR_ARG, option + " " + whole +
                             (option == "--times" ? ": three numbers from 0 are needed, forward, backward input and "
                                                    "backward weight, such as 1,1,1"
                                                  : ": a number from 0 is needed, in the unit of --times"));
  return value;
}

gsel_schedule_times times_of(const ScheduleOptions& options) {
  gsel_schedule_times times = GSEL_SCHEDULE_TIMES_INIT;
  double* fields[] = {&times.forward, &times.backward_input, &times.backward_weight};
  const std::string text = options.times.empty() ? "1,1,1" : options.times;
  size_t from = 0;
  for (size_t i = 0; i < 3; ++i) {
    const size_t comma = std::min(text.find(',', from), text.size());
    const bool last = i == 2;
    if ((comma == text.size()) != last) time_from("--times", "", text);
    *fields[i] = time_from("--times", std::string_view(text).substr(from, comma - from), text);
    from = comma + 1;
  }
  if (!options.hop.empty()) times.hop = time_from("--hop", options.hop, options.hop);
  return times;
}

int32_t count(const char* option, const std::string& text, int64_t least) {
  return static_cast<int32_t>(number_from(option, text, least, kMost));
}

Handle<gsel_schedule> by_name(const std::string& name, const ScheduleOptions& options) {
  if (options.stages.empty() || options.microbatches.empty())
    refuse(GSEL_ERR_ARG, "--schedule " + name + ": --stages and --microbatches are needed; only a file has its own");
  gsel_schedule* schedule = nullptr;
  gsel_error* error = nullptr;
  check(gsel_schedule_create(borrow(name), count("--stages", options.stages, 1),
                             count("--microbatches", options.microbatches, 1),
                             options.chunks.empty() ? 0 : count("--chunks", options.chunks, 1), &schedule, &error),
        &error);
  return Handle<gsel_schedule>(schedule);
}

// A number given as an option must be that of the file.
void check_number(const std::string& file, const char* option, const std::string& asked, int32_t found) {
  if (!asked.empty() && count(option, asked, 1) != found)
    refuse(GSEL_ERR_CONFIG, file + ": has " + std::to_string(found) + " of what " + option + " " + asked +
                                " asks for; leave " + option + " out");
}

Handle<gsel_schedule> from_file(const std::string& file, const ScheduleOptions& options) {
  const std::string content = read_file(file);
  gsel_schedule* schedule = nullptr;
  gsel_error* error = nullptr;
  check(gsel_schedule_parse(borrow(content), borrow(file), &schedule, &error), &error);
  Handle<gsel_schedule> read(schedule);
  const int32_t ranks = gsel_schedule_ranks(schedule), stages = gsel_schedule_stages(schedule);
  check_number(file, "--stages", options.stages, ranks);
  check_number(file, "--microbatches", options.microbatches, gsel_schedule_microbatches(schedule));
  check_number(file, "--chunks", options.chunks, (stages + ranks - 1) / ranks);
  return read;
}

Simulated simulated(const std::string& name, const ScheduleOptions& options, const gsel_schedule_times& times) {
  Simulated out{is_file(name) ? from_file(name, options) : by_name(name, options), {}, {}};
  gsel_simulation* simulation = nullptr;
  gsel_error* error = nullptr;
  check(gsel_schedule_simulate(out.schedule.get(), &times, &simulation, &error), &error);
  const Handle<gsel_simulation> freed(simulation);
  out.document = text(gsel_simulation_json(simulation));
  out.json = Json::parse(out.document);
  return out;
}

// ---- tables ----

std::string amount(const Json& value) {
  return formatted("%.6g", value.get<double>() + 0.0);
}

std::string percent(const Json& value) {
  return formatted("%.1f %%", value.get<double>() * 100 + 0.0);
}

// "4 stages x 8 micro-batches, 2 chunks each"
std::string shape_of(const Json& s) {
  std::string text = with_noun(s.at("ranks"), "stage") + " x " + with_noun(s.at("microbatches"), "micro-batch");
  if (s.at("chunks") != 1) text += ", " + s.at("chunks").dump() + " chunks each";
  return text;
}

std::string most(const Json& values) {
  double most = 0;
  for (const Json& value : values) most = std::max(most, value.get<double>());
  return formatted("%.6g", most);
}

int64_t sum(const Json& values) {
  int64_t sum = 0;
  for (const Json& value : values) sum += value.get<int64_t>();
  return sum;
}

std::string simulation_text(const Json& s) {
  std::string out = s.at("schedule").get<std::string>() + ", " + shape_of(s) + "\n";
  out += table({{"makespan", amount(s.at("makespan")), ""},
                {"ideal", amount(s.at("ideal")), "work of the busiest rank"},
                {"bubble of makespan", percent(s.at("bubble_of_makespan")), "(makespan - ideal) / makespan"},
                {"bubble of ideal", percent(s.at("bubble_of_ideal")), "(makespan - ideal) / ideal"},
                {"longest rank span", amount(s.at("longest_rank_span")), "from a rank's first action to its last"}});
  std::vector<Row> rows{{"rank", "busy", "peak activations", "until backward input"}};
  for (size_t rank = 0; rank < s.at("busy").size(); ++rank)
    rows.push_back({std::to_string(rank), amount(s["busy"][rank]), amount(s.at("peak_activations")[rank]),
                    amount(s.at("peak_until_input")[rank])});
  out += "\n" + table(rows) + "\n";
  rows = {{"boundary", "messages", "forward", "backward"}};
  const Json& ranks = s.at("rank_of_stage");
  for (size_t i = 0; i < s.at("messages").size(); ++i)
    rows.push_back({"stage " + std::to_string(i) + " to " + std::to_string(i + 1), s["messages"][i].dump(),
                    s.at("messages_forward")[i].dump(), s.at("messages_backward")[i].dump(),
                    ranks[i] == ranks[i + 1] ? "both on rank " + ranks[i].dump() : ""});
  return rows.size() > 1 ? out + table(rows) : out;
}

std::string compared(const std::vector<Simulated>& all) {
  std::vector<Row> rows{{"schedule", "chunks", "makespan", "ideal", "bubble of makespan", "bubble of ideal",
                         "longest rank span", "most activations", "messages"}};
  for (const Simulated& one : all) {
    const Json& s = one.json;
    rows.push_back({s.at("schedule").get<std::string>(), s.at("chunks").dump(), amount(s.at("makespan")),
                    amount(s.at("ideal")), percent(s.at("bubble_of_makespan")), percent(s.at("bubble_of_ideal")),
                    amount(s.at("longest_rank_span")), most(s.at("peak_activations")),
                    std::to_string(sum(s.at("messages")))});
  }
  return table(rows);
}

// ---- output ----

void draw_all(const std::vector<Simulated>& all, const ScheduleOptions& options) {
  if (options.svg.empty() && options.chrome.empty()) return;
  const Handle<gsel_timeline> timeline = new_timeline();
  for (const Simulated& one : all) add(timeline.get(), one.document, one.json.at("schedule").get<std::string>());
  draw(timeline.get(), GSEL_TIMELINE_SVG, options.svg);
  draw(timeline.get(), GSEL_TIMELINE_CHROME, options.chrome);
}

std::string documents(const std::vector<Simulated>& all) {
  Json list = Json::array();
  for (const Simulated& one : all) list.push_back(one.json);
  return json_text({{"schedules", std::move(list)}});
}

}  // namespace

void add_schedule_options(Parser& group, ScheduleOptions& options) {
  group.option("--stages", options.stages, "P", "Ranks of the pipeline.");
  group.option("--microbatches", options.microbatches, "M", "Micro-batches of a step.");
  group.option("--chunks", options.chunks, "V", "Stages of each rank; left out: what the schedule needs.");
  group.option("--times", options.times, "F,I,W",
               "What forward and the two halves of backward of a rank take for a micro-batch, in any one unit; "
               "left out: 1,1,1.");
  group.option("--hop", options.hop, "C", "What it takes to get from rank to rank, in that unit; left out: 0.");
  group.flag("--text", options.text, "Draw the timeline in the terminal.");
  group.flag("--rows", options.rows, "Print the rows of the schedule, which --schedule FILE reads.");
  group.option("--svg", options.svg, "FILE", "Write a picture to this file, and no table.");
  group.option("--chrome", options.chrome, "FILE",
               "Write a timeline for Perfetto or chrome://tracing to this file, and no table.");
}

int show_schedules(const ScheduleOptions& options, bool json) {
  if (json + options.text + options.rows > 1)
    refuse(GSEL_ERR_ARG, "--json, --text and --rows are three ways to print; one of them is possible");
  const gsel_schedule_times times = times_of(options);
  std::vector<Simulated> all;
  for (const std::string& name : options.names) all.push_back(simulated(name, options, times));
  draw_all(all, options);
  if (json) {
    print(documents(all));
  } else if (options.text) {
    for (size_t i = 0; i < all.size(); ++i)
      print((i > 0 ? "\n" : "") + all[i].json.at("schedule").get<std::string>() + ", " + shape_of(all[i].json) +
            ": bubble " + percent(all[i].json.at("bubble_of_makespan")) + " of makespan\n" +
            schedule_text(all[i].json, terminal_columns()));
  } else if (options.rows) {
    for (const Simulated& one : all) print(text(gsel_schedule_text(one.schedule.get())));
  } else if (options.svg.empty() && options.chrome.empty()) {
    print(all.size() == 1 ? simulation_text(all.front().json) : compared(all));
  }
  return 0;
}

}  // namespace gsel::cli
