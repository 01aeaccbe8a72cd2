// comm/hosts/pmi_store.cc: an address store in the key-value store of a process manager with PMI-1 (MPICH's mpiexec,
// srun). The protocol is lines over a socket that every rank has inherited; values can be read after a barrier of all
// ranks. An MPI in this process uses the same socket, before or after this, so PMI is not finalised here: that closes
// the socket. Source: MPICH, src/pmi/simple/simple_pmi.c, and answers of mpiexec.hydra 4.0.2.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>

#include "base/error.h"
#include "base/text.h"
#include "comm/hosts/address_store.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {
namespace {

constexpr size_t kMostLine = 4096;

class PmiStore : public AddressStore {
 public:
  explicit PmiStore(const MeetingPlace& place) : place_(place), key_(next_key()) {}

  bool asks_all() const override { return true; }

  void post(const Endpoint& endpoint, int64_t deadline_ns) override {
    deadline_ns_ = deadline_ns;
    const std::string space = begin();
    ask(fmt::format("cmd=put kvsname={} key={} value={}", space, key_, endpoint_text(endpoint)), "put_result");
    ask("cmd=barrier_in", "barrier_out");
  }

  std::vector<Endpoint> read(int64_t deadline_ns, std::string*) override {
    if (came_) return {*came_};
    deadline_ns_ = deadline_ns;
    const std::string space = begin();
    ask("cmd=barrier_in", "barrier_out");
    const std::string said = ask(fmt::format("cmd=get kvsname={} key={}", space, key_), "get_result");
    came_ = parse_endpoint(value_of(said, "value"));
    if (!came_) fail(GSEL_ERR_VERSION, "the entry of rank 0 in {} is from another version of gsel", place_.text);
    return {*came_};
  }

 private:
  // A key can be put once.
  static std::string next_key() {
    static std::atomic<int> count{0};
    return fmt::format("gsel-meet-{}", count++);
  }

  std::string begin() {
    int family = 0;
    socklen_t length = sizeof family;
    if (getsockopt(place_.fd, SOL_SOCKET, SO_DOMAIN, &family, &length) != 0 || family != AF_UNIX)
      fail(GSEL_ERR_CONFIG,
           "ranks are to meet by {}, which is not the socket of a process manager; start them by mpiexec, before the "
           "MPI "
           "is finalized, or set GSEL_RENDEZVOUS",
           place_.text);
    ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
    return value_of(ask("cmd=get_my_kvsname", "my_kvsname"), "kvsname");
  }

  static std::string value_of(const std::string& line, const std::string& name) {
    const size_t at = (" " + line).find(" " + name + "=");
    if (at == line.npos) return {};
    const size_t begin = at + name.size() + 1;
    return line.substr(begin, line.find(' ', begin) - begin);
  }

  std::string ask(const std::string& question, const std::string& expected) {
    const std::string line = question + "\n";
    if (::send(place_.fd, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
      fail(GSEL_ERR_IO, "{} cannot be asked for {}: {}", place_.text, question.substr(4), errno_text(errno));
    const std::string said = answer(question);
    const std::string rc = value_of(said, "rc");
    if (value_of(said, "cmd") != expected || (!rc.empty() && rc != "0"))
      fail(GSEL_ERR_IO, "{} answers {} to {}", place_.text, in_quotes(said), in_quotes(question));
    return said;
  }

  // Reads byte by byte, since the next line may be for an MPI in this process.
  std::string answer(const std::string& question) {
    std::string line;
    while (line.size() < kMostLine) {
      char byte = 0;
      const ssize_t got = recv(place_.fd, &byte, 1, MSG_DONTWAIT);
      if (got == 1 && byte == '\n') return line;
      if (got == 1) {
        line += byte;
        continue;
      }
      if (got == 0) fail(GSEL_ERR_PEER, "{} has gone", place_.text);
      if (errno != EAGAIN && errno != EINTR) fail(GSEL_ERR_IO, "{}: {}", place_.text, errno_text(errno));
      pollfd item = {.fd = place_.fd, .events = POLLIN, .revents = 0};
      if (os::now_ns() >= deadline_ns_)
        fail(GSEL_ERR_TIMEOUT, "timed out: {} does not answer {}; some ranks have not come to gsel_comm_init",
             place_.text, in_quotes(question));
      poll(&item, 1, milliseconds_until(deadline_ns_));
    }
    fail(GSEL_ERR_IO, "{} sends more than one line", place_.text);
  }

  const MeetingPlace place_;
  const std::string key_;
  int64_t deadline_ns_ = 0;
  std::optional<Endpoint> came_;
};

}  // namespace

std::unique_ptr<AddressStore> pmi_store(const MeetingPlace& place) {
  return std::make_unique<PmiStore>(place);
}

}  // namespace gsel::hosts
