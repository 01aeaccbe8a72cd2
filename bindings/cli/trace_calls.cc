// trace_calls.cc: see trace_calls.h.
#include "trace_calls.h"

#include <cstdio>
#include <map>

#include "client.h"
#include "colour.h"
#include "table.h"

namespace gsel::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string rank_name(const Json& rank) {
  const std::string host = rank.value("host", "");
  return "rank " + rank.at("rank").dump() + (host.empty() ? "" : " on " + host) + " (pid " + rank.at("pid").dump() +
         ")";
}

double age_us(const Json& communicator, const Json& rank) {
  return rank.at("since_us").is_null() ? 0 : communicator.at("taken_us").get<double>() - rank["since_us"].get<double>();
}

std::string last_call(const Json& rank) {
  const Json& calls = rank.at("calls");
  return calls.empty() ? "-" : calls.back().at("text").get<std::string>();
}

// A suffix for the text of a call: the call of all hosts to which it belongs (trace_hosts.cc).
std::string whole_call(const Json& rank) {
  if (!rank.contains("host")) return {};
  std::string label;
  for (const Json& call : rank.at("calls"))
    if (const std::string one = call.value("label", ""); one.starts_with("#")) label = one;
  return label.empty() || last_call(rank).find(label) != std::string::npos ? std::string() : ", of " + label;
}

std::string blame(const Json& communicator, const Json& rank) {
  const std::string state = rank.at("state"), age = duration(age_us(communicator, rank)),
                    number = rank.at("call").dump();
  std::string text = rank_name(rank) + " holds up the others: ";
  if (rank.at("alive") == false) return text + "its process has ended";
  if (state == "no call yet") return text + "it has made no call yet";
  if (state == "left") return text + "it has left";
  if (state == "in call") return text + "it is in " + last_call(rank) + " (call " + number + ") since " + age;
  if (state == "failed") return text + "its call " + number + ", " + last_call(rank) + ", failed " + age + " before";
  return text + "it left call " + number + " " + age + " ago and makes no other";
}

Row row_of(const Json& communicator, const Json& rank) {
  const bool awaits = !rank.at("awaits").is_null();
  const std::string state = rank.at("alive") == false ? "ended" : rank.at("state").get<std::string>();
  return {rank.at("rank").dump(),
          rank.at("pid").dump(),
          state,
          rank.at("call").dump(),
          rank.at("since_us").is_null() ? "-" : duration(age_us(communicator, rank)),
          awaits ? "rank " + rank["awaits"].dump() : "-",
          last_call(rank) + whole_call(rank)};
}

// Whether the ranks of a communicator had other numbers when they joined, as in one made from another.
bool has_other_ranks(const Json& communicator) {
  for (const Json& rank : communicator.at("ranks"))
    if (rank.value("joined_as", rank.at("rank")) != rank.at("rank")) return true;
  return false;
}

// How the times of a host were converted to the first host's clock.
std::string clock_text(const Json& host) {
  char text[96];
  if (host.at("clock_error_us").is_null())
    return "its recording is taken to end with that of the first host, since no call of both is in them";
  std::snprintf(text, sizeof text, "%.3f s were added, exact to %.0f us", host.at("clock_us").get<double>() * 1e-6,
                host["clock_error_us"].get<double>());
  return text;
}

// Which ranks were not read; empty: all were.
std::string missing_text(const Json& communicator) {
  if (!communicator.contains("missing")) return {};
  const size_t read = communicator.at("ranks").size(), all = communicator.at("world_size").get<size_t>();
  if (read >= all) return {};
  std::string hosts;
  size_t named = 0;
  for (const Json& part : communicator["missing"]) {
    const size_t ranks = part.at("ranks");
    const std::string first = "rank " + part.at("first_rank").dump();
    hosts += (hosts.empty() ? "" : ", ") + part.at("host").get<std::string>() + " (" +
             (ranks > 1 ? with_noun(ranks, "rank") + " from " : "") + first + ")";
    named += ranks;
  }
  if (read + named < all) hosts += hosts.empty() ? "other hosts" : " and other hosts";
  const bool is_known = !communicator.at("late").empty() || !communicator.at("failure").is_null();
  return coloured(Colour::bad, "missing:") + " the recordings of " + hosts + "; " + std::to_string(read) + " of " +
         with_noun(all, "rank") + " are shown" + (is_known ? "" : ", and who holds them up is not known") + "\n";
}

std::string calls_text(const Json& rank, size_t last) {
  const Json& calls = rank.at("calls");
  std::vector<Row> rows;
  for (size_t i = calls.size() > last ? calls.size() - last : 0; i < calls.size(); ++i) {
    const Json& call = calls[i];
    const bool open = call.at("left_us").is_null();
    const double entered = call.at("entered_us");
    rows.push_back({"  call " + call.at("number").dump(), "at " + duration(entered),
                    open ? "still in it" : "took " + duration(call.at("left_us").get<double>() - entered),
                    call.at("text").get<std::string>() + (call.at("failed") == true ? "  failed" : "")});
  }
  return rows.empty() ? std::string() : rank_name(rank) + "\n" + table(rows);
}

}  // namespace

std::vector<Json> merge_recordings(const std::vector<Json>& documents) {
  std::map<std::string, Json> latest;
  for (const Json& document : documents) {
    for (const Json& communicator : document.at("communicators")) {
      const std::string key = communicator.at("made_ns").dump() + " " +
                              communicator.at("ranks").at(0).at("pid").dump() + " " +
                              communicator.at("world_size").dump();
      Json& known = latest[key];
      Json readers = known.is_null() ? Json::array() : known["readers"];
      readers.push_back(communicator.at("reader"));
      if (known.is_null() || communicator.at("taken_us") > known.at("taken_us")) known = communicator;
      known["readers"] = std::move(readers);
    }
  }
  std::vector<Json> communicators;
  for (auto& [key, communicator] : latest) communicators.push_back(std::move(communicator));
  return communicators;
}

std::string communicator_text(const Json& communicator, size_t last) {
  const Json& ranks = communicator.at("ranks");
  const std::string name = communicator.value("name", "");
  std::string out = "communicator " + name + (name.empty() ? "of " : " of ") +
                    with_noun(communicator.at("world_size"), "rank") + ", " + duration(communicator.at("taken_us")) +
                    " old\n";
  if (!communicator.at("failure").is_null())
    out += coloured(Colour::bad, "broken:") + " " + communicator["failure"].at("text").get<std::string>() + "\n";
  for (const Json& reader : communicator.at("readers"))
    if (!reader.at("error").is_null() && communicator.at("failure").is_null())
      out += "rank " + reader.at("rank").dump() + " got: " + reader["error"].at("text").get<std::string>() + "\n";
  out += missing_text(communicator);
  for (const Json& host : communicator.value("hosts", Json::array()))
    if (host.at("clock_us") != 0)
      out += "clock of " + host.at("host").get<std::string>() + ": " + clock_text(host) + "\n";
  for (const Json& late : communicator.at("late"))
    for (const Json& rank : ranks)
      if (rank.at("rank") == late) out += coloured(Colour::bad, blame(communicator, rank)) + "\n";
  std::vector<Row> rows{{"rank", "pid", "state", "call", "for", "waits for", "in"}};
  for (const Json& rank : ranks) rows.push_back(row_of(communicator, rank));
  if (communicator.contains("hosts")) {
    rows[0].insert(rows[0].begin() + 1, "host");
    for (size_t i = 1; i < rows.size(); ++i)
      rows[i].insert(rows[i].begin() + 1, ranks.at(i - 1).at("host").get<std::string>());
  } else if (has_other_ranks(communicator)) {
    rows[0].insert(rows[0].begin() + 1, "joined as");
    for (size_t i = 1; i < rows.size(); ++i)
      rows[i].insert(rows[i].begin() + 1, ranks.at(i - 1).value("joined_as", Json()).dump());
  }
  out += table(rows);
  for (const Json& rank : ranks) out += last > 0 ? calls_text(rank, last) : "";
  return out;
}

}  // namespace gsel::cli
