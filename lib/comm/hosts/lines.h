// comm/hosts/lines.h: the connections between hosts: the first rank of each host has a line to that of the host above
// it in a tree (tree.h). Both ends prove that they know the job's secret and the communicator's id. A host that is not
// directly below the first host asks for the port of the host above it, level by level from the first host. Does not
// know what is sent over the lines.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/secret.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/tree.h"

namespace gsel {
class Error;
}

namespace gsel::hosts {

// Sent on a line's `watch`, followed by `bytes` of text.
struct Notice {
  enum class Kind : uint32_t { beat = 1, broken, leaves };
  Kind kind;
  gsel_status code;
  int32_t about;  // rank of the job; -1: none
  uint32_t bytes;
};
constexpr uint32_t kMostNoticeText = 4096;

// Two connections, so that failures are not delayed by the data of a call.
struct Line {
  Stream calls, watch;
};

// Must be the same on all hosts.
struct Lines {
  const Secret& secret;
  const gsel_unique_id& job;                  // random, unique to this communicator
  Tree tree;                                  // of the hosts
  const std::vector<std::string>& names;      // by host
  const std::vector<std::string>& addresses;  // by host
  uint16_t port;                              // of the first host
  double seconds;                             // timeout
  int64_t deadline_ns;
  std::function<bool()> is_given_up = {};  // whether to stop waiting
};

// The ranks of this host could not join one another: tells the hosts that have a line to it, or will have one shortly,
// and these tell the others. Does not throw.
void report_failure(const Lines& lines, size_t host, const std::optional<Listener>& listener,
                    const Error& error) noexcept;

// The lines of a host, by the host at the other end. listener: of the first host, at the port above. Returns after all
// hosts below have theirs, too.
std::vector<std::optional<Line>> connect_lines(const Lines& lines, size_t host,
                                               const std::optional<Listener>& listener);

}  // namespace gsel::hosts
