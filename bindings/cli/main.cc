// main.cc: the `gsel` command. Parses the command line, runs one subcommand, and reports failures on standard error.
// Exit status: 0; 2 when something was refused; `gsel run` passes on the status of its ranks.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "client.h"
#include "colour.h"
#include "commands.h"

namespace {

using namespace gsel::cli;

std::string versions() {
  const auto number = [](int n) { return std::to_string(n); };
  return "gsel " + number(GSEL_VERSION_MAJOR) + "." + number(GSEL_VERSION_MINOR) + "." + number(GSEL_VERSION_PATCH) +
         " (libgsel " + gsel_version_text() + ")";
}

// "GSEL_ERR_OUT_OF_RANGE" becomes OUT_OF_RANGE.
std::string kind_of(const std::string& name) {
  const std::string prefix = "GSEL_ERR_";
  return name.compare(0, prefix.size(), prefix) == 0 ? name.substr(prefix.size()) : name;
}

// Reports why the command ends; returns its exit status.
int report(const Failure& failure, const Common& common) {
  const std::string name = gsel_status_name(failure.code);
  const nlohmann::ordered_json json{{"status", "error"},          {"kind", kind_of(name)},  {"code", name},
                                    {"message", failure.message}, {"token", failure.token}, {"column", failure.column}};
  if (!common.json) std::cerr << error_prefix() << failure.message << std::endl;
  if (common.json) std::cout << json_text(json) << std::flush;
  if (!common.json_file.empty() && common.json_file.compare(0, 1, "-") != 0) {
    try {
      replace_file(common.json_file, json_text(json));
    } catch (const Failure& other) {
      std::cerr << error_prefix() << other.message << std::endl;
    }
  }
  return kRefused;
}

// Removes the words after the first "--" from the command line: they are the program of the ranks.
std::vector<std::string> take_program(std::vector<std::string>& arguments) {
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (dashes == arguments.end()) return {};
  std::vector<std::string> program(dashes + 1, arguments.end());
  arguments.erase(dashes, arguments.end());
  return program;
}

const CommandText kText{
    .name = "gsel",
    .summary = "Selects accelerators, starts, measures and explains ranks, and looks into plugins and programs",
    .description = "",
    .examples = {{"gsel run -n 4 -- ./app", "Starts four ranks of a program."},
                 {"gsel resolve --devices 'count:2'", "Says which two devices a program would get, and why."},
                 {"gsel trace PID", "Says what the ranks of a job wait for."}},
    .sections = {{"FILES",
                  "",
                  {{"gsel.toml", "The configuration that --config or GSEL_CONFIG names."},
                   {"$XDG_CONFIG_HOME/gsel/tuning.toml, ~/.config/gsel/tuning.toml", "What gsel tune measured."}}},
                 {"ENVIRONMENT",
                  "",
                  {{"NO_COLOR", "If it is set and not empty, --color auto prints no colours."},
                   {"GSEL_CONFIG", "The configuration of programs that name none."},
                   {"GSEL_PLUGIN_PATH", "Folders in which plugins are looked for first."},
                   {"GSEL_LOG", "Which log lines go to standard error: error, warn, info or debug."}}}},
    .usage = "[OPTIONS] SUBCOMMAND ..."};

int run(std::vector<std::string> arguments) {
  CommandLine line(kText, versions());
  const bool starts_ranks = !arguments.empty() && arguments.front() == "run";
  std::vector<std::string> program;
  if (starts_ranks) program = take_program(arguments);
  const std::vector<Command> commands = {
      devices_command(line),      resolve_command(line), plugins_command(line),          program_command(line),
      run_command(line, program), trace_command(line),   bench_command(line, arguments), tune_command(line),
      mesh_command(line),         plan_command(line),    checkpoint_command(line),       completion_command(line),
      manual_command(line)};
  try {
    if (!line.parse(arguments)) return 0;
    set_colours(line.common().color);
    print_to(line.common().output);
    for (const Command& command : commands)
      if (command.parser.is_chosen()) return command.run();
  } catch (const Failure& failure) {
    set_colours(line.common().color);
    return report(failure, line.common());
  } catch (const std::exception& e) {
    return report({GSEL_ERR_INTERNAL, e.what(), {}, 0}, line.common());
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
