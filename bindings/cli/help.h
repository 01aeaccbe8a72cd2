// help.h: the text of `--help`, from the table of spec.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "spec.h"

namespace gsel::cli {

// Help of a subcommand, or of `gsel` itself, with the list of `commands`.
std::string help_text(const CommandSpec& command, const std::vector<std::unique_ptr<CommandSpec>>& commands);

// "-n, --ranks N"
std::string option_text(const OptionSpec& option);
// An option's help with its default value.
std::string option_help(const OptionSpec& option);

// Paragraphs of Section::text; the lines of a `literal` one are shown unchanged, without their four blanks.
struct Paragraph {
  bool literal;
  std::vector<std::string> lines;
};
std::vector<Paragraph> paragraphs(const std::string& text);

}  // namespace gsel::cli
