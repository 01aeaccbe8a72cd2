// comm/hosts/agreement.h: how hosts agree on a new communicator without using the old one, which may be broken. One
// rank of each host speaks for the ranks of its host. The first host that can be reached is the coordinator: it
// receives the requests of all others, decides, and sends the same decision to all. A rank whose listener refuses
// connections has ended. A rank that only does not answer may still live elsewhere, so a minority may not shrink
// without it.
//
// A decision of a shrink is final: a rank that has received it keeps it (RecoveryListener::newest), shows it with each
// request, and passes it on to ranks that have not received it because the coordinator ended early. So hosts with and
// hosts without the decision meet again in an agreement that repeats it. Does not know how ranks of one host agree.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/hosts/recovery_listener.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

// The ranks that may speak for a host, in the order of the agreement.
using Participant = std::vector<int32_t>;

// The coordinator's decision. Has no padding.
struct Decision {
  gsel_status code = GSEL_OK;
  int32_t about = -1;   // a rank of the first communicator
  Generation made;      // of a shrink; for other calls only job, coordinator and port
  uint32_t is_old = 0;  // an earlier decision, which some ranks have already carried out
  char text[996] = {};  // of a failure
};

struct Agreement {
  const Roster& roster;  // of the first communicator; errors show the ranks of the communicator that is called
  RecoveryListener& recovery;
  const Secret& secret;
  std::vector<Participant> participants;
  size_t own;  // index of this host's participant
  HostRequest request;
  std::vector<char> marks;  // a Mark for each rank: first of this host, after reach() of all
  int64_t silence_ns, deadline_ns;
  std::optional<Listener> listener = {};  // after reach(): of the coordinator
  std::vector<Stream> connections = {};   // after reach(): connections between the coordinator and the others

  Decision reach();
  // On the rank that spoke, while the decided communicator is made: whether another participant has ended or given up.
  // finish(): this rank has made the communicator.
  bool is_given_up();
  void finish();
  // Latest time of a decision. The coordinator waits until deadline_ns, the others longer, since each participant
  // before them may become the coordinator.
  int64_t last_ns() const { return deadline_ns + static_cast<int64_t>(participants.size()) * kStepNs; }
  static constexpr int64_t kStepNs = 1'000'000'000;

 private:
  Decision ask_and_decide();
};

}  // namespace gsel::hosts
