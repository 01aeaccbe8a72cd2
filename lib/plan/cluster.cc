// plan/cluster.cc: see cluster.h. Clusters from text. Links that the text does not describe follow from the kind of
// device; docs/plan.md has the figures.
#include "plan/cluster.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/text.h"

namespace gsel::plan {
namespace {

constexpr double kMostNvlinks = 18;  // per device
constexpr double kShown = 0.985;     // GiB that a driver reports per gigabyte of a data sheet
constexpr double kP2pOff = 0.25;     // of PCIe's rate: transfers go through host memory

std::optional<double> leading_number(std::string_view& text) {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || !std::isfinite(value)) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  return value;
}

// "300GB/s", "400Gb/s": bytes per second.
std::optional<double> rate(std::string_view text) {
  const auto value = leading_number(text);
  if (!value) return std::nullopt;
  text = trimmed(text);
  if (text == "GB/s") return *value * 1e9;
  if (text == "MB/s") return *value * 1e6;
  if (text == "Gb/s" || text == "Gbit/s") return *value * 1e9 / 8;
  return std::nullopt;
}

[[noreturn]] void refuse_rate(const char* what, std::string_view text) {
  fail(GSEL_ERR_ARG, "{} {} is not understood; a positive rate such as 300GB/s or 400Gb/s is needed", what,
       in_quotes(text));
}

// Bytes of memory in a name: "A100-SXM-40GB", "H100 96GB"; nullopt if it has none.
std::optional<double> named_memory(std::string_view name) {
  for (size_t i = 0; i < name.size(); ++i) {
    if (!is_digit(name[i]) || (i > 0 && is_digit(name[i - 1]))) continue;
    std::string_view rest = name.substr(i);
    const auto value = leading_number(rest);
    rest = trimmed(rest);
    if (!value) continue;
    if (rest.starts_with("GiB")) return *value * kGiB;
    if (rest.starts_with("GB") || rest.starts_with("gb")) return *value * kShown * kGiB;
  }
  return std::nullopt;
}

struct DeviceGroup {
  int64_t count = 1;
  std::string name;
};

// "2xA100-80GB+1xRTX4090".
std::vector<DeviceGroup> groups(std::string_view text) {
  std::vector<DeviceGroup> out;
  while (true) {
    const size_t plus = std::min(text.find('+'), text.size());
    const std::string_view part = trimmed(text.substr(0, plus));
    DeviceGroup group{1, std::string(part)};
    const size_t x = part.find_first_not_of("0123456789");
    if (x != part.npos && x > 0 && (part[x] == 'x' || part[x] == 'X' || part[x] == '*')) {
      const auto result = std::from_chars(part.data(), part.data() + x, group.count);
      if (result.ec != std::errc() || group.count < 1 || group.count > kMostDevices)
        fail(GSEL_ERR_ARG, "cluster: {} names {} devices; from 1 to {} are needed", in_quotes(part), part.substr(0, x),
             kMostDevices);
      group.name = std::string(trimmed(part.substr(x + 1)));
    }
    if (group.name.empty())
      fail(GSEL_ERR_ARG, "cluster: {} names no device; COUNTxNAME is needed, such as 8xH100", in_quotes(part));
    out.push_back(group);
    if (plus == text.size()) return out;
    text.remove_prefix(plus + 1);
  }
}

}  // namespace

Link network_of(const std::string& text, double usual) {
  if (text.empty()) return {"network", usual, kNetworkLatency};
  double adapters = 1;
  std::string_view rest = text;
  if (const size_t x = rest.find('x'); x != rest.npos) {
    std::string_view count = rest.substr(0, x);
    const auto value = leading_number(count);
    if (!value || !count.empty() || !(*value >= 1)) refuse_rate("network", text);
    adapters = *value;
    rest.remove_prefix(x + 1);
  }
  const auto one = rate(rest);
  if (!one || !(*one > 0)) refuse_rate("network", text);
  return {"network", adapters * *one, kNetworkLatency};
}

Link usual_link(const Accelerator& a) {
  if (a.link_bytes_per_second > 0) return {a.link_name, a.link_bytes_per_second, kNvlinkLatency};
  return {"PCIe", a.pcie_bytes_per_second, kPcieLatency};
}

int32_t kind_index(Cluster& cluster, const DeviceKind& kind) {
  for (size_t i = 0; i < cluster.kinds.size(); ++i)
    if (cluster.kinds[i] == kind) return static_cast<int32_t>(i);
  cluster.kinds.push_back(kind);
  return static_cast<int32_t>(cluster.kinds.size()) - 1;
}

void check_options(const ClusterOptions& options) {
  if (options.nodes < 1 || options.nodes > kMostDevices)
    fail(GSEL_ERR_ARG, "{} nodes were asked for; from 1 to {} are accepted", options.nodes, kMostDevices);
  if (!(options.memory_bytes >= 0) || !std::isfinite(options.memory_bytes))
    fail(GSEL_ERR_ARG, "memory of {} bytes was given; a positive number is needed", options.memory_bytes);
}

void repeat_nodes(Cluster& cluster, int32_t nodes) {
  const std::vector<int32_t> one = cluster.devices;
  cluster.per_node = static_cast<int32_t>(one.size());
  if (static_cast<int64_t>(one.size()) * nodes > kMostDevices)
    fail(GSEL_ERR_ARG, "{} nodes of {} devices were asked for; {} devices in all are accepted", nodes, one.size(),
         kMostDevices);
  for (int32_t i = 1; i < nodes; ++i) cluster.devices.insert(cluster.devices.end(), one.begin(), one.end());
}

double DeviceKind::flop(double element_bytes, bool tf32) const {
  if (element_bytes <= 1 && flop_8 > 0) return flop_8;
  if (element_bytes <= 2 && flop_16 > 0) return flop_16;
  return tf32 && flop_tf32 > 0 ? flop_tf32 : flop_32 > 0 ? flop_32 : flop_16 / 8;
}

DeviceKind kind_of(const Accelerator& a) {
  return {a.name,    a.device_class, a.memory_bytes, a.memory_bytes_per_second, a.flop_16, a.flop_tf32,
          a.flop_32, a.flop_8,       a.matmul_share, a.pcie_bytes_per_second};
}

Link link_of(std::string_view text, const Accelerator* a) {
  const double pcie = a ? a->pcie_bytes_per_second : 24e9;
  if (text == "PIX" || text == "PXB" || text == "PCIe") return {"PCIe", pcie, kPcieLatency};
  if (text == "PHB") return {"PCIe", 0.85 * pcie, kPcieLatency};
  if (text == "NODE") return {"PCIe", 0.8 * pcie, kPcieLatency};
  if (text == "SYS") return {"PCIe", std::min(0.8 * pcie, 22e9), 1.5 * kPcieLatency};
  if (text == "p2p-off") return {"host memory", kP2pOff * pcie, 2 * kPcieLatency};
  if (text.starts_with("NV") && text.size() > 2 && is_digit(text[2])) {
    std::string_view count = text.substr(2);
    const auto n = leading_number(count);
    if (n && *n >= 1 && *n <= kMostNvlinks && *n == std::floor(*n) && count.empty())
      return {"NVLink", *n * (a && a->one_link_bytes_per_second > 0 ? a->one_link_bytes_per_second : 20e9),
              kNvlinkLatency};
  }
  const auto given = rate(text);
  if (given && *given > 0) return {*given > kFastLink ? "NVLink" : "PCIe", *given, kPcieLatency};
  fail(GSEL_ERR_ARG,
       "link {} is not understood; accepted are NV1 to NV18, PIX, PXB, PHB, NODE, SYS, p2p-off, and a positive "
       "rate such as 300GB/s",
       in_quotes(text));
}

Cluster cluster_of(std::string_view text, const ClusterOptions& options) {
  check_options(options);
  Cluster cluster;
  cluster.name = one_line(text);
  const Accelerator* slowest = nullptr;
  double network = 0;
  for (const DeviceGroup& group : groups(text)) {
    const Accelerator& a = accelerator(group.name);
    DeviceKind kind = kind_of(a);
    const auto given = named_memory(group.name);
    // The 480 GB in "GH200 480GB" belong to its CPU.
    if (given && !(std::string_view(a.name) == "GH200" && *given > 2 * a.memory_bytes)) {
      if (!(*given > 0))
        fail(GSEL_ERR_ARG, "cluster: {} has no memory; a positive amount is needed, such as {}-40GB",
             in_quotes(group.name), a.name);
      kind.memory_bytes = *given;
    }
    if (options.memory_bytes > 0) kind.memory_bytes = options.memory_bytes;
    const int32_t index = kind_index(cluster, kind);
    if (static_cast<int64_t>(cluster.devices.size()) + group.count > kMostDevices)
      fail(GSEL_ERR_ARG, "cluster {}: more than {} devices", in_quotes(text), kMostDevices);
    cluster.devices.insert(cluster.devices.end(), static_cast<size_t>(group.count), index);
    network += static_cast<double>(group.count) * a.network_bytes_per_second;
    if (!slowest || usual_link(a).bytes_per_second < usual_link(*slowest).bytes_per_second) slowest = &a;
  }
  const bool mixed = cluster.kinds.size() > 1;
  cluster.inside = !options.link.empty() ? link_of(options.link, slowest)
                   : mixed               ? link_of("PIX", slowest)
                                         : usual_link(*slowest);
  repeat_nodes(cluster, options.nodes);
  cluster.network = network_of(options.network, network);
  return cluster;
}

// ---- from an inventory ---------------------------------------------------------------------------------------------

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
  const Speed& given = device.speed;
  if (!known && !given.is_told())
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
  take(a.flop_16, given.bf16_flop), take(a.flop_tf32, given.tf32_flop), take(a.flop_32, given.f32_flop);
  take(a.flop_8, given.fp8_flop), take(a.memory_bytes_per_second, given.memory_bytes);
  take(a.link_bytes_per_second, given.link_bytes), take(a.pcie_bytes_per_second, given.host_bytes);
  take(a.network_bytes_per_second, given.network_bytes);
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
