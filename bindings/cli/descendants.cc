// descendants.cc: see descendants.h.
#include "descendants.h"

#include <dirent.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

namespace gsel::cli {
namespace {

// The parent's pid from /proc/<pid>/stat. The name before it may contain anything, so parsing starts at the last ')'.
pid_t parent_of(const char* pid) {
  const std::string path = "/proc/" + std::string(pid) + "/stat";
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  char line[512];
  const size_t n = file ? std::fread(line, 1, sizeof line - 1, file.get()) : 0;
  line[n] = '\0';
  const std::string stat = line;
  const auto end = stat.rfind(')');
  int parent = -1;
  return end != stat.npos && std::sscanf(stat.c_str() + end, ") %*c %d", &parent) == 1 ? parent : -1;
}

std::set<pid_t> children() {
  std::set<pid_t> out;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  const pid_t self = getpid();
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr)
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && parent_of(entry->d_name) == self)
      out.insert(static_cast<pid_t>(std::atoi(entry->d_name)));
  return out;
}

}  // namespace

Descendants::Descendants() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  older_ = children();
}

std::vector<pid_t> processes_below() {
  std::map<pid_t, std::vector<pid_t>> children_of;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  while (const dirent* entry = proc ? readdir(proc.get()) : nullptr)
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
      children_of[parent_of(entry->d_name)].push_back(static_cast<pid_t>(std::atoi(entry->d_name)));
  std::vector<pid_t> below = children_of[getpid()];
  for (size_t i = 0; i < below.size(); ++i) {
    const std::vector<pid_t>& more = children_of[below[i]];
    below.insert(below.end(), more.begin(), more.end());
  }
  return below;
}

int Descendants::end_all() {
  int ended = 0;
  // Each round ends one generation: the orphans of killed processes become our children for the next round.
  for (;;) {
    std::set<pid_t> killed;
    for (pid_t pid : children())
      if (!older_.contains(pid) && kill(pid, SIGKILL) == 0) killed.insert(pid);
    if (killed.empty()) return ended;
    for (pid_t pid : killed) {
      int status = 0;
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      // A process that had already ended and was only not reaped yet does not count as left running.
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) ++ended;
    }
  }
}

}  // namespace gsel::cli
