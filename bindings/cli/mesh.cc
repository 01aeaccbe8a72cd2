// mesh.cc: `gsel mesh`: how the ranks of a config stand on the axes: each one's places, and who shares an axis with
// whom.
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "client.h"
#include "commands.h"
#include "table.h"

namespace gsel::cli {
namespace {

constexpr int32_t kMostRanks = 1 << 16;
constexpr std::array<const char*, GSEL_AXES> kAxes{"tensor", "data", "pipeline"};

struct Options {
  std::string file;
  int32_t ranks = 0;  // 0: as many as the sizes multiply to
  bool json = false;
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
  int64_t ranks = 1;
  for (const char* axis : kAxes) {
    const std::string size = value_of(config, std::string("mesh.") + axis);
    if (size == "auto")
      refuse(GSEL_ERR_ARG, std::string("mesh.") + axis +
                               " is \"auto\", which follows from the number of ranks; give "
                               "it with --ranks");
    ranks = std::min<int64_t>(ranks * std::stoll(size), int64_t{kMostRanks} + 1);
  }
  if (ranks > kMostRanks)
    refuse(GSEL_ERR_ARG, "the sizes of the mesh multiply to more than " + std::to_string(kMostRanks) +
                             " ranks, the most that can be shown");
  return static_cast<int32_t>(ranks);
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
    if (gsel_mesh_place(&mesh, rank, axis) != 0) continue;
    int32_t places[GSEL_AXES];
    for (gsel_axis a = 0; a < GSEL_AXES; ++a) places[a] = gsel_mesh_place(&mesh, rank, a);
    Group& group = groups.emplace_back();
    for (places[axis] = 0; places[axis] < mesh.size[axis]; ++places[axis])
      group.push_back(gsel_mesh_rank(&mesh, places));
  }
  return groups;
}

std::string as_json(const gsel_config* config, const gsel_mesh& mesh) {
  nlohmann::ordered_json out{{"ranks", mesh.world_size}};
  for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis)
    out["axes"].push_back({{"axis", kAxes[axis]},
                           {"size", mesh.size[axis]},
                           {"plugin", value_of(config, std::string("strategy.") + kAxes[axis] + ".plugin")},
                           {"groups", groups_of(mesh, axis)}});
  for (int32_t rank = 0; rank < mesh.world_size; ++rank) {
    nlohmann::ordered_json places{{"rank", rank}};
    for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis) places[kAxes[axis]] = gsel_mesh_place(&mesh, rank, axis);
    out["places"].push_back(places);
  }
  return out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
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
  std::vector<Row> axes = {{"axis", "size", "plugin", "groups of ranks"}}, places = {{"rank"}};
  for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis) {
    const std::string plugin = value_of(config, std::string("strategy.") + kAxes[axis] + ".plugin");
    axes.push_back({kAxes[axis], std::to_string(mesh.size[axis]), plugin.empty() ? "-" : plugin,
                    mesh.size[axis] > 1 ? joined(groups_of(mesh, axis)) : "each rank by itself"});
    places.front().emplace_back(kAxes[axis]);
  }
  for (int32_t rank = 0; rank < mesh.world_size; ++rank) {
    Row& row = places.emplace_back(Row{std::to_string(rank)});
    for (gsel_axis axis = 0; axis < GSEL_AXES; ++axis)
      row.push_back(std::to_string(gsel_mesh_place(&mesh, rank, axis)));
  }
  return std::to_string(mesh.world_size) +
         " ranks, neighbours on the tensor axis first, then on data, then on pipeline\n\n" + table(axes) + "\n" +
         table(places);
}

int run(const Options& options) {
  const Handle<gsel_config> config = read_config(options.file);
  const gsel_mesh mesh = resolved(config.get(), options.ranks ? options.ranks : ranks_of(config.get()));
  print(options.json ? as_json(config.get(), mesh) : as_text(config.get(), mesh));
  return 0;
}

}  // namespace

Command mesh_command(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* parser = app.add_subcommand("mesh", "Show how the ranks of a config stand on the axes, and their groups");
  parser->add_option("file", options->file, "The config; without it the one that GSEL_CONFIG names, else the defaults")
      ->type_name("FILE.toml");
  parser->add_option("--ranks", options->ranks, "Number of ranks, where a size of the mesh is \"auto\"")
      ->type_name("N")
      ->check(CLI::Range(1, kMostRanks));
  parser->add_flag("--json", options->json, "As JSON");
  return {parser, [options] { return run(*options); }, [options] { return options->json; }};
}

}  // namespace gsel::cli
