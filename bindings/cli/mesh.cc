// mesh.cc: `gsel mesh`: shows the coordinates of a config's ranks, the groups of each axis, and the hosts of the
// groups.
#include <cstdint>
#include <optional>

#include "axes.h"
#include "client.h"
#include "commands.h"
#include "mesh_report.h"
#include "program_files.h"

namespace gsel::cli {
namespace {

constexpr int32_t kMostRanks = kMostSlots;

const CommandText kMeshText{
    .name = "mesh",
    .summary = "Show the coordinates of a config's ranks, and the groups of each axis",
    .description =
        "Axes are listed from inner to outer. The ranks of a group differ on that axis alone. With --hosts, ranks fill "
        "the slots of the hosts in order, and the command says which groups stay inside a host and which cross hosts; "
        "--programs adds what each group sends in a step. Nothing is started, and the hosts are not looked for.",
    .examples = {{"gsel mesh gsel.toml --ranks 8", "The mesh of 8 ranks, where one of its sizes is \"auto\"."},
                 {"gsel mesh gsel.toml --hosts a:4,b:4", "The same on two hosts."}},
    .sections = {{"JSON",
                  "",
                  {{"ranks", "Their number."},
                   {"axes", "Each with axis (its name), size, plugin and groups, lists of ranks."},
                   {"coordinates",
                    "For each rank its number, rank, and its coordinate under the name of each axis; with --hosts "
                    "its host."},
                   {"hosts", "With --hosts: each with host (its name), slots and ranks."},
                   {"placement",
                    "With --hosts, of each axis: its groups, each with ranks, hosts, across (hosts) and bytes_sent "
                    "(in a step; null without --programs)."},
                   {"warnings", "With --hosts: texts."}}}},
    .related = {"gsel-run(1)", "gsel_mesh_resolve(3)", "docs/mesh.md"}};

struct MeshOptions {
  std::string file, hosts;
  std::vector<std::string> programs;
  int32_t ranks = 0;  // 0: the product of the sizes
  bool on_hosts = false;
};

// Without a file: the one that GSEL_CONFIG names, else the defaults.
Handle<gsel_config> read_config(const std::string& file) {
  gsel_config* config = nullptr;
  gsel_error* error = nullptr;
  check(gsel_config_load(file.empty() ? gsel_str{nullptr, 0} : borrow(file), &config, &error), &error);
  return Handle<gsel_config>(config);
}

std::string value_of(const gsel_config* config, const std::string& key) {
  return text(gsel_config_get(config, borrow(key)));
}

// If a size is "auto", one rank for each slot.
int32_t ranks_of(const gsel_config* config, const std::optional<HostList>& hosts) {
  const MeshRanks ranks = ranks_of_mesh(config, kMostRanks);
  if (!ranks.automatic.empty() && hosts) return hosts->slots();
  if (!ranks.automatic.empty())
    refuse(GSEL_ERR_ARG,
           ranks.automatic + " is \"auto\", which follows from the number of ranks; give it with --ranks");
  if (ranks.product > kMostRanks)
    refuse(GSEL_ERR_ARG, "the sizes of the mesh multiply to more than " + std::to_string(kMostRanks) +
                             " ranks, the most that can be shown");
  return static_cast<int32_t>(ranks.product);
}

gsel_mesh resolved(const gsel_config* config, int32_t ranks) {
  gsel_mesh mesh = GSEL_MESH_INIT;
  gsel_error* error = nullptr;
  check(gsel_mesh_resolve(config, ranks, &mesh, &error), &error);
  return mesh;
}

std::vector<gsel_axis> axes_of(const gsel_mesh& mesh) {
  return shown_axes(mesh.size[GSEL_AXIS_CONTEXT]);
}

std::string plugin_of(const gsel_config* config, gsel_axis axis) {
  return value_of(config, std::string("strategy.") + gsel_axis_name(axis) + ".plugin");
}

// Adds the bytes that the ranks of each group send per step, from the programs of all ranks.
void add_bytes(const std::vector<std::string>& files, ShownMesh& shown) {
  const VerifiedPrograms all = verified_programs(files);
  for (const AxisGroups& one : shown.axes)
    if (const int32_t size = axis_size(all.programs.front().get(), one.axis); size != shown.mesh.size[one.axis])
      refuse(GSEL_ERR_PROGRAM, files.front() + ": the programs have " + with_noun(size, "rank") + " on the " +
                                   gsel_axis_name(one.axis) + " axis, and the config " +
                                   std::to_string(shown.mesh.size[one.axis]) + "; they are of different meshes");
  std::vector<std::vector<TrafficRow>> traffic(all.programs.size());
  for (size_t rank = 0; rank < traffic.size(); ++rank)
    add_traffic(all.programs[rank].get(), INT64_MAX, "step", traffic[rank]);
  for (AxisGroups& one : shown.axes)
    for (PlacedGroup& group : one.placed) {
      group.bytes_sent = 0;
      for (const int32_t rank : group.ranks)
        for (const TrafficRow& row : traffic[static_cast<size_t>(rank)])
          if (row.axis == one.axis) *group.bytes_sent += row.bytes;
    }
  shown.with_programs = true;
}

ShownMesh shown_mesh(const MeshOptions& options) {
  if (!options.programs.empty() && !options.on_hosts)
    refuse(GSEL_ERR_ARG, "--programs tells what groups send inside of hosts and across; add --hosts");
  const Handle<gsel_config> config = read_config(options.file);
  ShownMesh shown;
  if (options.on_hosts) shown.hosts = parse_hosts("--hosts", options.hosts);
  shown.mesh = resolved(config.get(), options.ranks ? options.ranks : ranks_of(config.get(), shown.hosts));
  if (shown.hosts) check_slots(*shown.hosts, shown.mesh.world_size);
  for (const gsel_axis axis : axes_of(shown.mesh)) {
    AxisGroups& one =
        shown.axes.emplace_back(AxisGroups{axis, plugin_of(config.get(), axis), groups_of(shown.mesh, axis), {}});
    if (shown.hosts) one.placed = placed_groups(*shown.hosts, one.groups);
  }
  if (shown.hosts) shown.warning = tensor_warning(*shown.hosts, shown.mesh);
  if (!options.programs.empty()) add_bytes(options.programs, shown);
  return shown;
}

int print_mesh(const MeshOptions& options, bool json) {
  const ShownMesh shown = shown_mesh(options);
  print(json ? mesh_json(shown) : mesh_text(shown));
  return 0;
}

}  // namespace

Command mesh_command(CommandLine& line) {
  auto options = std::make_shared<MeshOptions>();
  Parser parser = line.subcommand(kMeshText);
  parser.option("file", options->file, "FILE.toml",
                "The config; without it the one that GSEL_CONFIG names, else the defaults.");
  parser.option("-n,--ranks", options->ranks, 1, kMostRanks, "N",
                "Number of ranks, where a size of the mesh is \"auto\"; with --hosts, without it: one for each slot.");
  parser.option("--hosts", options->hosts, "HOSTS",
                "Place the ranks on these hosts: NAME[:SLOTS],..., such as a:2,b:2, one slot without a number; or "
                "HOSTSxSLOTS, such as 2x4. There is a slot for each rank.");
  parser.list("--programs", options->programs, "FILE...",
              "With --hosts: the programs of all ranks, in rank order, as gsel program --verify reads them; adds what "
              "each group sends in a step.",
              kMostPrograms);
  return {parser, [options, parser, &common = line.common()] {
            options->on_hosts = parser.given("--hosts");
            return print_mesh(*options, common.json);
          }};
}

}  // namespace gsel::cli
