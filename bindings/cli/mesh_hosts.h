// mesh_hosts.h: where the groups of a mesh lie when its ranks fill hosts in order: which stay inside a host, which
// cross hosts, and what would keep those of the tensor axis inside. Does not know: configs, and how it is printed.
#pragma once

#include <gsel/mesh.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host_list.h"

namespace gsel::cli {

using Group = std::vector<int32_t>;  // ranks

// Ranks that differ on the axis alone, in order of their first.
std::vector<Group> groups_of(const gsel_mesh& mesh, gsel_axis axis);

struct PlacedGroup {
  Group ranks;
  std::vector<int32_t> hosts;            // of the list, ascending
  std::optional<uint64_t> bytes_sent{};  // by its ranks together, in a step
  bool across() const { return hosts.size() > 1; }
};
std::vector<PlacedGroup> placed_groups(const HostList& list, std::vector<Group> groups);

// "none" or "1 of 4".
std::string across_text(const std::vector<PlacedGroup>& groups);

// Why groups of the tensor axis are slow, and which size, order of hosts or slots avoid it; empty: all stay inside.
std::string tensor_warning(const HostList& list, const gsel_mesh& mesh);

}  // namespace gsel::cli
