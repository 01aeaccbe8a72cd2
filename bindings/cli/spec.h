// spec.h: the one table of subcommands and options. Option declarations fill it, and the parser reads command lines
// with it; help (help.h), manual pages (manual.h) and shell completion (completion.h) are printed from it. Does not
// know what a subcommand does.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gsel::cli {

struct OptionSpec {
  std::string names;               // "-n,--ranks"; a positional has one name, without dashes
  std::string value;               // name of the value in the help: "FILE"; empty: a flag
  std::string help;                // one paragraph
  std::string initial;             // default value; empty: not shown
  std::string group;               // heading; empty: among the other options of the subcommand
  std::vector<std::string> words;  // values for completion: all possible ones, or the known ones
  bool required = false, many = false;

  bool is_positional() const { return names[0] != '-'; }
  std::vector<std::string> spellings() const;  // "-n", "--ranks"
  bool takes_path() const;                     // a file or folder
};

// Text of a manual page: empty lines separate paragraphs; lines that begin with four blanks are shown unchanged.
// `terms` with their meanings follow the text.
struct Section {
  const char* title;
  const char* text;
  std::vector<std::pair<const char*, const char*>> terms = {};
};

struct TermList {
  std::string title;
  std::vector<std::pair<std::string, std::string>> terms;
};

struct CommandText {
  const char* name;
  const char* summary;                                             // one line, without a stop
  const char* description;                                         // for help and manual page; like Section::text
  std::vector<std::pair<const char*, const char*>> examples = {};  // command line and its meaning; for both
  std::vector<Section> sections = {};                              // manual page only
  std::vector<std::pair<const char*, const char*>> statuses = {};  // exit statuses except 0 and 2
  std::vector<const char*> related = {};                           // pages of docs/ and other subcommands
  const char* usage = nullptr;                                     // after the name; nullptr: made from the options
  bool starts_program = false;                                     // a program follows the options; see Common
};

struct CommandSpec {
  CommandText text;
  std::vector<OptionSpec> options;  // its own options, including positionals
  std::vector<OptionSpec> common;   // options of all subcommands
  std::vector<TermList> tails;      // lists made at run time, shown after the options

  std::string usage() const;                           // "gsel trace [OPTIONS] PID|FILE|FOLDER..."
  std::vector<const OptionSpec*> all_options() const;  // in the order shown
};

// The values of the options that every subcommand has.
struct Common {
  bool json = false;
  std::string json_file;  // of a subcommand that starts a program, which owns standard output
  std::string output;     // replaces standard output; empty: does not
  std::string color = "auto";
};

}  // namespace gsel::cli
