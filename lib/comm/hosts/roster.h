// comm/hosts/roster.h: which ranks of a communicator are on which host. Does not know how they found each other.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/tree.h"

namespace gsel::hosts {

struct HostTable {
  gsel_unique_id job = {};             // random, unique to this communicator
  std::vector<int32_t> host_of;        // by rank
  std::vector<int32_t> shown_ranks;    // by rank, in errors; empty: the ranks themselves
  std::vector<std::string> names;      // by host; hosts are in the order of their first ranks
  std::vector<std::string> addresses;  // by host, for the other hosts
  uint16_t port = 0;                   // of the first host
  uint16_t fanout = kDefaultFanout;    // of the tree of hosts
  int64_t silence_ns = 0;              // time after which a silent host is suspected (failure_notifier.h)
};

// A table, seen from one rank.
class Roster {
 public:
  Roster(HostTable table, int32_t rank);

  const HostTable& table() const { return table_; }
  int32_t rank() const { return rank_; }
  size_t ranks() const { return table_.host_of.size(); }
  size_t hosts() const { return by_host_.size(); }
  Tree tree() const { return {hosts(), table_.fanout}; }
  size_t own_host() const { return host_of(rank_); }
  size_t host_of(int32_t rank) const { return static_cast<size_t>(table_.host_of[static_cast<size_t>(rank)]); }
  const std::vector<int32_t>& on(size_t host) const { return by_host_[host]; }  // ascending
  const std::vector<int32_t>& here() const { return by_host_[own_host()]; }
  bool is_here(int32_t rank) const { return host_of(rank) == own_host(); }
  int32_t local_rank() const { return local_of(rank_); }
  int32_t local_of(int32_t rank) const { return local_[static_cast<size_t>(rank)]; }  // among the ranks of its host
  // Every host has the same number of consecutive ranks, in the order of hosts.
  bool is_in_blocks() const { return is_consecutive_ && sizes_.size() == 1; }
  bool is_consecutive() const { return is_consecutive_; }      // the ranks of every host, however many
  const std::vector<size_t>& sizes() const { return sizes_; }  // different numbers of ranks on a host, ascending
  bool leads() const { return local_rank() == 0; }             // is the first rank of its host
  int32_t shown(int32_t rank) const {
    return table_.shown_ranks.empty() ? rank : table_.shown_ranks[static_cast<size_t>(rank)];
  }
  std::vector<int32_t> shown_on(size_t host) const;
  std::string named(int32_t rank) const;     // "rank 3 on node2"
  std::string host_text(size_t host) const;  // "node2 (ranks 2 and 3)"

 private:
  HostTable table_;
  int32_t rank_;
  std::vector<std::vector<int32_t>> by_host_;
  std::vector<int32_t> local_;
  std::vector<size_t> sizes_;
  bool is_consecutive_ = true;
};

// The table of some of the ranks, in this order; without job, port and shown_ranks.
HostTable table_of(const Roster& roster, const std::vector<int32_t>& members);

// The table's wire format: host_of, names and addresses. Ranks placed regularly, and names and addresses that count up,
// take the same bytes for a thousand hosts as for two; others take some bytes each. table_code.cc
std::vector<char> encode_table(const HostTable& table);
std::optional<HostTable> decode_table(const std::vector<char>& code, size_t ranks);  // nullopt: invalid

// "rank 3", "ranks 0, 2 and 5 to 7".
std::string ranks_text(const std::vector<int32_t>& ranks);

}  // namespace gsel::hosts
