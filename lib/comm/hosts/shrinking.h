// comm/hosts/shrinking.h: how the ranks that live make a smaller communicator over several hosts of one that may be
// broken. Ranks may die at any moment of it: then the others begin again, without them.
//
// A round: the ranks of a host agree on who of them is there (shm/regroup), and tell each other the newest generation
// that one of them knows. One of them speaks in a council of the hosts (council.h), which decides on the next
// generation, and tells the others. Then all make it. A death can end a round on some ranks and not on others, so that
// some know a generation which others do not; who knows it shows it in the next round, to its host and in the council,
// and all go on from there. A rank that has the new communicator already hears that it is broken, and joins that round
// when it shrinks it.
#pragma once

#include <memory>
#include <vector>

#include "comm/hosts/council.h"
#include "comm/hosts/hosts_control.h"
#include "comm/interface/control.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {

class Shrinking {
 public:
  // left_out: ranks of the first generation.
  Shrinking(std::shared_ptr<const Origin> from, int64_t begun_ns, const std::vector<int32_t>& left_out);
  // local: of the ranks of this host that live.
  std::unique_ptr<Control> run(std::unique_ptr<shm::Endpoint> local);

 private:
  void meet_here(shm::Endpoint& local);
  Council hosts_council() const;
  void learn(const Members& members);
  bool is_whole_here() const;
  std::unique_ptr<Control> make(Council& council, std::unique_ptr<shm::Endpoint> local);

  const std::shared_ptr<const Origin> from_;
  const int64_t end_ns_;  // after which no round begins
  const std::vector<int32_t> left_out_;
  std::vector<int32_t> here_;  // that come, as ranks of the first generation
  Members newest_;
};

}  // namespace gsel::hosts
