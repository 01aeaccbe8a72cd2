// program.cc: `gsel program`: reads programs from files, checks those of all ranks together, prints one, or tells what
// one sends; and shows what a schedule of a pipeline comes to before there is a program (schedules.h).
#include <array>
#include <cstdint>
#include <cstdio>

#include "axes.h"
#include "client.h"
#include "commands.h"
#include "schedules.h"

namespace gsel::cli {
namespace {

constexpr int kMostFiles = 1 << 20;

struct ProgramOptions {
  std::vector<std::string> verify;
  std::vector<std::string> placements;
  std::string print, traffic;
  ScheduleOptions schedules;
};

// By GSEL_INSTR_*, as programs name them; those that send nothing are never shown.
constexpr std::array<const char*, 24> kKinds{
    "",          "input",          "forward",          "backward_input", "backward_weight", "backward", "send",
    "recv",      "broadcast",      "allreduce",        "wait",           "loss_allreduce",  "norm",     "step",
    "allgather", "release",        "reduce_scatter",   "reduce",         "recompute",       "scatter",  "gather",
    "overflow",  "allreduce_tied", "allreduce_partial"};

Handle<gsel_program> read_program(const std::string& path) {
  const std::string content = read_file(path);
  gsel_program* program = nullptr;
  gsel_error* error = nullptr;
  check(gsel_program_parse(borrow(content), borrow(path), &program, &error), &error);
  return Handle<gsel_program>(program);
}

int verify(const std::vector<std::string>& files) {
  std::vector<Handle<gsel_program>> programs;
  std::vector<const gsel_program*> borrowed;
  int64_t instructions = 0;
  for (const std::string& file : files) {
    programs.push_back(read_program(file));
    borrowed.push_back(programs.back().get());
    instructions += gsel_program_length(borrowed.back());
  }
  gsel_error* error = nullptr;
  check(gsel_program_verify(borrowed.data(), static_cast<int32_t>(borrowed.size()), &error), &error);
  print("ok: " + with_noun(files.size(), "rank") + ", " + with_noun(instructions, "instruction") + "\n");
  return 0;
}

// Rows of setup (step -1) or of a step; adds to the sum of bytes.
std::string traffic_rows(const gsel_program* program, int64_t step, const char* when, uint64_t& bytes) {
  std::string rows;
  for (const gsel_axis axis : shown_axes(gsel_axis_count()))
    for (gsel_instr_kind kind = 1; kind < static_cast<gsel_instr_kind>(kKinds.size()); ++kind) {
      gsel_comm_count count = GSEL_COMM_COUNT_INIT;
      gsel_error* error = nullptr;
      check(gsel_program_traffic(program, step, kind, axis, &count, &error), &error);
      if (!count.calls) continue;
      char row[128];
      std::snprintf(row, sizeof row, "%-7s%-10s%-19s%8llu%15llu\n", when, gsel_axis_name(axis), kKinds[kind],
                    static_cast<unsigned long long>(count.calls), static_cast<unsigned long long>(count.bytes_sent));
      rows += row;
      bytes += count.bytes_sent;
    }
  return rows;
}

int traffic(const std::string& file) {
  const Handle<gsel_program> program = read_program(file);
  char head[128], foot[128];
  std::snprintf(head, sizeof head, "%-7s%-10s%-19s%8s%15s\n", "when", "axis", "instruction", "calls", "bytes sent");
  uint64_t in_setup = 0, in_step = 0;
  std::string rows = traffic_rows(program.get(), -1, "setup", in_setup);
  rows += traffic_rows(program.get(), INT64_MAX, "step", in_step);
  std::snprintf(foot, sizeof foot, "%-7s%-10s%-19s%8s%15llu\n", "step", "all", "", "",
                static_cast<unsigned long long>(in_step));
  print(head + rows + foot);
  return 0;
}

int placements(const std::vector<std::string>& files) {
  for (size_t i = 0; i < files.size(); ++i)
    print((i ? "\n" : "") + text(gsel_program_placements(read_program(files[i]).get())));
  return 0;
}

int print_program(const ProgramOptions& options) {
  if (!options.verify.empty()) return verify(options.verify);
  if (!options.traffic.empty()) return traffic(options.traffic);
  if (!options.placements.empty()) return placements(options.placements);
  if (!options.schedules.names.empty()) return show_schedules(options.schedules);
  print(text(gsel_program_text(read_program(options.print).get())));
  return 0;
}

}  // namespace

Command program_command(CommandLine& line) {
  auto options = std::make_shared<ProgramOptions>();
  Parser parser = line.subcommand("program",
                                  "Check the programs of all ranks together, print one, tell what one sends or how "
                                  "its values are placed, or show what a pipeline's schedule comes to");
  Parser what = parser.group("what");
  what.list("--verify", options->verify, "FILE...", "Check these programs, one file per rank, in rank order",
            kMostFiles);
  what.option("--print", options->print, "FILE", "Read this program and print its canonical text");
  what.option("--traffic", options->traffic, "FILE",
              "Read this program and print the calls it makes and the bytes it sends");
  what.list("--placements", options->placements, "FILE...",
            "Print how parameters and values are placed where ranks share layers, and what brings them from one "
            "placement to another",
            kMostFiles);
  what.list("--schedule", options->schedules.names, "NAME|FILE...",
            "Simulate these schedules of a pipeline: by name, such as 1f1b or zb-v, or files of rows (with a / "
            "or a . in their name)",
            kMostSchedules);
  what.require_one_option();
  Parser schedules = parser.group("schedules", "With --schedule:");
  add_schedule_options(schedules, options->schedules);
  schedules.need(what, "--schedule");
  return {parser, [options] { return print_program(*options); }, [options] { return options->schedules.json; }};
}

}  // namespace gsel::cli
