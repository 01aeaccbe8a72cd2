// comm/hosts/shrinking.h: how the living ranks make a smaller communicator over several hosts from one that may be
// broken. If ranks die meanwhile, the others begin another round without them.
//
// A round: the ranks of a host agree on which of them live (shm/regroup), and exchange the newest generation that they
// know. One of them takes part in an agreement of the hosts (agreement.h), which decides on the next generation, and
// sends the decision to the others. Then all make the communicator. A death can end a round on some ranks and not on
// others, so that only some know the new generation. They show it in the next round, on their host and in the
// agreement, and all continue from it. A rank that already has the new communicator finds it broken, and joins the next
// round by shrinking it.
#pragma once

#include <memory>
#include <vector>

#include "comm/hosts/agreement.h"
#include "comm/hosts/hosts_control.h"
#include "comm/interface/control.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {

class Shrinking {
 public:
  // left_out: as ranks of the first generation.
  Shrinking(std::shared_ptr<const Origin> from, int64_t begun_ns, const std::vector<int32_t>& left_out);
  // local: communicator of the living ranks of this host.
  std::unique_ptr<Control> run(std::unique_ptr<shm::Endpoint> local);

 private:
  void meet_here(shm::Endpoint& local);
  Agreement hosts_agreement() const;
  void learn(const Members& members);
  bool is_whole_here() const;
  std::unique_ptr<Control> make(Agreement& agreement, std::unique_ptr<shm::Endpoint> local);

  const std::shared_ptr<const Origin> from_;
  const int64_t end_ns_;  // no round begins later
  const std::vector<int32_t> left_out_;
  std::vector<int32_t> here_;  // living ranks of this host, as ranks of the first generation
  Members newest_;
};

}  // namespace gsel::hosts
