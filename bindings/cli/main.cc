// main.cc: the `gsel` command. Reads the command line, runs one subcommand, and says on standard error why it failed.
// Exit status: 0; 2 when something was refused; `gsel run` passes on the status of its ranks.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client.h"
#include "commands.h"

namespace {

using namespace gsel::cli;

constexpr int kRefused = 2;

std::string versions() {
  const auto number = [](int n) { return std::to_string(n); };
  return "gsel " + number(GSEL_VERSION_MAJOR) + "." + number(GSEL_VERSION_MINOR) + "." + number(GSEL_VERSION_PATCH) +
         " (libgsel " + gsel_version_text() + ")";
}

// "GSEL_ERR_OUT_OF_RANGE" is the kind OUT_OF_RANGE.
std::string kind_of(gsel_status code) {
  const std::string name = gsel_status_name(code);
  const std::string prefix = "GSEL_ERR_";
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : name;
}

int report(const Failure& failure, bool json) {
  if (json) {
    const nlohmann::ordered_json out{{"status", "error"},
                                     {"kind", kind_of(failure.code)},
                                     {"message", failure.message},
                                     {"token", failure.token},
                                     {"column", failure.column}};
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  } else {
    std::cerr << "gsel: " << failure.message << std::endl;
  }
  return kRefused;
}

// Takes what stands behind the first "--" off the command line: it belongs to the ranks.
std::vector<std::string> take_program(std::vector<std::string>& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end()) return {};
  std::vector<std::string> program(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return program;
}

// Refuses a first word that is no command, naming those there are.
void check_command(const CommandLine& line, const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().empty() || arguments.front().front() == '-') return;
  std::string names;
  for (const std::string& command : line.subcommands()) {
    if (command == arguments.front()) return;
    names += (names.empty() ? "" : ", ") + command;
  }
  refuse(GSEL_ERR_ARG, arguments.front() + " is no command; there are " + names);
}

int run(std::vector<std::string> arguments) {
  CommandLine line("Selects accelerators, starts, measures and explains ranks, and looks into plugins and programs.",
                   "gsel", versions());
  const bool starts_ranks = !arguments.empty() && arguments.front() == "run";
  std::vector<std::string> program;
  if (starts_ranks) program = take_program(arguments);
  const std::vector<Command> commands = {
      devices_command(line),          resolve_command(line),      plugins_command(line),
      program_command(line),          run_command(line, program), trace_command(line),
      bench_command(line, arguments), tune_command(line),         mesh_command(line)};
  try {
    check_command(line, arguments);
  } catch (const Failure& failure) {
    return report(failure, false);
  }
  if (const std::optional<int> status = line.parse(std::move(arguments))) return *status;
  for (const Command& command : commands) {
    if (!command.parser.is_chosen()) continue;
    try {
      return command.run();
    } catch (const Failure& failure) {
      return report(failure, command.wants_json());
    }
  }
  return kRefused;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + (argc > 0), argv + argc});
  } catch (const std::exception& e) {
    std::cerr << "gsel: " << e.what() << std::endl;
    return kRefused;
  }
}
