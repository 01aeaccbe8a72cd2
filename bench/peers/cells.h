// cells.h: the samples of a run, as bench_comm writes them, gathered into one cell per (ranks, operation, size, peer).
// It knows what a figure is (medians over rounds, ratios, byte floors) and nothing of tables or pictures.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bench {

struct Sample {
  double others;  // cores that others used meanwhile
  double median, p99, mean;
  double line;  // ns, of a cache line there and back at the time; 0: it changed meanwhile
};

struct Cell {
  std::vector<Sample> samples;  // one per round
  bool quiet = false;           // samples are those of rounds in which others used little; false: there was none
  bool alike = false;           // and in which the cores were as near as in most of the run; false: there was none
  double median() const;
  double p99() const;  // medians over rounds of each round's figure
  double mean() const;
  double least() const;
  double most() const;  // of the rounds' medians
};

struct Row {
  int ranks;
  std::string operation;
  uint64_t bytes;
  auto operator<=>(const Row&) const = default;
};

struct Results {
  std::vector<std::string> peers;                    // in the order of the run
  std::vector<Row> rows;                             // likewise
  std::map<Row, std::map<std::string, Cell>> cells;  // row, peer
  std::vector<std::string> notes;                    // what the run says of itself: "machine ...", "command ..."
  std::vector<double> others;                        // one per start of a peer: cores that others used
  std::vector<double> lines;                         // likewise: ns of a cache line there and back
  bool near = false;                                 // most starts found the cores near each other

  const Cell* find(const Row& row, const std::string& peer) const;
};

constexpr double kQuiet = 0.25;  // cores: what others may use in a round that counts as quiet

double middle(std::vector<double> values);

Results read_results(const std::string& path);

// gsel's time over the peer's, where the cores were alike for both; "" stands for the best of the libraries (not of the
// floor or the staging program).
std::optional<double> ratio(const Results& results, const Row& row, const std::string& peer,
                            const std::string& mine = "gsel");
std::string best_peer(const Results& results, const Row& row);

// Bytes that must be read and written by all ranks together, if every input is read once and every output written once.
double floor_bytes(const Row& row);
// floor_bytes / (time * bandwidth), bandwidth being that of all ranks in memcpy of the same size.
std::optional<double> memory_efficiency(const Results& results, const Row& row, const std::string& peer);
// algbw = bytes / time; busbw = algbw times this, as nccl-tests define it.
double bus_factor(const Row& row);

std::string size_text(uint64_t bytes);
std::string time_text(double us);

// An SVG picture: time over size, a panel per operation and number of ranks, a line per peer.
std::string picture(const Results& results);

}  // namespace bench
