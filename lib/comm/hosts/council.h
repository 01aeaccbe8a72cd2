// comm/hosts/council.h: how hosts agree on a new communicator without using the old one, which may be broken. One rank
// of each host speaks for the ranks of its host. The first host that can be reached has the chair: it hears all others,
// decides, and sends the same decision to all. A rank whose door refuses connections has ended. A rank that only does
// not answer may still live elsewhere, so a minority may not shrink without it.
//
// A decision of a shrink is final: a rank that has received it keeps it (Doors::newest), shows it with each petition,
// and passes it on to ranks that have not received it because the chair ended early. So hosts with and hosts without
// the decision meet again in a council that repeats it. Does not know how ranks of one host agree.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/hosts/doors.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

// The ranks that may speak for a host, in the order of the council.
using Party = std::vector<int32_t>;

// The chair's decision. Has no padding.
struct Decision {
  gsel_status code = GSEL_OK;
  int32_t about = -1;   // a rank of the first communicator
  Generation made;      // of a shrink; for other calls only job, chair and port
  uint32_t is_old = 0;  // an earlier decision, which some ranks have already carried out
  char text[996] = {};  // of a failure
};

struct Council {
  const Roster& roster;  // of the first communicator; errors show the ranks of the communicator that is called
  Doors& doors;
  const Secret& secret;
  std::vector<Party> parties;
  size_t own;  // index of this host's party
  Petition petition;
  std::vector<char> marks;  // a Mark for each rank: first of this host, after hold() of all
  int64_t silence_ns, deadline_ns;
  std::optional<Listener> listener = {};  // after hold(): of the chair
  std::vector<Stream> ties = {};          // after hold(): connections between the chair and the others

  Decision hold();
  // On the rank that spoke, while the decided communicator is made: whether another party has ended or given up.
  // part(): this rank has made the communicator.
  bool is_given_up();
  void part();
  // Latest time of a decision. The chair waits until deadline_ns, the others longer, since each party before them may
  // become the chair.
  int64_t last_ns() const { return deadline_ns + static_cast<int64_t>(parties.size()) * kStepNs; }
  static constexpr int64_t kStepNs = 1'000'000'000;

 private:
  Decision ask_and_decide();
};

}  // namespace gsel::hosts
