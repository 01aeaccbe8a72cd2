// resolve.cc: `gsel resolve`: which devices a request gets, and why.
#include "client.h"
#include "commands.h"

namespace gsel::cli {
namespace {

struct ResolveOptions {
  std::string inventory, devices, accelerator, compat, order, include, exclude, hostfile;
  std::vector<std::string> env;
  bool no_env = false, json = false;
  Parser parser;
};

// NAME=VALUE as a variable; both parts are borrowed from the text.
gsel_env_var variable(const std::string& assignment) {
  const auto equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0) refuse(GSEL_ERR_ARG, "--env " + assignment + ": NAME=VALUE is needed");
  return {{assignment.data(), equals}, {assignment.data() + equals + 1, assignment.size() - equals - 1}};
}

int print_selection(const ResolveOptions& options) {
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
  print(text(options.json ? gsel_selection_json(made) : gsel_selection_text(made)));
  return 0;
}

// "A: one line" per compat system, for --help.
std::string systems_text() {
  std::string out = "\nSystems of --compat:\n";
  for (int32_t i = 0; i < gsel_compat_count(); ++i) {
    const std::string name = text(gsel_compat_name(i));
    out +=
        "  " + name + std::string(name.size() < 12 ? 12 - name.size() : 1, ' ') + text(gsel_compat_summary(i)) + "\n";
  }
  return out;
}

}  // namespace

Command resolve_command(CommandLine& line) {
  auto options = std::make_shared<ResolveOptions>();
  Parser parser = line.subcommand("resolve", "Say which devices a request gets, and why each was kept or dropped");
  options->parser = parser;
  parser.option("--inventory", options->inventory, "FILE", "Read the machine from this file");
  parser.option("--compat", options->compat, "SYSTEM", "Read variables and options as this system does, bug for bug");
  parser.option(
      "--devices", options->devices, "SPEC",
      "count:N, index:a,b, pci:, cuda:, visible:, uuid:, mig:, name:GLOB, all, none, auto, cuda, cpu; filters "
      "joined by &, fallbacks by |; with some systems of --compat their own option");
  parser.option("--accelerator", options->accelerator, "A", "cuda, hip, ze, habana, ascend, mps, cpu or auto");
  parser.option("--order", options->order, "O", "visible, pci, fastest, most_free or near");
  parser.option("--include", options->include, "F", "Hosts and slots to take: NAME[:SLOT[,SLOT]] joined by @");
  parser.option("--exclude", options->exclude, "F", "Hosts and slots to leave out, in the same form");
  parser.option("--hostfile", options->hostfile, "FILE", "Hosts to take: lines \"NAME slots=N\"");
  parser.repeated("--env", options->env, "NAME=VALUE",
                  "Honour this variable, and not those of the environment; may be repeated");
  parser.flag("--no-env", options->no_env, "Honour no variables");
  parser.exclude("--no-env", "--env");
  parser.flag("--json", options->json, "Print JSON");
  parser.footer(systems_text);
  return {parser, [options] { return print_selection(*options); }, [options] { return options->json; }};
}

}  // namespace gsel::cli
