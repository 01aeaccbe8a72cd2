// nodes.h: the options of a job that is started separately on each of several hosts. Does not know the ranks.
#pragma once

#include <string>

#include "job.h"

namespace gsel::cli {

// As given; empty: not given.
struct NodeOptions {
  std::string nodes, node_rank, rendezvous, job;
};

// The value of GSEL_JOB_NAME for all ranks of a job; refuses names that cannot be used.
std::string checked_job_name(const std::string& name);
// ranks: on this host, and on each other host.
Nodes nodes_of(const NodeOptions& options, int64_t ranks);

}  // namespace gsel::cli
