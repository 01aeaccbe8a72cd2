// nodes.h: the options that say that a job has ranks on several hosts, on each of which it is started. Does not know
// what the ranks are.
#pragma once

#include <string>

#include "job.h"

namespace gsel::cli {

// As given; empty: not.
struct NodeOptions {
  std::string nodes, node_rank, rendezvous, job;
};

// What all ranks of a job find in GSEL_JOB_NAME; refused, where they cannot.
std::string checked_job_name(const std::string& name);
// ranks: of this host, and of each other one.
Nodes nodes_of(const NodeOptions& options, int64_t ranks);

}  // namespace gsel::cli
