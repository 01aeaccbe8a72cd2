// parser.h: command lines: subcommands with their options, and where the values go. The library behind it (CLI11) is
// compiled in parser.cc alone, since it costs seconds in each file that it is compiled in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace gsel::cli {

// A subcommand, or a group of its options. A handle: the command line owns what it stands for. `type` is shown behind
// an option's name; values are written when the line is parsed and must live until then.
class Parser {
 public:
  Parser() = default;
  explicit Parser(CLI::App* app) : app_(app) {}

  enum class Default { hidden, shown };
  void option(const char* name, std::string& value, const char* type, const char* help,
              Default shown = Default::hidden);
  void option(const char* name, size_t& value, const char* type, const char* help, Default shown = Default::hidden);
  // From least to most.
  void option(const char* name, int32_t& value, int32_t least, int32_t most, const char* type, const char* help);
  // Takes one value or more; most: 0 for any number.
  void list(const char* name, std::vector<std::string>& values, const char* type, const char* help, int most = 0);
  void require(const char* option);
  // Takes one value each time it is given.
  void repeated(const char* name, std::vector<std::string>& values, const char* type, const char* help);
  void flag(const char* name, bool& value, const char* help);

  Parser group(const char* name, const char* help = "") const;
  void require_one_option();
  void exclude(const char* option, const char* other);
  // All options of this group are refused without `option`, of `other`.
  void need(const Parser& other, const char* option);
  void footer(std::string (*text)());
  // What is no option begins the arguments that are left, options and all.
  void keep_rest();
  std::vector<std::string> rest() const;

  bool is_chosen() const;
  bool given(const char* option) const;

 private:
  CLI::App* app_ = nullptr;
};

// The whole command line.
class CommandLine {
 public:
  CommandLine(const char* what, const char* name, const std::string& versions);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Parser subcommand(const char* name, const char* help);
  std::vector<std::string> subcommands() const;
  // Prints help or the version where that is asked for, or says in one line on standard error what cannot be used; then
  // the exit status is this.
  std::optional<int> parse(std::vector<std::string> arguments);

 private:
  CLI::App* app_;
};

}  // namespace gsel::cli
