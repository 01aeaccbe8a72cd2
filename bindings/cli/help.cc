// help.cc: see help.h. Text is wrapped to the width of the terminal, at most 100 columns.
#include "help.h"

#include <algorithm>
#include <sstream>

#include "schedule_text.h"

namespace gsel::cli {
namespace {

constexpr size_t kIndent = 28;  // column of the options' help

// Wraps text, with `indent` blanks before each line but the first, in which `at` columns are already used.
std::string filled(const std::string& text, size_t indent, size_t at, size_t width) {
  std::istringstream words(text);
  std::string out;
  for (std::string word; words >> word;) {
    if (at > indent && at + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
    } else if (at > indent) {
      out += " ";
      ++at;
    }
    out += word;
    at += word.size();
  }
  return out + "\n";
}

std::string entry(const std::string& term, const std::string& text, size_t width) {
  const std::string head = "  " + term;
  const bool fits = head.size() + 2 <= kIndent;
  return head + (fits ? std::string(kIndent - head.size(), ' ') : "\n" + std::string(kIndent, ' ')) +
         filled(text, kIndent, kIndent, width);
}

std::string described(const std::string& text, size_t width) {
  std::string out;
  for (const Paragraph& paragraph : paragraphs(text)) {
    out += out.empty() ? "" : "\n";
    std::string joined;
    for (const std::string& line : paragraph.lines) joined += paragraph.literal ? "    " + line + "\n" : line + " ";
    out += paragraph.literal ? joined : filled(joined, 0, 0, width);
  }
  return out;
}

// Positionals first, then groups in the order of their declaration.
std::string options_text(const CommandSpec& command, size_t width) {
  std::vector<std::string> titles;
  const auto title_of = [](const OptionSpec& option) {
    return option.is_positional() ? "Arguments" : option.group.empty() ? "Options" : option.group;
  };
  for (const bool positional : {true, false})
    for (const OptionSpec& option : command.options)
      if (option.is_positional() == positional && !std::ranges::count(titles, title_of(option)))
        titles.push_back(title_of(option));
  std::string out;
  for (const std::string& title : titles) {
    out += "\n" + title + ":\n";
    for (const OptionSpec& option : command.options)
      if (title_of(option) == title) out += entry(option_text(option), option_help(option), width);
  }
  out += "\nCommon options:\n";
  for (const OptionSpec& option : command.common) out += entry(option_text(option), option_help(option), width);
  return out;
}

}  // namespace

std::vector<Paragraph> paragraphs(const std::string& text) {
  std::vector<Paragraph> out;
  std::istringstream lines(text);
  bool open = false;
  for (std::string line; std::getline(lines, line);) {
    const bool literal = line.starts_with("    ");
    if (line.empty()) {
      open = false;
      continue;
    }
    if (!open || out.back().literal != literal) out.push_back({literal, {}});
    out.back().lines.push_back(literal ? line.substr(4) : line);
    open = true;
  }
  return out;
}

std::string option_text(const OptionSpec& option) {
  if (option.is_positional()) return option.value;
  std::string out;
  for (const std::string& name : option.spellings()) out += (out.empty() ? "" : ", ") + name;
  return option.value.empty() ? out : out + " " + option.value;
}

std::string option_help(const OptionSpec& option) {
  return option.initial.empty() ? option.help : option.help + " Default: " + option.initial + ".";
}

std::string help_text(const CommandSpec& command, const std::vector<std::unique_ptr<CommandSpec>>& commands) {
  const size_t width = std::clamp<size_t>(terminal_columns(), 60, 100);
  const bool whole = command.text.name == std::string("gsel");
  std::string out = "Usage: " + command.usage() + "\n" + filled(std::string(command.text.summary) + ".", 0, 0, width);
  if (*command.text.description) out += "\n" + described(command.text.description, width);
  if (whole) {
    out += "\nSubcommands:\n";
    for (const auto& one : commands) out += entry(one->text.name, one->text.summary, width);
  }
  out += options_text(command, width);
  for (const TermList& list : command.tails) {
    out += "\n" + list.title + ":\n";
    for (const auto& [term, text] : list.terms) out += entry(term, text, width);
  }
  if (!command.text.examples.empty()) out += "\nExamples:\n";
  for (const auto& [line, says] : command.text.examples)
    out += "  " + std::string(line) + "\n      " + filled(says, 6, 6, width);
  return out + "\nManual page: man " + (whole ? "gsel" : std::string("gsel-") + command.text.name) + "\n";
}

}  // namespace gsel::cli
