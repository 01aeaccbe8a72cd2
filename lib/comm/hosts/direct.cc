// comm/hosts/direct.cc: allreduces in which each rank sends every range of the elements directly to the rank that
// reduces it on each other host, and nothing comes back. So hosts wait for the network once, while other ways wait for
// results as well; but more bytes are sent. Each host reduces all elements itself, in the order that is asked for.
#include "comm/hosts/lanes.h"

namespace gsel::hosts {

class Direct : Lanes {
 public:
  Direct(HostsBackend& backend, const shm::Call& call, const shm::Plan& plan, const double* factors)
      : Lanes(backend, call, plan, factors, Cut::in_lanes, Passed::inputs) {}

  void run() {
    take_room(roster_.ranks() * lane_bytes_, 0);
    gather_from_all();
    std::vector<const void*> inputs;
    for (size_t q = 0; q < roster_.ranks(); ++q) inputs.push_back(inputs_ + q * lane_bytes_);
    const uint64_t begin = range(host_, own_).begin;
    inputs[static_cast<size_t>(roster_.rank())] = call_.send + begin;
    host::reduce(fold_of(factors_), call_.recv + begin, inputs.data(), static_cast<int>(inputs.size()),
                 lane_bytes_ / call_.element);
    spread();
  }
};

void HostsBackend::reduce_direct(const Call& call, const Plan& plan, const double* factors) {
  Direct(*this, call, plan, factors).run();
}

}  // namespace gsel::hosts
