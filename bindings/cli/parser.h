// parser.h: command lines: subcommands with their options, and where the values go. Each option goes into the table of
// spec.h and to the library that reads command lines (CLI11), which is compiled in parser.cc alone, since it costs
// seconds in each file that it is compiled in.
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

// A subcommand, or a group of its options. A handle: the command line owns what it stands for. `type` is shown behind
// an option's name; values are written when the line is parsed and must live until then.
class Parser {
 public:
  Parser() = default;
  Parser(CLI::App* app, CommandSpec* spec, std::string group = "") : app_(app), spec_(spec), group_(std::move(group)) {}

  enum class Default { hidden, shown };
  void option(const char* name, std::string& value, const char* type, const char* help,
              Default shown = Default::hidden);
  void option(const char* name, size_t& value, const char* type, const char* help, Default shown = Default::hidden);
  // From least to most.
  void option(const char* name, int32_t& value, int32_t least, int32_t most, const char* type, const char* help);
  // May stand without its value, which is empty then.
  void optional(const char* name, std::string& value, const char* type, const char* help);
  // Takes one value or more; most: 0 for any number.
  void list(const char* name, std::vector<std::string>& values, const char* type, const char* help, int most = 0);
  void require(const char* option);
  // Takes one value each time it is given.
  void repeated(const char* name, std::vector<std::string>& values, const char* type, const char* help);
  void flag(const char* name, bool& value, const char* help);
  // For the machinery of the command itself: read, and in no help.
  void hidden(const char* name, std::string& value);

  // Values of an option, or the best known ones, for completion.
  void words(const char* option, std::vector<std::string> words);

  Parser group(const char* title);
  void require_one_option();
  void exclude(const char* option, const char* other);
  // All options of this group are refused without `option`, of `other`.
  void need(const Parser& other, const char* option);
  // Printed behind the options.
  void tail(TermList list);
  // What is no option begins the arguments that are left, options and all.
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

  // With the options of Common, which therefore every subcommand has.
  Parser subcommand(const CommandText& text);
  // Prints help or the version where that is asked for, and returns false; throws a Failure where an argument cannot be
  // used.
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
