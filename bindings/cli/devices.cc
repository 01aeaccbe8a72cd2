// devices.cc: `gsel devices`: what this machine, or a recorded one, has.
#include "client.h"
#include "commands.h"

namespace gsel::cli {
namespace {

struct DevicesOptions {
  std::string inventory, save;
  bool json = false;
};

Handle<gsel_inventory> detect() {
  gsel_inventory* inventory = nullptr;
  gsel_error* error = nullptr;
  check(gsel_inventory_detect(&inventory, &error), &error);
  return Handle<gsel_inventory>(inventory);
}

int list_devices(const DevicesOptions& options) {
  const auto inventory = options.inventory.empty() ? detect() : read_inventory(options.inventory);
  const std::string json = text(gsel_inventory_json(inventory.get()));
  if (!options.save.empty()) write_file(options.save, json);
  print(options.json ? json : text(gsel_inventory_text(inventory.get())));
  return 0;
}

}  // namespace

Command devices_command(CommandLine& line) {
  auto options = std::make_shared<DevicesOptions>();
  Parser parser = line.subcommand("devices", "List the devices of this machine, or of a recorded one");
  parser.option("--inventory", options->inventory, "FILE", "Read the machine from this file");
  parser.option("--save", options->save, "FILE", "Write the inventory to this file as well");
  parser.flag("--json", options->json, "Print JSON, in the form --inventory reads");
  return {parser, [options] { return list_devices(*options); }, [options] { return options->json; }};
}

}  // namespace gsel::cli
