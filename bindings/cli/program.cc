// program.cc: `gsel program`: reads programs from files, verifies those of all ranks together, prints one, or sums up
// what one sends; also simulates the schedule of a pipeline without a program (schedules.h).
#include <cstdint>
#include <cstdio>

#include "client.h"
#include "commands.h"
#include "program_files.h"
#include "program_json.h"
#include "schedules.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ProgramOptions {
  std::vector<std::string> verify;
  std::vector<std::string> placements;
  std::string print, traffic;
  ScheduleOptions schedules;
};

int verify(const std::vector<std::string>& files, bool json) {
  const int64_t instructions = verified_programs(files).instructions;
  if (json)
    print(json_text({{"verified", files}, {"ranks", files.size()}, {"instructions", instructions}}));
  else
    print("ok: " + with_noun(files.size(), "rank") + ", " + with_noun(instructions, "instruction") + "\n");
  return 0;
}

int print_canonical(const std::string& file, bool json) {
  const Handle<gsel_program> program = read_program(file);
  print(json ? json_text(instructions_json(program.get(), file)) : text(gsel_program_text(program.get())));
  return 0;
}

std::string traffic_json(const std::vector<TrafficRow>& rows, const std::string& file, uint64_t bytes) {
  Json list = Json::array();
  for (const TrafficRow& row : rows)
    list.push_back({{"when", row.when},
                    {"axis", gsel_axis_name(row.axis)},
                    {"instruction", instruction_name(row.kind)},
                    {"calls", row.calls},
                    {"bytes_sent", row.bytes}});
  return json_text({{"file", file}, {"rows", std::move(list)}, {"bytes_of_step", bytes}});
}

std::string traffic_text(const std::vector<TrafficRow>& rows, uint64_t bytes) {
  char line[128];
  std::snprintf(line, sizeof line, "%-7s%-10s%-19s%8s%15s\n", "when", "axis", "instruction", "calls", "bytes sent");
  std::string out = line;
  for (const TrafficRow& row : rows) {
    std::snprintf(line, sizeof line, "%-7s%-10s%-19s%8llu%15llu\n", row.when, gsel_axis_name(row.axis),
                  instruction_name(row.kind).c_str(), static_cast<unsigned long long>(row.calls),
                  static_cast<unsigned long long>(row.bytes));
    out += line;
  }
  std::snprintf(line, sizeof line, "%-7s%-10s%-19s%8s%15llu\n", "step", "all", "", "",
                static_cast<unsigned long long>(bytes));
  return out + line;
}

int traffic(const std::string& file, bool json) {
  const Handle<gsel_program> program = read_program(file);
  std::vector<TrafficRow> rows;
  add_traffic(program.get(), -1, "setup", rows);
  const size_t in_setup = rows.size();
  add_traffic(program.get(), INT64_MAX, "step", rows);
  uint64_t bytes = 0;
  for (size_t i = in_setup; i < rows.size(); ++i) bytes += rows[i].bytes;
  print(json ? traffic_json(rows, file, bytes) : traffic_text(rows, bytes));
  return 0;
}

int placements(const std::vector<std::string>& files, bool json) {
  Json list = Json::array();
  std::string tables;
  for (const std::string& file : files) {
    const Handle<gsel_program> program = read_program(file);
    if (json)
      list.push_back(placements_json(program.get(), file));
    else
      tables += (tables.empty() ? "" : "\n") + text(gsel_program_placements(program.get()));
  }
  print(json ? json_text({{"programs", std::move(list)}}) : tables);
  return 0;
}

int print_program(const ProgramOptions& options, bool json) {
  if (!options.verify.empty()) return verify(options.verify, json);
  if (!options.traffic.empty()) return traffic(options.traffic, json);
  if (!options.placements.empty()) return placements(options.placements, json);
  if (!options.schedules.names.empty()) return show_schedules(options.schedules, json);
  return print_canonical(options.print, json);
}

const CommandText kProgramText{
    .name = "program",
    .summary = "Check and explain the programs of ranks, or show what a pipeline's schedule costs",
    .description =
        "A program is what a strategy compiles a model to, for one rank. It is text; examples/gpt --programs PREFIX "
        "and gsel_program_text write it. One of the first five options is needed.",
    .examples = {{"gsel program --verify rank0.txt rank1.txt", "Checks the programs of two ranks together."},
                 {"gsel program --schedule 1f1b zb-v --stages 4 --microbatches 8", "Compares two schedules."}},
    .sections = {{"JSON",
                  "An object that depends on what is asked for. docs/program.md and docs/pipeline.md list all keys.",
                  {{"--verify", "verified (the files), ranks, instructions."},
                   {"--print", "file, instructions, step (a list of instructions with their operands) and text."},
                   {"--traffic", "file, rows (each with when, axis, instruction, calls, bytes_sent), bytes_of_step."},
                   {"--placements", "programs: of each file, about, parameters and values."},
                   {"--schedule", "schedules: of each schedule its simulation."}}}},
    .related = {"gsel_program_verify(3)", "gsel_schedule_simulate(3)", "docs/program.md", "docs/pipeline.md"}};

}  // namespace

Command program_command(CommandLine& line) {
  auto options = std::make_shared<ProgramOptions>();
  Parser parser = line.subcommand(kProgramText);
  Parser what = parser.group("What to do, one of");
  what.list("--verify", options->verify, "FILE...", "Check these programs, one file per rank, in rank order.",
            kMostPrograms);
  what.option("--print", options->print, "FILE", "Print the canonical text of this program.");
  what.option("--traffic", options->traffic, "FILE", "Print the calls that this program makes and the bytes it sends.");
  what.list("--placements", options->placements, "FILE...",
            "Print how parameters and values are placed where ranks share layers, and what brings them from one "
            "placement to another.",
            kMostPrograms);
  what.list("--schedule", options->schedules.names, "NAME|FILE...",
            "Simulate these schedules of a pipeline: by name, such as 1f1b or zb-v, or files of rows (with a / "
            "or a . in their name).",
            kMostSchedules);
  what.require_one_option();
  what.words("--schedule",
             {"naive", "gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "interleaved-zb", "zb-h2", "zb-v", "dualpipe-v"});
  Parser schedules = parser.group("With --schedule");
  add_schedule_options(schedules, options->schedules);
  schedules.need(what, "--schedule");
  return {parser, [options, &common = line.common()] { return print_program(*options, common.json); }};
}

}  // namespace gsel::cli
