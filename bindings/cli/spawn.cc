// spawn.cc: see spawn.h. fork and exec rather than posix_spawn, which does not support PR_SET_PDEATHSIG. Between the
// two there are only async-signal-safe calls; a failure is reported through a pipe that exec closes.
#include "spawn.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace gsel::cli {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

[[noreturn]] void give_up(int report) {
  const int number = errno;
  (void)!write(report, &number, sizeof number);
  _exit(127);
}

// dup2 that also clears close-on-exec if both descriptors are the same.
bool place(int from, int to) {
  if (from == to) return fcntl(to, F_SETFD, 0) == 0;
  return dup2(from, to) == to;
}

[[noreturn]] void become(const Spawn& what, char* const* argv, char* const* envp, pid_t parent, int report) {
  setpgid(0, 0);
  // Arms the signal before it checks the parent, so that a parent that died in between is noticed.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(report);
  if (getppid() != parent) _exit(127);
  if (!place(what.in, 0) || !place(what.out, 1) || !place(what.err, 2)) give_up(report);
  struct sigaction fresh {};
  fresh.sa_handler = SIG_DFL;
  sigaction(SIGPIPE, &fresh, nullptr);
  sigprocmask(SIG_SETMASK, &what.signals, nullptr);
  execvpe(argv[0], argv, envp);
  give_up(report);
}

}  // namespace

Spawned spawn(const Spawn& what) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return {-1, errno};
  const std::vector<char*> argv = pointers(what.program), envp = pointers(what.environment);
  const pid_t parent = getpid();
  const PlaceMask mask(what.place);
  const pid_t pid = fork();
  if (pid == 0) {
    close(report[0]);
    mask.apply();
    become(what, argv.data(), envp.data(), parent, report[1]);
  }
  Spawned result{pid, pid < 0 ? errno : 0};
  close(report[1]);
  int number = 0;
  ssize_t n = 0;
  while (pid > 0 && (n = read(report[0], &number, sizeof number)) < 0 && errno == EINTR) {
  }
  close(report[0]);
  if (n == sizeof number) {
    result.error = number;
    while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  return result;
}

}  // namespace gsel::cli
