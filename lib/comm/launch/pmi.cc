// comm/launch/pmi.cc: see pmi.h.
#include "comm/launch/pmi.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/os.h"
#include "base/text.h"
#include "comm/launch/launcher.h"

namespace gsel::pmi {
namespace {

constexpr size_t kMostLine = 4096;
constexpr int64_t kJobNameNs = 10'000'000'000;

std::atomic<bool> has_begun{false};

bool is_of_slurm() {
  return variable("PMI_JOBID") && !variable("MPI_LOCALNRANKS");  // mpiexec under srun inherits PMI_JOBID
}

int milliseconds_left(int64_t deadline_ns) {
  return static_cast<int>(std::clamp<int64_t>((deadline_ns - os::now_ns()) / 1'000'000 + 1, 0, 60'000));
}

std::string ask_job_name() {
  const Manager manager(number_of_variable("PMI_FD", 0), "the process manager at PMI_FD");
  if (!manager.is_socket()) return {};  // the program has called MPI_Finalize
  try {
    return manager.space(os::now_ns() + kJobNameNs);
  } catch (const Error& error) {
    log(GSEL_LOG_WARN, "comm", "the job has no name: {}; jobs at one place are told apart by GSEL_JOB_NAME",
        error.message());
    return {};
  }
}

}  // namespace

bool Manager::is_socket() const {
  int family = 0;
  socklen_t length = sizeof family;
  return getsockopt(fd_, SOL_SOCKET, SO_DOMAIN, &family, &length) == 0 && family == AF_UNIX;
}

std::string Manager::begin(int64_t deadline_ns) const {
  if (!is_socket())
    fail(GSEL_ERR_CONFIG,
         "ranks are to meet by {}, which is not the socket of a process manager; start them by mpiexec, before the "
         "MPI is finalized, or set GSEL_RENDEZVOUS",
         name_);
  has_begun = true;
  ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", deadline_ns);
  return space(deadline_ns);
}

std::string Manager::space(int64_t deadline_ns) const {
  return value_of(ask("cmd=get_my_kvsname", "my_kvsname", deadline_ns), "kvsname");
}

std::string Manager::ask(const std::string& question, const std::string& expected, int64_t deadline_ns) const {
  const std::string line = question + "\n";
  if (::send(fd_, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    fail(GSEL_ERR_IO, "{} cannot be asked for {}: {}", name_, question.substr(4), errno_text(errno));
  const std::string reply = answer(question, deadline_ns);
  const std::string rc = value_of(reply, "rc");
  if (value_of(reply, "cmd") != expected || (!rc.empty() && rc != "0"))
    fail(GSEL_ERR_IO, "{} answers {} to {}", name_, in_quotes(reply), in_quotes(question));
  return reply;
}

// Reads byte by byte, since the next line may be for an MPI in this process.
std::string Manager::answer(const std::string& question, int64_t deadline_ns) const {
  std::string line;
  while (line.size() < kMostLine) {
    char byte = 0;
    const ssize_t got = recv(fd_, &byte, 1, MSG_DONTWAIT);
    if (got == 1 && byte == '\n') return line;
    if (got == 1) {
      line += byte;
      continue;
    }
    if (got == 0) fail(GSEL_ERR_PEER, "{} has gone", name_);
    if (errno != EAGAIN && errno != EINTR) fail(GSEL_ERR_IO, "{}: {}", name_, errno_text(errno));
    pollfd item = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (os::now_ns() >= deadline_ns)
      fail(GSEL_ERR_TIMEOUT, "timed out: {} does not answer {}; some ranks have not come to gsel_comm_init", name_,
           in_quotes(question));
    poll(&item, 1, milliseconds_left(deadline_ns));
  }
  fail(GSEL_ERR_IO, "{} sends more than one line", name_);
}

std::string value_of(const std::string& line, const std::string& name) {
  const size_t at = (" " + line).find(" " + name + "=");
  if (at == line.npos) return {};
  const size_t begin = at + name.size() + 1;
  return line.substr(begin, line.find(' ', begin) - begin);
}

std::string job_name() {
  if (is_of_slurm()) return variable("PMI_JOBID");
  if (!variable("PMI_RANK") || !variable("PMI_FD")) return {};
  static std::mutex mutex;
  static std::string name;  // also after MPI_Finalize
  const std::lock_guard lock(mutex);
  if (name.empty()) name = ask_job_name();
  return name;
}

bool is_taken_from_mpi() {
  return has_begun && is_of_slurm();
}

}  // namespace gsel::pmi
