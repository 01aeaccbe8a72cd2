// network_model.cc: see network_model.h.
#include "network_model.h"

#include <algorithm>
#include <cmath>

namespace gsel::cli {
namespace {

int64_t within(int64_t first, int64_t end, int64_t hosts) {
  return std::max<int64_t>(std::min(end, hosts) - first, 0);
}

// Time of messages on the way through the levels: on each level the busiest host handles its messages one by one.
double level_seconds(const Tree& tree, const NetworkModel& model, double others = 0) {
  double seconds = 0;
  for (int64_t level = 0; level < tree.levels; ++level)
    seconds += model.network.alpha_s + (static_cast<double>(tree.of[level].children) + others) * kMessageSeconds;
  return seconds;
}

// A host of a lower level asks each host on its path, then connects twice to its parent.
double lines_seconds(const Tree& tree, const NetworkModel& model) {
  double accepted = 0;
  for (int64_t level = 0; level < tree.levels; ++level)
    accepted += static_cast<double>(tree.of[level].below + (kConnectionsOfLine - 1) * tree.of[level].children);
  const auto in_a_row = static_cast<double>(tree.levels - 1 + kConnectionsOfLine);
  return in_a_row * kHandshakeSteps * model.network.alpha_s + accepted * kJoinSeconds + level_seconds(tree, model);
}

double gloo_seconds(const HostWorld& world, const NetworkModel& model, double row_bytes) {
  Cost cost = agreement(world, kSeatBytes);
  for (const double bytes : {kReportBytes, row_bytes, kReportBytes}) cost += agreement(world, bytes);
  return cost.seconds(model) + 2 * model.network.alpha_s + (WorldSize(world).p - 1) * kJoinSeconds;
}

}  // namespace

Cost& Cost::operator+=(const Cost& more) {
  host_steps += more.host_steps, network_steps += more.network_steps;
  host_bytes += more.host_bytes, network_bytes += more.network_bytes;
  messages += more.messages;
  return *this;
}

double Cost::seconds(const NetworkModel& model) const {
  return host_steps * model.host.alpha_s + host_bytes / model.host.bytes_per_second +
         network_steps * model.network.alpha_s + model.network_seconds(network_bytes) + messages * kMessageSeconds;
}

Tree tree_of(int64_t hosts) {
  Tree tree;
  int64_t end = 1;  // last host of this level, plus one
  for (int64_t host = 0; host * kFanOut + 1 < hosts; host = host * kFanOut + 1) {
    Tree::Level& level = tree.of[tree.levels];
    level.children = within(host * kFanOut + 1, host * kFanOut + kFanOut + 1, hosts);
    for (int64_t first = host * kFanOut + 1, last = host * kFanOut + kFanOut; first < hosts;
         first = first * kFanOut + 1, last = last * kFanOut + kFanOut)
      level.below += within(first, last + 1, hosts);
    tree.most_lines = std::max(tree.most_lines, level.children + (host == 0 ? 0 : 1));
    const int64_t end_below = end * kFanOut + 1;
    tree.lowest += tree.levels * within(end, end_below, hosts);
    end = end_below;
    ++tree.levels;
  }
  return tree;
}

Cost agreement(const HostWorld& world, double payload) {
  return agreement_at_first(world, payload, WorldSize(world).p * payload);
}

Cost agreement_at_first(const HostWorld& world, double payload, double all) {
  const WorldSize n(world);
  const Tree tree = tree_of(world.hosts);
  Cost cost;
  if (n.g > 1) {
    cost.host_steps = 2 + (payload > kShortBytes ? 1 : 0) + (all > kWithVerdictBytes ? 1 : 0);
    cost.host_bytes = (n.g - 1) * (kRecordBytes + (payload > kShortBytes ? payload : 0)) + kVerdictBytes + all;
  }
  for (int64_t level = 0; level < tree.levels; ++level) {
    const auto children = static_cast<double>(tree.of[level].children),
               below = static_cast<double>(tree.of[level].below);
    const double up = children * kMessageBytes + below * n.g * payload, down = children * (kMessageBytes + all);
    cost += {0, 2, 0, up + down, 2 * children};
  }
  return cost;
}

// Runs of hosts, names and addresses: their number, and the header of each (table_code.cc).
double table_bytes(const HostWorld& world) {
  constexpr double kNumber = 4, kRanksRun = 12, kTextRun = 8, kName = 8, kAddress = 12, kInANetwork = 256;
  const double networks = std::ceil(static_cast<double>(world.hosts) / kInANetwork);
  return kNumber + kRanksRun + kNumber + kTextRun + kName + kNumber + networks * (kTextRun + kAddress);
}

StartCost start_cost(const HostWorld& world, const NetworkModel& model) {
  const WorldSize n(world);
  StartCost cost;
  cost.tree = tree_of(world.hosts);
  cost.local_s = (n.g - 1) * kJoinSeconds;
  cost.table_bytes = table_bytes(world);
  if (!n.network) return cost;
  // One rank of each host, also of rank 0's, connects and reports the ranks of its host.
  const double come = n.g > 1 ? n.N : n.N - 1, reports = n.p - 1 - come;
  const double alpha = model.network.alpha_s;
  cost.all_bytes = come * (kWordBytes + cost.table_bytes);
  cost.root_s = kHandshakeSteps * alpha + come * kJoinSeconds + reports * kMessageSeconds;
  cost.table_s = alpha + come * kMessageSeconds + model.network_seconds(cost.all_bytes);
  cost.acknowledged_s =
      2 * (alpha + come * kMessageSeconds) + model.network_seconds(come * kWordBytes) + 3 * (n.g - 1) * kMessageSeconds;
  cost.lines_s = lines_seconds(cost.tree, model);
  cost.line_connections = static_cast<double>(kConnectionsOfLine) * (n.N - 1) + static_cast<double>(cost.tree.lowest);
  Cost exchanges = agreement(world, 0);
  exchanges += agreement(world, kPortBytes);
  cost.exchanges_s = exchanges.seconds(model);
  const double row_bytes = kRowBytes + kPortBytes * n.p;
  cost.gloo_bytes = n.p * (kSeatBytes + 2 * kReportBytes + row_bytes);
  cost.gloo_connections = n.p * (n.p - 1) / 2;
  cost.gloo_s = gloo_seconds(world, model, row_bytes);
  return cost;
}

ControlCost control_cost(const HostWorld& world, const NetworkModel& model) {
  const WorldSize n(world);
  const Tree tree = tree_of(world.hosts);
  ControlCost cost;
  cost.agreement_s = agreement(world, 0).seconds(model);
  if (!n.network) return cost;
  constexpr double kBeatSeconds = kSilenceSeconds / kBeatsInSilence;
  cost.messages = 2 * (n.N - 1);
  cost.death_s = static_cast<double>(tree.levels) * model.network.alpha_s + level_seconds(tree, model, 1);
  cost.silent_s = kSilenceSeconds + (n.N > 2 ? kWitnessSeconds : 0);
  cost.beats = 2 * (n.N - 1) / kBeatSeconds;
  cost.most_beats = static_cast<int64_t>(2 * static_cast<double>(tree.most_lines) / kBeatSeconds);
  cost.most_sockets = kConnectionsOfLine * tree.most_lines;
  return cost;
}

}  // namespace gsel::cli
