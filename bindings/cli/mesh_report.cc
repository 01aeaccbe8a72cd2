// mesh_report.cc: see mesh_report.h.
#include "mesh_report.h"

#include <nlohmann/json.hpp>

#include "client.h"
#include "colour.h"
#include "table.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

Json hosts_json(const HostList& list) {
  Json out = Json::array();
  int32_t first = 0;
  for (const HostSlots& host : list.hosts) {
    Json ranks = Json::array();
    for (int32_t i = 0; i < host.slots; ++i) ranks.push_back(first++);
    out.push_back({{"host", host.name}, {"slots", host.slots}, {"ranks", std::move(ranks)}});
  }
  return out;
}

Json placement_json(const HostList& list, const std::vector<PlacedGroup>& placed) {
  Json out = Json::array();
  for (const PlacedGroup& group : placed) {
    Json names = Json::array();
    for (const int32_t host : group.hosts) names.push_back(list.hosts[static_cast<size_t>(host)].name);
    out.push_back({{"ranks", group.ranks},
                   {"hosts", std::move(names)},
                   {"across", group.across()},
                   {"bytes_sent", group.bytes_sent ? Json(*group.bytes_sent) : Json()}});
  }
  return out;
}

std::string joined(const Group& group) {
  std::string out;
  for (const int32_t rank : group) out += (out.empty() ? "" : " ") + std::to_string(rank);
  return out;
}

std::string joined(const std::vector<Group>& groups) {
  std::string out;
  for (const Group& group : groups) out += (out.empty() ? "" : " | ") + joined(group);
  return out;
}

std::string host_names(const HostList& list, const PlacedGroup& group) {
  std::string out;
  for (const int32_t host : group.hosts) out += (out.empty() ? "" : " ") + list.hosts[static_cast<size_t>(host)].name;
  return out;
}

std::string hosts_text(const HostList& list) {
  std::vector<Row> rows = {{"host", "slots", "ranks"}};
  int32_t first = 0;
  for (const HostSlots& host : list.hosts) {
    const int32_t last = first + host.slots - 1;
    rows.push_back({host.name, std::to_string(host.slots),
                    std::to_string(first) + (last > first ? "-" + std::to_string(last) : "")});
    first = last + 1;
  }
  return table(rows);
}

// A row for each group of several ranks; then the bytes sent within and between hosts, if known.
std::string placement_text(const ShownMesh& shown) {
  std::vector<Row> rows = {{"axis", "group", "hosts"}};
  if (shown.with_programs) rows.front().emplace_back("sent in a step");
  uint64_t inside = 0, across = 0;
  for (const AxisGroups& one : shown.axes)
    for (const PlacedGroup& group : one.placed) {
      if (group.ranks.size() < 2) continue;
      Row& row = rows.emplace_back(Row{gsel_axis_name(one.axis), joined(group.ranks), host_names(*shown.hosts, group)});
      if (!shown.with_programs) continue;
      row.push_back(std::to_string(*group.bytes_sent) + " B");
      (group.across() ? across : inside) += *group.bytes_sent;
    }
  if (rows.size() == 1) return {};
  std::string out = "\n" + table(rows);
  if (shown.with_programs)
    out += "groups inside a host send " + std::to_string(inside) + " B in a step, groups across hosts " +
           std::to_string(across) + " B\n";
  return out;
}

}  // namespace

std::string mesh_json(const ShownMesh& shown) {
  Json out{{"ranks", shown.mesh.world_size}};
  if (shown.hosts) out["hosts"] = hosts_json(*shown.hosts);
  for (const AxisGroups& one : shown.axes) {
    Json axis{{"axis", gsel_axis_name(one.axis)},
              {"size", shown.mesh.size[one.axis]},
              {"plugin", one.plugin},
              {"groups", one.groups}};
    if (shown.hosts) axis["placement"] = placement_json(*shown.hosts, one.placed);
    out["axes"].push_back(std::move(axis));
  }
  for (int32_t rank = 0; rank < shown.mesh.world_size; ++rank) {
    Json coordinates{{"rank", rank}};
    if (shown.hosts) coordinates["host"] = shown.hosts->name_of(rank);
    for (const AxisGroups& one : shown.axes)
      coordinates[gsel_axis_name(one.axis)] = gsel_mesh_coordinate(&shown.mesh, rank, one.axis);
    out["coordinates"].push_back(std::move(coordinates));
  }
  if (shown.hosts) out["warnings"] = shown.warning.empty() ? Json::array() : Json::array({shown.warning});
  return json_text(out);
}

std::string mesh_text(const ShownMesh& shown) {
  std::vector<Row> axes = {{"axis", "size", "plugin", "groups of ranks"}}, ranks = {{"rank"}};
  if (shown.hosts) axes.front().emplace_back("across hosts"), ranks.front().emplace_back("host");
  for (const AxisGroups& one : shown.axes) {
    const int32_t size = shown.mesh.size[one.axis];
    Row& row =
        axes.emplace_back(Row{gsel_axis_name(one.axis), std::to_string(size), one.plugin.empty() ? "-" : one.plugin,
                              size > 1 ? joined(one.groups) : "each rank by itself"});
    if (shown.hosts) row.push_back(across_text(one.placed));
    ranks.front().emplace_back(gsel_axis_name(one.axis));
  }
  for (int32_t rank = 0; rank < shown.mesh.world_size; ++rank) {
    Row& row = ranks.emplace_back(Row{std::to_string(rank)});
    if (shown.hosts) row.push_back(shown.hosts->name_of(rank));
    for (const AxisGroups& one : shown.axes)
      row.push_back(std::to_string(gsel_mesh_coordinate(&shown.mesh, rank, one.axis)));
  }
  std::string out = with_noun(shown.mesh.world_size, "rank");
  if (shown.hosts) out += " on " + with_noun(shown.hosts->hosts.size(), "host");
  out += ", axes from inner to outer\n\n";
  if (shown.hosts) out += hosts_text(*shown.hosts) + "\n";
  out += table(axes);
  if (shown.hosts) out += placement_text(shown);
  out += "\n" + table(ranks);
  if (!shown.warning.empty()) out += "\n" + coloured(Colour::warning, "warning: " + shown.warning) + "\n";
  return out;
}

}  // namespace gsel::cli
