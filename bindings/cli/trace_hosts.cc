// trace_hosts.cc: see trace_hosts.h. Each host has its own clock. A call of all hosts begins on each host with a
// collective labelled "#4711 allreduce", followed by a broadcast that the first rank of a host enters only after every
// host's has entered the collective. So each such call bounds the difference of two clocks, and all calls together give
// tight bounds.
#include "trace_hosts.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "client.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

// When the first rank of a host began a call of all hosts, and when it knew that all hosts had begun it; nanoseconds of
// its own clock.
struct Moments {
  double begun, known;
};

std::map<std::string, Moments> moments_of(const Json& part) {
  std::map<std::string, Moments> moments;
  const double zero = part.at("made_ns");
  const auto ns = [&](const Json& us) { return zero + us.get<double>() * 1e3; };
  const Json* begun = nullptr;
  for (const Json& call : part.at("ranks").at(0).at("calls")) {
    const std::string label = call.value("label", "");
    if (label.starts_with("#")) {
      // A host with one rank makes no broadcast; it continues once all hosts have begun the previous call.
      if (begun && begun->at("failed") == false)
        moments[begun->at("label")] = {ns(begun->at("entered_us")), ns(call.at("entered_us"))};
      begun = &call;
    } else if (begun && call.at("kind") == "broadcast") {
      if (!call.at("left_us").is_null() && call.at("failed") == false)
        moments[begun->at("label")] = {ns(begun->at("entered_us")), ns(call.at("left_us"))};
      begun = nullptr;
    }
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

// Of the ranks that delay their own hosts (dead ones, if any), those with the fewest calls: the rest wait for them.
Json last_of(const std::vector<int64_t>& late, const Json& ranks) {
  const auto calls_of = [&](int64_t number) {
    for (const Json& rank : ranks)
      if (rank.at("rank") == number) return rank.at("call").get<int64_t>();
    return std::numeric_limits<int64_t>::max();
  };
  const auto is_out = [&](int64_t number) {
    for (const Json& rank : ranks)
      if (rank.at("rank") == number) return rank.at("alive") == false;
    return false;
  };
  int64_t fewest = std::numeric_limits<int64_t>::max();
  const bool somebody_is_out = std::ranges::any_of(late, is_out);
  for (const int64_t number : late)
    if (!somebody_is_out || is_out(number)) fewest = std::min(fewest, calls_of(number));
  Json out = Json::array();
  for (const int64_t number : late)
    if (calls_of(number) == fewest && (!somebody_is_out || is_out(number))) out.push_back(number);
  return out;
}

// Number of the part's first rank among all ranks; identifies parts, since hosts may have the same name.
int64_t first_rank(const Json& part) {
  return part.at("ranks").at(0).at("shown_as");
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
  std::vector<int64_t> late;
  for (Json& part : parts) {
    const Shift shift = &part == &parts.front() ? Shift{0, 0} : shift_of(parts.front(), part);
    const double us = (part.at("made_ns").get<double>() + shift.ns - zero) * 1e-3;
    Json host{{"host", part.at("part").at("host")}, {"clock_us", shift.ns * 1e-3}, {"clock_error_us", nullptr}};
    if (shift.error_ns < std::numeric_limits<double>::infinity()) host["clock_error_us"] = shift.error_ns * 1e-3;
    whole["hosts"].push_back(std::move(host));
    std::map<int64_t, int64_t> numbers;
    for (const Json& rank : part.at("ranks")) numbers[rank.at("rank")] = rank.at("shown_as");
    for (Json& reader : part["readers"]) {
      if (!reader.at("rank").is_null()) reader["rank"] = numbers.at(reader.at("rank").get<int64_t>());
      whole["readers"].push_back(reader);
    }
    for (const Json& one : part.at("late")) late.push_back(numbers.at(one.get<int64_t>()));
    if (whole.at("failure").is_null()) whole["failure"] = part.at("failure");
    whole["taken_us"] = std::max(whole.at("taken_us").get<double>(), part.at("taken_us").get<double>() + us);
    for (Json rank : part.at("ranks")) {
      rank["rank"] = rank.at("shown_as");
      rank["host"] = part.at("part").at("host");
      shift_times(rank, us, numbers);
      ranks.push_back(std::move(rank));
    }
  }
  std::ranges::sort(ranks, {}, [](const Json& rank) { return rank.at("rank").get<int64_t>(); });
  whole["ranks"] = ranks;
  whole["late"] = last_of(late, whole["ranks"]);
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
  for (auto& [of, parts] : families)
    out.push_back(parts.size() == 1 ? std::move(parts.front()) : joined_parts(std::move(parts)));
  return out;
}

}  // namespace gsel::cli
