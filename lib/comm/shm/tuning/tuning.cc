// comm/shm/tuning/tuning.cc: see tuning.h. Uses the file of GSEL_TUNING, else the user's own; each is read once. A file
// that cannot be used is reported and ignored, since it only affects speed.
#define TOML_ASSERT(condition) static_cast<void>(0)  // invalid text can fail them; without them it is a parse error

#include "comm/shm/tuning/tuning.h"

#include <sys/utsname.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "base/version.h"
#include "comm/call/collective.h"

namespace gsel::shm {
namespace {

using Worlds = std::vector<TunedWorld>;

constexpr const char* kVariable = "GSEL_TUNING";
constexpr size_t kMostFileBytes = size_t{128} << 10;  // above the parser's limit, whose error is more precise

const char* variable(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : nullptr;
}

// Empty: none.
std::string path_in_force() {
  if (const char* file = secure_getenv(kVariable)) return file;
  std::string path;
  if (const char* folder = variable("XDG_CONFIG_HOME"))
    path = std::string(folder) + "/gsel/tuning.toml";
  else if (const char* home = variable("HOME"))
    path = std::string(home) + "/.config/gsel/tuning.toml";
  return access(path.c_str(), F_OK) == 0 ? path : std::string();
}

Worlds read_worlds(const std::string& path) {
  try {
    return parse_tuning(read_file("tuning file", path, kMostFileBytes), path, cpu_model());
  } catch (const Error& e) {
    if (const char* named = variable(kVariable))
      warn_about_variable(kVariable, named, fmt::format("tuning is not used: {}; gsel tune makes one", e.what()));
    else
      log(GSEL_LOG_WARN, "comm", "tuning is not used: {}", e.what());
    return {};
  }
}

std::shared_ptr<const Worlds> worlds_in_force() {
  static auto* known = new std::map<std::string, std::shared_ptr<const Worlds>>;
  const std::string path = path_in_force();
  if (path.empty()) return std::make_shared<Worlds>();
  {
    std::lock_guard lock(os::process_mutex());
    const auto found = known->find(path);
    if (found != known->end()) return found->second;
  }
  auto worlds = std::make_shared<const Worlds>(read_worlds(path));
  std::lock_guard lock(os::process_mutex());
  return known->emplace(path, std::move(worlds)).first->second;
}

}  // namespace

// Falls back to the next smaller number of ranks that was measured, else to the smallest.
Tuning tuning_for(int32_t ranks) {
  const auto worlds = worlds_in_force();
  if (worlds->empty()) return {};
  const auto above = std::ranges::upper_bound(*worlds, ranks, {}, &TunedWorld::ranks);
  return (above == worlds->begin() ? above : std::prev(above))->tuning;
}

double predicted_seconds(int32_t ranks, gsel_collective_kind kind, uint64_t bytes) {
  const auto worlds = worlds_in_force();
  const auto world = std::ranges::find(*worlds, ranks, &TunedWorld::ranks);
  if (world == worlds->end() || kind < 0 || kind >= GSEL_COLLECTIVE_KINDS) return 0;
  return interpolated_seconds(world->timings[static_cast<size_t>(kind)], bytes);
}

// ---- the text of a tuning file --------------------------------------------------------------------------------------
// As with gsel.toml, unknown keys and invalid values are errors; a file is used as a whole or not at all.

namespace {

constexpr size_t kMostBytes = size_t{64} << 10;
constexpr size_t kMostOfLine = 4096;  // each dot of a key nests a table, which takes stack
constexpr size_t kMostTimings = 64;
constexpr int64_t kMostSeconds = 1000;

struct Bound {
  const char* key;
  size_t Tuning::*field;
  int64_t least, most;
};
constexpr int64_t kMostChunk = int64_t{1} << 20;
constexpr Bound kThresholds[] = {
    {"single_copy_from", &Tuning::single_copy_from, 4096, INT64_MAX},
    {"single_copy_broadcast_from", &Tuning::single_copy_broadcast_from, 4096, INT64_MAX},
    {"single_copy_broadcast_to", &Tuning::single_copy_broadcast_to, 4096, INT64_MAX},
    {"single_copy_allreduce_from", &Tuning::single_copy_allreduce_from, 4096, INT64_MAX},
    {"single_copy_gather_from", &Tuning::single_copy_gather_from, 4096, INT64_MAX},
    {"gather_slots_to", &Tuning::gather_slots_to, 4096, INT64_MAX},
    {"stream_from", &Tuning::stream_from, 4096, INT64_MAX},
    {"chunk_bytes", &Tuning::chunk_bytes, 4096, kMostChunk},
    {"pair_chunk_bytes", &Tuning::pair_chunk_bytes, 4096, kMostChunk},
};

class Reader {
 public:
  Reader(const std::string& file, const std::string& cpu) : file_(file), cpu_(cpu) {}

  std::vector<TunedWorld> read(const toml::table& root) {
    expect_text(root, "gsel", kVersionText);
    expect_text(root, "cpu", cpu_);
    for (auto&& [key, node] : root)
      if (key.str() != "gsel" && key.str() != "cpu" && key.str() != "world")
        reject(node, key.str(), "is not known; gsel, cpu and [[world]] are");
    std::vector<TunedWorld> worlds;
    const toml::node* list = root.get("world");
    const toml::array* tables = list ? list->as_array() : nullptr;
    if (list && !tables) reject(*list, "world", "is no list; expected [[world]]");
    for (size_t i = 0; tables && i < tables->size(); ++i) worlds.push_back(read_world((*tables)[i]));
    std::ranges::sort(worlds, {}, &TunedWorld::ranks);
    const auto twin = std::ranges::adjacent_find(worlds, {}, &TunedWorld::ranks);
    if (twin != worlds.end()) reject(*list, "world.ranks", fmt::format("is {} twice", twin->ranks));
    return worlds;
  }

 private:
  [[noreturn]] void reject(const toml::node& at, std::string_view key, std::string_view what) const {
    const auto begin = at.source().begin;
    const auto line = static_cast<int32_t>(begin.line);
    throw Error(GSEL_ERR_CONFIG, fmt::format("{}:{}: {} {}", file_, line, one_line(key.substr(0, 60)), what))
        .at({file_, line, static_cast<int32_t>(begin.column), std::string(key)});
  }

  void expect_text(const toml::table& root, const char* key, const std::string& expected) const {
    const toml::node* node = root.get(key);
    if (!node) reject(root, key, fmt::format("is missing; expected {}", in_quotes(expected)));
    const auto* text = node->as_string();
    if (!text || text->get() != expected)
      reject(*node, key,
             fmt::format("is {}, here it is {}; run gsel tune on this machine with this version",
                         text ? in_quotes(text->get()) : "no text", in_quotes(expected)));
  }

  int64_t whole_number(const toml::node& node, std::string_view key, int64_t least, int64_t most) const {
    const auto* number = node.as_integer();
    if (!number || number->get() < least || number->get() > most)
      reject(node, key, fmt::format("must be a whole number from {} to {}", least, most));
    return number->get();
  }

  TunedWorld read_world(const toml::node& node) const {
    const toml::table* table = node.as_table();
    if (!table) reject(node, "world", "is no section; expected [[world]]");
    TunedWorld world;
    for (auto&& [key, value] : *table) {
      const std::string name = "world." + std::string(key.str());
      const auto* threshold = std::ranges::find(kThresholds, key.str(), &Bound::key);
      if (threshold != std::end(kThresholds))
        world.tuning.*threshold->field =
            static_cast<size_t>(whole_number(value, name, threshold->least, threshold->most));
      else if (key.str() == "ranks")
        world.ranks = static_cast<int32_t>(whole_number(value, name, 2, kMaxRanks));
      else if (key.str() == "microseconds")
        read_timings(value, world);
      else
        reject(value, name, "is not known");
    }
    if (world.ranks == 0) reject(node, "world.ranks", "is missing; expected the number of ranks measured");
    return world;
  }

  void read_timings(const toml::node& node, TunedWorld& world) const {
    const toml::table* table = node.as_table();
    if (!table) reject(node, "world.microseconds", "is no section; expected [world.microseconds]");
    for (auto&& [key, value] : *table) {
      const std::string name = "world.microseconds." + std::string(key.str());
      gsel_collective_kind kind = 0;
      while (kind < GSEL_COLLECTIVE_KINDS && key.str() != collective_name(kind)) ++kind;
      if (kind == GSEL_COLLECTIVE_KINDS) reject(value, name, "is no call");
      const toml::array* pairs = value.as_array();
      if (!pairs || pairs->size() > kMostTimings)
        reject(value, name, fmt::format("must be a list of at most {} pairs [bytes, microseconds]", kMostTimings));
      auto& timings = world.timings[static_cast<size_t>(kind)];
      for (const toml::node& pair : *pairs) {
        timings.push_back(read_pair(pair, name));
        if (timings.size() > 1 && timings.back().bytes <= timings[timings.size() - 2].bytes)
          reject(pair, name, "must have rising sizes");
      }
    }
  }

  Timing read_pair(const toml::node& node, const std::string& name) const {
    const toml::array* pair = node.as_array();
    if (!pair || pair->size() != 2) reject(node, name, "must hold pairs [bytes, microseconds]");
    const auto bytes = static_cast<uint64_t>(whole_number((*pair)[0], name, 0, INT64_MAX));
    const auto us = (*pair)[1].value<double>();
    if (!us || !(*us > 0) || *us > kMostSeconds * 1e6)
      reject(node, name, fmt::format("must hold times above 0 and of at most {} s", kMostSeconds));
    return {bytes, *us * 1e-6};
  }

  const std::string& file_;
  const std::string& cpu_;
};

// Refuses texts that the parser may not handle.
void check_is_table(std::string_view text, const std::string& file) {
  if (text.size() > kMostBytes)
    throw Error(GSEL_ERR_PARSE, fmt::format("{}: has more than {} bytes", file, kMostBytes)).at({file, 0, 0, {}});
  // The parser's behaviour for a byte that is not ASCII is undefined.
  const auto odd = std::ranges::find_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  if (odd != text.end()) {
    const auto line = 1 + std::count(text.begin(), odd, '\n');
    throw Error(GSEL_ERR_PARSE, fmt::format("{}:{}: a byte beyond ASCII; a tuning file has none", file, line))
        .at({file, static_cast<int32_t>(line), 0, {}});
  }
  int32_t number = 0;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t length = std::min(text.find('\n', begin), text.size()) - begin;
    if (length > kMostOfLine)
      throw Error(GSEL_ERR_PARSE,
                  fmt::format("{}:{}: a line of {} bytes; expected at most {}", file, number + 1, length, kMostOfLine))
          .at({file, number + 1, 0, {}});
    begin += length + 1;
  }
}

}  // namespace

std::vector<TunedWorld> parse_tuning(std::string_view text, const std::string& file, const std::string& cpu) {
  check_is_table(text, file);
  toml::table root;
  try {
    root = toml::parse(text, std::string_view(file));
  } catch (const toml::parse_error& e) {
    const auto begin = e.source().begin;
    throw Error(GSEL_ERR_PARSE, fmt::format("{}:{}: {}", file, begin.line, one_line(e.description())))
        .at({file, static_cast<int32_t>(begin.line), static_cast<int32_t>(begin.column), {}});
  }
  return Reader(file, cpu).read(root);
}

double interpolated_seconds(const std::vector<Timing>& timings, uint64_t bytes) {
  if (timings.empty()) return 0;
  const auto next = std::ranges::lower_bound(timings, bytes, {}, &Timing::bytes);
  if (next == timings.begin()) return next->seconds;
  const Timing& before = *std::prev(next);
  if (next == timings.end())
    return before.seconds * (before.bytes > 0 ? static_cast<double>(bytes) / static_cast<double>(before.bytes) : 1);
  if (before.bytes == 0) return next->seconds;  // no logarithm
  const auto log_of = [](uint64_t n) { return std::log(static_cast<double>(n)); };
  const double part = (log_of(bytes) - log_of(before.bytes)) / (log_of(next->bytes) - log_of(before.bytes));
  return std::exp(std::log(before.seconds) + part * (std::log(next->seconds) - std::log(before.seconds)));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find_first_not_of(": \t", line.find(':'));
    if (begin != line.npos) return one_line(line.substr(begin));
  }
  utsname names{};
  return uname(&names) == 0 ? names.machine : "unknown";
}

}  // namespace gsel::shm
