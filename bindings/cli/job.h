// job.h: the environments of a job's ranks, and their places on this host. Does not know the program of the ranks, or
// their devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gsel::cli {

constexpr int64_t kMaxRanks = 256;  // most ranks that can join through shared memory

using Environment = std::map<std::string, std::string>;

std::string own_path();  // of this command
Environment own_environment();
// The position of this host in its job. rendezvous: where the ranks meet, "tcp://a:1"; empty if all ranks are on this
// host. job: its name, unique at that rendezvous; may be empty.
struct Nodes {
  int64_t count = 1, rank = 0;
  int64_t first_rank = 0, world_size = 0;  // of this host, and of all hosts; 0: same as this host
  std::string rendezvous = {}, job = {};
};
// The environment that all ranks of a job share, based on our own. ranks: on this host.
Environment job_environment(int64_t ranks, const Nodes& nodes = {});
// local: the rank's number on this host.
void add_rank(Environment& environment, int64_t local, int64_t first_rank = 0);
std::vector<std::string> lines(const Environment& environment);

// A core or hardware thread for each rank, near each other: distinct cores first, then second threads. Empty if this
// process may use fewer than there are ranks, or if there is one rank.
struct Place {
  std::vector<int> processors;  // numbered as in the kernel
};
std::vector<Place> place_ranks(int64_t ranks);
std::string place_text(const Place& place);  // "processor 3", "processors 3 and 67"

// A place in the kernel's form, made in advance so that a forked child can apply it.
class PlaceMask {
 public:
  explicit PlaceMask(const Place& place);
  // Binds the calling thread; failures are ignored.
  void apply() const;

 private:
  std::vector<unsigned long> words_;
};

}  // namespace gsel::cli
