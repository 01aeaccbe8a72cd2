// plan/measured.cc: see measured.h.
#include "plan/measured.h"

#include <algorithm>

#include "base/json.h"
#include "base/json_object.h"
#include "program/redistribution.h"
#include "program/shards.h"

namespace gsel::plan {
namespace {

constexpr const char* kCallWords[] = {"forward", "backward_input", "backward_weight", "backward"};
constexpr double kMostSeconds = 1e9;
constexpr uint64_t kMostRanks = 1 << 20;

gsel_collective_kind kind_of_redistribution(Redistribution redistribution) {
  switch (redistribution) {
    case Redistribution::allgather:
      return GSEL_COLLECTIVE_ALLGATHER;
    case Redistribution::reduce_scatter:
      return GSEL_COLLECTIVE_REDUCE_SCATTER;
    case Redistribution::alltoall:
      return GSEL_COLLECTIVE_ALLTOALL;
    default:
      return GSEL_COLLECTIVE_ALLREDUCE;
  }
}

// The kind of call that an instruction makes.
gsel_collective_kind kind_of_call(const Program& program, const gsel_instr& instr) {
  const InstrRow& row = *find_instr_row(instr.kind);
  if (row.data == InstrData::value) return GSEL_COLLECTIVE_SEND;  // shards of a micro-batch take as long as messages
  if (row.call != GSEL_COLLECTIVE_BARRIER) return row.call;
  if (instr.layer < 0) return GSEL_COLLECTIVE_ALLREDUCE;
  const ProgramLayer& layer = program.layers[static_cast<size_t>(instr.layer)];
  if (layer.redistributes) return kind_of_redistribution(redistribution_of(program, layer, instr.kind));
  const bool forward = row.task == InstrTask::forward;
  const std::vector<ProgramPhase>& phases = forward ? layer.forward_phases : layer.backward_phases;
  return !phases.empty() && phases.front().ring_shifts ? GSEL_COLLECTIVE_SENDRECV : GSEL_COLLECTIVE_ALLREDUCE;
}

double share_of(const Shard& shard) {
  return shard.is_whole() || shard.whole == 0 ? 1
                                              : static_cast<double>(shard.size()) / static_cast<double>(shard.whole);
}

Json json_of(const Curve& curve) {
  Json list = Json::array();
  for (const auto& [size, seconds] : curve.points) list.push(std::vector<double>{size, seconds});
  return list;
}

Curve read_curve(JsonObject& object, const char* name) {
  Curve curve;
  const JsonArray list = object.array(name);
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonArray point = list.array(i);
    const auto size = point.number(0), seconds = point.number(1);
    const bool good = point.size() == 2 && size && seconds && *size >= 0 && *seconds >= 0 && *seconds < kMostSeconds &&
                      (curve.points.empty() || curve.points.back().first < *size);
    if (!good)
      object.refuse(name, fmt::format("[{}] is {} and {}; a size above the one before and its seconds are needed", i,
                                      size.value_or(-1), seconds.value_or(-1)));
    curve.points.emplace_back(*size, *seconds);
  }
  return curve;
}

}  // namespace

double Curve::at(double size) const {
  if (points.empty()) return 0;
  if (points.size() == 1 && points[0].first > 0) return points[0].second * size / points[0].first;
  if (size <= points.front().first) return points.front().second;
  const auto above = std::ranges::upper_bound(points, size, {}, &std::pair<double, double>::first);
  if (above == points.end() && points.back().first > 0) return points.back().second * size / points.back().first;
  const auto below = std::prev(above);
  return below->second + (above->second - below->second) * (size - below->first) / (above->first - below->first);
}

// ---- JSON --------------------------------------------------------------------------------------------------------

std::string to_json(const Measured& m) {
  Json layers = Json::array(), inputs = Json::array(), links = Json::array();
  for (const auto& [name, calls] : m.layers) {
    Json layer{{"name", name}};
    for (size_t call = 0; call < Measured::kCalls; ++call)
      if (!calls[call].points.empty()) layer.set(kCallWords[call], json_of(calls[call]));
    layers.push(std::move(layer));
  }
  for (const auto& [name, curve] : m.inputs) inputs.push({{"name", name}, {"seconds", json_of(curve)}});
  for (const auto& [by, curve] : m.links)
    links.push({{"ranks", by.first}, {"collective", by.second}, {"seconds", json_of(curve)}});
  Json document{{"gsel-measured", 1}};
  document.set("layers", std::move(layers));
  document.set("inputs", std::move(inputs));
  document.set("optimizer", json_of(m.optimizer));
  document.set("norm", json_of(m.norm));
  document.set("copy_byte_s", m.copy_byte_s);
  document.set("wake_s", m.wake_s);
  document.set("step_s", m.step_s);
  document.set("throughput", Json(m.throughput));
  document.set("links", std::move(links));
  return document.on_one_line();
}

Measured read_measured(std::string_view json, const std::string& file) {
  const JsonSource source{"measured machine", file};
  const auto tree = parse_json(json, source);
  JsonObject document(*tree, source);
  document.number("gsel-measured", 1, 1, 1);
  Measured m;
  document.array("layers").each([&](JsonObject layer) {
    std::array<Curve, Measured::kCalls>& calls = m.layers[layer.require_text("name")];
    for (size_t call = 0; call < Measured::kCalls; ++call) calls[call] = read_curve(layer, kCallWords[call]);
  });
  document.array("inputs").each(
      [&](JsonObject input) { m.inputs[input.require_text("name")] = read_curve(input, "seconds"); });
  m.optimizer = read_curve(document, "optimizer");
  m.norm = read_curve(document, "norm");
  m.copy_byte_s = document.real("copy_byte_s", 0, 1, 0);
  m.wake_s = document.real("wake_s", 0, kMostSeconds, 0);
  m.step_s = document.real("step_s", 0, kMostSeconds, 0);
  const JsonArray throughput = document.array("throughput");
  m.throughput.clear();
  for (size_t i = 0; i < throughput.size(); ++i) {
    const auto number = throughput.number(i);
    if (!number || *number <= 0) document.refuse("throughput", "has an item that is no number above 0");
    m.throughput.push_back(*number);
  }
  document.array("links").each([&](JsonObject link) {
    const auto ranks = static_cast<int32_t>(link.number("ranks", 2, kMostRanks, 2));
    const auto kind = link.whole("collective", GSEL_COLLECTIVE_KINDS - 1, 0);
    m.links[{ranks, kind}] = read_curve(link, "seconds");
  });
  document.finish();
  return m;
}

// Bytes that a redistribution packs before its call and unpacks after it: the shards of a whole value, or of a value
// that is exchanged for another shard.
double packed_bytes(const Program& program, const gsel_instr& instr, int64_t samples) {
  const ProgramLayer& layer = program.layers[static_cast<size_t>(instr.layer)];
  const Redistribution redistribution = redistribution_of(program, layer, instr.kind);
  const auto bytes_of = [&](int32_t v) {
    return static_cast<double>(program.values[static_cast<size_t>(v)].sample_bytes * samples);
  };
  const double one = bytes_of(layer.inputs.front()), other = bytes_of(layer.outputs.front());
  switch (redistribution) {
    case Redistribution::allgather:
    case Redistribution::reduce_scatter:
      return std::max(one, other);
    case Redistribution::alltoall:
      return one + other;
    case Redistribution::slice:
      return std::min(one, other);
    default:
      return 0;
  }
}

// ---- durations ---------------------------------------------------------------------------------------------------

double share_of_work(const Program& program, const ProgramLayer& layer) {
  double share = 1;
  for (int32_t p : layer.params) share = std::min(share, share_of(program.params[static_cast<size_t>(p)].shard));
  for (const std::vector<int32_t>* values : {&layer.inputs, &layer.outputs})
    for (int32_t v : *values) share = std::min(share, share_of(program.values[static_cast<size_t>(v)].shard));
  return share;
}

double MeasuredDurations::compute(const Program& program, const gsel_instr& instr) const {
  const InstrRow& row = instr_row(instr.kind);
  if (row.task == InstrTask::step) {
    const gsel_range own = own_shard(program, instr.bucket);
    return steps_here(program, instr.bucket) ? measured_.optimizer.at(static_cast<double>(own.end - own.begin)) : 0;
  }
  if (row.task == InstrTask::check) {
    int64_t elems = 0;
    for (size_t b = 0; b < program.buckets.size(); ++b) {
      const gsel_range own = own_shard(program, static_cast<int32_t>(b));
      if (steps_here(program, static_cast<int32_t>(b))) elems += own.end - own.begin;
    }
    return measured_.norm.at(static_cast<double>(elems));
  }
  const int64_t samples = instr.microbatch < 0 ? 0 : program.microbatches[static_cast<size_t>(instr.microbatch)].count;
  if (samples == 0) return 0;
  if (row.task == InstrTask::input) {
    const auto found = measured_.inputs.find(program.values[static_cast<size_t>(instr.value)].name);
    return found == measured_.inputs.end() ? 0 : found->second.at(static_cast<double>(samples));
  }
  if (instr.layer < 0) return 0;
  const ProgramLayer& layer = program.layers[static_cast<size_t>(instr.layer)];
  if (layer.redistributes) return measured_.copy_byte_s * packed_bytes(program, instr, samples);
  const auto found = measured_.layers.find(layer.name);
  if (found == measured_.layers.end()) return 0;
  const double share = static_cast<double>(samples) * share_of_work(program, layer);
  const std::array<Curve, Measured::kCalls>& calls = found->second;
  return calls[Measured::call_of(row.callback)].at(share);
}

// The curve of the measured number of ranks that is next below `ranks`.
const Curve* MeasuredDurations::link(int32_t ranks, gsel_collective_kind kind) const {
  const Curve* best = nullptr;
  for (const auto& [by, curve] : measured_.links) {
    if (by.second != kind) continue;
    if (best && by.first > ranks) break;
    best = &curve;
  }
  return best;
}

ExchangeTime MeasuredDurations::work_of(double seconds, int32_t ranks) const {
  const std::vector<double>& all = measured_.throughput;
  const double together = all[std::min(static_cast<size_t>(ranks), all.size()) - 1];
  return {0, seconds * together / ranks};
}

ExchangeTime MeasuredDurations::exchange(const Program& program, const gsel_instr& instr, gsel_axis axis,
                                         uint64_t calls, uint64_t bytes) const {
  const int32_t ranks = program.mesh.size[axis];
  gsel_collective_kind kind = kind_of_call(program, instr);
  const Curve* curve = link(ranks, kind);
  if (!curve || calls == 0) return {};
  // The root of a broadcast counts the bytes that each other rank reads.
  const double shared = kind == GSEL_COLLECTIVE_BROADCAST ? ranks - 1 : 1;
  return work_of(
      static_cast<double>(calls) * curve->at(static_cast<double>(bytes) / shared / static_cast<double>(calls)), ranks);
}

// A message waits for the scheduler of the sender's CPU, after all ranks that share the CPU.
ExchangeTime MeasuredDurations::message(const Program& sender, int32_t, int64_t bytes) const {
  const Curve* curve = link(2, GSEL_COLLECTIVE_SEND);
  const double to_each =
      static_cast<double>(sender.mesh.world_size()) / static_cast<double>(measured_.throughput.size());
  return {curve ? curve->at(static_cast<double>(bytes)) * std::max(to_each, 1.0) : 0, 0};
}

Hosts MeasuredDurations::hosts(int32_t ranks) const {
  return {std::vector<int32_t>(static_cast<size_t>(ranks), 0), measured_.throughput};
}

}  // namespace gsel::plan
