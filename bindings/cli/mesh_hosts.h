// mesh_hosts.h: where the groups of a mesh are when ranks fill hosts in order: which groups stay within a host, which
// span hosts, and how the groups of the tensor axis could stay within one. Does not know configs or output formats.
#pragma once

#include <gsel/mesh.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host_list.h"

namespace gsel::cli {

using Group = std::vector<int32_t>;  // ranks

// Groups of ranks that differ only on the axis, in order of their first rank.
std::vector<Group> groups_of(const gsel_mesh& mesh, gsel_axis axis);

struct PlacedGroup {
  Group ranks;
  std::vector<int32_t> hosts;            // index in the list, ascending
  std::optional<uint64_t> bytes_sent{};  // by its ranks together, per step
  bool across() const { return hosts.size() > 1; }
};
std::vector<PlacedGroup> placed_groups(const HostList& list, std::vector<Group> groups);

// "none" or "1 of 4".
std::string across_text(const std::vector<PlacedGroup>& groups);

// Why groups of the tensor axis are slow, and which size, order of hosts or slots avoids that; empty: all stay within
// hosts.
std::string tensor_warning(const HostList& list, const gsel_mesh& mesh);

}  // namespace gsel::cli
