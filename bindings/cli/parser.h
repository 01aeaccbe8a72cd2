// parser.h: command lines: subcommands with options, and the variables for their values. Each option is added to the
// table of spec.h and to the command-line library (CLI11). Only parser.cc includes CLI11, since it costs seconds in
// each file that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "spec.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gsel::cli {

// A subcommand, or a group of its options. A handle to objects that the command line owns. `type` is shown after an
// option's name. Values are written when the line is parsed, and must live until then.
class Parser {
 public:
  Parser() = default;
  Parser(CLI::App* app, CommandSpec* spec, std::string group = "") : app_(app), spec_(spec), group_(std::move(group)) {}

  enum class Default { hidden, shown };
  void option(const char* name, std::string& value, const char* type, const char* help,
              Default shown = Default::hidden);
  void option(const char* name, size_t& value, const char* type, const char* help, Default shown = Default::hidden);
  // Accepts values from least to most.
  void option(const char* name, int32_t& value, int32_t least, int32_t most, const char* type, const char* help);
  // The value may be omitted, and is then empty.
  void optional(const char* name, std::string& value, const char* type, const char* help);
  // Accepts one or more values; most: 0 for any number.
  void list(const char* name, std::vector<std::string>& values, const char* type, const char* help, int most = 0);
  void require(const char* option);
  // Accepts one value each time it is given.
  void repeated(const char* name, std::vector<std::string>& values, const char* type, const char* help);
  void flag(const char* name, bool& value, const char* help);
  // For the command's own use: parsed, but not in the help.
  void hidden(const char* name, std::string& value);

  // Values of an option, or the best known ones, for completion.
  void words(const char* option, std::vector<std::string> words);

  Parser group(const char* title);
  void require_one_option();
  void exclude(const char* option, const char* other);
  // Refuses all options of this group unless `option` of `other` is given.
  void need(const Parser& other, const char* option);
  // Printed after the options.
  void tail(TermList list);
  // The first word that is no option begins the remaining arguments, which may have options.
  void keep_rest();
  std::vector<std::string> rest() const;

  bool is_chosen() const;
  bool given(const char* option) const;

 private:
  OptionSpec& record(const char* names, const char* type, const char* help);
  OptionSpec& recorded(const char* option);

  CLI::App* app_ = nullptr;
  CommandSpec* spec_ = nullptr;
  std::string group_;
};

// The whole command line.
class CommandLine {
 public:
  CommandLine(const CommandText& text, const std::string& versions);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Adds a subcommand, with the options of Common, which every subcommand has.
  Parser subcommand(const CommandText& text);
  // Prints help or the version if requested, and returns false; throws a Failure for an invalid argument.
  bool parse(const std::vector<std::string>& arguments);

  const Common& common() const { return common_; }
  const CommandSpec& whole() const { return whole_; }  // `gsel` itself
  const std::vector<std::unique_ptr<CommandSpec>>& commands() const { return commands_; }

 private:
  void add_common(CLI::App& app, CommandSpec& spec);
  void check_command(const std::vector<std::string>& arguments) const;
  const CommandSpec& spec_of(const std::string& command) const;
  std::vector<std::string> with_empty_values(const std::vector<std::string>& arguments) const;
  void look_for_common(const std::vector<std::string>& arguments);

  std::unique_ptr<CLI::App> app_;
  CommandSpec whole_;
  std::vector<std::unique_ptr<CommandSpec>> commands_;
  Common common_;
  std::string versions_;
};

}  // namespace gsel::cli
