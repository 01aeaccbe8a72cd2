// network_spec.cc: see network_spec.h. docs/simulate.md has the catalogue and its sources.
#include "network_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <span>

#include "client.h"
#include "host_list.h"
#include "table.h"

namespace gsel::cli {
namespace {

// Latency and rate, each with the range from which the figure is taken.
struct Fabric {
  const char* name;
  const char* about;
  double alpha_us, least_alpha_us, most_alpha_us;
  double rate, least_rate, most_rate;  // GB/s per host
};
constexpr Fabric kFabrics[] = {
    {"veth", "TCP between network namespaces of one machine, or loopback", 25, 15, 40, 3, 2, 5},
    {"tcp-25", "TCP on 25 Gbit/s Ethernet", 20, 15, 30, 2.9, 2.9, 2.9},
    {"tcp-100", "TCP on 100 Gbit/s Ethernet", 20, 15, 30, 8, 5, 11},
    {"tcp-400", "TCP on 400 Gbit/s Ethernet, many flows", 20, 15, 30, 30, 20, 40},
    {"roce-100", "RDMA on 100 Gbit/s Ethernet", 3, 2, 4, 11.5, 11.5, 11.5},
    {"roce-400", "RDMA on 400 Gbit/s Ethernet", 3, 2, 4, 46, 46, 46},
    {"hdr", "InfiniBand HDR", 1.25, 1, 1.5, 24, 24, 24},
    {"ndr", "InfiniBand NDR", 1.25, 1, 1.5, 48, 48, 48},
    {"efa-100", "EFA, 100 Gbit/s", 16, 12, 20, 11, 11, 11},
    {"efa-400", "EFA, 400 Gbit/s", 16, 12, 20, 45, 45, 45}};
constexpr const char* kUsualFabric = "tcp-100";
constexpr HostWorld kUsualWorlds[] = {{2, 5}, {125, 8}, {1250, 8}};
constexpr int64_t kMostHosts = 1'000'000, kMostEach = 1024;

struct Word {
  std::string text;
  int32_t column;
};

class NetworkReader {
 public:
  explicit NetworkReader(SimulatedWorlds& out) : out_(out) {}

  void read(const char* option, const std::string& text, bool names_hosts) {
    input_ = std::string(option) + " " + text;
    for (size_t from = 0; from <= text.size();) {
      const size_t comma = std::min(text.find(',', from), text.size());
      read_item({text.substr(from, comma - from), static_cast<int32_t>(from) + 1}, names_hosts, from == 0);
      from = comma + 1;
    }
    if (names_hosts && out_.worlds.empty()) refuse({text, 1}, "hosts=HOSTSxRANKS is needed, such as hosts=1024x8");
  }

 private:
  [[noreturn]] void refuse(const Word& word, const std::string& what, gsel_status code = GSEL_ERR_SYNTAX) const {
    refuse_at(code, input_, word.text, word.column, what);
  }

  void read_item(const Word& item, bool names_hosts, bool first) {
    const size_t equals = item.text.find('=');
    if (equals == std::string::npos) {
      if (names_hosts || !first)
        refuse(item, std::string("KEY=VALUE is needed, with one of the keys ") + keys(names_hosts));
      once({"network", item.column});
      return take_network(item);
    }
    const Word key{item.text.substr(0, equals), item.column};
    const Word value{item.text.substr(equals + 1), item.column + static_cast<int32_t>(equals) + 1};
    once(key);
    if (key.text == "hosts" && names_hosts) return take_hosts(value);
    if (key.text == "network") return take_network(value);
    if (key.text == "latency") return take(out_.model.network.alpha_s, value, Unit::time);
    if (key.text == "rate") return take(out_.model.network.bytes_per_second, value, Unit::rate);
    if (key.text == "host_latency") return take(out_.model.host.alpha_s, value, Unit::time);
    if (key.text == "host_rate") return take(out_.model.host.bytes_per_second, value, Unit::rate);
    if (key.text != "congestion") refuse(key, "no such key; there are " + keys(names_hosts), GSEL_ERR_ARG);
    take(out_.model.congestion, value, Unit::none);
    out_.congestion_given = true;
  }

  static std::string keys(bool names_hosts) {
    return std::string(names_hosts ? "hosts, " : "") + "network, latency, rate, congestion, host_latency and host_rate";
  }

  void once(const Word& key) {
    if (!seen_.insert(key.text).second) refuse(key, "is given before", GSEL_ERR_DUPLICATE);
  }

  void take_hosts(const Word& value) {
    const HostGrid grid = parse_grid(input_, value.text, value.column, kMostHosts);
    if (grid.each > kMostEach)
      refuse(value, "at most " + std::to_string(kMostEach) + " ranks on a host are allowed", GSEL_ERR_OUT_OF_RANGE);
    out_.worlds = {{grid.hosts, grid.each}};
  }

  // Values of earlier keys take precedence.
  void take_network(const Word& value) {
    const bool latency = seen_.contains("latency"), rate = seen_.contains("rate");
    const NetworkModel before = out_.model;
    const auto found = std::ranges::find_if(kFabrics, [&](const Fabric& one) { return value.text == one.name; });
    if (found != std::end(kFabrics)) {
      out_.model.network = {found->alpha_us * 1e-6, found->rate * 1e9};
    } else {
      const size_t x = value.text.find('x');
      double adapters = 1, each = 0;
      const bool many = x != std::string::npos && number(value.text.substr(0, x), adapters).empty() && adapters >= 1;
      if (!amount(value.text.substr(many ? x + 1 : 0), Unit::rate, each)) {
        std::string names;
        for (const Fabric& one : kFabrics) names += std::string(names.empty() ? "" : ", ") + one.name;
        refuse(value, "no such network; there are " + names + ", and rates of a host, such as 8x400Gb/s or 50GB/s",
               GSEL_ERR_ARG);
      }
      out_.model.network.bytes_per_second = adapters * each;
    }
    out_.model.name = value.text;
    if (latency) out_.model.network.alpha_s = before.network.alpha_s;
    if (rate) out_.model.network.bytes_per_second = before.network.bytes_per_second;
  }

  enum class Unit { time, rate, none };

  void take(double& field, const Word& value, Unit unit) {
    if (amount(value.text, unit, field)) return;
    refuse(value, unit == Unit::time   ? "a time up to 10 s is needed, such as 20us or 1.5ms"
                  : unit == Unit::rate ? "a rate is needed, such as 12.5GB/s or 100Gb/s"
                                       : "a factor from 1 to 1000 is needed, such as 1.5");
  }

  // Parses the number at the beginning of the text; returns the rest, or an invalid unit if there is no number.
  static std::string number(const std::string& text, double& value) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && std::isfinite(value) ? std::string(result.ptr, text.data() + text.size())
                                                            : text + "?";
  }

  static bool amount(const std::string& text, Unit unit, double& out) {
    struct Factor {
      const char* unit;
      double factor;
    };
    constexpr Factor kTimes[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
    constexpr Factor kRates[] = {{"GB/s", 1e9}, {"MB/s", 1e6}, {"Gb/s", 1e9 / 8}, {"Gbit/s", 1e9 / 8}};
    double value = 0;
    const std::string rest = number(text, value);
    if (unit == Unit::none) {
      if (!rest.empty() || value < 1 || value > 1000) return false;
      out = value;
      return true;
    }
    for (const Factor& one : unit == Unit::time ? std::span<const Factor>(kTimes) : kRates) {
      if (rest != one.unit) continue;
      const double scaled = value * one.factor;
      if (unit == Unit::time ? scaled < 0 || scaled > 10 : scaled < 1e3 || scaled > 1e15) return false;
      out = scaled;
      return true;
    }
    return false;
  }

  SimulatedWorlds& out_;
  std::string input_;
  std::set<std::string> seen_;
};

}  // namespace

TermList fabric_list() {
  TermList list{"Networks of --network", {}};
  const auto figure = [](double taken, double least, double most, const char* unit) {
    const std::string text = formatted("%.4g ", taken) + unit;
    return least == most ? text : text + formatted(" (%.4g-", least) + formatted("%.4g)", most);
  };
  for (const Fabric& one : kFabrics)
    list.terms.emplace_back(one.name, std::string(one.about) + ": " +
                                          figure(one.alpha_us, one.least_alpha_us, one.most_alpha_us, "us") + ", " +
                                          figure(one.rate, one.least_rate, one.most_rate, "GB/s"));
  return list;
}

NetworkModel SimulatedWorlds::model_of(const HostWorld& world) const {
  NetworkModel out = model;
  if (!congestion_given) out.congestion = world.hosts > kRackHosts ? kFarCongestion : kRackCongestion;
  return out;
}

SimulatedWorlds simulated_from(const std::string& simulate, const std::string& network) {
  SimulatedWorlds out;
  out.model.name = kUsualFabric;
  NetworkReader reader(out);
  if (!simulate.empty()) reader.read("--simulate", simulate, true);
  if (!network.empty()) reader.read("--network", network, false);
  if (out.worlds.empty()) out.worlds.assign(std::begin(kUsualWorlds), std::end(kUsualWorlds));
  return out;
}

}  // namespace gsel::cli
