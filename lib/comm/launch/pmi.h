// comm/launch/pmi.h: a process manager with PMI-1 (MPICH's mpiexec, srun), whose socket every rank has inherited. The
// protocol is lines. An MPI in this process uses the same socket, before or after this, so PMI is not finalised here:
// that closes the socket. Source: MPICH, src/pmi/simple/simple_pmi.c, and answers of mpiexec.hydra 4.0.2.
#pragma once

#include <cstdint>
#include <string>

namespace gsel::pmi {

class Manager {
 public:
  // name: for errors.
  Manager(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  // Whether the descriptor may be a process manager's.
  bool is_socket() const;
  // Initialises PMI and returns space(). GSEL_ERR_CONFIG if this is no process manager.
  std::string begin(int64_t deadline_ns) const;
  // The name of the job's key-value space, which no other job has. Answered without PMI's initialisation, after which a
  // process that ends without PMI's finalisation counts as failed.
  std::string space(int64_t deadline_ns) const;
  // The answer to a command; expected: the command in it.
  std::string ask(const std::string& question, const std::string& expected, int64_t deadline_ns) const;
  const std::string& name() const { return name_; }

 private:
  std::string answer(const std::string& question, int64_t deadline_ns) const;
  const int fd_;
  const std::string name_;
};

// "cmd=put key=a", "key": "a"; empty: the line has none.
std::string value_of(const std::string& line, const std::string& name);

// What tells this process manager's job from all others; empty: there is no process manager, or it does not tell.
std::string job_name();

// Whether begin() has left no PMI for an MPI that is not initialised yet: Slurm answers one initialisation of a
// process.
bool is_taken_from_mpi();

}  // namespace gsel::pmi
