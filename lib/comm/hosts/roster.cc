// comm/hosts/roster.cc: see roster.h.
#include "comm/hosts/roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gsel::hosts {

Roster::Roster(HostTable table, int32_t rank) : table_(std::move(table)), rank_(rank), by_host_(table_.names.size()) {
  for (int32_t q = 0; q < static_cast<int32_t>(table_.host_of.size()); ++q) {
    std::vector<int32_t>& there = by_host_[host_of(q)];
    local_.push_back(static_cast<int32_t>(there.size()));
    there.push_back(q);
  }
  int32_t next = 0;
  for (const auto& there : by_host_) {
    sizes_.push_back(there.size());
    const int32_t begin = std::exchange(next, next + static_cast<int32_t>(there.size()));
    is_consecutive_ = is_consecutive_ && !there.empty() && there.front() == begin && there.back() == next - 1;
  }
  std::ranges::sort(sizes_);
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
}

std::vector<int32_t> Roster::shown_on(size_t host) const {
  std::vector<int32_t> ranks;
  for (const int32_t q : by_host_[host]) ranks.push_back(shown(q));
  return ranks;
}

std::string Roster::named(int32_t rank) const {
  return fmt::format("rank {} on {}", shown(rank), table_.names[host_of(rank)]);
}

std::string Roster::host_text(size_t host) const {
  return fmt::format("{} ({})", table_.names[host], ranks_text(shown_on(host)));
}

std::string ranks_text(const std::vector<int32_t>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i > 2)
      runs.push_back(fmt::format("{} to {}", ranks[i], ranks[end - 1]));
    else
      for (size_t k = i; k < end; ++k) runs.push_back(std::to_string(ranks[k]));
    i = end;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i) text += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i];
  return text;
}

HostTable table_of(const Roster& roster, const std::vector<int32_t>& members) {
  const HostTable& all = roster.table();
  HostTable table;
  table.fanout = all.fanout;
  std::vector<int32_t> number(roster.hosts(), -1);
  for (const int32_t q : members) {
    const size_t host = roster.host_of(q);
    if (number[host] < 0) {
      number[host] = static_cast<int32_t>(table.names.size());
      table.names.push_back(all.names[host]);
      table.addresses.push_back(all.addresses[host]);
    }
    table.host_of.push_back(number[host]);
  }
  return table;
}

}  // namespace gsel::hosts
