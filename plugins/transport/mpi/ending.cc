// plugins/transport/mpi/ending.cc: see ending.h. MPI_Finalize of MPICH before 4.2 closes the connections of UCX, which
// needs the progress of both sides, and then waits for the other ranks at the process manager without making any. A
// rank whose connections are not closed yet then waits for one that waits for it (pmodels/mpich, pull request 6596).
// Here all ranks wait at the process manager before, making progress, and the wait inside MPI_Finalize is answered at
// once.
#include "ending.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

namespace gsel_mpi {
namespace {

constexpr std::string_view kWait = "cmd=barrier_in\n", kWaited = "cmd=barrier_out\n";

// Of MPICH's own process manager, which answers lines of text; -1: there is none.
int process_manager() {
  const char *fd = secure_getenv("PMI_FD"), *rank = secure_getenv("PMI_RANK");
  const bool is_of_slurm = secure_getenv("PMI_JOBID") && !secure_getenv("MPI_LOCALNRANKS");
  if (!fd || !rank || is_of_slurm) return -1;
  const int number = atoi(fd);
  return fcntl(number, F_GETFD) >= 0 ? number : -1;
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
  for (char byte = 0; read(fd, &byte, 1) == 1;) {
    line += byte;
    if (byte == '\n') break;
  }
  return line;
}

void wait_for_all(const Library& mpi, int manager) {
  if (!say(manager, kWait)) return;
  for (int is_there = 0;;) {
    pollfd answer{manager, POLLIN, 0};
    if (poll(&answer, 1, 1) != 0) break;
    mpi.MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi.world, &is_there, MPI_STATUS_IGNORE);
  }
  line_from(manager);
}

// In the place of the process manager's connection while it exists: answers waits, and passes everything else on.
class Between {
 public:
  explicit Between(int manager) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_) != 0) return;
    manager_ = fcntl(manager, F_DUPFD_CLOEXEC, 0);
    if (manager_ < 0 || dup2(ends_[1], manager) < 0) return;
    close(ends_[1]);
    thread_ = std::thread([this] { run(); });
  }
  Between(const Between&) = delete;
  Between& operator=(const Between&) = delete;
  // MPI has closed its side.
  ~Between() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() const {
    for (std::string line; !(line = line_from(ends_[0])).empty();)
      if (line == kWait)
        say(ends_[0], kWaited);
      else if (!say(manager_, line) || !say(ends_[0], line_from(manager_)))
        return;
  }

  int ends_[2] = {-1, -1}, manager_ = -1;
  std::thread thread_;
};

}  // namespace

void end(const Library& mpi) {
  const int manager = needs_progress(mpi) ? process_manager() : -1;
  if (manager < 0) {
    mpi.MPI_Finalize();
    return;
  }
  wait_for_all(mpi, manager);
  const Between between(manager);
  mpi.MPI_Finalize();
}

}  // namespace gsel_mpi
