// mesh.cc: `gsel mesh`: the coordinates of a config's ranks, and which ranks each axis groups.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "axes.h"
#include "client.h"
#include "commands.h"
#include "table.h"

namespace gsel::cli {
namespace {

constexpr int32_t kMostRanks = 1 << 16;

const CommandText kMeshText{
    .name = "mesh",
    .summary = "Show the coordinates of a config's ranks, and the groups of each axis",
    .description = "Axes stand from inner to outer. The ranks of a group differ on that axis alone.",
    .examples = {{"gsel mesh gsel.toml --ranks 8", "The mesh of 8 ranks, where one of its sizes is \"auto\"."}},
    .sections = {{"JSON",
                  "",
                  {{"ranks", "Their number."},
                   {"axes", "Each with axis (its name), size, plugin and groups, lists of ranks."},
                   {"coordinates",
                    "For each rank its number, rank, and its coordinate under the name of each axis."}}}},
    .related = {"gsel-run(1)", "gsel_mesh_resolve(3)", "docs/mesh.md"}};

struct MeshOptions {
  std::string file;
  int32_t ranks = 0;  // 0: as many as the sizes multiply to
};

using Group = std::vector<int32_t>;

// No file: the one that GSEL_CONFIG names, else the defaults.
Handle<gsel_config> read_config(const std::string& file) {
  gsel_config* config = nullptr;
  gsel_error* error = nullptr;
  check(gsel_config_load(file.empty() ? gsel_str{nullptr, 0} : borrow(file), &config, &error), &error);
  return Handle<gsel_config>(config);
}

std::string value_of(const gsel_config* config, const std::string& key) {
  return text(gsel_config_get(config, borrow(key)));
}

int32_t ranks_of(const gsel_config* config) {
  const MeshRanks ranks = ranks_of_mesh(config, kMostRanks);
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

// Ranks that differ on the axis alone, in order of their first.
std::vector<Group> groups_of(const gsel_mesh& mesh, gsel_axis axis) {
  std::vector<Group> groups;
  for (int32_t rank = 0; rank < mesh.world_size; ++rank) {
    if (gsel_mesh_coordinate(&mesh, rank, axis) != 0) continue;
    int32_t at[GSEL_MAX_AXES];
    for (gsel_axis a = 0; a < mesh.n_axes; ++a) at[a] = gsel_mesh_coordinate(&mesh, rank, a);
    Group& group = groups.emplace_back();
    for (at[axis] = 0; at[axis] < mesh.size[axis]; ++at[axis]) group.push_back(gsel_mesh_rank(&mesh, at, mesh.n_axes));
  }
  return groups;
}

std::vector<gsel_axis> axes_of(const gsel_mesh& mesh) {
  return shown_axes(mesh.size[GSEL_AXIS_CONTEXT]);
}

std::string plugin_of(const gsel_config* config, gsel_axis axis) {
  return value_of(config, std::string("strategy.") + gsel_axis_name(axis) + ".plugin");
}

std::string as_json(const gsel_config* config, const gsel_mesh& mesh) {
  nlohmann::ordered_json out{{"ranks", mesh.world_size}};
  for (const gsel_axis axis : axes_of(mesh))
    out["axes"].push_back({{"axis", gsel_axis_name(axis)},
                           {"size", mesh.size[axis]},
                           {"plugin", plugin_of(config, axis)},
                           {"groups", groups_of(mesh, axis)}});
  for (int32_t rank = 0; rank < mesh.world_size; ++rank) {
    nlohmann::ordered_json coordinates{{"rank", rank}};
    for (const gsel_axis axis : axes_of(mesh))
      coordinates[gsel_axis_name(axis)] = gsel_mesh_coordinate(&mesh, rank, axis);
    out["coordinates"].push_back(coordinates);
  }
  return json_text(out);
}

std::string joined(const std::vector<Group>& groups) {
  std::string out;
  for (const Group& group : groups) {
    out += out.empty() ? "" : " |";
    for (int32_t rank : group) out += (out.empty() ? "" : " ") + std::to_string(rank);
  }
  return out;
}

std::string as_text(const gsel_config* config, const gsel_mesh& mesh) {
  std::vector<Row> axes = {{"axis", "size", "plugin", "groups of ranks"}}, ranks = {{"rank"}};
  for (const gsel_axis axis : axes_of(mesh)) {
    const std::string plugin = plugin_of(config, axis);
    axes.push_back({gsel_axis_name(axis), std::to_string(mesh.size[axis]), plugin.empty() ? "-" : plugin,
                    mesh.size[axis] > 1 ? joined(groups_of(mesh, axis)) : "each rank by itself"});
    ranks.front().emplace_back(gsel_axis_name(axis));
  }
  for (int32_t rank = 0; rank < mesh.world_size; ++rank) {
    Row& row = ranks.emplace_back(Row{std::to_string(rank)});
    for (const gsel_axis axis : axes_of(mesh)) row.push_back(std::to_string(gsel_mesh_coordinate(&mesh, rank, axis)));
  }
  return with_noun(mesh.world_size, "rank") + ", axes from inner to outer\n\n" + table(axes) + "\n" + table(ranks);
}

int print_mesh(const MeshOptions& options, bool json) {
  const Handle<gsel_config> config = read_config(options.file);
  const gsel_mesh mesh = resolved(config.get(), options.ranks ? options.ranks : ranks_of(config.get()));
  print(json ? as_json(config.get(), mesh) : as_text(config.get(), mesh));
  return 0;
}

}  // namespace

Command mesh_command(CommandLine& line) {
  auto options = std::make_shared<MeshOptions>();
  Parser parser = line.subcommand(kMeshText);
  parser.option("file", options->file, "FILE.toml",
                "The config; without it the one that GSEL_CONFIG names, else the defaults.");
  parser.option("-n,--ranks", options->ranks, 1, kMostRanks, "N",
                "Number of ranks, where a size of the mesh is \"auto\".");
  return {parser, [options, &common = line.common()] { return print_mesh(*options, common.json); }};
}

}  // namespace gsel::cli
