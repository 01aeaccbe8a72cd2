// job.h: what the ranks of a job find in their environments, and where on this host they run. Does not know: what
// they run, and on which devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gsel::cli {

constexpr int64_t kMaxRanks = 256;  // as many as shared memory joins

using Environment = std::map<std::string, std::string>;

std::string own_path();  // of this command
Environment own_environment();
// This host among those of the job. rendezvous: where their ranks meet, "tcp://a:1"; empty where this host has all.
// job: its name, which no other job at that place has; may be empty.
struct Nodes {
  int64_t count = 1, rank = 0;
  int64_t first_rank = 0, world_size = 0;  // of this host, and of all; 0: that of this host
  std::string rendezvous = {}, job = {};
};
// What all ranks of one job share; `from` ours. ranks: on this host.
Environment job_environment(int64_t ranks, const Nodes& nodes = {});
// local: of this host's.
void add_rank(Environment& environment, int64_t local, int64_t first_rank = 0);
std::vector<std::string> lines(const Environment& environment);

// A core or hardware thread for each rank, near each other: distinct cores, then the second threads of these. Empty
// when there are fewer than ranks that this process may use, or only one rank.
struct Place {
  std::vector<int> processors;  // as the kernel numbers them
};
std::vector<Place> place_ranks(int64_t ranks);
std::string place_text(const Place& place);  // "processor 3", "processors 3 and 67"

// A place as the kernel takes it, made beforehand, so that a forked child can apply it.
class PlaceMask {
 public:
  explicit PlaceMask(const Place& place);
  // The calling thread from now on; a failure is of no consequence.
  void apply() const;

 private:
  std::vector<unsigned long> words_;
};

}  // namespace gsel::cli
