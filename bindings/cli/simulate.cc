// simulate.cc: see simulate.h. docs/simulate.md explains every row.
#include "simulate.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "client.h"
#include "collective_model.h"
#include "network_spec.h"
#include "table.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string time_text(double seconds) {
  return duration(seconds * 1e6);
}

int64_t whole(double count) {
  return static_cast<int64_t>(count);
}

// In the notation of -b and -e.
std::string bytes_text(double bytes) {
  if (bytes == 0) return "-";
  if (bytes >= 1 << 20 && bytes == static_cast<double>(static_cast<int64_t>(bytes) >> 20 << 20))
    return std::to_string(static_cast<int64_t>(bytes) >> 20) + "M";
  if (bytes >= 1 << 10 && bytes == static_cast<double>(static_cast<int64_t>(bytes) >> 10 << 10))
    return std::to_string(static_cast<int64_t>(bytes) >> 10) + "K";
  return formatted("%.0f", bytes);
}

std::vector<const ModelledCollective*> collectives_of(const std::vector<std::string>& names) {
  std::vector<const ModelledCollective*> out;
  const auto all = [&] {
    for (const ModelledCollective& one : modelled_collectives()) out.push_back(&one);
  };
  for (const std::string& name : names) {
    if (name == "all") {
      all();
    } else if (const ModelledCollective* one = find_modelled(name)) {
      out.push_back(one);
    } else {
      std::string known;
      for (const ModelledCollective& each : modelled_collectives()) known += std::string(", ") + each.name;
      refuse(GSEL_ERR_ARG, name + " is not modelled; --simulate takes all" + known);
    }
  }
  if (names.empty()) all();
  return out;
}

std::vector<double> sizes_of(const ModelledCollective& collective, const std::vector<uint64_t>& sizes) {
  if (collective.name == std::string("barrier")) return {0};
  return {sizes.begin(), sizes.end()};
}

// The fastest algorithm; `exact`: of those that add in the order of ranks; nullptr: none does.
const Algorithm* least(const ModelledCollective& collective, const HostWorld& world, double bytes,
                       const NetworkModel& model, bool exact) {
  const Algorithm* best = nullptr;
  double best_s = 0;
  for (const Algorithm& one : collective.algorithms) {
    if (exact && !one.is_exact(world)) continue;
    const double seconds = one.cost(world, bytes).seconds(model);
    if (!best || seconds < best_s) best = &one, best_s = seconds;
  }
  return best;
}

// ---- JSON ----

Json model_json(const NetworkModel& model) {
  return {{"network", model.name},
          {"latency_s", model.network.alpha_s},
          {"bytes_per_second", model.network.bytes_per_second},
          {"congestion", model.congestion},
          {"host_latency_s", model.host.alpha_s},
          {"host_bytes_per_second", model.host.bytes_per_second}};
}

Json rendezvous_json(const StartCost& cost) {
  return {{"seconds", cost.seconds()},
          {"local_s", cost.local_s},
          {"root_s", cost.root_s},
          {"table_s", cost.table_s},
          {"acknowledged_s", cost.acknowledged_s},
          {"lines_s", cost.lines_s},
          {"exchanges_s", cost.exchanges_s},
          {"gloo_s", cost.gloo_s},
          {"levels", cost.tree.levels},
          {"table_bytes", whole(cost.table_bytes)},
          {"all_bytes", whole(cost.all_bytes)},
          {"line_connections", whole(cost.line_connections)},
          {"gloo_bytes", whole(cost.gloo_bytes)},
          {"gloo_connections", whole(cost.gloo_connections)}};
}

Json control_json(const ControlCost& cost) {
  return {{"agreement_s", cost.agreement_s},
          {"messages", whole(cost.messages)},
          {"message_bytes", whole(kMessageBytes)},
          {"death_s", cost.death_s},
          {"silent_s", cost.silent_s},
          {"beats_per_second", whole(cost.beats)},
          {"most_beats_per_second", cost.most_beats},
          {"most_sockets", cost.most_sockets}};
}

Json name_json(const Algorithm* one) {
  return one ? Json(one->name) : Json();
}

Json costs_json(const ModelledCollective& collective, const HostWorld& world, double bytes, const NetworkModel& model) {
  Json algorithms = Json::array();
  for (const Algorithm& one : collective.algorithms) {
    const Cost cost = one.cost(world, bytes);
    algorithms.push_back({{"name", one.name},
                          {"of_gsel", one.is_way},
                          {"seconds", cost.seconds(model)},
                          {"host_steps", whole(cost.host_steps)},
                          {"network_steps", whole(cost.network_steps)},
                          {"host_bytes", cost.host_bytes},
                          {"network_bytes", cost.network_bytes},
                          {"messages", cost.messages}});
  }
  return {{"operation", collective.name},
          {"bytes", whole(bytes)},
          {"algorithms", std::move(algorithms)},
          {"takes", name_json(collective.taken(world, bytes))},
          {"exact", name_json(least(collective, world, bytes, model, true))},
          {"least", name_json(least(collective, world, bytes, model, false))}};
}

std::string simulation_json(const SimulatedWorlds& simulated, const std::vector<const ModelledCollective*>& collectives,
                            const std::vector<uint64_t>& sizes) {
  Json worlds = Json::array();
  for (const HostWorld& world : simulated.worlds) {
    const NetworkModel model = simulated.model_of(world);
    Json rows = Json::array();
    for (const ModelledCollective* one : collectives)
      for (const double bytes : sizes_of(*one, sizes)) rows.push_back(costs_json(*one, world, bytes, model));
    worlds.push_back({{"ranks", world.ranks()},
                      {"hosts", world.hosts},
                      {"ranks_of_host", world.each},
                      {"model", model_json(model)},
                      {"rendezvous", rendezvous_json(start_cost(world, model))},
                      {"control", control_json(control_cost(world, model))},
                      {"rows", std::move(rows)}});
  }
  return json_text({{"gsel", gsel_version_text()}, {"measured", false}, {"worlds", std::move(worlds)}});
}

// ---- text ----

std::string link_text(const LinkPrice& link, const char* whose) {
  return formatted("%.4g us a step, ", link.alpha_s * 1e6) +
         formatted("%.4g GB/s of a ", link.bytes_per_second * 1e-9) + whose;
}

std::string model_text(const NetworkModel& model) {
  return "network " + model.name + ": " + link_text(model.network, "host") +
         formatted(", congestion %.3g; inside a host: ", model.congestion) + link_text(model.host, "rank") + "\n";
}

std::string start_text(const HostWorld& world, const StartCost& cost) {
  std::vector<Row> rows = {{"rendezvous", "time", ""},
                           {"on a host", time_text(cost.local_s), with_noun(world.each, "rank") + " of a host"}};
  if (world.hosts > 1)
    rows.insert(
        rows.end(),
        {{"at rank 0", time_text(cost.root_s), with_noun(world.hosts, "host") + ", one after the other"},
         {"table", time_text(cost.table_s),
          megabytes(cost.table_bytes + kWordBytes) + " to each host, one after the other"},
         {"acknowledged", time_text(cost.acknowledged_s), "by each host to rank 0, and back"},
         {"lines", time_text(cost.lines_s),
          with_noun(whole(cost.line_connections), "connection") + ", a tree of " +
              with_noun(cost.tree.levels, "level")},
         {"exchanges", time_text(cost.exchanges_s), "of the transport's name and of ports"},
         {"gloo", time_text(cost.gloo_s),
          megabytes(cost.gloo_bytes) + " to each host, " + with_noun(whole(cost.gloo_connections), "connection")}});
  rows.push_back({"all", time_text(cost.seconds()), ""});
  return table(rows);
}

std::string control_text(const HostWorld& world, const ControlCost& cost) {
  if (world.hosts == 1) return {};
  return "\n" +
         table({{"control", "time", ""},
                {"agreement on a call", time_text(cost.agreement_s),
                 formatted("%.0f messages of ", cost.messages) + formatted("%.0f B, before the call", kMessageBytes)},
                {"a death told everywhere", time_text(cost.death_s), "from when its host knows"},
                {"a silent host told", time_text(cost.silent_s),
                 formatted("%.0f s without a word", kSilenceSeconds) +
                     (world.hosts > 2 ? ", then other hosts are asked" : "")},
                {"beats", "",
                 formatted("%.0f a second, at most ", cost.beats) + std::to_string(cost.most_beats) +
                     " to and from one host, which has " + with_noun(cost.most_sockets, "socket")}});
}

// Algorithms that the library does not have are in parentheses.
std::string shown(const Algorithm& one) {
  return one.is_way ? one.name : std::string("(") + one.name + ")";
}

std::string collective_text(const ModelledCollective& collective, const HostWorld& world,
                            const std::vector<double>& sizes, const NetworkModel& model) {
  std::vector<Row> rows = {{collective.name}};
  for (const Algorithm& one : collective.algorithms) rows.front().push_back(shown(one));
  rows.front().insert(rows.front().end(), {"takes", "least"});
  for (const double bytes : sizes) {
    Row& row = rows.emplace_back(Row{bytes_text(bytes)});
    for (const Algorithm& one : collective.algorithms) row.push_back(time_text(one.cost(world, bytes).seconds(model)));
    const Algorithm* const taken = collective.taken(world, bytes);
    row.insert(row.end(), {taken ? shown(*taken) : "-", shown(*least(collective, world, bytes, model, false))});
  }
  return "\n" + table(rows);
}

std::string modelled_text(const SimulatedWorlds& simulated, const HostWorld& world,
                          const std::vector<const ModelledCollective*>& collectives,
                          const std::vector<uint64_t>& sizes) {
  const NetworkModel model = simulated.model_of(world);
  std::string out = with_noun(world.ranks(), "rank") + " on " + with_noun(world.hosts, "host") + " of " +
                    std::to_string(world.each) + "\n" + model_text(model) + "\n" +
                    start_text(world, start_cost(world, model)) + control_text(world, control_cost(world, model));
  for (const ModelledCollective* one : collectives) out += collective_text(*one, world, sizes_of(*one, sizes), model);
  return out;
}

}  // namespace

int print_simulation(const SimulateOptions& options, bool json) {
  const std::vector<const ModelledCollective*> collectives = collectives_of(options.operations);
  const SimulatedWorlds simulated = simulated_from(options.simulate, options.network);
  if (json) {
    print(simulation_json(simulated, collectives, options.sizes));
    return 0;
  }
  std::string out =
      "a model, nothing is measured: steps x alpha + bytes x beta x congestion + messages x 5 us (docs/simulate.md)\n";
  for (const HostWorld& world : simulated.worlds)
    out += "\n" + modelled_text(simulated, world, collectives, options.sizes);
  print(out);
  return 0;
}

}  // namespace gsel::cli
