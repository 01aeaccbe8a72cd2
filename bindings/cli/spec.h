// spec.h: the one table of subcommands and options. The parser fills it while the options are declared and reads
// command lines by it; help (help.h), manual pages (manual.h) and shell completion (completion.h) are printed from it.
// Does not know: what a subcommand does.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace gsel::cli {

struct OptionSpec {
  std::string names;               // "-n,--ranks"; a positional has one name, without dashes
  std::string value;               // what stands behind the name: "FILE"; empty: a flag
  std::string help;                // one paragraph
  std::string initial;             // the value when it is not given; empty: not shown
  std::string group;               // heading; empty: with the other options of the subcommand
  std::vector<std::string> words;  // values to complete: all that are possible, or the known ones
  bool required = false, many = false;

  bool is_positional() const { return names[0] != '-'; }
  std::vector<std::string> spellings() const;  // "-n", "--ranks"
  bool takes_path() const;                     // of a file or folder
};

// Text of a manual page: paragraphs are separated by empty lines; lines that begin with four blanks are shown as they
// stand. `terms` follow the text, each with what it means.
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
  const char* description;                                         // help and manual page; as Section::text
  std::vector<std::pair<const char*, const char*>> examples = {};  // a command line, and what it does; both
  std::vector<Section> sections = {};                              // manual page only
  std::vector<std::pair<const char*, const char*>> statuses = {};  // exit statuses besides 0 and 2
  std::vector<const char*> related = {};                           // pages of docs/ and other subcommands
  const char* usage = nullptr;                                     // behind the name; nullptr: made from the options
  bool starts_program = false;  // what stands behind the options is a program; see Common
};

struct CommandSpec {
  CommandText text;
  std::vector<OptionSpec> options;  // the subcommand's own, positionals among them
  std::vector<OptionSpec> common;   // those that all have
  std::vector<TermList> tails;      // lists that are made at run time, behind the options

  std::string usage() const;                           // "gsel trace [OPTIONS] PID|FILE|FOLDER..."
  std::vector<const OptionSpec*> all_options() const;  // in the order in which they are shown
};

// The values of the options that every subcommand has.
struct Common {
  bool json = false;
  std::string json_file;  // of a subcommand that starts a program, whose output is not ours
  std::string output;     // in place of standard output; empty: that
  std::string color = "auto";
};

}  // namespace gsel::cli
