// completion.cc: see completion.h; also `gsel completion`, which prints the scripts. They complete subcommands,
// options, known values, files, and the program of `gsel run`.
#include "completion.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "client.h"
#include "commands.h"
#include "help.h"

namespace gsel::cli {
namespace {

const CommandText kCompletionText{
    .name = "completion",
    .summary = "Print a script that completes command lines of gsel in a shell",
    .description =
        "make install puts the scripts where the shells find them. Elsewhere they can be read as the examples show.",
    .examples = {{"source <(gsel completion bash)", "For this bash, or in ~/.bashrc."},
                 {"gsel completion zsh > ~/.zfunc/_gsel", "Into a folder of fpath."},
                 {"gsel completion fish > ~/.config/fish/completions/gsel.fish", "For every fish from now on."}},
    .sections = {{"JSON", "", {{"shell", "As it was asked for."}, {"script", "The text."}}}},
    .related = {"gsel-manual(1)"}};

std::string words_of(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

// Quotes a text for a shell, in single quotes.
std::string quoted_for_shell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + out + "'";
}

std::string names_of(const CommandSpec& command, const char* between, bool with_value_only) {
  std::vector<std::string> names;
  for (const OptionSpec* option : command.all_options())
    if (!with_value_only || !option->value.empty())
      for (const std::string& name : option->spellings()) names.push_back(name);
  return words_of(names, between);
}

// All arguments that are no options, as one: with the words of the first, and files if any of them is a path.
std::optional<OptionSpec> positional_of(const CommandSpec& command) {
  std::optional<OptionSpec> all;
  for (const OptionSpec& option : command.options) {
    if (!option.is_positional()) continue;
    if (!all) {
      all = option;
      continue;
    }
    all->value += " " + option.value;
    all->many = true;
  }
  return all;
}

// ---- bash ----

// What to complete as a value: words, files, or nothing.
std::string bash_value(const OptionSpec& option) {
  return "words='" + words_of(option.words, " ") + "'" + (option.takes_path() ? " files=1" : "");
}

// The values of options, then words without an option before them.
std::string bash_cases(const CommandSpec& command) {
  std::string out;
  for (const OptionSpec* option : command.all_options()) {
    if (option->value.empty()) continue;
    out += "    '" + std::string(command.text.name) + " " +
           words_of(option->spellings(), ("' | '" + std::string(command.text.name) + " ").c_str()) + "') " +
           bash_value(*option) + " ;;\n";
  }
  const std::optional<OptionSpec> positional = positional_of(command);
  return out + "    '" + command.text.name + " '*) " + (positional ? bash_value(*positional) : "words=") +
         " options='" + names_of(command, " ", false) + "' ;;\n";
}

}  // namespace

std::string bash_completion(const CommandSpec& whole, const Commands& commands) {
  std::string subcommands, cases, programs, values;
  for (const auto& command : commands) {
    subcommands += (subcommands.empty() ? "" : " ") + std::string(command->text.name);
    cases += bash_cases(*command);
    if (!command->text.starts_program) continue;
    programs += (programs.empty() ? "" : "|") + std::string(command->text.name);
    values = names_of(*command, "|", true);
  }
  return "# Completion of gsel for bash, as `gsel completion bash` prints it.\n"
         "_gsel() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local command= at=0 i words= options= files=\n"
         "  COMPREPLY=()\n"
         "  if [[ $current == = ]]; then current=\n"
         "  elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}\n"
         "  fi\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case ${COMP_WORDS[i]} in " +
         [&] {
           std::string pattern = subcommands;
           for (char& c : pattern) c = c == ' ' ? '|' : c;
           return pattern;
         }() +
         ") command=${COMP_WORDS[i]} at=$i; break ;; esac\n"
         "  done\n"
         "  case $command in " +
         programs +
         ")\n"
         "    for ((i = at + 1; i < COMP_CWORD; ++i)); do\n"
         "      case ${COMP_WORDS[i]} in\n"
         "        --) ((++i)); break ;;\n"
         "        " +
         values +
         ") ((++i)); [[ ${COMP_WORDS[i]} == = ]] && ((++i)) ;;\n"
         "        -*) ;;\n"
         "        *) break ;;\n"
         "      esac\n"
         "    done\n"
         "    if ((i < COMP_CWORD)) || [[ ${COMP_WORDS[COMP_CWORD-1]} == -- ]]; then\n"
         "      if declare -F _command_offset > /dev/null; then _command_offset $i; return; fi\n"
         "      files=1\n"
         "    elif ((i == COMP_CWORD)) && [[ $current != -* ]]; then\n"
         "      mapfile -t COMPREPLY < <(compgen -c -- \"$current\"; compgen -d -S / -- \"$current\")\n"
         "      return\n"
         "    fi ;;\n"
         "  esac\n"
         "  if [[ -z $files ]]; then\n"
         "    case \"$command $before\" in\n" +
         cases +
         "    ' --color') words='auto always never' ;;\n"
         "    *) words='" +
         subcommands + "' options='" + names_of(whole, " ", false) +
         "' ;;\n"
         "    esac\n"
         "  fi\n"
         "  [[ $current == -* ]] && words=$options files=\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\"; [[ -n $files ]] && compgen -f -- "
         "\"$current\")\n"
         "  [[ -n $files ]] && compopt -o filenames 2> /dev/null\n"
         "  return 0\n"
         "}\n"
         "complete -F _gsel gsel\n";
}

// ---- zsh ----

namespace {

// Escapes a text for brackets and colons of _arguments.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const OptionSpec& option) {
  std::string words;
  for (const std::string& word : option.words) words += (words.empty() ? "" : " ") + zsh_text(word);
  if (option.takes_path() && option.words.empty()) return "_files";
  if (option.takes_path()) return "{ compadd " + words_of(option.words, " ") + "; _files }";
  return option.words.empty() ? "" : "(" + words + ")";
}

std::string zsh_option(const OptionSpec& option) {
  const std::vector<std::string> names = option.spellings();
  std::string out;
  for (const std::string& name : names) {
    const bool is_long = name.starts_with("--");
    out += "        " +
           quoted_for_shell("(" + words_of(names, " ") + ")" + name +
                            (option.value.empty() ? ""
                             : is_long            ? "="
                                                  : "+") +
                            "[" + zsh_text(option.help) + "]" +
                            (option.value.empty() ? "" : ":" + zsh_text(option.value) + ":" + zsh_action(option))) +
           " \\\n";
  }
  return out;
}

}  // namespace

std::string zsh_completion(const CommandSpec& whole, const Commands& commands) {
  std::string out =
      "#compdef gsel\n# Completion of gsel for zsh, as `gsel completion zsh` prints it.\n_gsel() {\n"
      "  local context state state_descr line\n  typeset -A opt_args\n  local -a subcommands=(\n";
  for (const auto& command : commands)
    out += "    " + quoted_for_shell(std::string(command->text.name) + ":" + zsh_text(command->text.summary)) + "\n";
  out += "  )\n  _arguments -C -s \\\n";
  for (const OptionSpec* option : whole.all_options()) out += zsh_option(*option);
  out +=
      "        '1:subcommand:{ _describe subcommand subcommands }' '*::argument:->arguments'\n"
      "  [[ $state == arguments ]] || return\n  case $line[1] in\n";
  for (const auto& command : commands) {
    out += "    " + std::string(command->text.name) + ")\n      _arguments -s \\\n";
    for (const OptionSpec* option : command->all_options()) out += zsh_option(*option);
    const std::optional<OptionSpec> positional = positional_of(*command);
    if (command->text.starts_program)
      out += "        '(-):program:_command_names -e' '*::argument:_normal' ;;\n";
    else if (positional)
      out += "        " +
             quoted_for_shell(std::string(positional->many ? "*" : "1") + ":" + positional->names + ":" +
                              zsh_action(*positional)) +
             " ;;\n";
    else
      out += "        && return 0 ;;\n";
  }
  return out + "  esac\n}\n[[ $zsh_eval_context[-1] == loadautofunc ]] && _gsel \"$@\" || compdef _gsel gsel\n";
}

// ---- fish ----

namespace {

std::string fish_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return "'" + out + "'";
}

std::string fish_option(const OptionSpec& option, const std::string& condition) {
  std::string out = "complete -c gsel -n " + fish_quoted(condition);
  for (const std::string& name : option.spellings())
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.value.empty()) out += option.takes_path() ? " -rF" : " -x";
  if (!option.words.empty()) out += " -a " + fish_quoted(words_of(option.words, " "));
  return out + " -d " + fish_quoted(option.help) + "\n";
}

}  // namespace

std::string fish_completion(const CommandSpec& whole, const Commands& commands) {
  std::string out = "# Completion of gsel for fish, as `gsel completion fish` prints it.\ncomplete -c gsel -f\n";
  for (const OptionSpec* option : whole.all_options()) out += fish_option(*option, "__fish_use_subcommand");
  for (const auto& command : commands) {
    const std::string inside = std::string("__fish_seen_subcommand_from ") + command->text.name;
    out += "complete -c gsel -n '__fish_use_subcommand' -a " + std::string(command->text.name) + " -d " +
           fish_quoted(command->text.summary) + "\n";
    for (const OptionSpec* option : command->all_options()) out += fish_option(*option, inside);
    const std::optional<OptionSpec> positional = positional_of(*command);
    if (command->text.starts_program)
      out += "complete -c gsel -n " + fish_quoted(inside) + " -a '(__fish_complete_subcommand --fcs-skip=2)'\n";
    else if (positional)
      out += "complete -c gsel -n " + fish_quoted(inside) + (positional->takes_path() ? " -F" : "") +
             (positional->words.empty() ? "" : " -a " + fish_quoted(words_of(positional->words, " "))) + "\n";
  }
  return out;
}

Command completion_command(CommandLine& line) {
  auto shell = std::make_shared<std::string>();
  Parser parser = line.subcommand(kCompletionText);
  parser.option("shell", *shell, "bash|zsh|fish", "Which shell.");
  parser.require("shell");
  parser.words("shell", {"bash", "zsh", "fish"});
  return {parser, [shell, &line] {
            std::string script;
            if (*shell == "bash")
              script = bash_completion(line.whole(), line.commands());
            else if (*shell == "zsh")
              script = zsh_completion(line.whole(), line.commands());
            else if (*shell == "fish")
              script = fish_completion(line.whole(), line.commands());
            else
              refuse(GSEL_ERR_ARG, *shell + ": bash, zsh or fish is needed");
            print(line.common().json ? json_text({{"shell", *shell}, {"script", script}}) : script);
            return 0;
          }};
}

}  // namespace gsel::cli
