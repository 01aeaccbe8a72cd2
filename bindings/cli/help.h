// help.h: what `--help` prints, from the table of spec.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spec.h"

namespace gsel::cli {

// Of a subcommand; of `gsel` itself, with the list of `commands`.
std::string help_text(const CommandSpec& command, const std::vector<std::unique_ptr<CommandSpec>>& commands);

// "-n, --ranks N"
std::string option_text(const OptionSpec& option);
// What an option does, and its value when it is not given.
std::string option_help(const OptionSpec& option);

// Paragraphs of Section::text; `literal` ones have lines that are shown as they stand, without their four blanks.
struct Paragraph {
  bool literal;
  std::vector<std::string> lines;
};
std::vector<Paragraph> paragraphs(const std::string& text);

}  // namespace gsel::cli
