// mesh_hosts.cc: see mesh_hosts.h. The tensor axis is the innermost, so its groups are blocks of consecutive ranks, and
// all stay within hosts if and only if the slots of each host are a multiple of its size. Another order of the hosts
// can therefore only reduce the groups that span hosts; another size or other slots can avoid them.
#include "mesh_hosts.h"

#include <algorithm>
#include <numeric>

#include "client.h"

namespace gsel::cli {
namespace {

constexpr size_t kMostOrdered = 8;  // most hosts for which a warning suggests an order

int64_t count_across(const std::vector<HostSlots>& hosts, int32_t size) {
  int64_t across = 0, rank = 0, counted = -1;
  for (size_t i = 0; i + 1 < hosts.size(); ++i) {  // a group spans hosts if a host ends inside it
    rank += hosts[i].slots;
    if (rank % size == 0 || rank / size == counted) continue;
    counted = rank / size;
    ++across;
  }
  return across;
}

// Hosts with whole groups come first, then each host completes the group that the previous one began.
std::vector<HostSlots> better_order(std::vector<HostSlots> left, int32_t size) {
  std::vector<HostSlots> order;
  int64_t begun = 0;
  while (!left.empty()) {
    const auto completes = [&](const HostSlots& host) { return (begun + host.slots) % size == 0; };
    auto next = std::ranges::find_if(left, completes);
    if (next == left.end()) next = left.begin();
    begun = (begun + next->slots) % size;
    order.push_back(*next);
    left.erase(next);
  }
  return order;
}

std::string list_text(const std::vector<HostSlots>& hosts) {
  std::string out;
  for (const HostSlots& host : hosts) out += (out.empty() ? "" : ",") + host.name + ":" + std::to_string(host.slots);
  return out;
}

// The nearest sizes for which every host has whole groups; the data axis takes the rest.
std::string fitting_sizes(const HostList& list, const gsel_mesh& mesh) {
  int32_t common = 0;
  for (const HostSlots& host : list.hosts) common = std::gcd(common, host.slots);
  const int32_t tensor = mesh.size[GSEL_AXIS_TENSOR];
  const int64_t shared = static_cast<int64_t>(tensor) * mesh.size[GSEL_AXIS_DATA];
  int32_t below = 0, above = 0;
  for (int32_t size = 2; size <= common; ++size) {
    if (common % size != 0 || shared % size != 0) continue;
    if (size < tensor) below = size;
    if (size > tensor && above == 0) above = size;
  }
  std::string out;
  for (const int32_t size : {below, above})
    if (size > 0)
      out += std::string(out.empty() ? "" : ", or ") + "tensor = " + std::to_string(size) +
             " with data = " + std::to_string(shared / size);
  return out;
}

}  // namespace

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

std::vector<PlacedGroup> placed_groups(const HostList& list, std::vector<Group> groups) {
  std::vector<PlacedGroup> placed;
  for (Group& group : groups) {
    PlacedGroup& one = placed.emplace_back();
    for (const int32_t rank : group) {
      const int32_t host = list.host_of_rank[static_cast<size_t>(rank)];
      if (one.hosts.empty() || one.hosts.back() != host) one.hosts.push_back(host);  // ranks and hosts are ascending
    }
    one.ranks = std::move(group);
  }
  return placed;
}

std::string across_text(const std::vector<PlacedGroup>& groups) {
  const int64_t across = std::ranges::count_if(groups, &PlacedGroup::across);
  return across == 0 ? "none" : std::to_string(across) + " of " + std::to_string(groups.size());
}

std::string tensor_warning(const HostList& list, const gsel_mesh& mesh) {
  const int32_t tensor = mesh.size[GSEL_AXIS_TENSOR];
  const int64_t across = tensor > 1 ? count_across(list.hosts, tensor) : 0;
  if (across == 0) return {};
  const std::vector<PlacedGroup> groups = placed_groups(list, groups_of(mesh, GSEL_AXIS_TENSOR));
  const std::string sizes = fitting_sizes(list, mesh),
                    slots = "give each host a multiple of " + std::to_string(tensor) + " slots";
  std::string out = "groups of the tensor axis across hosts: " + across_text(groups) +
                    "; their ranks wait for each other in every layer, and a network is slower than memory; " +
                    (sizes.empty() ? "no other size above 1 fits these hosts: " + slots
                                   : "set " + sizes + ", or " + slots + ", to keep them inside");
  if (list.hosts.size() > kMostOrdered) return out;
  const std::vector<HostSlots> order = better_order(list.hosts, tensor);
  if (const int64_t fewer = count_across(order, tensor); fewer < across)
    out += "; the order " + list_text(order) + " leaves " + std::to_string(fewer) + " across hosts";
  return out;
}

}  // namespace gsel::cli
