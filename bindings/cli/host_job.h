// host_job.h: what `gsel run` starts on one host: here, or through an agent, to which it is sent as one message. Does
// not know: when the job ends.
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
  std::vector<std::string> program = {};    // and its arguments
  std::string folder = {};                  // in which the ranks start; empty: this one
  std::vector<std::string> variables = {};  // NAME=VALUE, put into the environment
  int64_t ranks = 1;                        // on this host
  Nodes nodes = {};
  std::optional<std::string> config = {};
  DeviceWish devices = {};
  std::string pin = "core";
  bool pin_is_given = false, is_verbose = false;
  // for agents
  std::string token = {};  // of the job; empty: its ranks need none
  bool has_input = false;  // rank 0 gets what is on our standard input
  double grace_s = 2;      // between asking ranks to end and killing them, where the launcher has gone
};

std::string encoded(const HostJob& job);
HostJob decoded_host_job(std::string_view bytes);

// Refuses more ranks than this host lets join. `from`: what asked for so many.
void check_limits(int64_t ranks, const std::string& from, bool has_pipes);

// Puts the variables of the job into our own environment, from which the ranks get theirs.
void take_variables(const HostJob& job);

// Finds devices and places on this host. `config`: of the job.
LocalJob prepared(const HostJob& job, const gsel_config* config);
// Where ranks leave recordings of failed calls: as GSEL_TRACE or the config says; empty: nowhere.
std::string trace_folder(const gsel_config* config);
Handle<gsel_config> load_config(const std::optional<std::string>& file);

}  // namespace gsel::cli
