// select/request/order.cc: see request.h.
#include <algorithm>
#include <limits>
#include <map>

#include "select/request/request.h"
#include "select/words/tokens.h"

namespace gsel {
namespace {

constexpr std::pair<std::string_view, Order> kOrders[] = {{"visible", Order::visible},
                                                          {"pci", Order::pci},
                                                          {"fastest", Order::fastest},
                                                          {"most_free", Order::most_free},
                                                          {"near", Order::near}};
constexpr size_t kExactUnits = 16, kSeeds = 64, kMostNear = 1024;

double speed_of(const Device& device) {
  return static_cast<double>(device.compute_units) * static_cast<double>(device.clock_khz ? device.clock_khz : 1);
}

// The connection kinds of nvidia-smi topo -m as distances; more NVLinks are nearer.
double distance_of(const std::string& kind) {
  if (kind.starts_with("NV") && is_number(kind.substr(2)))
    return 1.0 - 0.01 * static_cast<double>(std::min<int64_t>(number_of(kind.substr(2)), 50));
  static const std::map<std::string, double, std::less<>> known = {{"XGMI", 1.0}, {"PIX", 2.0},  {"PXB", 3.0},
                                                                   {"PHB", 4.0},  {"NODE", 5.0}, {"SYS", 6.0}};
  const auto it = known.find(kind);
  return it == known.end() ? 4.0 : it->second;
}

// Distances between units of one host.
class Distances {
 public:
  Distances(const Inventory& inventory, const std::vector<Unit>& units)
      : count_(units.size()), rows_(count_ * count_, 0) {
    std::map<std::pair<int32_t, int32_t>, double> linked;
    for (const Link& link : inventory.host_of(device_of(inventory, units.front())).links)
      linked[std::minmax(link.a, link.b)] = distance_of(link.kind);
    for (size_t i = 0; i < count_; ++i)
      for (size_t k = 0; k < count_; ++k)
        rows_[i * count_ + k] = between(device_of(inventory, units[i]), device_of(inventory, units[k]), linked);
  }

  double operator()(size_t a, size_t b) const { return rows_[a * count_ + b]; }
  size_t count() const { return count_; }

 private:
  using Linked = std::map<std::pair<int32_t, int32_t>, double>;
  static double between(const Device& a, const Device& b, const Linked& linked) {
    if (a.index == b.index) return 0;
    const auto it = linked.find(std::minmax(a.index, b.index));
    if (it != linked.end()) return it->second;
    return a.numa >= 0 && a.numa == b.numa ? distance_of("NODE") : distance_of("SYS");
  }

  size_t count_;
  std::vector<double> rows_;
};

constexpr double kEqual = 1e-9;

// Grows a set from a seed by the nearest unit each time; returns the members in the order in which they were added.
std::vector<size_t> grow(const Distances& distances, size_t seed, size_t count, double* total) {
  std::vector<size_t> members{seed};
  std::vector<double> cost(distances.count());
  std::vector<bool> taken(distances.count());
  taken[seed] = true;
  *total = 0;
  while (members.size() < count) {
    size_t best = distances.count();
    for (size_t i = 0; i < distances.count(); ++i) {
      cost[i] += distances(i, members.back());
      if (!taken[i] && (best == distances.count() || cost[i] < cost[best] - kEqual)) best = i;
    }
    taken[best] = true;
    *total += cost[best];
    members.push_back(best);
  }
  return members;
}

// Searches all subsets of `count`; among equals the first in lexicographic order wins.
// NOLINTNEXTLINE(misc-no-recursion): at most kExactUnits deep
void search(const Distances& distances, size_t count, size_t from, double total, std::vector<size_t>& members,
            double& best_total, std::vector<size_t>& best) {
  if (total >= best_total - kEqual) return;
  if (members.size() == count) {
    best_total = total;
    best = members;
    return;
  }
  for (size_t i = from; i + (count - members.size()) <= distances.count(); ++i) {
    double more = 0;
    for (size_t member : members) more += distances(member, i);
    members.push_back(i);
    search(distances, count, i + 1, total + more, members, best_total, best);
    members.pop_back();
  }
}

std::vector<size_t> best_subset(const Distances& distances, size_t count) {
  std::vector<size_t> best;
  double best_total = std::numeric_limits<double>::infinity();
  if (distances.count() <= kExactUnits) {
    std::vector<size_t> members;
    search(distances, count, 0, 0, members, best_total, best);
    return best;
  }
  for (size_t seed = 0; seed < std::min(distances.count(), kSeeds); ++seed) {
    double total = 0;
    std::vector<size_t> members = grow(distances, seed, count, &total);
    if (total >= best_total - kEqual) continue;
    best_total = total;
    best = std::move(members);
  }
  std::sort(best.begin(), best.end());
  return best;
}

std::vector<Unit> picked(const std::vector<Unit>& units, const std::vector<size_t>& places) {
  std::vector<Unit> out;
  for (size_t place : places) out.push_back(units[place]);
  return out;
}

}  // namespace

Order parse_order(const std::optional<std::string>& text) {
  if (!text) return Order::visible;
  for (const auto& [name, order] : kOrders)
    if (*text == name) return order;
  refuse(GSEL_ERR_SYNTAX, {"order", *text}, {*text, 1, false},
         "is no order; visible, pci, fastest, most_free and near work");
}

std::vector<Unit> ordered(const Inventory& inventory, std::vector<Unit> units, Order order) {
  if (order == Order::visible || units.empty()) return units;
  std::sort(units.begin(), units.end());
  const auto by = [&](auto key) {
    std::stable_sort(units.begin(), units.end(), [&](const Unit& a, const Unit& b) { return key(a) > key(b); });
  };
  if (order == Order::fastest) by([&](const Unit& unit) { return speed_of(device_of(inventory, unit)); });
  if (order == Order::most_free) by([&](const Unit& unit) { return free_of(device_of(inventory, unit), unit); });
  if (order == Order::near && units.size() <= kMostNear) {
    double total = 0;
    const Distances distances(inventory, units);
    return picked(units, grow(distances, 0, units.size(), &total));
  }
  return units;
}

std::vector<Unit> nearest_of(const Inventory& inventory, std::vector<Unit> units, size_t count) {
  std::sort(units.begin(), units.end());
  if (count >= units.size() || units.size() > kMostNear) {
    units.resize(std::min(count, units.size()));
    return units;
  }
  return picked(units, best_subset(Distances(inventory, units), count));
}

}  // namespace gsel
