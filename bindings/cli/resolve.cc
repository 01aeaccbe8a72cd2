// resolve.cc: `gsel resolve`: which devices a request gets, and why.
#include "client.h"
#include "commands.h"

namespace gsel::cli {
namespace {

struct Options {
  std::string inventory, devices, accelerator;
  std::vector<std::string> env;
  bool no_env = false, json = false;
  CLI::Option *devices_given = nullptr, *accelerator_given = nullptr;
};

// NAME=VALUE as a variable; both parts are borrowed from the text.
gsel_env_var variable(const std::string& assignment) {
  const auto equals = assignment.find('=');
  if (equals == assignment.npos || equals == 0) refuse(GSEL_ERR_ARG, "--env " + assignment + ": NAME=VALUE is needed");
  return {{assignment.data(), equals}, {assignment.data() + equals + 1, assignment.size() - equals - 1}};
}

int run(const Options& options) {
  const auto inventory = read_inventory(options.inventory);
  std::vector<gsel_env_var> env;
  for (const std::string& assignment : options.env) env.push_back(variable(assignment));
  gsel_resolve_request request = GSEL_RESOLVE_REQUEST_INIT;
  request.inventory = inventory.get();
  request.env = env.empty() ? nullptr : env.data();
  request.n_env = env.size();
  if (options.devices_given->count()) request.devices = borrow(options.devices);
  if (options.accelerator_given->count()) request.accelerator = borrow(options.accelerator);
  if (options.no_env) request.flags = GSEL_RESOLVE_NO_ENV;

  gsel_selection* made = nullptr;
  gsel_error* error = nullptr;
  check(gsel_resolve(&request, &made, &error), &error);
  const Handle<gsel_selection> selection(made);
  print(text(options.json ? gsel_selection_json(made) : gsel_selection_text(made)));
  return 0;
}

}  // namespace

Command resolve_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* parser =
      app.add_subcommand("resolve", "Say which devices a request gets, and why each was kept or dropped");
  parser->add_option("--inventory", options->inventory, "Read the machine from this file")->type_name("FILE");
  options->devices_given =
      parser->add_option("--devices", options->devices, "count:N, index:a,b, uuid:GPU-...,..., all, cpu or auto")
          ->type_name("SPEC");
  options->accelerator_given =
      parser->add_option("--accelerator", options->accelerator, "cuda, cpu or auto")->type_name("A");
  CLI::Option* env =
      parser
          ->add_option("--env", options->env, "Honour this variable, and not those of the environment; may be repeated")
          ->type_name("NAME=VALUE")
          ->expected(1)
          ->take_all();
  parser->add_flag("--no-env", options->no_env, "Honour no variables")->excludes(env);
  parser->add_flag("--json", options->json, "Print JSON");
  return {parser, [options] { return run(*options); }, [options] { return options->json; }};
}

}  // namespace gsel::cli
