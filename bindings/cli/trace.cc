// trace.cc: `gsel trace`: why does it hang? Reads recordings of live processes and of files (docs/trace.md), takes
// those of one communicator together, and says who waits for whom.
#include <charconv>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "client.h"
#include "commands.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  std::vector<std::string> sources;
  std::string chrome;
  bool json = false;
  size_t last = 5;
};

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string duration(double us) {
  if (us < 1e3) return formatted("%.1f us", us);
  if (us < 1e6) return formatted("%.1f ms", us * 1e-3);
  return formatted("%.1f s", us * 1e-6);
}

// ---- reading ----

bool is_number(const std::string& text, int32_t& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::string of_process(int32_t pid) {
  gsel_trace* trace = nullptr;
  gsel_error* error = nullptr;
  check(gsel_trace_process(pid, &trace, &error), &error);
  std::string json = text(gsel_trace_json(trace));
  gsel_trace_free(trace);
  return json;
}

// A number is a pid, unless it has a '/' or the like.
Json read_source(const std::string& source) {
  int32_t pid = 0;
  const std::string content = is_number(source, pid) ? of_process(pid) : read_file(source);
  Json json = Json::parse(content, nullptr, false);
  if (!json.is_object() || !json.contains("communicators") || !json["communicators"].is_array())
    refuse(GSEL_ERR_PARSE, source + ": is no recording; a file that GSEL_TRACE made, or the pid of a rank, would do");
  return json;
}

// Of each communicator the latest recording, with the errors that its readers met.
std::vector<Json> merge(const std::vector<std::string>& sources) {
  std::map<std::string, Json> latest;
  for (const std::string& source : sources) {
    const Json json = read_source(source);
    for (const Json& communicator : json["communicators"]) {
      const std::string key = communicator.at("made_ns").dump() + " " + communicator.at("world_size").dump();
      Json& known = latest[key];
      Json readers = known.is_null() ? Json::array() : known["readers"];
      readers.push_back(communicator.at("reader"));
      if (known.is_null() || communicator.at("taken_us") > known.at("taken_us")) known = communicator;
      known["readers"] = std::move(readers);
    }
  }
  std::vector<Json> communicators;
  for (auto& [key, communicator] : latest) communicators.push_back(std::move(communicator));
  return communicators;
}

// ---- telling ----

using Row = std::vector<std::string>;

std::string table(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += row[i] + std::string(i + 1 < row.size() ? widths[i] + 2 - row[i].size() : 0, ' ');
    out += line + "\n";
  }
  return out;
}

std::string rank_name(const Json& rank) {
  return "rank " + rank.at("rank").dump() + " (pid " + rank.at("pid").dump() + ")";
}

double age_us(const Json& communicator, const Json& rank) {
  return rank.at("since_us").is_null() ? 0 : communicator.at("taken_us").get<double>() - rank["since_us"].get<double>();
}

std::string last_call(const Json& rank) {
  const Json& calls = rank.at("calls");
  return calls.empty() ? "-" : calls.back().at("text").get<std::string>();
}

std::string blame(const Json& communicator, const Json& rank) {
  const std::string state = rank.at("state"), age = duration(age_us(communicator, rank)),
                    number = rank.at("call").dump();
  std::string text = rank_name(rank) + " holds up the others: ";
  if (rank.at("alive") == false) return text + "its process has ended";
  if (state == "no call yet") return text + "it has made no call yet";
  if (state == "left") return text + "it has left";
  if (state == "in call") return text + "it is in " + last_call(rank) + " (call " + number + ") since " + age;
  if (state == "failed") return text + "its call " + number + ", " + last_call(rank) + ", failed " + age + " before";
  return text + "it left call " + number + " " + age + " ago and makes no other";
}

Row row_of(const Json& communicator, const Json& rank) {
  const bool awaits = !rank.at("awaits").is_null();
  const std::string state = rank.at("alive") == false ? "ended" : rank.at("state").get<std::string>();
  return {rank.at("rank").dump(),
          rank.at("pid").dump(),
          state,
          rank.at("call").dump(),
          rank.at("since_us").is_null() ? "-" : duration(age_us(communicator, rank)),
          awaits ? "rank " + rank["awaits"].dump() : "-",
          last_call(rank)};
}

std::string calls_text(const Json& rank, size_t last) {
  const Json& calls = rank.at("calls");
  std::vector<Row> rows;
  for (size_t i = calls.size() > last ? calls.size() - last : 0; i < calls.size(); ++i) {
    const Json& call = calls[i];
    const bool open = call.at("left_us").is_null();
    const double entered = call.at("entered_us");
    rows.push_back({"  call " + call.at("number").dump(), "at " + duration(entered),
                    open ? "still in it" : "took " + duration(call.at("left_us").get<double>() - entered),
                    call.at("text").get<std::string>() + (call.at("failed") == true ? "  failed" : "")});
  }
  return rows.empty() ? std::string() : rank_name(rank) + "\n" + table(rows);
}

std::string told(const Json& communicator, size_t last) {
  const Json& ranks = communicator.at("ranks");
  std::string out = "communicator of " + communicator.at("world_size").dump() + " ranks, " +
                    duration(communicator.at("taken_us")) + " old\n";
  if (!communicator.at("failure").is_null())
    out += "broken: " + communicator["failure"].at("text").get<std::string>() + "\n";
  for (const Json& reader : communicator.at("readers"))
    if (!reader.at("error").is_null() && communicator.at("failure").is_null())
      out += "rank " + reader.at("rank").dump() + " got: " + reader["error"].at("text").get<std::string>() + "\n";
  for (const Json& late : communicator.at("late")) out += blame(communicator, ranks.at(late.get<size_t>())) + "\n";
  std::vector<Row> rows{{"rank", "pid", "state", "call", "for", "waits for", "in"}};
  for (const Json& rank : ranks) rows.push_back(row_of(communicator, rank));
  out += table(rows);
  for (const Json& rank : ranks) out += last > 0 ? calls_text(rank, last) : "";
  return out;
}

// ---- as Chrome shows it ----

// A process for each communicator, a thread for each rank; what is still under way ends when it was read.
Json chrome_events(const std::vector<Json>& communicators) {
  Json events = Json::array();
  for (size_t c = 0; c < communicators.size(); ++c) {
    const Json& communicator = communicators[c];
    const double zero = communicator.at("made_ns").get<double>() * 1e-3;
    for (const Json& rank : communicator.at("ranks")) {
      // A lane is a process to Chrome: its number must differ between communicators.
      const size_t lane = c * 1000 + rank.at("rank").get<size_t>();
      events.push_back({{"name", "process_name"},
                        {"ph", "M"},
                        {"pid", lane},
                        {"tid", 0},
                        {"args", {{"name", "communicator " + std::to_string(c) + ", " + rank_name(rank)}}}});
      for (const Json& call : rank.at("calls")) {
        const bool open = call.at("left_us").is_null();
        const double entered = call.at("entered_us"), left = open ? communicator.at("taken_us") : call["left_us"];
        Json details{{"number", call.at("number")}, {"text", call.at("text")}, {"failed", call.at("failed")}};
        details["still_in_it"] = open;
        const std::string label = call.at("label");
        events.push_back({{"name", label.empty() ? call.at("kind").get<std::string>() : label},
                          {"cat", call.at("kind")},
                          {"ph", "X"},
                          {"ts", zero + entered},
                          {"dur", left - entered},
                          {"pid", lane},
                          {"tid", 0},
                          {"args", std::move(details)}});
      }
    }
  }
  return {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
}

int run(const Options& options) {
  try {
    const std::vector<Json> communicators = merge(options.sources);
    const auto text_of = [](const Json& json) {
      return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    };
    if (!options.chrome.empty()) write_file(options.chrome, text_of(chrome_events(communicators)));
    if (options.json) {
      print(text_of({{"communicators", communicators}}));
    } else if (options.chrome.empty()) {
      for (size_t i = 0; i < communicators.size(); ++i)
        print((i > 0 ? "\n" : "") + told(communicators[i], options.last));
    }
    return 0;
  } catch (const Json::exception& e) {
    refuse(GSEL_ERR_PARSE, std::string("a recording lacks what docs/trace.md lists: ") + e.what());
  }
}

}  // namespace

Command trace_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* parser = app.add_subcommand(
      "trace",
      "Say what the ranks of a job are in, and who holds them up: gsel trace PID, of any rank, or the files\n"
      "that GSEL_TRACE=folder made");
  parser->add_option("source", options->sources, "Pids and files of one job, taken together")
      ->type_name("PID|FILE...")
      ->required();
  parser->add_option("--last", options->last, "Calls to list of each rank")->type_name("N")->capture_default_str();
  parser->add_flag("--json", options->json, "Print JSON, as docs/trace.md describes it");
  parser->add_option("--chrome", options->chrome, "Write this file for Perfetto or chrome://tracing")
      ->type_name("FILE");
  return {parser, [options] { return run(*options); }, [options] { return options->json; }};
}

}  // namespace gsel::cli
