// nodes.cc: see nodes.h.
#include "nodes.h"

#include <algorithm>
#include <cstdlib>

#include "client.h"
#include "usage.h"

namespace gsel::cli {
namespace {

constexpr int64_t kMostNodesOfJob = 65536;
constexpr size_t kMostJobName = 64;

}  // namespace

std::string checked_job_name(const std::string& name) {
  if (name.size() > kMostJobName || !std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; }))
    refuse(GSEL_ERR_ARG, "--job " + name + ": at most " + std::to_string(kMostJobName) +
                             " of printable ASCII and no blank are needed");
  return name;
}

Nodes nodes_of(const NodeOptions& options, int64_t ranks) {
  Nodes nodes;
  if (!options.nodes.empty()) nodes.count = whole_number("--nodes", options.nodes);
  if (!options.node_rank.empty()) nodes.rank = whole_number("--node-rank", options.node_rank);
  nodes.rendezvous = options.rendezvous;
  nodes.job = checked_job_name(options.job);
  if (nodes.count < 1 || nodes.count > kMostNodesOfJob)
    refuse(GSEL_ERR_ARG, "--nodes " + options.nodes + ": 1 to " + std::to_string(kMostNodesOfJob) + " are needed");
  const std::string option = "--nodes " + std::to_string(nodes.count);
  if (options.node_rank.empty() && nodes.count > 1)
    refuse(GSEL_ERR_ARG, option + " needs --node-rank as well, another number on each host");
  if (nodes.rank < 0 || nodes.rank >= nodes.count)
    refuse(GSEL_ERR_ARG, "--node-rank " + options.node_rank + " with " + option + ": 0 to " +
                             std::to_string(nodes.count - 1) + " are needed");
  nodes.first_rank = nodes.rank * ranks;
  nodes.world_size = nodes.count * ranks;
  if (nodes.count == 1) return nodes;
  if (nodes.rendezvous.empty())
    refuse(GSEL_ERR_ARG, option +
                             " needs --rendezvous tcp://HOST:PORT, an address of node 0 and a free port there, or "
                             "file://PATH in a folder that all see");
  if (nodes.rendezvous == "env://")
    refuse(GSEL_ERR_ARG, option + " --rendezvous env://: this command is the launcher, and says where; name a place");
  if (nodes.rendezvous.compare(0, 7, "file://") == 0) return nodes;  // rank 0 writes a token to the file
  if (const char* token = std::getenv("GSEL_TOKEN_FILE"); !token || !*token)
    refuse(GSEL_ERR_CONFIG, option +
                                ": GSEL_TOKEN_FILE is not set; name a file with mode 600 that has the same 16 to "
                                "4096 bytes on every host, without which anybody could join");
  return nodes;
}

}  // namespace gsel::cli
