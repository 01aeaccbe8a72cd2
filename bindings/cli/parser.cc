// parser.cc: see parser.h.
#include "parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "client.h"
#include "help.h"

namespace gsel::cli {
namespace {

// "a, b or c"
std::string alternatives(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return out;
}

std::string required_text(const std::string& text, const CLI::App& chosen) {
  std::vector<std::string> names;
  for (const CLI::App* command : chosen.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); }))
    names.push_back(command->get_name());
  if (!names.empty()) return "a subcommand is needed: " + alternatives(names);
  const size_t open = text.find('['), close = text.find(']');
  if (open == text.npos || close == text.npos) return text;
  return "one of " + text.substr(open + 1, close - open - 1) + " is needed";
}

// A one-line message for an error while the options of `chosen` were parsed.
std::string refusal_text(const CLI::ParseError& refusal, const CLI::App& chosen) {
  std::string text = refusal.what();
  const size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::RequiredError*>(&refusal)) {
    const std::vector<std::string> left = chosen.remaining();  // unknown arguments are reported before missing ones
    return left.empty() ? required_text(text, chosen) : left.front() + ": not expected here";
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&refusal) && colon != text.npos)
    return text.substr(colon + 2) + ": not expected here";
  if (dynamic_cast<const CLI::ValidationError*>(&refusal) && colon != text.npos &&
      text.find(": ", colon + 2) != text.npos)
    return text.substr(0, colon) + " " + text.substr(colon + 2);  // the message of our own check
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&refusal) && colon != text.npos)
    return text.substr(0, colon) + ": a value is needed";
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

}  // namespace

// ---- a subcommand -----------------------------------------------------------------------------------------------

OptionSpec& Parser::record(const char* names, const char* type, const char* help) {
  OptionSpec spec;
  spec.names = names;
  spec.value = type;
  spec.help = help;
  spec.group = group_;
  return spec_->options.emplace_back(std::move(spec));
}

OptionSpec& Parser::recorded(const char* option) {
  for (OptionSpec& spec : spec_->options)
    if (std::ranges::count(spec.spellings(), option)) return spec;
  throw std::logic_error(std::string("no option ") + option);
}

void Parser::option(const char* name, std::string& value, const char* type, const char* help, Default shown) {
  if (shown == Default::shown)
    record(name, type, help).initial = value;
  else
    record(name, type, help);
  app_->add_option(name, value);
}

void Parser::option(const char* name, size_t& value, const char* type, const char* help, Default shown) {
  if (shown == Default::shown)
    record(name, type, help).initial = std::to_string(value);
  else
    record(name, type, help);
  app_->add_option(name, value);
}

void Parser::option(const char* name, int32_t& value, int32_t least, int32_t most, const char* type, const char* help) {
  record(name, type, help);
  app_->add_option(name, value)->check(CLI::Range(least, most));
}

void Parser::optional(const char* name, std::string& value, const char* type, const char* help) {
  record(name, type, help);
  app_->add_option(name, value)->expected(0, 1);
}

void Parser::list(const char* name, std::vector<std::string>& values, const char* type, const char* help, int most) {
  record(name, type, help).many = true;
  CLI::Option* option = app_->add_option(name, values);
  if (most > 0) option->expected(1, most);
}

void Parser::require(const char* option) {
  recorded(option).required = true;
  app_->get_option(option)->required();
}

void Parser::repeated(const char* name, std::vector<std::string>& values, const char* type, const char* help) {
  record(name, type, help);
  app_->add_option(name, values)->expected(1)->take_all();
}

void Parser::flag(const char* name, bool& value, const char* help) {
  record(name, "", help);
  app_->add_flag(name, value);
}

void Parser::hidden(const char* name, std::string& value) {
  app_->add_option(name, value);
}

void Parser::words(const char* option, std::vector<std::string> words) {
  recorded(option).words = std::move(words);
}

Parser Parser::group(const char* title) {
  return {app_->add_option_group(title), spec_, title};
}

void Parser::require_one_option() {
  app_->require_option(1);
}

void Parser::exclude(const char* option, const char* other) {
  app_->get_option(option)->excludes(app_->get_option(other));
}

void Parser::need(const Parser& other, const char* option) {
  for (CLI::Option* own : app_->get_options()) own->needs(other.app_->get_option(option));
}

void Parser::tail(TermList list) {
  spec_->tails.push_back(std::move(list));
}

void Parser::keep_rest() {
  app_->prefix_command();
}

std::vector<std::string> Parser::rest() const {
  return app_->remaining();
}

bool Parser::is_chosen() const {
  return app_->parsed();
}

bool Parser::given(const char* option) const {
  return app_->count(option) > 0;
}

// ---- the whole line ---------------------------------------------------------------------------------------------

CommandLine::CommandLine(const CommandText& text, const std::string& versions)
    : app_(new CLI::App("", text.name)), whole_{text, {}, {}, {}}, versions_(versions) {
  Parser parser(app_.get(), &whole_);
  app_->require_subcommand(1);
  app_->set_version_flag("--version", versions);
  whole_.common.push_back({"--version", "", "Print the versions of this command and of the library.", "", "", {}});
  add_common(*app_, whole_);
}

CommandLine::~CommandLine() = default;

// Options that all subcommands share, shown in this order after their own. `gsel` itself has no output, and the output
// of `gsel run` is that of the ranks.
void CommandLine::add_common(CLI::App& app, CommandSpec& spec) {
  const auto add = [&](const char* names, const char* value, const char* help) -> OptionSpec& {
    return spec.common.emplace_back(OptionSpec{names, value, help, "", "", {}});
  };
  if (spec.text.starts_program) {
    app.add_option("--json", common_.json_file);
    add("--json", "FILE", "Write how the job and each rank ended to this file, as JSON; refusals too.");
  } else if (&spec != &whole_) {
    app.add_option("-o,--output", common_.output);
    add("-o,--output", "FILE", "Write to this file what goes to standard output otherwise.");
    app.add_flag("--json", common_.json);
    add("--json", "", "Print JSON; refusals too.");
  }
  const std::vector<std::string> when{"auto", "always", "never"};
  app.add_option("--color,--colour", common_.color)->check([when](const std::string& value) {
    return std::ranges::count(when, value) ? std::string() : value + ": " + alternatives(when) + " is needed";
  });
  add("--color", "WHEN",
      "auto, always or never. auto, the default: on a terminal, unless NO_COLOR is set or TERM is dumb.")
      .words = when;
  app.set_help_flag("-h,--help");
  add("-h,--help", "", "Print this help.");
}

Parser CommandLine::subcommand(const CommandText& text) {
  commands_.push_back(std::make_unique<CommandSpec>(CommandSpec{text, {}, {}, {}}));
  CLI::App* app = app_->add_subcommand(text.name);
  add_common(*app, *commands_.back());
  return {app, commands_.back().get()};
}

// Refuses a first word that is no command, with the list of commands.
void CommandLine::check_command(const std::vector<std::string>& arguments) const {
  if (arguments.empty() || arguments.front().empty() || arguments.front().front() == '-') return;
  std::string names;
  for (const auto& command : commands_) {
    if (command->text.name == arguments.front()) return;
    names += std::string(names.empty() ? "" : ", ") + command->text.name;
  }
  refuse(GSEL_ERR_ARG, arguments.front() + " is no command; there are " + names);
}

const CommandSpec& CommandLine::spec_of(const std::string& command) const {
  const auto found = std::ranges::find_if(commands_, [&](const auto& one) { return one->text.name == command; });
  return found == commands_.end() ? whole_ : **found;
}

// CLI11 takes the next word as the value of "--option=". Makes the empty value a separate word; a program and its
// arguments are not changed.
std::vector<std::string> CommandLine::with_empty_values(const std::vector<std::string>& arguments) const {
  const CommandSpec& spec = spec_of(arguments.empty() ? "" : arguments.front());
  const auto takes_value = [&](const std::string& name) {
    const auto is_it = [&](const OptionSpec& one) {
      return !one.value.empty() && std::ranges::count(one.spellings(), name);
    };
    return std::ranges::any_of(spec.options, is_it) || std::ranges::any_of(spec.common, is_it);
  };
  std::vector<std::string> out;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (i > 0 && spec.text.starts_program && !word.starts_with("-")) {
      out.insert(out.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    const bool is_empty = word.ends_with("=") && takes_value(word.substr(0, word.size() - 1));
    out.push_back(is_empty ? word.substr(0, word.size() - 1) : word);
    if (is_empty)
      out.emplace_back();
    else if (takes_value(word) && i + 1 < arguments.size())
      out.push_back(arguments[++i]);
  }
  return out;
}

// Finds the options of Common in invalid arguments, as far as possible, for the error message.
void CommandLine::look_for_common(const std::vector<std::string>& arguments) {
  const bool starts_program = !arguments.empty() && std::ranges::any_of(commands_, [&](const auto& command) {
    return command->text.starts_program && command->text.name == arguments.front();
  });
  const auto value_of = [&](size_t i, const std::string& name, std::string& value) {
    if (arguments[i].starts_with(name + "="))
      value = arguments[i].substr(name.size() + 1);
    else if (arguments[i] == name && i + 1 < arguments.size())
      value = arguments[i + 1];
  };
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    value_of(i, "--color", common_.color);
    if (starts_program)
      value_of(i, "--json", common_.json_file);
    else if (arguments[i] == "--json")
      common_.json = true;
  }
}

bool CommandLine::parse(const std::vector<std::string>& arguments) {
  std::vector<std::string> reversed = with_empty_values(arguments);
  std::ranges::reverse(reversed);  // CLI11 takes them from the end
  try {
    check_command(arguments);
    app_->parse(reversed);
    return true;
  } catch (const Failure&) {
    look_for_common(arguments);
    throw;
  } catch (const CLI::ParseError& e) {
    const CLI::App* chosen = app_->get_subcommands().empty() ? app_.get() : app_->get_subcommands().front();
    const CommandSpec& spec = spec_of(chosen->get_name());
    if (chosen->get_help_ptr()->count() > 0 || e.get_exit_code() == 0) {  // help takes precedence over errors
      print(dynamic_cast<const CLI::CallForVersion*>(&e) ? versions_ + "\n" : help_text(spec, commands_));
      return false;
    }
    look_for_common(arguments);
    refuse(GSEL_ERR_ARG,
           refusal_text(e, *chosen) + "; see " + (&spec == &whole_ ? "" : "gsel ") + spec.text.name + " --help");
  }
}

}  // namespace gsel::cli
