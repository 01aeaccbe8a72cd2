// resolve.cc: `gsel resolve`: which devices a request selects, and why.
#include <algorithm>

#include "client.h"
#include "colour.h"
#include "commands.h"

namespace gsel::cli {
namespace {

const CommandText kResolveText{
    .name = "resolve",
    .summary = "Say which devices a request gets, and why each was kept or dropped",
    .description =
        "Reads the variables of each vendor that hide, order or name devices, and then the request. Every device is "
        "listed with its position in the selection or with the reason for which it was dropped; the variables that "
        "give a child process exactly this selection are listed below. A value that two programs would read "
        "differently is refused, unless --compat names the program that is to be imitated.",
    .examples = {{"gsel resolve --devices 'count:2 & free>=20GiB'", "Two devices with 20 GiB of free memory each."},
                 {"gsel resolve --inventory machine.json --compat cuda",
                  "What CUDA would see on a recorded machine, by the variables set here."}},
    .sections = {{"JSON",
                  "An object; keys keep name, type and meaning, and new ones may be added. docs/selection.md lists all "
                  "of them.",
                  {{"status", "\"ok\"."},
                   {"devices", "The selection, in order: index, host, uuid, pci, name, vendor, memory_bytes."},
                   {"env", "Variables for a child process that gets the whole selection."},
                   {"warnings", "Texts."},
                   {"trace", "What each word of a variable or of the request became, and by which rule."},
                   {"candidates", "Every device with its position, or -1, and the reason."}}}},
    .related = {"gsel-devices(1)", "gsel-run(1)", "gsel_resolve(3)", "docs/selection.md"}};

struct ResolveOptions {
  std::string inventory, devices, accelerator, compat, order, include, exclude, hostfile;
  std::vector<std::string> env;
  bool no_env = false;
  Parser parser;
};

// Splits NAME=VALUE; both parts borrow from the text.
gsel_env_var variable(const std::string& assignment) {
  const auto equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0) refuse(GSEL_ERR_ARG, "--env " + assignment + ": NAME=VALUE is needed");
  return {{assignment.data(), equals}, {assignment.data() + equals + 1, assignment.size() - equals - 1}};
}

// The line of each device begins with a position or "-".
std::string with_colours(const std::string& text) {
  std::string out;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    const std::string line = text.substr(from, end - from);
    const bool kept = !line.empty() && line[0] >= '0' && line[0] <= '9';
    out += kept                           ? coloured(Colour::good, line)
           : line.starts_with("- ")       ? coloured(Colour::faint, line)
           : line.starts_with("warning:") ? coloured(Colour::warning, line)
                                          : line;
    out += end < text.size() ? "\n" : "";
    from = end + 1;
  }
  return out;
}

int print_selection(const ResolveOptions& options, bool json) {
  const auto inventory = read_inventory(options.inventory);
  std::vector<gsel_env_var> env;
  for (const std::string& assignment : options.env) env.push_back(variable(assignment));
  gsel_resolve_options resolve_options = GSEL_RESOLVE_OPTIONS_INIT;
  resolve_options.inventory = inventory.get();
  resolve_options.env = env.empty() ? nullptr : env.data();
  resolve_options.n_env = env.size();
  const auto set = [&](const char* option, const std::string& value, gsel_str& field) {
    if (options.parser.given(option)) field = borrow(value);
  };
  set("--devices", options.devices, resolve_options.devices);
  set("--accelerator", options.accelerator, resolve_options.accelerator);
  set("--compat", options.compat, resolve_options.compat);
  set("--order", options.order, resolve_options.order);
  set("--include", options.include, resolve_options.include);
  set("--exclude", options.exclude, resolve_options.exclude);
  set("--hostfile", options.hostfile, resolve_options.hostfile);
  if (options.no_env) resolve_options.flags = GSEL_RESOLVE_NO_ENV;

  gsel_selection* made = nullptr;
  gsel_error* error = nullptr;
  check(gsel_resolve(&resolve_options, &made, &error), &error);
  const Handle<gsel_selection> selection(made);
  print(json ? text(gsel_selection_json(made)) : with_colours(text(gsel_selection_text(made))));
  return 0;
}

// Compat systems of the library.
TermList systems() {
  TermList list{"Systems of --compat", {}};
  for (int32_t i = 0; i < gsel_compat_count(); ++i)
    list.terms.emplace_back(text(gsel_compat_name(i)), text(gsel_compat_summary(i)));
  return list;
}

}  // namespace

Command resolve_command(CommandLine& line) {
  auto options = std::make_shared<ResolveOptions>();
  Parser parser = line.subcommand(kResolveText);
  options->parser = parser;
  parser.option("--inventory", options->inventory, "FILE", "Read the machine from this file.");
  parser.option("--compat", options->compat, "SYSTEM", "Read variables and options as this system does, bug for bug.");
  parser.option(
      "--devices", options->devices, "SPEC",
      "count:N, index:a,b, pci:, cuda:, visible:, uuid:, mig:, name:GLOB, all, none, auto, cuda, cpu; filters "
      "joined by &, fallbacks by |; with some systems of --compat their own option.");
  parser.option("--accelerator", options->accelerator, "KIND", "cuda, hip, ze, habana, ascend, mps, cpu or auto.");
  parser.option("--order", options->order, "ORDER", "visible, pci, fastest, most_free or near.");
  parser.option("--include", options->include, "HOSTS", "Hosts and slots to take: NAME[:SLOT[,SLOT]] joined by @.");
  parser.option("--exclude", options->exclude, "HOSTS", "Hosts and slots to leave out, in the same form.");
  parser.option("--hostfile", options->hostfile, "FILE", "Hosts to take: lines \"NAME slots=N\".");
  parser.repeated("--env", options->env, "NAME=VALUE",
                  "Honour this variable, and not those of the environment; may be repeated.");
  parser.flag("--no-env", options->no_env, "Honour no variables; excludes --env.");
  parser.exclude("--no-env", "--env");
  const TermList list = systems();
  std::vector<std::string> names;
  for (const auto& [name, summary] : list.terms) names.push_back(name);
  parser.words("--compat", names);
  parser.words("--devices", {"all", "none", "auto", "cuda", "cpu", "count:", "index:", "pci:", "uuid:", "name:"});
  parser.words("--accelerator", {"auto", "cuda", "hip", "ze", "habana", "ascend", "mps", "cpu"});
  parser.words("--order", {"visible", "pci", "fastest", "most_free", "near"});
  parser.tail(list);
  return {parser, [options, &common = line.common()] { return print_selection(*options, common.json); }};
}

}  // namespace gsel::cli
