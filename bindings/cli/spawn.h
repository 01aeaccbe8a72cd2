// spawn.h: starts a process with its own process group and environment, which ends with this process at the latest.
// Does not know ranks.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "job.h"

namespace gsel::cli {

struct Spawn {
  std::vector<std::string> program;      // looked up on PATH when it has no '/'
  std::vector<std::string> environment;  // NAME=VALUE
  int in = 0, out = 1, err = 2;          // the process's standard streams
  sigset_t signals;                      // signal mask to start with
  Place place;                           // where to run; empty: anywhere
};

struct Spawned {
  pid_t pid = -1;
  int error = 0;  // errno; 0 if the program runs
};

// Returns when the program runs or has failed to start. Always call from the same thread, which must live as long as
// the children: the kernel ends a child with the thread that started it.
Spawned spawn(const Spawn& what);

}  // namespace gsel::cli
