// comm/hosts/council.h: how hosts agree on a communicator without the one that it comes from, which may be broken. One
// rank of each host speaks for those that come from there. The first host that can be reached has the chair: it hears
// all others, decides, and tells all the same. Whoever has ended is known by a door that nobody listens at any more;
// who only does not answer may go on elsewhere, so that a part without the majority over those may not shrink.
//
// What a shrink decides is never decided again: whoever has heard it keeps it (Doors::newest), shows it with each
// petition, and has it for those who come later and have not, since the chair ended before it had told all. So hosts
// that are told and hosts that are not meet again in a council about what was decided. Does not know how ranks of one
// host agree.
#pragma once

#include <gsel/comm.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/doors.h"
#include "comm/hosts/roster.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

// The ranks that may speak for a host, in the order of the council.
using Party = std::vector<int32_t>;

// What the chair decides. All bytes are written.
struct Decision {
  gsel_status code = GSEL_OK;
  int32_t about = -1;   // a rank of the first communicator
  Generation made;      // of a shrink; of other calls job, chair and port
  uint32_t is_old = 0;  // that was decided before: who was told made it already
  char text[996] = {};  // of a failure
};

struct Council {
  const Roster& roster;  // of the first communicator; errors show ranks by those of the one that the call is of
  Doors& doors;
  const Secret& secret;
  std::vector<Party> parties;
  size_t own;  // among the parties
  Petition petition;
  std::vector<char> marks;  // Mark of each rank: of those of this host; in the end of all
  int64_t silence_ns, deadline_ns;
  std::optional<Listener> listener = {};  // in the end, of the chair
  std::vector<Stream> ties = {};          // in the end: between the chair and those whom it has told

  Decision hold();
  // While what was decided is made, on the rank that spoke: somebody else has ended or has given it up. part: not so
  // this rank, which has made it.
  bool is_given_up();
  void part();
  // By when a decision has come, or never does. Whoever has the chair waits until deadline_ns, the others longer, since
  // each of those in front of them may get it.
  int64_t last_ns() const { return deadline_ns + static_cast<int64_t>(parties.size()) * kStepNs; }
  static constexpr int64_t kStepNs = 1'000'000'000;

 private:
  Decision ask_and_decide();
};

}  // namespace gsel::hosts
