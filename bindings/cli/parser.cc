// parser.cc: see parser.h.
#include "parser.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "client.h"

namespace gsel::cli {
namespace {

constexpr int kRefused = 2;

CLI::Option* typed(CLI::Option* option, const char* type, Parser::Default shown) {
  option->type_name(type);
  return shown == Parser::Default::shown ? option->capture_default_str() : option;
}

// "a, b or c"
std::string alternatives(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return out;
}

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* one) { return !one->get_name().empty(); }))
    names.push_back(command->get_name());
  return names;
}

std::string required_text(const std::string& text, const CLI::App& chosen) {
  const std::vector<std::string> names = subcommands_of(chosen);
  if (!names.empty()) return "a subcommand is needed: " + alternatives(names);
  const size_t open = text.find('['), close = text.find(']');
  if (open == text.npos || close == text.npos) return text;
  return "one of " + text.substr(open + 1, close - open - 1) + " is needed";
}

// One line about what was refused while the options of `chosen` were read.
std::string refusal_text(const CLI::ParseError& refusal, const CLI::App& chosen) {
  std::string text = refusal.what();
  const size_t colon = text.find(": ");
  if (dynamic_cast<const CLI::RequiredError*>(&refusal)) return required_text(text, chosen);
  if (dynamic_cast<const CLI::ExtrasError*>(&refusal) && colon != text.npos)
    return text.substr(colon + 2) + ": not expected here";
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&refusal) && colon != text.npos)
    return text.substr(0, colon) + ": a value is needed";
  if (!text.empty() && text[0] >= 'A' && text[0] <= 'Z') text[0] = static_cast<char>(text[0] - 'A' + 'a');
  return text;
}

}  // namespace

// ---- a subcommand -----------------------------------------------------------------------------------------------

void Parser::option(const char* name, std::string& value, const char* type, const char* help, Default shown) {
  typed(app_->add_option(name, value, help), type, shown);
}

void Parser::option(const char* name, size_t& value, const char* type, const char* help, Default shown) {
  typed(app_->add_option(name, value, help), type, shown);
}

void Parser::option(const char* name, int32_t& value, int32_t least, int32_t most, const char* type, const char* help) {
  typed(app_->add_option(name, value, help), type, Default::hidden)->check(CLI::Range(least, most));
}

void Parser::list(const char* name, std::vector<std::string>& values, const char* type, const char* help, int most) {
  CLI::Option* option = typed(app_->add_option(name, values, help), type, Default::hidden);
  if (most > 0) option->expected(1, most);
}

void Parser::require(const char* option) {
  app_->get_option(option)->required();
}

void Parser::repeated(const char* name, std::vector<std::string>& values, const char* type, const char* help) {
  typed(app_->add_option(name, values, help), type, Default::hidden)->expected(1)->take_all();
}

void Parser::flag(const char* name, bool& value, const char* help) {
  app_->add_flag(name, value, help);
}

Parser Parser::group(const char* name, const char* help) const {
  return Parser(app_->add_option_group(name, help));
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

void Parser::footer(std::string (*text)()) {
  app_->footer(text);
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

CommandLine::CommandLine(const char* what, const char* name, const std::string& versions)
    : app_(new CLI::App(what, name)) {
  app_->set_version_flag("--version", versions, "Versions of this command and of the library");
  app_->require_subcommand(1);
}

CommandLine::~CommandLine() {
  delete app_;
}

Parser CommandLine::subcommand(const char* name, const char* help) {
  return Parser(app_->add_subcommand(name, help));
}

std::vector<std::string> CommandLine::subcommands() const {
  return subcommands_of(*app_);
}

std::optional<int> CommandLine::parse(std::vector<std::string> arguments) {
  std::reverse(arguments.begin(), arguments.end());  // the parser takes them from the end
  try {
    app_->parse(arguments);
    return {};
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app_->exit(e);
    const CLI::App* chosen = app_->get_subcommands().empty() ? app_ : app_->get_subcommands().front();
    std::cerr << "gsel: " << refusal_text(e, *chosen) << "; see "
              << (chosen == app_ ? "gsel" : "gsel " + chosen->get_name()) << " --help" << std::endl;
    return kRefused;
  }
}

}  // namespace gsel::cli
