// plugins/transport/mpi/ending.cc: see ending.h. MPI_Finalize of MPICH before 4.2 closes the connections of UCX, which
// needs the progress of both sides, and then waits for the other ranks at the process manager without making any. A
// rank whose connections are not closed yet then waits for one that waits for it (pmodels/mpich, pull request 6596).
// Here all ranks wait at the process manager, making progress, and then take leave of it themselves: nobody needs what
// MPI_Finalize would close.
#include "ending.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace gsel_mpi {
namespace {

constexpr std::string_view kWait = "cmd=barrier_in\n", kLeave = "cmd=finalize\n";

// Of MPICH's own process manager, which answers lines of text on a socket; -1: there is none.
int process_manager() {
  const char *fd = secure_getenv("PMI_FD"), *rank = secure_getenv("PMI_RANK");
  const bool is_of_slurm = secure_getenv("PMI_JOBID") && !secure_getenv("MPI_LOCALNRANKS");
  if (!fd || !rank || is_of_slurm) return -1;
  const int number = atoi(fd);
  int domain = 0;
  socklen_t bytes = sizeof domain;
  return getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX ? number : -1;
}

bool needs_progress(const Library& mpi) {
#ifdef OPEN_MPI
  (void)mpi;
  return false;
#else
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int bytes = 0, major = 0, minor = 0;
  if (mpi.MPI_Get_library_version(text, &bytes) != MPI_SUCCESS || !strstr(text, "ch4:ucx")) return false;
  const char* version = strpbrk(text, "0123456789");
  return version && sscanf(version, "%d.%d", &major, &minor) == 2 && (major < 4 || (major == 4 && minor < 2));
#endif
}

bool say(int fd, std::string_view line) {
  return send(fd, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

// A line, or what has come of it when the other side closes.
std::string line_from(int fd) {
  std::string line;
  while (line.empty() || line.back() != '\n') {
    char byte = 0;
    const ssize_t got = read(fd, &byte, 1);
    if (got == 1)
      line += byte;
    else if (got == 0 || errno != EINTR)
      break;
  }
  return line;
}

// False: the process manager is gone. MPI makes progress where a rank looks for a message of its own.
bool wait_for_all(const Library& mpi, int manager) {
  int rank = 0, is_there = 0;
  if (mpi.MPI_Comm_rank(mpi.world, &rank) != MPI_SUCCESS || !say(manager, kWait)) return false;
  for (pollfd answer{manager, POLLIN, 0}; poll(&answer, 1, 1) <= 0;)
    mpi.MPI_Iprobe(rank, MPI_ANY_TAG, mpi.world, &is_there, MPI_STATUS_IGNORE);
  return line_from(manager).starts_with("cmd=barrier_out");
}

// Without it a launcher treats the process as failed.
bool take_leave(int manager) {
  return say(manager, kLeave) && line_from(manager).starts_with("cmd=finalize_ack");
}

}  // namespace

void end(const Library& mpi) {
  const int manager = needs_progress(mpi) ? process_manager() : -1;
  if (manager < 0 || !wait_for_all(mpi, manager) || !take_leave(manager)) mpi.MPI_Finalize();
}

}  // namespace gsel_mpi
