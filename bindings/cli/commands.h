// commands.h: one function per subcommand, each in the file of its name. A command declares its options on the parser
// and returns what to do when it was chosen; the result is the exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace gsel::cli {

struct Command {
  CLI::App* parser = nullptr;
  std::function<int()> run;
  std::function<bool()> wants_json = [] { return false; };  // refusals too are printed as JSON
};

Command devices_command(CLI::App& app);
Command resolve_command(CLI::App& app);
Command plugins_command(CLI::App& app);
Command program_command(CLI::App& app);
Command mesh_command(CLI::App& app);
// `program` is what stood behind "--": the program of the ranks and its arguments.
Command run_command(CLI::App& app, std::vector<std::string> program);
// `arguments` are those of the whole command, for ranks that are started with them.
Command bench_command(CLI::App& app, std::vector<std::string> arguments);
Command tune_command(CLI::App& app);
Command trace_command(CLI::App& app);

}  // namespace gsel::cli
