// mesh_report.h: a mesh as `gsel mesh` shows it, as JSON and as text, with the hosts of its ranks if known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mesh_hosts.h"

namespace gsel::cli {

struct AxisGroups {
  gsel_axis axis;
  std::string plugin;
  std::vector<Group> groups;
  std::vector<PlacedGroup> placed;  // if hosts are known
};

struct ShownMesh {
  gsel_mesh mesh;
  std::vector<AxisGroups> axes;
  std::optional<HostList> hosts;
  std::string warning;  // if hosts are known
  bool with_programs = false;
};

std::string mesh_json(const ShownMesh& shown);
std::string mesh_text(const ShownMesh& shown);

}  // namespace gsel::cli
