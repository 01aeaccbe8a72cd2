// comm/shm/trace/trace.cc: see trace.h. Converts an arena to JSON; trace_process.cc reads other processes.
#include "comm/shm/trace/trace.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/types.h"
#include "base/version.h"
#include "comm/call/collective.h"
#include "comm/call/operation.h"

namespace gsel::shm {
namespace {

constexpr uint32_t kReadable = 2;

// Converts ticks to microseconds since the arena was made, by reading both clocks then and now.
class Clock {
 public:
  explicit Clock(const ArenaHeader& header) : tick_zero_(header.tick_zero), ticks_now_(os::ticks()) {
    const double ns = static_cast<double>(os::now_ns()) - static_cast<double>(header.ns_zero);
    const double passed = static_cast<double>(ticks_now_) - static_cast<double>(tick_zero_);
    us_per_tick_ = passed > 0 && ns > 0 ? ns / passed * 1e-3 : 0;
  }
  double now_us() const { return us(ticks_now_); }
  double us(int64_t ticks) const {
    const double value = (static_cast<double>(ticks) - static_cast<double>(tick_zero_)) * us_per_tick_;
    return std::round(value * 1e3) * 1e-3;
  }

 private:
  int64_t tick_zero_, ticks_now_;
  double us_per_tick_ = 0;
};

struct Recorded {
  uint64_t number = 0, packed = 0, count = 0;
  int64_t entered = 0, left = 0;
  char label[kLabelBytes + 1] = {};
};

std::optional<Recorded> read_entry(const Arena& arena, int32_t rank, uint64_t number) {
  const CallEntry& entry = arena.call(rank, number);
  if (entry.number.load(std::memory_order_acquire) != number) return {};
  Recorded seen;
  seen.number = number;
  seen.packed = entry.packed.load(std::memory_order_acquire);
  seen.count = entry.count.load(std::memory_order_acquire);
  seen.entered = entry.entered.load(std::memory_order_acquire);
  seen.left = entry.left.load(std::memory_order_acquire);
  for (size_t i = 0; i < std::size(entry.label); ++i) {
    const uint64_t word = entry.label[i].load(std::memory_order_acquire);
    std::memcpy(seen.label + i * sizeof word, &word, sizeof word);
  }
  if (entry.number.load(std::memory_order_relaxed) != number) return {};
  return seen;
}

Json call_json(const Recorded& call, const Clock& clock) {
  const PackedCall fields = unpack(call.packed);
  const bool rooted = is_known(fields.kind) && (row_of(fields.kind).rooted() || row_of(fields.kind).message);
  Operation operation;  // without a name: the recording has none for a caller's operation
  operation.op = fields.op;
  const std::string name = operation_name(operation);
  std::string text = origin_text(fields.origin);
  if (text.empty()) text = describe(fields.kind, fields.dtype, fields.op, fields.root, call.count, name);
  if (call.label[0]) text += fmt::format(" \"{}\"", call.label);
  if (fields.grouped) text += " in a group";
  Json json{{"number", call.number}, {"text", text}, {"kind", collective_name(fields.kind)}};
  json.set("count", call.count);
  json.set("dtype", fields.kind == GSEL_COLLECTIVE_BARRIER ? Json() : Json(dtype_name(fields.dtype)));
  json.set("op", is_reduction(fields.kind) ? Json(name) : Json());
  json.set("root", rooted ? Json(fields.root) : Json());
  json.set("label", call.label);
  json.set("entered_us", clock.us(call.entered));
  json.set("left_us", call.left == 0 ? Json() : Json(clock.us(std::abs(call.left))));
  json.set("failed", call.left < 0);
  return json;
}

// What is known about one rank.
struct Seen {
  std::vector<Recorded> calls;
  std::optional<Recorded> latest;  // the latest call under way, else the latest of all
  int32_t awaited = -1;  // the rank it waits for, or waited for when its call failed; -1: none, or a short wait
};

int32_t awaited_by(const Arena& arena, int32_t rank) {
  const RankBlock& block = arena.rank(rank);
  const int32_t other = block.awaited_rank.load(std::memory_order_acquire) - 1;
  const auto* flag = arena.flag_at(block.awaited_flag.load(std::memory_order_relaxed));
  if (other < 0 || other >= arena.layout().world_size || other == rank || !flag) return -1;
  const bool come = flag->load(std::memory_order_acquire) >= block.awaited_value.load(std::memory_order_relaxed);
  return come ? -1 : other;
}

Seen look_at(const Arena& arena, int32_t rank) {
  Seen seen;
  const uint64_t newest = arena.rank(rank).latest_number.load(std::memory_order_acquire) / 2;
  for (uint64_t n = newest < kRingCalls ? 1 : newest - kRingCalls + 1; n <= newest && n != 0; ++n) {
    const auto call = read_entry(arena, rank, n);
    if (!call) continue;
    seen.calls.push_back(*call);
    if (!seen.latest || call->left == 0 || seen.latest->left != 0) seen.latest = call;
  }
  if (seen.latest && seen.latest->left <= 0) seen.awaited = awaited_by(arena, rank);
  return seen;
}

// Whether a rank's process has ended, but neither after leaving nor after a failed call.
bool has_died(const Arena& arena, int32_t rank, const Seen& seen, const TraceReader& reader) {
  return reader.alive && !reader.alive(rank).value_or(true) && !(seen.latest && seen.latest->left < 0) &&
         arena.rank(rank).left.load(std::memory_order_acquire) == 0;
}

// The ranks that block others: ranks that have died, and ranks that are waited for and do not wait themselves. In a
// cycle, such as two messages that wait for each other, one rank is listed.
std::vector<int32_t> late_ranks(const Arena& arena, const std::vector<Seen>& ranks, const TraceReader& reader) {
  std::set<int32_t> late;
  for (int32_t q = 0; q < static_cast<int32_t>(ranks.size()); ++q)
    if (has_died(arena, q, ranks[static_cast<size_t>(q)], reader)) late.insert(q);
  for (const Seen& first : ranks) {
    int32_t rank = first.awaited;
    if (rank < 0) continue;
    for (size_t steps = 0; steps < ranks.size(); ++steps) {
      const int32_t next = ranks[static_cast<size_t>(rank)].awaited;
      if (next < 0) break;
      rank = next;
    }
    late.insert(rank);
  }
  return {late.begin(), late.end()};
}

const char* state_of(const RankBlock& block, const std::optional<Recorded>& latest) {
  if (block.left.load(std::memory_order_acquire) != 0) return "left";
  if (!latest) return "no call yet";
  return latest->left == 0 ? "in call" : latest->left < 0 ? "failed" : "between calls";
}

Json rank_json(const RankBlock& block, int32_t rank, const Seen& seen, const Clock& clock, const TraceReader& reader) {
  Json calls = Json::array();
  for (const Recorded& call : seen.calls) calls.push(call_json(call, clock));
  const auto alive = reader.alive ? reader.alive(rank) : std::nullopt;
  const auto& latest = seen.latest;
  Json json{{"rank", rank},
            {"shown_as", block.shown_rank.load(std::memory_order_relaxed)},
            {"joined_as", block.family_rank},
            {"pid", block.pid}};
  json.set("alive", alive ? Json(*alive) : Json());
  json.set("state", state_of(block, latest));
  json.set("call", latest ? latest->number : 0);
  const int64_t since = latest ? (latest->left == 0 ? latest->entered : std::abs(latest->left)) : 0;
  json.set("since_us", latest ? Json(clock.us(since)) : Json());
  json.set("awaits", seen.awaited >= 0 ? Json(seen.awaited) : Json());
  json.set("calls", std::move(calls));
  return json;
}

Json failure_json(const ArenaHeader& header) {
  if (header.broken.load(std::memory_order_acquire) != kReadable) return {};
  const std::string text(header.broken_text, strnlen(header.broken_text, kTextBytes));
  return {{"code", status_name(header.broken_code)}, {"rank", header.broken_rank}, {"text", text}};
}

std::string host_name(const char (&name)[kHostBytes]) {
  return std::string(name, strnlen(name, kHostBytes));
}

Json part_json(const ArenaHeader& header) {
  const uint64_t of = header.part_of.load(std::memory_order_acquire);
  if (of == 0) return {};
  Json parts = Json::array();
  for (const PartOfHost& part : header.parts)
    if (part.ranks > 0)
      parts.push({{"host", host_name(part.host)}, {"first_rank", part.first_rank}, {"ranks", part.ranks}});
  Json json{{"of", fmt::format("{:016x}", of)},
            {"host", host_name(header.part_host)},
            {"hosts", header.part_hosts},
            {"world_size", header.part_ranks}};
  json.set("parts", std::move(parts));
  return json;
}

Json reader_json(const TraceReader& reader) {
  Json json{{"pid", getpid()}, {"rank", reader.rank >= 0 ? Json(reader.rank) : Json()}};
  json.set("error", reader.error.empty() ? Json() : Json{{"code", status_name(reader.code)}, {"text", reader.error}});
  return json;
}

}  // namespace

Json communicator_json(const Arena& arena, const TraceReader& reader) {
  const ArenaHeader& header = arena.header();
  const int32_t n = arena.layout().world_size;
  const Clock clock(header);
  std::vector<Seen> seen;
  for (int32_t q = 0; q < n; ++q) seen.push_back(look_at(arena, q));
  Json ranks = Json::array();
  for (int32_t q = 0; q < n; ++q) ranks.push(rank_json(arena.rank(q), q, seen[static_cast<size_t>(q)], clock, reader));
  Json json{{"name", std::string(header.name, strnlen(header.name, kNameBytes))}};
  json.set("world_size", n);
  json.set("order", header.order == GSEL_ORDER_TREE ? "tree" : "ranks");
  json.set("cores", header.cores);
  json.set("part", part_json(header));
  json.set("made_ns", header.ns_zero);
  json.set("taken_us", clock.now_us());
  json.set("reader", reader_json(reader));
  json.set("failure", failure_json(header));
  json.set("late", late_ranks(arena, seen, reader));
  json.set("ranks", std::move(ranks));
  return json;
}

std::string trace_text(Json communicators) {
  const Json json{{"gsel", kVersionText}, {"communicators", std::move(communicators)}};
  return json.on_one_line() + "\n";
}

std::string trace_of(const Arena& arena, const TraceReader& reader) {
  Json communicators = Json::array();
  communicators.push(communicator_json(arena, reader));
  return trace_text(std::move(communicators));
}

void save_trace(const std::string& folder, int32_t rank, const std::string& json) noexcept {
  try {
    const std::string path = fmt::format("{}/gsel-{}-{}.json", folder, getpid(), rank);
    write_file(path, json);
    log(GSEL_LOG_INFO, "comm", "the last calls of all ranks are in {}", path);
  } catch (const Error& e) {
    log(GSEL_LOG_WARN, "comm", "{}", e.message());
  } catch (...) {  // no memory for a path: the failure itself is still reported
  }
}

}  // namespace gsel::shm
