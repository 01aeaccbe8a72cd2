// plan/cluster_inventory.cc: see cluster.h. Clusters from an inventory: figures of drivers or a file take precedence
// over usual ones.
#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "plan/cluster.h"

namespace gsel::plan {
namespace {

// Defaults for a device whose name is unknown and whose inventory has no figures.
constexpr double kUsualShare = 0.8, kUsualPcie = 24e9, kUsualNetwork = 12.5e9;
constexpr double kIdle = 0.95;  // share of its memory that is free on a device without processes
constexpr size_t kMostHostsShown = 8;

// Devices of an inventory whose memory is in use by other processes.
class Occupied {
 public:
  // An idle device keeps a little memory for its driver, which a plan counts separately. Rounds to whole GiB, so that
  // devices with similar use are equal.
  void leave_free(const Device& device, const std::string& host, DeviceKind& kind) {
    const auto free = static_cast<double>(device.free_bytes);
    if (device.free_bytes == 0 || free >= kIdle * kind.memory_bytes) return;
    if (n_++ == 0)
      first_ = fmt::format("device {} of {} has {:.1f} of {:.1f} GiB free", device.index, host, free / kGiB,
                           kind.memory_bytes / kGiB);
    kind.memory_bytes = free < kGiB ? free : std::floor(free / kGiB) * kGiB;
  }
  std::string note() const {
    if (n_ == 0) return {};
    const std::string all = n_ == 1 ? "" : fmt::format("{} have memory in use: ", with_noun(n_, "device"));
    return fmt::format("{}{}; the plan uses what is free in the inventory, in whole GiB", all, first_);
  }

 private:
  int64_t n_ = 0;
  std::string first_;
};

// Figures of the inventory take precedence over those of the catalogue, which fill the gaps if it knows the name. The
// result borrows the name.
Accelerator accelerator_of(const Device& device, const std::string& host) {
  const Accelerator* known = find_accelerator(device.name);
  const Speed& told = device.speed;
  if (!known && !told.is_told())
    fail(GSEL_ERR_ARG,
         "device {} of {} is a {}, of which no speed is known; the nearest names are {}; tell its \"speed\" in the "
         "inventory, or name a known one with --cluster",
         device.index, host, in_quotes(device.name), nearest_accelerators(device.name));
  Accelerator a = known ? *known
                        : Accelerator{.name = device.name.empty() ? device.uuid.c_str() : device.name.c_str(),
                                      .device_class = "",
                                      .matmul_share = kUsualShare,
                                      .pcie_bytes_per_second = kUsualPcie,
                                      .network_bytes_per_second = kUsualNetwork,
                                      .per_node = 1,
                                      .source = "the inventory",
                                      .link_name = "device link"};
  const auto take = [](double& figure, double from) {
    if (from > 0) figure = from;
  };
  take(a.flop_16, told.bf16_flop), take(a.flop_tf32, told.tf32_flop), take(a.flop_32, told.f32_flop);
  take(a.flop_8, told.fp8_flop), take(a.memory_bytes_per_second, told.memory_bytes);
  take(a.link_bytes_per_second, told.link_bytes), take(a.pcie_bytes_per_second, told.host_bytes);
  take(a.network_bytes_per_second, told.network_bytes);
  return a;
}

// "a 3, b 8 and 2 more": the number of devices of each host that has any.
void refuse_unlike_hosts(const Inventory& inventory, const std::vector<int64_t>& counts) {
  int64_t least = 0, most = 0;
  for (const int64_t n : counts) {
    most = std::max(most, n);
    if (n > 0 && (least == 0 || n < least)) least = n;
  }
  if (least == most) return;
  std::string text;
  size_t shown = 0, others = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    if (++shown > kMostHostsShown)
      ++others;
    else
      text += fmt::format("{}{} has {}", text.empty() ? "" : ", ", inventory.hosts[i].name, counts[i]);
  }
  if (others > 0) text += fmt::format(" and {} more", others);
  fail(GSEL_ERR_ARG,
       "hosts of the inventory have unlike numbers of devices: {}; a plan needs as many on each: leave devices out of "
       "the inventory so that each host has {}, or hosts that have fewer than {}",
       text, least, most);
}

std::string link_name(const std::string& kind) {
  if (kind.starts_with("NV") || kind == "XGMI") return "NVLink";
  constexpr std::string_view kPci[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};
  return std::ranges::find(kPci, kind) != std::end(kPci) ? "PCIe" : kind;
}

// The slowest known link inside a host, else the usual link. pair: the devices with that link, if others are faster.
Link inside_of(const Inventory& inventory, const std::vector<int64_t>& counts, const Accelerator& slowest,
               std::string& pair) {
  Link inside = usual_link(slowest);
  double least = 0, most = 0;
  std::string of_least;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    for (const gsel::Link& link : inventory.hosts[i].links) {
      most = std::max(most, link.bytes_per_second);
      if (!(link.bytes_per_second > 0) || (least > 0 && link.bytes_per_second >= least)) continue;
      least = link.bytes_per_second;
      of_least = fmt::format("devices {} and {} of {}", link.a, link.b, inventory.hosts[i].name);
      inside = {link_name(link.kind), link.bytes_per_second, link.latency_s > 0 ? link.latency_s : kPcieLatency};
    }
  }
  if (most > least) pair = of_least;
  return inside;
}

}  // namespace

Cluster cluster_of(const Inventory& inventory, const ClusterOptions& options) {
  check_options(options);
  Cluster cluster;
  Occupied occupied;
  std::optional<Accelerator> slowest;
  std::vector<double> networks(inventory.hosts.size(), 0);
  std::vector<int64_t> counts(inventory.hosts.size(), 0);
  for (const Device& device : inventory.devices) {
    if (device.is_cpu()) continue;
    const Accelerator a = accelerator_of(device, inventory.host_of(device).name);
    DeviceKind kind = kind_of(a);
    if (device.memory_bytes > 0) kind.memory_bytes = static_cast<double>(device.memory_bytes);
    if (options.memory_bytes > 0)
      kind.memory_bytes = options.memory_bytes;
    else
      occupied.leave_free(device, inventory.host_of(device).name, kind);
    cluster.devices.push_back(kind_index(cluster, kind));
    cluster.indices.push_back(device.index);
    if (!slowest || usual_link(a).bytes_per_second < usual_link(*slowest).bytes_per_second) slowest = a;
    networks[static_cast<size_t>(device.host)] += a.network_bytes_per_second;
    ++counts[static_cast<size_t>(device.host)];
  }
  const size_t nodes = inventory.hosts.size() - static_cast<size_t>(std::ranges::count(counts, 0));
  cluster.name = inventory.hosts.size() == 1 ? inventory.hosts[0].name : with_noun(inventory.hosts.size(), "host");
  if (cluster.devices.empty())
    fail(GSEL_ERR_ARG, "{} has no accelerator; name one with --cluster, such as --cluster 8xH100", cluster.name);
  refuse_unlike_hosts(inventory, counts);
  if (nodes > 1 && options.nodes > 1)
    fail(GSEL_ERR_ARG, "{} nodes were asked for of an inventory of {}, which are the nodes; leave out one of them",
         options.nodes, with_noun(nodes, "host"));
  if (nodes < inventory.hosts.size())
    cluster.notes.push_back(fmt::format(
        "{} of the inventory {} no accelerator and {} left out", with_noun(inventory.hosts.size() - nodes, "host"),
        inventory.hosts.size() - nodes == 1 ? "has" : "have", inventory.hosts.size() - nodes == 1 ? "is" : "are"));
  if (const std::string note = occupied.note(); !note.empty()) cluster.notes.push_back(note);
  cluster.inside = options.link.empty() ? inside_of(inventory, counts, *slowest, cluster.slowest_pair)
                                        : link_of(options.link, &*slowest);
  if (nodes > 1)
    cluster.per_node = static_cast<int32_t>(cluster.devices.size() / nodes);
  else
    repeat_nodes(cluster, options.nodes);
  double network = 0;
  for (const double one : networks)
    if (one > 0 && (network == 0 || one < network)) network = one;
  cluster.network = network_of(options.network, network);
  return cluster;
}

}  // namespace gsel::plan
