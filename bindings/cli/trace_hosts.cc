// trace_hosts.cc: see trace_hosts.h. Each host has its own clock. A call of all hosts begins on each host with a
// collective labelled "#4711 allreduce", followed by a broadcast that the first rank of a host enters only after every
// host's has entered the collective. So each such call bounds the difference of two clocks, and all calls together give
// tight bounds.
//
// The numbers in these labels also say which rank delays the others. A rank goes on to the next number when all hosts
// have begun the last one. So ranks that are not at the least number wait for those that are.
#include "trace_hosts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "client.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

// While one rank is in the next call of all hosts for this long, a rank that is not holds it up.
constexpr double kLongUs = 20'000;
constexpr int64_t kNumbers = 100'000;  // of labels, which begin again then

// The number in "#4711 allreduce".
std::optional<int64_t> all_hosts_number(const Json& call) {
  const std::string label = call.value("label", "");
  int64_t number = 0;
  if (!label.starts_with("#")) return {};
  const auto result = std::from_chars(label.data() + 1, label.data() + label.size(), number);
  if (result.ec != std::errc() || number < 0 || number >= kNumbers) return {};
  return number;
}

// The latest call of all hosts that a rank has begun; nullptr: its recording has none.
const Json* begun_by(const Json& rank) {
  const Json* begun = nullptr;
  for (const Json& call : rank.at("calls"))
    if (all_hosts_number(call)) begun = &call;
  return begun;
}

// When the first rank of a host began a call of all hosts, and when it knew that all hosts had begun it; nanoseconds of
// its own clock.
struct Moments {
  double begun, known;
};

std::map<std::string, Moments> moments_of(const Json& part) {
  std::map<std::string, Moments> moments;
  const double zero = part.at("made_ns");
  const auto ns = [&](const Json& us) { return zero + us.get<double>() * 1e3; };
  // A rank that is alone on its host tells the others before it notes its call, and makes no broadcast: it began after
  // the call before, and continues once all hosts have begun.
  const bool is_alone = part.at("ranks").size() == 1;
  const Json *begun = nullptr, *before = nullptr;
  double begun_ns = 0;
  for (const Json& call : part.at("ranks").at(0).at("calls")) {
    if (all_hosts_number(call)) {
      if (begun && begun->at("failed") == false) moments[begun->at("label")] = {begun_ns, ns(call.at("entered_us"))};
      const bool has_before = before && !before->at("left_us").is_null();
      begun = is_alone && !has_before ? nullptr : &call;
      begun_ns = ns(is_alone && has_before ? before->at("left_us") : call.at("entered_us"));
    } else if (begun && call.at("kind") == "broadcast") {
      if (!call.at("left_us").is_null() && call.at("failed") == false)
        moments[begun->at("label")] = {begun_ns, ns(call.at("left_us"))};
      begun = nullptr;
    }
    before = &call;
  }
  return moments;
}

// The difference between the clocks of `first` and `part`, and its maximum error.
struct Shift {
  double ns = 0, error_ns = std::numeric_limits<double>::infinity();
};

Shift shift_of(const Json& first, const Json& part) {
  const auto here = moments_of(first), there = moments_of(part);
  double least = -std::numeric_limits<double>::infinity(), most = -least;
  for (const auto& [label, a] : here) {
    const auto found = there.find(label);
    if (found == there.end()) continue;
    const Moments& b = found->second;
    least = std::max(least, a.begun - b.known);
    most = std::min(most, a.known - b.begun);
  }
  if (least > most || most == std::numeric_limits<double>::infinity()) {
    // No common call: assumes that the recordings end at the same time, which is when they were requested.
    const auto end = [](const Json& one) {
      return one.at("made_ns").get<double>() + one.at("taken_us").get<double>() * 1e3;
    };
    return {end(first) - end(part)};
  }
  return {(least + most) / 2, (most - least) / 2};
}

void shift_times(Json& rank, double us, const std::map<int64_t, int64_t>& numbers) {
  const auto add = [us](Json& time) {
    if (!time.is_null()) time = time.get<double>() + us;
  };
  add(rank["since_us"]);
  for (Json& call : rank["calls"]) {
    add(call["entered_us"]);
    add(call["left_us"]);
  }
  if (!rank["awaits"].is_null()) rank["awaits"] = numbers.at(rank["awaits"].get<int64_t>());
}

// Number of the part's first rank among all ranks; identifies parts, since hosts may have the same name.
int64_t first_rank(const Json& part) {
  return part.at("ranks").at(0).at("shown_as");
}

// How far a rank is in the calls of all hosts, compared with another: negative if it is behind. A call's number counts,
// then whether the rank has left its labelled collective.
int64_t compare_progress(const Json& one, const Json& other) {
  const auto number = [](const Json& call) { return *all_hosts_number(call); };
  const int64_t ahead = (number(one) - number(other) + kNumbers + kNumbers / 2) % kNumbers - kNumbers / 2;
  if (ahead != 0) return ahead;
  return int64_t{!one.at("left_us").is_null()} - int64_t{!other.at("left_us").is_null()};
}

// Whether ranks of other hosts wait for this one: they are further in the calls of all hosts, and have been for long
// when this rank's recording was read. ranks: with the time of one clock, and "read_us", the time when each was read.
bool is_late(const Json& rank, const std::vector<Json>& ranks) {
  const Json* begun = begun_by(rank);
  if (!begun || !rank.at("awaits").is_null()) return false;
  const int64_t number = *all_hosts_number(*begun), next = (number + 1) % kNumbers;
  const double read_us = rank.at("read_us").get<double>() - rank.at("clock_error_us").get<double>() - kLongUs;
  return std::ranges::any_of(ranks, [&](const Json& other) {
    if (other.at("part") == rank.at("part")) return false;
    return std::ranges::any_of(other.at("calls"), [&](const Json& call) {
      const auto theirs = all_hosts_number(call);
      const bool has_left = theirs == number && begun->at("left_us").is_null() && !call.at("left_us").is_null();
      if (theirs != next && !has_left) return false;
      const double ahead_us = call.at(has_left ? "left_us" : "entered_us");
      return ahead_us + other.at("clock_error_us").get<double>() < read_us;
    });
  });
}

// The ranks that hold up all others. late: those that others of their hosts wait for. Among these and those that other
// hosts wait for: the dead ranks if there are any, else those that are furthest behind. While a recording is missing its
// ranks may be behind all of these, so that only the dead ones are certain.
Json last_of(const std::set<int64_t>& late, const std::vector<Json>& ranks, bool is_whole) {
  std::vector<const Json*> found;
  for (const Json& rank : ranks)
    if (late.contains(rank.at("rank").get<int64_t>()) || is_late(rank, ranks)) found.push_back(&rank);
  const auto is_out = [](const Json* rank) { return rank->at("alive") == false; };
  if (!is_whole || std::ranges::any_of(found, is_out)) {
    std::erase_if(found, [&](const Json* rank) { return !is_out(rank); });
  } else {
    const Json* last = nullptr;
    for (const Json* rank : found)
      if (const Json* begun = begun_by(*rank); begun && (!last || compare_progress(*begun, *last) < 0)) last = begun;
    std::erase_if(found, [&](const Json* rank) {
      const Json* begun = begun_by(*rank);
      return last && (!begun || compare_progress(*begun, *last) > 0);
    });
  }
  Json out = Json::array();
  for (const Json* rank : found) out.push_back(rank->at("rank"));
  return out;
}

// The parts that were not read, as far as they are known.
Json missing_parts(const std::vector<Json>& parts) {
  Json missing = Json::array();
  for (const Json& part : parts.front().at("part").value("parts", Json::array()))
    if (std::ranges::find(parts, part.at("first_rank").get<int64_t>(), first_rank) == parts.end())
      missing.push_back(part);
  return missing;
}

// Joins the parts in order of their lowest rank.
Json joined_parts(std::vector<Json> parts) {
  std::ranges::sort(parts, {}, first_rank);
  Json whole = parts.front();
  const double zero = whole.at("made_ns");
  whole["world_size"] = whole.at("part").at("world_size");
  whole["hosts"] = Json::array();
  whole["readers"] = Json::array();
  std::vector<Json> ranks;
  std::set<int64_t> late;
  for (Json& part : parts) {
    const Shift shift = &part == &parts.front() ? Shift{0, 0} : shift_of(parts.front(), part);
    const double us = (part.at("made_ns").get<double>() + shift.ns - zero) * 1e-3;
    Json host{{"host", part.at("part").at("host")}, {"clock_us", shift.ns * 1e-3}, {"clock_error_us", nullptr}};
    if (std::isfinite(shift.error_ns)) host["clock_error_us"] = shift.error_ns * 1e-3;
    whole["hosts"].push_back(std::move(host));
    std::map<int64_t, int64_t> numbers;
    for (const Json& rank : part.at("ranks")) numbers[rank.at("rank")] = rank.at("shown_as");
    for (Json& reader : part["readers"]) {
      if (!reader.at("rank").is_null()) reader["rank"] = numbers.at(reader.at("rank").get<int64_t>());
      whole["readers"].push_back(reader);
    }
    for (const Json& one : part.at("late")) late.insert(numbers.at(one.get<int64_t>()));
    if (whole.at("failure").is_null()) whole["failure"] = part.at("failure");
    whole["taken_us"] = std::max(whole.at("taken_us").get<double>(), part.at("taken_us").get<double>() + us);
    for (Json rank : part.at("ranks")) {
      rank["rank"] = rank.at("shown_as");
      rank["host"] = part.at("part").at("host");
      shift_times(rank, us, numbers);
      rank["part"] = first_rank(part);
      rank["read_us"] = part.at("taken_us").get<double>() + us;
      rank["clock_error_us"] = std::isfinite(shift.error_ns) ? shift.error_ns * 1e-3 : 0.0;
      ranks.push_back(std::move(rank));
    }
  }
  std::ranges::sort(ranks, {}, [](const Json& rank) { return rank.at("rank").get<int64_t>(); });
  const bool is_whole = static_cast<int64_t>(ranks.size()) >= whole.at("world_size").get<int64_t>();
  whole["missing"] = missing_parts(parts);
  whole["late"] = last_of(late, ranks, is_whole);
  for (Json& rank : ranks)
    for (const char* key : {"part", "read_us", "clock_error_us"}) rank.erase(key);
  whole["ranks"] = ranks;
  whole["part"] = nullptr;
  return whole;
}

}  // namespace

std::vector<Json> join_parts(std::vector<Json> communicators) {
  std::map<std::string, std::vector<Json>> families;
  std::vector<Json> out;
  for (Json& communicator : communicators) {
    const auto part = communicator.find("part");
    if (part == communicator.end() || part->is_null()) {
      out.push_back(std::move(communicator));
      continue;
    }
    std::vector<Json>& known = families[part->at("of")];
    const auto same = std::ranges::find(known, first_rank(communicator), first_rank);
    (same == known.end() ? known : out).push_back(std::move(communicator));
  }
  for (auto& [of, parts] : families) out.push_back(joined_parts(std::move(parts)));
  return out;
}

}  // namespace gsel::cli
