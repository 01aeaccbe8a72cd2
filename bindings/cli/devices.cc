// devices.cc: `gsel devices`: shows the devices of this machine, or of a recorded one.
#include "client.h"
#include "commands.h"

namespace gsel::cli {
namespace {

const CommandText kDevicesText{
    .name = "devices",
    .summary = "List the devices of this machine, or of a recorded one",
    .description =
        "Accelerators are found through the management libraries of their drivers and through sysfs, CPUs through "
        "hwloc. No driver context is created. With --vulkan the loader of Vulkan is asked as well, which loads the "
        "drivers "
        "that it knows; its numbers are those of GGML_VK_VISIBLE_DEVICES.",
    .examples = {{"gsel devices --json -o machine.json", "Records this machine for --inventory."},
                 {"gsel devices --inventory machine.json", "Lists the devices of a recorded machine."},
                 {"gsel devices --vulkan", "Also says which device each number of Vulkan is."}},
    .sections = {{"JSON",
                  "The document is an inventory, in the form that --inventory and gsel_inventory_load(3) read. "
                  "docs/inventory.md lists its fields, docs/inventory.schema.json is their schema."}},
    .related = {"gsel-resolve(1)", "gsel_inventory_detect(3)", "docs/inventory.md"}};

Handle<gsel_inventory> detect() {
  gsel_inventory* inventory = nullptr;
  gsel_error* error = nullptr;
  check(gsel_inventory_detect(&inventory, &error), &error);
  return Handle<gsel_inventory>(inventory);
}

int list_devices(const std::string& file, bool vulkan, bool json) {
  if (vulkan && !file.empty())
    refuse(GSEL_ERR_ARG, "--vulkan asks this machine, and --inventory reads another; leave one out");
  if (vulkan) setenv("GSEL_VULKAN", "1", 1);
  const auto inventory = file.empty() ? detect() : read_inventory(file);
  print(text(json ? gsel_inventory_json(inventory.get()) : gsel_inventory_text(inventory.get())));
  return 0;
}

}  // namespace

Command devices_command(CommandLine& line) {
  auto inventory = std::make_shared<std::string>();
  auto vulkan = std::make_shared<bool>(false);
  Parser parser = line.subcommand(kDevicesText);
  parser.option("--inventory", *inventory, "FILE", "Read the machine from this file.");
  parser.flag("--vulkan", *vulkan,
              "Also list devices in the order in which Vulkan enumerates them; this loads Vulkan drivers.");
  return {parser,
          [inventory, vulkan, &common = line.common()] { return list_devices(*inventory, *vulkan, common.json); }};
}

}  // namespace gsel::cli
