// comm/hosts/lines.h: the connections between hosts: the first rank of each host has a line to that of the first host.
// Only who knows the job's secret and which communicator is made can be at the other end. Does not know what goes over
// them.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/secret.h"
#include "comm/hosts/stream.h"

namespace gsel::hosts {

// Two connections, so that what breaks a communicator passes while a call is on its way.
struct Line {
  Stream calls, watch;
};

// What both ends must agree on.
struct Lines {
  const Secret& secret;
  const gsel_unique_id& job;              // random: of this communicator alone
  const std::vector<std::string>& names;  // of the hosts
  double seconds;                         // until when all are to be there,
  int64_t deadline_ns;
  std::function<bool()> is_given_up = {};  // nobody is to be waited for any more
};

// The first host's end; by host, nullopt for the first.
std::vector<std::optional<Line>> accept_lines(const Listener& listener, const Lines& lines);
// Another host's end, to where the first one listens.
Line open_line(const MeetingPlace& centre, int32_t host, const Lines& lines);

}  // namespace gsel::hosts
