// host_job.h: the part of a job that `gsel run` starts on one host: on this one, or through an agent, which gets it as
// one message. Does not know when the job ends.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job.h"
#include "job_devices.h"
#include "local_ranks.h"

namespace gsel::cli {

struct HostJob {
  std::vector<std::string> program = {};    // with its arguments
  std::string folder = {};                  // working directory of the ranks; empty: the current one
  std::vector<std::string> variables = {};  // NAME=VALUE, added to the environment
  int64_t ranks = 1;                        // on this host
  Nodes nodes = {};
  std::optional<std::string> config = {};
  DeviceWish devices = {};
  std::string pin = "core";
  bool pin_is_given = false, is_verbose = false;
  // for agents
  std::string token = {};  // of the job; empty: not needed
  bool has_input = false;  // rank 0 gets our standard input
  double grace_s = 2;      // from SIGTERM to SIGKILL when the launcher is gone
};

std::string encoded(const HostJob& job);
HostJob decoded_host_job(std::string_view bytes);

// Refuses more ranks than can join on this host. `from`: the option that asks for them.
void check_limits(int64_t ranks, const std::string& from, bool has_pipes);

// Adds the variables of the job to our own environment, which the ranks inherit.
void take_variables(const HostJob& job);

// Finds devices and places on this host. `config`: of the job.
LocalJob prepared(const HostJob& job, const gsel_config* config);
// The folder for recordings of failed calls, from GSEL_TRACE or the config; empty: none.
std::string trace_folder(const gsel_config* config);
Handle<gsel_config> load_config(const std::optional<std::string>& file);

}  // namespace gsel::cli
