// commands.h: one function per subcommand, each in its own file. It declares the text and options of the subcommand,
// and returns the function that runs it and yields the exit status.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parser.h"

namespace gsel::cli {

struct Command {
  Parser parser;
  std::function<int()> run;
};

Command devices_command(CommandLine& line);
Command resolve_command(CommandLine& line);
Command plugins_command(CommandLine& line);
Command program_command(CommandLine& line);
Command mesh_command(CommandLine& line);
Command plan_command(CommandLine& line);
// `program`: the words after "--": the program of the ranks and its arguments.
Command run_command(CommandLine& line, std::vector<std::string> program);
// `arguments`: those of the whole command, for ranks that are started with the same ones.
Command bench_command(CommandLine& line, std::vector<std::string> arguments);
Command tune_command(CommandLine& line);
Command trace_command(CommandLine& line);
Command checkpoint_command(CommandLine& line);
Command completion_command(CommandLine& line);
Command manual_command(CommandLine& line);

}  // namespace gsel::cli
