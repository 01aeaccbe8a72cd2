// cells.cc: see cells.h.
#include "cells.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "line.h"

namespace bench {
namespace {

// An operation's byte floor in units of ranks * bytes and of bytes, and nccl-tests' factor of bus bandwidth.
struct Traffic {
  const char* operation;
  double all, once;
  double (*bus)(double ranks);
};
constexpr Traffic kTraffic[] = {
    {"memcpy", 2, 0, [](double) { return 1.0; }},
    {"allreduce", 2, 0, [](double n) { return 2 * (n - 1) / n; }},
    {"reduce_scatter", 1, 1, [](double n) { return (n - 1) / n; }},
    {"allgather", 1, 1, [](double n) { return (n - 1) / n; }},
    {"alltoall", 2, 0, [](double n) { return (n - 1) / n; }},
    {"broadcast", 1, 0, [](double) { return 1.0; }},
    {"reduce", 1, 1, [](double) { return 1.0; }},
    {"gather", 0, 2, [](double n) { return (n - 1) / n; }},
    {"scatter", 0, 2, [](double n) { return (n - 1) / n; }},
    {"sendrecv", 1, 0, [](double) { return 1.0; }},  // one of each pair sends at a time: a read and a write per pair
    {"barrier", 0, 0, [](double) { return 0.0; }},
};

const Traffic& traffic_of(const Row& row) {
  for (const Traffic& t : kTraffic)
    if (row.operation.substr(0, row.operation.find('+')) == t.operation) return t;
  throw std::runtime_error("operation " + row.operation + ": not known");
}

std::vector<double> each(const Cell& cell, double Sample::*field) {
  std::vector<double> values;
  for (const Sample& sample : cell.samples) values.push_back(sample.*field);
  return values;
}

// Whether any sample passes; if so, only those stay.
template <class Passes>
bool keep(std::vector<Sample>& samples, Passes&& passes) {
  std::vector<Sample> kept;
  for (const Sample& sample : samples)
    if (passes(sample)) kept.push_back(sample);
  if (!kept.empty()) samples = kept;
  return !kept.empty();
}

template <class T>
void append_new(std::vector<T>& list, const T& value) {
  if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
}

void read_sample(Results& results, std::istringstream& in, std::set<std::string>& starts) {
  std::string peer, round, calls;
  Row row;
  Sample sample;
  if (!(in >> peer >> round >> sample.others >> sample.line >> row.operation >> row.ranks >> row.bytes >> calls >>
        sample.median >> sample.p99 >> sample.mean))
    throw std::runtime_error("not a line of samples: " + in.str());
  append_new(results.peers, peer);
  append_new(results.rows, row);
  results.cells[row][peer].samples.push_back(sample);
  if (starts.insert(fmt::format("{} {} {} {}", peer, round, row.operation, row.ranks)).second)
    results.others.push_back(sample.others), results.lines.push_back(sample.line);
}

}  // namespace

double middle(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double Cell::median() const {
  return middle(each(*this, &Sample::median));
}
double Cell::p99() const {
  return middle(each(*this, &Sample::p99));
}
double Cell::mean() const {
  return middle(each(*this, &Sample::mean));
}
double Cell::least() const {
  const auto values = each(*this, &Sample::median);
  return *std::min_element(values.begin(), values.end());
}
double Cell::most() const {
  const auto values = each(*this, &Sample::median);
  return *std::max_element(values.begin(), values.end());
}

const Cell* Results::find(const Row& row, const std::string& peer) const {
  const auto at = cells.find(row);
  if (at == cells.end()) return nullptr;
  const auto cell = at->second.find(peer);
  return cell == at->second.end() ? nullptr : &cell->second;
}

Results read_results(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  Results results;
  std::set<std::string> starts;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string first;
    in >> first;
    if (first == "sample") read_sample(results, in, starts);
    if (first == "#") append_new(results.notes, line.substr(2));
  }
  if (results.rows.empty()) throw std::runtime_error(path + ": no samples");
  std::erase(results.lines, 0.0);
  results.near = !results.lines.empty() && middle(results.lines) < kNear;
  for (auto& [row, peers] : results.cells)
    for (auto& [peer, cell] : peers) {
      cell.alike = keep(cell.samples, [&](const Sample& s) { return s.line > 0 && (s.line < kNear) == results.near; });
      cell.quiet = keep(cell.samples, [](const Sample& s) { return s.others <= kQuiet; });
    }
  return results;
}

namespace {

bool find_alike(const Results& results, const Row& row) {
  const Cell* ours = results.find(row, "gsel");
  return ours && ours->alike;
}

}  // namespace

std::string best_peer(const Results& results, const Row& row) {
  std::string best;
  for (const std::string& peer : results.peers) {
    const Cell* cell = results.find(row, peer);
    if (!cell || peer.starts_with("gsel") || peer == "memcpy" || peer == "staging") continue;
    if (!cell->alike && find_alike(results, row)) continue;
    if (best.empty() || cell->median() < results.find(row, best)->median()) best = peer;
  }
  return best;
}

std::optional<double> ratio(const Results& results, const Row& row, const std::string& peer, const std::string& mine) {
  const std::string other = peer.empty() ? best_peer(results, row) : peer;
  const Row of = other == "memcpy" ? Row{row.ranks, "memcpy", row.bytes} : row;
  const Cell *ours = results.find(row, mine), *theirs = results.find(of, other);
  if (!ours || !theirs || ours->alike != theirs->alike) return {};
  return ours->median() / theirs->median();
}

double floor_bytes(const Row& row) {
  const Traffic& t = traffic_of(row);
  return (t.all * row.ranks + t.once) * static_cast<double>(row.bytes);
}

std::optional<double> memory_efficiency(const Results& results, const Row& row, const std::string& peer) {
  const Row copy{row.ranks, "memcpy", row.bytes};
  const Cell *cell = results.find(row, peer), *plain = results.find(copy, "memcpy");
  if (!cell || !plain || row.bytes == 0) return {};
  const double bandwidth = floor_bytes(copy) / plain->median();
  return floor_bytes(row) / (cell->median() * bandwidth);
}

double bus_factor(const Row& row) {
  return traffic_of(row).bus(row.ranks);
}

std::string size_text(uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string time_text(double us) {
  return us < 10 ? fmt::format("{:.2f}", us) : us < 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.0f}", us);
}

}  // namespace bench
