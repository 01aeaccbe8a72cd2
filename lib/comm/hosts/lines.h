// comm/hosts/lines.h: the connections between hosts: the first rank of each host has a line to that of the host above
// it in a tree (tree.h). Only who knows the job's secret and which communicator is made can be at the other end. A host
// whose neighbour above is not the first host asks its way down from there. Does not know what goes over the lines.
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

namespace gsel::hosts {

// Two connections, so that what breaks a communicator passes while a call is on its way.
struct Line {
  Stream calls, watch;
};

// What all ends must agree on.
struct Lines {
  const Secret& secret;
  const gsel_unique_id& job;                  // random: of this communicator alone
  Tree tree;                                  // of the hosts,
  const std::vector<std::string>& names;      // their names
  const std::vector<std::string>& addresses;  // and where the others reach them
  uint16_t port;                              // of the first host
  double seconds;                             // until when all are to be there,
  int64_t deadline_ns;
  std::function<bool()> is_given_up = {};  // nobody is to be waited for any more
};

// The lines of a host, by the host at the other end. listener: the first host's, at the port above. Returns once all
// hosts below have theirs, too.
std::vector<std::optional<Line>> connect_lines(const Lines& lines, size_t host,
                                               const std::optional<Listener>& listener);

}  // namespace gsel::hosts
