// comm/launch/launcher.h: what launchers tell a rank through its environment: its number, how many there are, which of
// them are on this host, and where those of several hosts can meet. The only place that knows the variables of
// launchers. Does not know how ranks then communicate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace gsel {

struct Convention {
  const char* rank;
  const char* size;
  const char* local[3];    // number of ranks on this host, where the launcher tells
  const char* job[4];      // what the ranks of one launch share
  const char* local_rank;  // this rank's number on this host
};

struct World {
  const Convention* convention = nullptr;
  int32_t rank = 0;
  int32_t size = 1;
};

// nullptr where it is absent or empty.
const char* variable(const char* name);
// A whole number; GSEL_ERR_CONFIG about the variable, which is there.
int32_t number_of_variable(const char* name, int32_t least);
Error about_variable(const char* name, std::string message);

// The first complete set of variables counts. A set that is begun but incomplete, or a value that is no number, is an
// error. It never means a communicator of one rank, since half of a launched job must not train half a model.
// need_job: ranks of one host find each other by what the launcher says of the job.
World world_of_environment(bool need_job);

// "RANK=3\nWORLD_SIZE=4\n..." of what the ranks of one launch share; empty where the launcher says nothing.
std::string job_variables(const Convention& convention);
// The same of whichever launcher there is.
std::string job_variables();
// "SLURM_JOB_ID=7, SLURM_STEP_ID=0": of the variables of whichever launcher there is those that no other job has, alike
// on all hosts; empty where it says nothing.
std::string job_identity();
// RANK, where gsel run or torchrun sets it.
const char* rank_of_torchrun();

// Which variable says that the ranks are on several hosts, and how: "LOCAL_WORLD_SIZE=2 of 4 ranks are on this host";
// nullopt where they are on one, or nothing says so.
std::optional<std::string> why_several_hosts(const World& world);
// Whether a variable says that all ranks are on this host.
bool is_on_one_host(const World& world);

// What "env://" stands for: a place as gsel_comm_options.rendezvous takes it, or "torchrun://HOST:PORT", the store of
// torchrun's agent, or "pmi://FD" or "pmix://JOB", the process manager's. source: the variables that say so.
// GSEL_ERR_CONFIG where the launcher does not tell. launcher_place.cc
struct LaunchPlace {
  std::string text;
  const char* source;
};
LaunchPlace place_of_launcher(const World& world);

}  // namespace gsel
