// tune.cc: `gsel tune`: measures this machine and writes the sizes at which the library changes its algorithms. Runs
// `gsel bench` briefly with tuning files that force one algorithm; the size from which another is faster becomes the
// threshold. docs/tuning.md describes the file.
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "bench_call.h"
#include "client.h"
#include "commands.h"
#include "scratch.h"
#include "table.h"
#include "usage.h"

namespace gsel::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr uint64_t kNever = uint64_t{1} << 62, kAlways = 4096;
constexpr double kWorthIt = 0.97;  // of the time with the default; a smaller gain may be noise

const CommandText kTuneText{
    .name = "tune",
    .summary = "Measure this machine, and write the sizes that communicators then go by",
    .description =
        "Takes about half a minute for each number of ranks. Communicators read the file when they are joined; results "
        "of calls do not depend on it, only times do. The path of the file is printed.",
    .examples = {{"gsel tune", "Measures 2 ranks to as many as there are processors."},
                 {"gsel tune --ranks 8 -o tuning.toml", "8 ranks only, to another file, which GSEL_TUNING can name."}},
    .sections = {{"JSON",
                  "",
                  {{"path", "The file that was written."},
                   {"gsel, cpu", "The version and the model of processor that it holds for."},
                   {"worlds",
                    "For each number of ranks: ranks, thresholds (keys of the file that differ from the library's own "
                    "values, in bytes) and microseconds (for each operation a list of pairs: bytes, time)."}}}},
    .related = {"gsel-bench(1)", "gsel_comm_explain(3)", "docs/tuning.md"}};

struct TuneOptions {
  std::vector<std::string> ranks;
  std::string most = "16M", time = "0.02";
};

// The thresholds in the file; all others have the library's defaults.
using Thresholds = std::map<std::string, uint64_t>;

// The "model name" in /proc/cpuinfo, which libgsel compares.
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t begin = line.find_first_not_of(": \t", line.find(':'));
    if (begin != line.npos) return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
  }
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);  // TOML has the same escapes
}

std::string head() {
  return "gsel = " + quoted(gsel_version_text()) + "\ncpu = " + quoted(cpu_model()) + "\n";
}

// The results for one number of ranks.
struct World {
  std::string toml;
  Json json;
};

std::string world_text(int64_t ranks, const Thresholds& thresholds) {
  std::string text = "\n[[world]]\nranks = " + std::to_string(ranks) + "\n";
  for (const auto& [key, bytes] : thresholds) text += key + " = " + std::to_string(bytes) + "\n";
  return text;
}

struct Run {
  std::vector<std::string> operations;
  uint64_t least, most;
  int factor;
  bool registered;
};

// Seconds by bytes; those of several operations are multiplied, so that all have the same weight.
using Times = std::map<uint64_t, double>;

class Tuner {
 public:
  Tuner(uint64_t most, const std::string& time) : most_(most), time_(time) {}

  World measure(int64_t ranks) const {
    Thresholds best;
    say(ranks, "chunks");
    const Run chunked{{"allgather", "broadcast"}, most_ / 4, most_, 4, false};
    choose_chunk(ranks, chunked, "chunk_bytes", best);
    if (ranks == 2) choose_chunk(ranks, {{"allreduce"}, most_ / 4, most_, 4, false}, "pair_chunk_bytes", best);
    say(ranks, "private memory");
    const auto in_private = [&](std::vector<std::string> operations) {
      return Run{std::move(operations), 16 << 10, most_, 2, false};
    };
    choose_size(ranks, in_private({"allgather", "alltoall", "reduce_scatter"}), "single_copy_from", best);
    choose_size(ranks, in_private({"allreduce"}), "single_copy_allreduce_from", best);
    choose_size(ranks, in_private({"broadcast"}), "single_copy_broadcast_from", best);
    say(ranks, "shared memory");
    choose_size(ranks, {{"allreduce", "allgather"}, 256 << 10, 4 * most_, 2, true}, "stream_from", best);
    say(ranks, "all calls");
    const Json times = predictions(ranks, best);
    return {world_text(ranks, best) + predictions_text(times),
            {{"ranks", ranks}, {"thresholds", best}, {"microseconds", times}}};
  }

 private:
  static void say(int64_t ranks, const char* what) {
    if (isatty(2)) std::fprintf(stderr, "gsel: measuring %s, %s\n", what, with_noun(ranks, "rank").c_str());
  }

  Json bench(int64_t ranks, const Run& run, const Thresholds& thresholds) const {
    const std::string tuning = scratch_.file("tuning.toml"), result = scratch_.file("result.json");
    write_file(tuning, head() + world_text(ranks, thresholds));
    std::vector<std::string> arguments{"bench"};
    arguments.insert(arguments.end(), run.operations.begin(), run.operations.end());
    const std::string least = std::to_string(std::min(run.least, run.most));
    for (const std::string& word : {std::string("-b"), least, std::string("-e"), std::to_string(run.most),
                                    std::string("-f"), std::to_string(run.factor), std::string("--check"),
                                    std::string("0"), std::string("--time"), time_, std::string("--result"), result})
      arguments.push_back(word);
    if (run.registered) arguments.push_back("--registered");
    const int status = launch_own_ranks(ranks, arguments, {{"GSEL_TUNING", tuning}});
    if (status != 0) refuse(GSEL_ERR_INTERNAL, "the ranks that measure ended with status " + std::to_string(status));
    return Json::parse(read_file(result)).at("rows");
  }

  Times times(int64_t ranks, const Run& run, const Thresholds& thresholds) const {
    Times product;
    for (const Json& row : bench(ranks, run, thresholds)) {
      // The requested size; whole elements on all ranks may be slightly less.
      const uint64_t asked = std::bit_ceil(row.at("bytes").get<uint64_t>());
      const auto known = product.emplace(asked, 1.0).first;
      known->second *= row.at("seconds").get<double>();
    }
    return product;
  }

  // The mean logarithm, so that all sizes have the same weight.
  static double cost(const Times& times) {
    double sum = 0;
    for (const auto& [bytes, seconds] : times) sum += std::log(seconds) / static_cast<double>(times.size());
    return sum;
  }

  // Chunks only matter for staged calls.
  void choose_chunk(int64_t ranks, const Run& run, const std::string& key, Thresholds& best) const {
    Thresholds tried = best;
    for (const char* other : {"single_copy_from", "single_copy_broadcast_from", "single_copy_allreduce_from"})
      tried[other] = kNever;
    double least = cost(times(ranks, run, tried)) + std::log(kWorthIt);
    for (const int chunk : {32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10}) {
      tried[key] = static_cast<uint64_t>(chunk);
      const double here = cost(times(ranks, run, tried));
      if (here < least) least = here, best[key] = tried[key];
    }
  }

  // Finds the size from which the other algorithm is faster; none if the default is as good.
  void choose_size(int64_t ranks, const Run& run, const std::string& key, Thresholds& best) const {
    Thresholds tried = best;
    double least = cost(times(ranks, run, tried)) + std::log(kWorthIt);
    tried[key] = kNever;
    const Times never = times(ranks, run, tried);
    tried[key] = kAlways;
    const Times always = times(ranks, run, tried);
    const auto consider = [&](uint64_t from) {
      Times mixed;
      for (const auto& [bytes, seconds] : never) {
        const auto other = always.find(bytes);
        mixed[bytes] = bytes < from || other == always.end() ? seconds : other->second;
      }
      if (cost(mixed) < least) least = cost(mixed), best[key] = from;
    };
    for (const auto& [bytes, seconds] : never) consider(bytes);
    consider(kNever);
  }

  // For each operation, pairs of bytes and microseconds.
  Json predictions(int64_t ranks, const Thresholds& thresholds) const {
    std::map<std::string, Times> by_operation;
    for (const Json& row : bench(ranks, {{"all"}, 8, most_, 4, false}, thresholds))
      by_operation[row.at("operation")][row.at("bytes")] = row.at("seconds");
    Json all;
    for (const auto& [operation, times] : by_operation)
      for (const auto& [bytes, seconds] : times)
        all[operation].push_back({bytes, std::stod(formatted("%.4g", std::max(seconds * 1e6, 1e-3)))});
    return all;
  }

  static std::string predictions_text(const Json& all) {
    std::string text = "[world.microseconds]\n";
    for (const auto& [operation, times] : all.items()) {
      std::string pairs;
      for (const Json& pair : times)
        pairs += (pairs.empty() ? "[" : ", [") + pair[0].dump() + ", " + formatted("%.4g", pair[1].get<double>()) + "]";
      text += operation + " = [" + pairs + "]\n";
    }
    return text;
  }

  uint64_t most_;
  std::string time_;
  Scratch scratch_;
};

// From 2 to the number of processors; if these are many, numbers near powers of two.
std::vector<int64_t> worlds(const std::vector<std::string>& given) {
  std::vector<int64_t> ranks;
  for (const std::string& text : given) ranks.push_back(number_from("--ranks", text, 2, kMaxRanks));
  if (ranks.empty()) {
    const int64_t processors = std::min<int64_t>(sysconf(_SC_NPROCESSORS_ONLN), kMaxRanks);
    for (int64_t n = 2; n <= processors; n = n < 4                                           ? n + 1
                                             : std::has_single_bit(static_cast<uint64_t>(n)) ? n * 3 / 2
                                                                                             : n / 3 * 4)
      ranks.push_back(n);
    if (ranks.empty()) ranks.push_back(2);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

fs::path default_path() {
  const char* folder = std::getenv("XDG_CONFIG_HOME");
  if (folder && *folder) return fs::path(folder) / "gsel/tuning.toml";
  const char* home = std::getenv("HOME");
  if (!home || !*home) refuse(GSEL_ERR_ARG, "neither XDG_CONFIG_HOME nor HOME is set; give -o FILE");
  return fs::path(home) / ".config/gsel/tuning.toml";
}

int run_tune(const TuneOptions& options, const std::string& output, bool json) {
  const fs::path path = output.empty() ? default_path() : fs::path(output);
  const uint64_t most = byte_count("--largest", options.most);
  seconds("--time", options.time, 1e-6, 100);
  std::error_code failed;
  if (output.empty()) fs::create_directories(path.parent_path(), failed);
  std::string text = "# measured by gsel tune; see docs/tuning.md\n" + head();
  const Tuner tuner(most, options.time);
  Json all = Json::array();
  for (const int64_t ranks : worlds(options.ranks)) {
    World world = tuner.measure(ranks);
    text += world.toml;
    all.push_back(std::move(world.json));
  }
  replace_file(path.string(), text);
  print_to("");  // --output is for the tuning file
  if (json)
    print(json_text({{"path", path.string()}, {"gsel", gsel_version_text()}, {"cpu", cpu_model()}, {"worlds", all}}));
  else
    print(path.string() + "\n");
  return 0;
}

}  // namespace

Command tune_command(CommandLine& line) {
  auto options = std::make_shared<TuneOptions>();
  Parser parser = line.subcommand(kTuneText);
  parser.list("-n,--ranks", options->ranks, "N...", "Numbers of ranks; default: from 2 to the processors there are.");
  parser.option("--largest", options->most, "BYTES", "Largest calls.", Parser::Default::shown);
  parser.option("--time", options->time, "SECONDS", "About so long for each size of each call.",
                Parser::Default::shown);
  return {parser, [options, &common = line.common()] { return run_tune(*options, common.output, common.json); }};
}

}  // namespace gsel::cli
